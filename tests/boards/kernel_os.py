"""Stands between a node and the system: board files answer as the simulated kernel does."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.plant.errors import KernelError
from bench.plant.tree import SimTree
from governor.boards import node


class Killed(BaseException):
    """The process ends here: nothing after it may count on being run."""


class KernelOs:
    """Routes the accesses of ``governor.boards.node`` below a tree's root to its kernel.

    Attributes:
        writes: (path, text) of each write, in order.
        fail: errno to answer with, by (operation, end of the path).
        stale: How often the end of a path still reads as before the next write to it.
        kill_in: Writes until the process is killed; None for never.
        kill_before: Whether the last of them is killed before it reaches the kernel.
    """

    def __init__(self, tree: SimTree) -> None:
        self.tree, self.kernel = tree, tree.kernel
        self.writes: list[tuple[str, str]] = []
        self.fail: dict[tuple[str, str], int] = {}
        self.stale: dict[str, int] = {}
        self._old: dict[str, bytes] = {}
        self.kill_in: int | None = None
        self.kill_before = False
        self._open: dict[int, str] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in the place of ``os`` in the node module, for one test."""
        names = ("open", "close", "pread", "pwrite", "fstat", "ftruncate", "O_RDWR", "O_RDONLY")
        own = {name: getattr(self, name, getattr(os, name)) for name in names}
        monkeypatch.setattr(node, "os", SimpleNamespace(**own))

    def open(self, path: Path, flags: int) -> int:
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(self.tree.root))
        self._refuse("open", inside)
        if inside not in dict(self.kernel.files()):
            return os.open(path, flags)  # a sensor, or nothing at all
        fd = os.open("/dev/null", os.O_RDWR)
        self._open[fd] = inside
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        os.close(fd)

    def fstat(self, fd: int) -> SimpleNamespace:
        return SimpleNamespace(st_size=4096, st_nlink=1)

    def pread(self, fd: int, size: int, at: int) -> bytes:
        path = self._open.get(fd)
        if path is None:
            return os.pread(fd, size, at)
        self._refuse("read", path)
        end = path.rpartition("/")[2]
        if self.stale.get(end, 0) > 0 and path in self._old:
            self.stale[end] -= 1
            return self._old[path]
        try:
            return self.kernel.read(path).encode()
        except KernelError as exc:
            raise self._held(exc) from exc

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        path = self._open[fd]
        self._refuse("write", path)
        last = self._count_down()
        if last and self.kill_before:
            raise Killed
        self._old[path] = self.kernel.read(path).encode()
        try:
            self.kernel.write(path, data)
        except KernelError as exc:
            raise self._held(exc) from exc
        self.kernel.settle()
        self.tree.sync()
        self.writes.append((path, data.decode().strip()))
        if last:
            raise Killed
        return len(data)

    def _count_down(self) -> bool:
        if self.kill_in is not None:
            self.kill_in -= 1
        return self.kill_in == 0

    def _refuse(self, op: str, path: str) -> None:
        for (what, end), code in self.fail.items():
            if what == op and path.endswith(end):
                raise KernelError(code)

    @staticmethod
    def _held(exc: KernelError) -> KernelError:
        return KernelError(errno.ENODEV) if exc.errno == errno.ENOENT else exc
