"""Finds the clocks of a board, at the start and again for those that appear later."""

from governor.boards import cpu, gpu
from governor.boards.clock import ClockNode
from governor.boards.node import Files
from governor.boards.state import BoardOptions
from governor.errors import BoardError


class ClockFinder:
    """Keeps the clocks found so far.

    Args:
        files: The board's files.
        options: How the clocks are driven.

    Attributes:
        clusters: CPU clocks.
        gpu: GPU clock, or None.
        gpu_folder: Folder of the GPU, even of one whose clock cannot be set.
    """

    def __init__(self, files: Files, options: BoardOptions) -> None:
        self.clusters: list[ClockNode] = []
        self.gpu: ClockNode | None = None
        self.gpu_folder: str | None = None
        self._files = files
        self._cpu_options = options.clock(options.cpu_mode)
        self._gpu_options = options.clock(options.gpu_mode)
        self._refused: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be set and why, one line each."""
        notes = list(self._refused.values())
        if not self.clusters:
            notes.append("no CPU clock can be set: CPU clocks are left to the board")
        if self.gpu is None:
            notes.append("no GPU clock can be set: the GPU is left to the board")
        return tuple(notes)

    def look(self) -> list[ClockNode]:
        """Look once; return the clocks not known before."""
        known = {node.directory for node in self.clusters}
        fresh = [
            node
            for directory in cpu.policies(self._files)
            if directory not in known and (node := self._cluster(directory)) is not None
        ]
        self.clusters = [*self.clusters, *fresh]
        if self.gpu is None:
            self.gpu = self._find_gpu()
            fresh += [self.gpu] if self.gpu is not None else []
        return fresh

    def _cluster(self, directory: str) -> ClockNode | None:
        try:
            node = cpu.find_cluster(self._files, directory, self._cpu_options)
        except BoardError as exc:
            self._refused[directory] = str(exc)
            return None
        self._refused.pop(directory, None)
        return node

    def _find_gpu(self) -> ClockNode | None:
        folder = gpu.find_gpu_folder(self._files)
        if folder is None:
            return None
        self.gpu_folder = folder
        try:
            node = gpu.find_gpu(self._files, folder, self._gpu_options)
        except BoardError as exc:
            self._refused[folder] = str(exc)
            return None
        self._refused.pop(folder, None)
        return node
