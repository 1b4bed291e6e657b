"""One clock that can be asked for: a cpufreq cluster or a devfreq GPU.

Both are the same thing to the governor: a list of clocks, two limits that belong to others, and
either a ``userspace`` governor with a target file or, where that is not offered, a pin of both
limits. Only the thread that owns a clock calls :meth:`ClockNode.set_hz`.
"""

import errno
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from governor.boards.control import Control, PinControl, SpeedControl
from governor.boards.knob import Original, Role, Slot
from governor.boards.node import Files, to_number
from governor.errors import BoardError, SysfsBusyError, SysfsError

if TYPE_CHECKING:  # the journal stands above the boards; they only fill it
    from governor.journal import Journal

Domain = Literal["cpu", "gpu"]
Mode = Literal["auto", "pin", "userspace"]

_UNHELD = "offline, or not acquired"


@dataclass(frozen=True, slots=True)
class ClockFiles:
    """Names of the files of a kind of clock, and what their numbers count.

    Attributes:
        governor: Governor in force.
        governors: Governors offered.
        minimum: Lower limit.
        maximum: Upper limit.
        speed: Target under the ``userspace`` governor.
        shown: Files that show the clock set, best first.
        current: File that shows the clock as the hardware has it.
        table: List of clocks.
        unit_hz: Hz per count.
    """

    governor: str
    governors: str
    minimum: str
    maximum: str
    speed: str
    shown: tuple[str, ...]
    current: str
    table: str
    unit_hz: int


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """How a clock is driven.

    Attributes:
        mode: ``userspace``, ``pin``, or ``auto``: the first where offered, else the second.
        lower_min: Whether the lower limit may be lowered to the end of the list.
        retake: Whether a governor switched by someone else is switched back (at most once a
            second; theirs is what is restored in the end).
        settle_s: Longest wait for a reading to follow a write.
    """

    mode: Mode = "auto"
    lower_min: bool = False
    retake: bool = True
    settle_s: float = 0.012


@dataclass(frozen=True, slots=True)
class Watch:
    """A clock as seen by someone who only looks.

    Attributes:
        governor: Governor in force.
        limits_hz: Lowest and highest clock allowed by others.
        current_hz: Clock in force; None when the device does not tell.
    """

    governor: str
    limits_hz: tuple[int, int]
    current_hz: int | None


class ClockNode:
    """One clock with its own writer thread.

    Attributes:
        name: ``policy0`` ..., ``gpu``.
        domain: ``cpu`` or ``gpu``.
        available_hz: Clocks of the list, ascending.
        last_written_hz: Target of the last :meth:`set_hz`; None before the first.
        cpus: CPUs of a cluster.
        unheld: Why it is not held, while it is not.
    """

    def __init__(
        self,
        files: Files,
        name: str,
        domain: Domain,
        *,
        directory: str,
        names: ClockFiles,
        options: ClockOptions,
        available_hz: tuple[int, ...],
        cpus: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.domain: Domain = domain
        self.available_hz = available_hz
        self._steps = frozenset(available_hz)
        self.cpus = cpus
        self.last_written_hz: int | None = None
        self.unheld = _UNHELD
        self.directory = directory
        self._files = files
        self._names = names
        self._options = options
        self._lock = threading.Lock()
        self._control: Control | None = None
        self._watch_lock = threading.Lock()
        self._watched = {
            file: files.node(f"{directory}/{file}")
            for file in (names.governor, names.minimum, names.maximum, names.current, names.speed)
        }
        self._moves = 0

    # -- the writer's side ----------------------------------------------------------------------

    def set_hz(self, hz: int) -> int:
        """Ask for a clock and wait until it is in force; no write when it already is.

        Args:
            hz: A clock of the list.

        Returns:
            The clock in force afterwards, Hz: lower than asked under a cap.

        Raises:
            LostControlError: Someone else switched the governor.
            SysfsBusyError: The cluster is offline for now, or not acquired.
            SysfsError: The kernel refused.
        """
        with self._lock:
            control = self._control
            if control is None:
                why = f"it is not held: {self.unheld}"
                raise SysfsBusyError("write", self.directory, 0, why=why)
            self._moves += 1
            try:
                shown = control.apply(hz // self._names.unit_hz)
            finally:
                self._moves += 1
            self.last_written_hz = hz
            return self.snap(shown * self._names.unit_hz)

    def acquire(self, journal: "Journal | None") -> None:
        """Save the originals, then take the clock.

        Args:
            journal: Where the originals go before the first write; None in a dry run.

        Raises:
            SysfsError: A file cannot be read or written.
            BoardError: The kernel did not switch to the governor asked for.
            JournalError: The originals cannot be kept.
        """
        with self._lock:
            if self._control is not None:
                return
            originals = self.originals()
            self._check_writable(originals)
            slots = (
                {original.role: Slot.scratch(original) for original in originals}
                if journal is None
                else journal.add(self.name, originals)
            )
            way = SpeedControl if self.uses_speed else PinControl
            control = way(self, self._files, originals, slots)
            self._control = control
            self._moves += 1
            try:
                control.take()
                self.unheld = _UNHELD
            except BoardError:
                self._control = None  # the journal knows what to put back
                control.close()
                raise
            finally:
                self._moves += 1

    def let_go(self) -> None:
        """Forget the clock after its originals were put back (by the journal)."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            self._control = None
            self.last_written_hz = None

    def originals(self) -> tuple[Original, ...]:
        """Read what has to be put back one day, in the order of restoring.

        Raises:
            SysfsError: A file cannot be read, or a limit is no number.
        """
        names = self._names
        governor = self._read(names.governor)
        if not governor:
            raise SysfsBusyError("read", self.directory, 0, why="its CPUs are offline")
        words = tuple(dict.fromkeys((governor, *self._read(names.governors).split())))
        found = [Original("governor", f"{self.directory}/{names.governor}", governor, words)]
        limits: tuple[tuple[Role, str], ...] = (("min", names.minimum), ("max", names.maximum))
        for role, file in limits:
            found.append(Original(role, f"{self.directory}/{file}", str(self._number(file))))
        if self.uses_speed:
            speed = self._read(names.speed) if governor == "userspace" else ""
            text = None if to_number(speed) is None else speed
            found.append(Original("speed", f"{self.directory}/{names.speed}", text))
        return tuple(found)

    # -- what the controls need -----------------------------------------------------------------

    @property
    def uses_speed(self) -> bool:
        """Whether the clock is set through the ``userspace`` governor."""
        if self._options.mode == "pin":
            return False
        offered = self._read(self._names.governors).split()
        if "userspace" in offered:
            return True
        if self._options.mode == "userspace":
            raise BoardError(
                "the userspace governor is not offered",
                where=str(self._watched[self._names.governor].path),
                why=f"only {' '.join(offered) or 'none'}",
                hint='set its mode to "auto" or "pin"',
            )
        return False

    @property
    def files(self) -> ClockFiles:
        """Names of its files."""
        return self._names

    @property
    def options(self) -> ClockOptions:
        """How it is driven."""
        return self._options

    # -- the watcher's side ---------------------------------------------------------------------

    @property
    def acquired(self) -> bool:
        """Whether the clock is ours now."""
        return self._control is not None

    @property
    def wanted_governor(self) -> str | None:
        """Governor that must be in force while the clock is ours; None for any."""
        return "userspace" if isinstance(self._control, SpeedControl) else None

    def watch(self) -> Watch:
        """Look at the clock without touching it; for any thread but the writer's.

        Raises:
            SysfsError: A file cannot be read.
        """
        names, unit = self._names, self._names.unit_hz
        with self._watch_lock:
            governor = self._watched[names.governor].read_name()
            limits = self._limits()
            # Newest kernels average scaling_cur_freq; the userspace target shows the clock set.
            exact = governor == "userspace" and names.speed in names.shown
            try:
                node = self._watched[names.speed if exact else names.current]
                current = self.snap(node.read_int() * unit)
            except SysfsError as exc:
                if exc.code not in (0, errno.ENOENT) or isinstance(exc, SysfsBusyError):
                    raise
                current = None  # some kernels lack the file, or show <unknown>
            return Watch(governor, limits, current)

    def limits_hz(self) -> tuple[int, int]:
        """Tell the lowest and highest clock that others allow now, Hz.

        Raises:
            SysfsError: A file cannot be read.
        """
        with self._watch_lock:
            return self._limits()

    def attainable_hz(self, limits_hz: tuple[int, int]) -> tuple[int, ...]:
        """Cut the list of clocks to limits; never empty, as the kernel always runs at some step."""
        low, high = limits_hz
        if self._options.lower_min and not self.acquired:
            low = min(low, self.available_hz[0])
        inside = tuple(hz for hz in self.available_hz if low <= hz <= high)
        if inside:
            return inside
        below = [hz for hz in self.available_hz if hz <= high]
        return (below[-1] if below else self.available_hz[0],)

    def snap(self, hz: int) -> int:
        """Name a reading by its step: drivers read back up to 1 % beside the list."""
        if hz in self._steps:
            return hz
        nearest = min(self.available_hz, key=lambda step: abs(step - hz))
        return nearest if abs(nearest - hz) * 100 <= nearest else hz

    def _limits(self) -> tuple[int, int]:
        names, unit = self._names, self._names.unit_hz
        for _ in range(8):
            moves, control = self._moves, self._control
            low = self._watched[names.minimum].read_int()
            high = self._watched[names.maximum].read_int()
            if moves % 2 == 0 and moves == self._moves:
                break
            time.sleep(0.001)  # a pin moves the limits itself: look again when it is done
        if control is not None:
            low, high = control.limits(low, high)
        return low * unit, high * unit

    def _check_writable(self, originals: tuple[Original, ...]) -> None:
        for original in originals:
            if original.role == "speed":
                continue  # the GPU's exists only under the governor that is not there yet
            node = self._files.node(original.path, writable=True)
            try:
                node.check_writable()
            finally:
                node.close()

    def _number(self, file: str) -> int:
        node = self._files.node(f"{self.directory}/{file}")
        try:
            return node.read_int()
        finally:
            node.close()

    def _read(self, file: str) -> str:
        node = self._files.node(f"{self.directory}/{file}")
        try:
            return node.read_text()
        finally:
            node.close()
