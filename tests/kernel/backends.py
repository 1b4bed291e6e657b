"""The three things that the table of semantics is checked against."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.plant.board import load_board
from bench.plant.fusetree import FuseFiles
from bench.plant.live import PlainFiles
from bench.plant.machine import Machine
from bench.plant.tree import build_tree
from tests.kernel.semantics import Break, Hold, Read, Step, Write, WriteHeld

CPUFREQ = "sys/devices/system/cpu/cpufreq"
CPU = "sys/devices/system/cpu"
GPU = "sys/class/devfreq/17000000.gpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
COOLING = "sys/class/thermal"
ORINLIKE = Path("/sys/module/orinlike/parameters")
PATIENCE_S = 2.0


class Backend:
    """Files below a root that answer as a kernel does; this one is the real kernel.

    Attributes:
        root: Folder that stands for ``/``.
        clusters: CPUs of the two clusters that the table names ``cpu`` and ``far``.
    """

    clusters: dict[str, tuple[int, ...]] = {"cpu": (0, 1), "far": (2,)}
    refuses = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._held = -1
        self._cooling = {
            "gpu" if "devfreq" in kind else kind.removeprefix("cpufreq-cpu"): folder
            for folder in (root / COOLING).glob("cooling_device*")
            if (kind := (folder / "type").read_text().strip()).startswith(("cpufreq", "devfreq"))
        }

    def path(self, file: str) -> Path:
        """Locate a file of the table."""
        domain, _, name = file.partition(":")
        if name == "cool":
            key = domain if domain == "gpu" else str(self.clusters[domain][0])
            return self._cooling[key] / "cur_state"
        if domain in self.clusters:
            return self.root / CPUFREQ / f"policy{self.clusters[domain][0]}" / name
        return self.root / {"gpu": GPU, "emc": EMC}[domain] / name

    def run(self, steps: tuple[Step, ...]) -> None:
        """Do the steps of a row; AssertionError where the answer is another one."""
        try:
            for step in steps:
                self._step(step)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close the descriptor kept."""
        if self._held >= 0:
            os.close(self._held)
        self._held = -1

    def _step(self, step: Step) -> None:
        if isinstance(step, Read):
            self._read(step)
        elif isinstance(step, Write):
            self._compare(step, self.write(self.path(step.file), step.text), step.errno)
        elif isinstance(step, Hold):
            self._held = os.open(self.path(step.file), os.O_WRONLY)
        elif isinstance(step, WriteHeld):
            self._compare(step, self.write_held(step.text), step.errno)
        elif isinstance(step, Break):
            self.break_hardware(step)
        else:
            for cpu in self.clusters[step.cluster]:
                self.write(self.root / CPU / f"cpu{cpu}" / "online", str(int(step.online)))

    def _compare(self, step: Step, code: int, wanted: int) -> None:
        if not self.refuses and wanted != errno.ENOENT:
            wanted = 0
        assert code == wanted, f"{step}: {errno.errorcode.get(code, code)}"

    def _read(self, step: Read) -> None:
        wanted = step.shows
        if wanted == errno.EBUSY and not self.refuses:
            wanted = ""
        limit = time.monotonic() + PATIENCE_S
        while (shown := self.read(self.path(step.file))) != wanted:
            assert time.monotonic() < limit, f"{step}: it shows {shown!r}"
            self.wait()

    def wait(self) -> None:
        """Give a work item of the kernel its time: limits settle after the write returned."""
        time.sleep(0.001)

    def read(self, path: Path) -> str | int:
        """Read a file: its text, or an errno."""
        try:
            return path.read_text().strip()
        except OSError as error:
            return error.errno or 0

    def write(self, path: Path, text: str) -> int:
        """Write a file in one go; returns the errno."""
        try:
            fd = os.open(path, os.O_WRONLY)
        except OSError as error:
            return error.errno or 0
        try:
            os.write(fd, text.encode())
        except OSError as error:
            return error.errno or 0
        finally:
            os.close(fd)
        return 0

    def write_held(self, text: str) -> int:
        """Write to the descriptor kept; returns the errno."""
        try:
            os.pwrite(self._held, text.encode(), 0)
        except OSError as error:
            return error.errno or 0
        return 0

    def break_hardware(self, step: Break) -> None:
        """Set what the module does."""
        unit, scale = ("khz", 1000) if step.domain == "cpu" else ("hz", 1)
        (ORINLIKE / f"{step.domain}_errno").write_text(str(step.errno))
        (ORINLIKE / f"{step.domain}_cap_{unit}").write_text(str(step.cap_hz // scale))


class Simulated(Backend):
    """The simulated board through FUSE."""

    clusters = {"cpu": (0, 1, 2, 3), "far": (4, 5, 6, 7)}

    def __init__(self, root: Path, machine: Machine) -> None:
        super().__init__(root)
        self.machine = machine

    def break_hardware(self, step: Break) -> None:
        """Set what the simulated hardware does."""
        self.machine.break_hardware(step.domain, step.errno, step.cap_hz, self.now_ns())

    def now_ns(self) -> int:
        """Time of the board."""
        return time.monotonic_ns()


class SimulatedPlain(Simulated):
    """The simulated board as plain files; its process looks after every write."""

    refuses = False

    def __init__(self, root: Path, machine: Machine, files: PlainFiles) -> None:
        super().__init__(root, machine)
        self._files = files
        self._now_ns = 0

    def now_ns(self) -> int:
        """Time of the board: as much as is needed for every clock to follow."""
        self._now_ns += 20_000_000
        return self._now_ns

    def write(self, path: Path, text: str) -> int:
        """Write as a program does that replaces the content of a file."""
        if text.strip():  # semantics.BLANK: a file of blanks counts as emptied, not as written
            code = super().write(path, text)
            if not code:
                os.truncate(path, len(text.encode()))
        else:
            code = 0 if path.exists() else errno.ENOENT
        self.look()
        return code

    def write_held(self, text: str) -> int:
        """Write to the descriptor kept, and look."""
        code = super().write_held(text)
        self.look()
        return code

    def break_hardware(self, step: Break) -> None:
        """Set what the simulated hardware does, and look."""
        super().break_hardware(step)
        self.look()

    def look(self) -> None:
        """Do what the board's process does after a write."""
        self._files.take(self.now_ns())
        self._files.show()
        self.machine.advance(self.now_ns())
        self._files.show()


@contextmanager
def simulated(root: Path, *, fuse: bool) -> Iterator[Backend]:
    """Build a simulated AGX Orin."""
    tree = build_tree(root, load_board("agx-orin"), mode="MAXN")
    if fuse:
        machine = Machine(tree.files, now_ns=time.monotonic_ns())
        shown = FuseFiles(root, machine)
        try:
            yield Simulated(root, machine)
        finally:
            shown.close()
        return
    machine = Machine(tree.files)
    files = PlainFiles(tree, machine)
    try:
        yield SimulatedPlain(root, machine, files)
    finally:
        files.close()
