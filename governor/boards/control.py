"""The two ways to hold a clock: a target under the ``userspace`` governor, or a pin of both limits.

All numbers here are in the unit of the files (kHz for cpufreq, Hz for devfreq).
"""

import errno
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from governor.boards.knob import Knob, Original, Role, Slot
from governor.boards.node import Files, LostControlError, Node
from governor.boards.sensors import thermal_limit_active
from governor.errors import BoardError, SysfsBusyError, SysfsError

if TYPE_CHECKING:
    from governor.boards.clock import ClockNode

_RETAKE_NS = 1_000_000_000
_STEP_S = 0.0004
_SWITCH_S = 0.1
_PLAIN_S = 0.05  # a simulated board is a process: a busy host makes it late


class Control(Protocol):
    """A clock in our hands."""

    def take(self) -> None:
        """Write once what holds for the whole time."""

    def apply(self, raw: int) -> int:
        """Ask for a clock; return the one in force."""

    def limits(self, low: int, high: int) -> tuple[int, int]:
        """Tell others' limits from what the two files read."""

    def close(self) -> None:
        """Close the descriptors."""


class _Base:
    """What both ways share: the knobs, the reading of the clock, the wait for it."""

    def __init__(
        self,
        clock: "ClockNode",
        files: Files,
        originals: tuple[Original, ...],
        slots: Mapping[Role, Slot],
    ) -> None:
        self._clock, self._files = clock, files
        self._knobs = {
            original.role: Knob(files.node(original.path, writable=True), slots[original.role])
            for original in originals
        }
        names = clock.files
        kept = [name for name in names.shown if "speed" in self._knobs or name != names.speed]
        shown = [f"{clock.directory}/{name}" for name in (*kept, names.current)]
        self._shown = files.node(next((path for path in shown if files.exists(path)), shown[-1]))
        self._current = files.node(f"{clock.directory}/{names.current}")
        self._settle_s = clock.options.settle_s
        self._set_up()

    def _set_up(self) -> None:
        """Prepare what one way needs."""

    def _paths(self, names: tuple[str, ...]) -> tuple[Path, ...]:
        return tuple(self._files.root / f"{self._clock.directory}/{name}" for name in names)

    def limits(self, low: int, high: int) -> tuple[int, int]:
        """Both files show others' limits as they are."""
        return low, high

    def close(self) -> None:
        """Close the descriptors."""
        for knob in self._knobs.values():
            knob.node.close()
        self._shown.close()
        self._current.close()

    def _lower_min(self) -> int:
        """Lower the lower limit to the end of the list if the options say so; return it."""
        low, lowest = self._number("min"), self._clock.available_hz[0] // self._clock.files.unit_hz
        if self._clock.options.lower_min and low > lowest:
            return self._knobs["min"].put(lowest)
        return low

    def _number(self, role: Role) -> int:
        return self._knobs[role].node.read_int()

    def _settled(self, raw: int, *, plain: bool) -> int:
        """Wait until the clock reads as asked, or as the limits make of it."""
        shown = self._tells()
        if shown != raw:
            likely = self._likely(raw)
            shown = (
                likely
                if shown is None
                else self._wait(self._shown, shown, {raw, likely}, plain=plain)
            )
        if plain:  # the write came back before the clock moved; a kernel's waits for it
            self._wait(self._current, -1, {shown}, plain=plain)
        return shown

    def _tells(self) -> int | None:
        """Read the clock in force; None from a device that does not tell."""
        try:
            return self._shown.read_int()
        except SysfsError as exc:
            if exc.code not in (0, errno.ENOENT) or isinstance(exc, SysfsBusyError):
                raise
            return None

    def _likely(self, raw: int) -> int:
        """Step that the kernel makes of a wish under the limits that the files show."""
        return self._step(raw, self._number("min"), self._number("max"))

    def _step(self, raw: int, low: int, high: int) -> int:
        """Choose the lowest step of the list at or above a wish and within limits."""
        unit = self._clock.files.unit_hz
        steps = self._clock.attainable_hz((low * unit, high * unit))
        return next((hz for hz in steps if hz >= raw * unit), steps[-1]) // unit

    def _wait(self, node: Node, shown: int, wanted: set[int], *, plain: bool) -> int:
        """Read a file until it shows one of some values, or for as long as is reasonable."""
        until = time.monotonic() + max(self._settle_s, _PLAIN_S if plain else 0)
        while shown not in wanted and time.monotonic() < until:
            try:
                shown = node.read_int()
            except SysfsError as exc:
                if exc.code not in (0, errno.ENOENT) or isinstance(exc, SysfsBusyError):
                    raise
                return shown  # the device does not tell
            if shown not in wanted:
                time.sleep(_STEP_S)
        return shown


class SpeedControl(_Base):
    """Holds a clock with the ``userspace`` governor and its target file."""

    def _set_up(self) -> None:
        names = self._clock.files
        followers = (*names.shown, names.current)
        self._speed = self._knobs["speed"]
        self._speed.node.mirrors = self._paths(followers)
        self._governor = self._knobs["governor"]
        self._wish = self._effective = -1
        self._retaken_ns = -_RETAKE_NS

    def take(self) -> None:
        """Switch the governor once.

        Raises:
            BoardError: The kernel kept the old governor although the write succeeded.
        """
        self._lower_min()
        if self._governor.node.read_name() != "userspace":
            self._switch()

    def apply(self, raw: int) -> int:
        """Ask for a clock; return the one in force."""
        governor = self._governor.node.read_name()
        if governor != "userspace":
            self._lost(governor)
        elif raw == self._wish and self._tells() == self._effective:
            return self._effective
        self._wish = -1  # not known until the write is through
        try:
            self._speed.wish(raw)
        except SysfsError as exc:
            if exc.code not in (errno.EINVAL, errno.ENOENT):
                raise
            if (governor := self._governor.node.read_name()) == "userspace":
                raise
            self._lost(governor)
            self._speed.wish(raw)
        shown = self._effective = self._settled(raw, plain=self._speed.node.plain)
        if shown == raw or shown == self._likely(raw):
            self._wish = raw  # else the driver failed: the same wish is written again
        return shown

    def _lost(self, governor: str) -> None:
        """Take a governor that someone else switched, or leave it to them."""
        now = time.monotonic_ns()
        if not self._clock.options.retake or now - self._retaken_ns < _RETAKE_NS:
            path = str(self._governor.node.path)
            hint = "it is theirs until it reads userspace again"
            raise LostControlError("write", path, 0, why=f"it was set to {governor}", hint=hint)
        self._retaken_ns = now
        self._governor.slot.adopt(governor)
        self._switch()

    def _switch(self) -> None:
        shown = self._governor.put_name("userspace")
        if shown != "userspace":
            raise BoardError(
                "the governor did not change",
                where=str(self._governor.node.path),
                why=f"it still reads {shown}: the driver failed",
                hint="see dmesg",
            )
        self._wish = self._effective = -1
        self._speed.node.close()  # devfreq makes the target anew with each switch
        if self._files.dry_run is not None:
            return
        until = time.monotonic() + _SWITCH_S
        while not self._speed.node.path.exists() and time.monotonic() < until:
            time.sleep(_STEP_S)  # on a simulated board it appears a moment later


class PinControl(_Base):
    """Holds a clock by making both limits the same, never above the upper one found."""

    def _set_up(self) -> None:
        names = self._clock.files
        followers = (*(name for name in names.shown if name != names.speed), names.current)
        self._min, self._max = self._knobs["min"], self._knobs["max"]
        self._max.node.mirrors = self._min.node.mirrors = self._paths(followers)
        self._floor = self._ceiling = 0
        self._pinned = 0
        self._effective = 0
        self._seen = (-1, -1)

    def take(self) -> None:
        """Remember the limits found."""
        self._floor, self._ceiling = self._lower_min(), self._number("max")
        self._seen = (self._number("min"), self._ceiling)

    def apply(self, raw: int) -> int:
        """Ask for a clock; return the one in force."""
        low, high = self._number("min"), self._number("max")
        if (low, high) != self._seen:
            self._foreign(low, high)
        # Always a step: around a pin between two steps the kernel would choose the one above.
        target = self._step(raw, self._floor, self._ceiling)
        # Lower than the target under a thermal cap, which leaves our request in place.
        held = target == self._pinned and low == high <= target
        if not held:
            self._pin(target, up=target > high)
        elif self._tells() in (self._effective, None):
            return self._effective
        self._effective = self._settled(target, plain=self._max.node.plain)
        return self._effective

    def limits(self, low: int, high: int) -> tuple[int, int]:
        """See through our own pin: it hides the limits found, but a lower one of others shows."""
        capped = high < self._pinned or (high > self._pinned and high != self._seen[1])
        ceiling = high if capped else self._ceiling
        return min(self._floor, ceiling), ceiling

    def _pin(self, target: int, *, up: bool) -> None:
        # Old kernels refuse a minimum above the maximum, so the far limit moves first.
        first, second = (self._max, self._min) if up else (self._min, self._max)
        self._pinned = target
        first.put(target)
        second.put(target)
        self._seen = (self._number("min"), self._number("max"))

    def _foreign(self, low: int, high: int) -> None:
        """Learn the limits of another writer before writing over them.

        A reading of ours is none of theirs: limits settle up to 10 ms after a write.
        """
        # A thermal cap only hides our request: the maximum found stays the one to restore.
        hidden = high < self._seen[1] and thermal_limit_active(self._files, self._clock.directory)
        if high != self._seen[1] and not hidden and not self._max.slot.is_ours(str(high)):
            self._ceiling = high
            self._max.slot.adopt(high)
        pushed = low == high  # the new maximum pushed the minimum down
        if low != self._seen[0] and not pushed and not self._min.slot.is_ours(str(low)):
            self._floor = low
            self._min.slot.adopt(low)
        self._seen = (low, high)
