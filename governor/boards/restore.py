"""Putting a clock back as it was found.

A value is put back only where the file still reads as our doing: anything else was written by
someone else meanwhile and is theirs, so that restoring can never lift a power cap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from governor.boards.knob import Knob, Original, Role, Slot
from governor.boards.node import Files
from governor.boards.sensors import thermal_limit_active
from governor.errors import SysfsError


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What became of a restore.

    Attributes:
        restored: ``path: ours -> original`` of each value put back.
        kept: ``path: value`` of each that another writer owns now.
        left: ``path: reason`` of each that could not be put back yet; it stays in the journal.
        notes: Journals that were discarded or kept aside, and why.
        elsewhere: Roots of the boards that journals left alone are of.
    """

    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing of this board is left to put back."""
        return not self.left

    def __add__(self, other: "RestoreReport") -> "RestoreReport":
        """Join two reports."""
        return RestoreReport(
            self.restored + other.restored,
            self.kept + other.kept,
            self.left + other.left,
            self.notes + other.notes,
            self.elsewhere + other.elsewhere,
        )


class _Restorer:
    """Puts the knobs of one clock back: governor, then limits, then the target."""

    def __init__(
        self, files: Files, originals: tuple[Original, ...], slots: Mapping[Role, Slot]
    ) -> None:
        self._files = files
        self._originals = {original.role: original for original in originals}
        self._knobs = {
            original.role: Knob(files.node(original.path, writable=True), slots[original.role])
            for original in originals
        }
        self.restored: list[str] = []
        self.kept: list[str] = []
        self.left: list[str] = []

    def run(self) -> RestoreReport:
        """Put back what is ours; collect failures instead of raising them."""
        self._attempt("governor", lambda: self._put_back("governor"))
        self._attempt("min", self._limits)
        self._attempt("speed", self._target)
        for knob in self._knobs.values():
            knob.node.close()
        return RestoreReport(tuple(self.restored), tuple(self.kept), tuple(self.left))

    def _attempt(self, role: Role, act: Callable[[], None]) -> None:
        if role not in self._knobs:
            return
        try:
            act()
        except SysfsError as exc:
            self.left.append(str(exc))
        except ValueError as exc:  # a path, name or number that only a damaged journal holds
            self.left.append(f"{self._knobs[role].node.path}: cannot be put back: {exc}")

    def _wanted(self, role: Role) -> str | None:
        adopted = self._knobs[role].slot.adopted
        return self._originals[role].text if adopted is None else str(adopted)

    def _due(self, role: Role, *, ceiling: int | None = None) -> bool:
        """Tell whether a knob is ours to put back; note it when it is someone else's."""
        knob, wanted = self._knobs[role], self._wanted(role)
        if wanted is None or not (knob.slot.written or knob.slot.damaged):
            return False
        shown = knob.node.read_name()
        if shown == wanted:
            knob.node.tidy()
            # A thermal cap can make a limit of ours read like the original: write it all the same.
            limit = role in ("min", "max") and knob.slot.written
            return limit and not knob.slot.last_was(wanted)
        if knob.slot.is_ours(shown) or self._pushed_down(knob.slot, shown, ceiling):
            return True
        if knob.slot.damaged:
            why = "the record of what we wrote to it is damaged"
            hint = f"set it by hand (it was found as {wanted}), then run flamegov restore"
            self.left.append(f"{knob.node.path}: reads {shown}: {why}; {hint}")
            return False
        if role == "max" and int(shown) < max(knob.slot.ours) and self._hot():
            why = "a thermal limit hides whose it is; restore again when it is over"
            self.left.append(f"{knob.node.path}: reads {shown}: {why}")
            return False
        self.kept.append(f"{knob.node.path}: {shown}")
        return False

    def _hot(self) -> bool:
        directory = self._originals["max"].path.rpartition("/")[0]
        return thermal_limit_active(self._files, directory)

    @staticmethod
    def _pushed_down(slot: Slot, shown: str, ceiling: int | None) -> bool:
        """Tell whether a minimum of ours only reads as the lower maximum of someone else."""
        return ceiling is not None and shown == str(ceiling) and max(slot.ours, default=0) > ceiling

    def _put_back(self, role: Role) -> None:
        if self._due(role):
            self._write(role)

    def _limits(self) -> None:
        """Put both limits back, the one first that old kernels accept first."""
        low = self._knobs["min"].node.read_int()
        high = self._knobs["max"].node.read_int()
        due: list[Role] = ["min"] if self._due("min", ceiling=high) else []
        due += ["max"] if self._due("max") else []
        wanted = self._wanted("min")
        if wanted is not None and int(wanted) > low:
            due.reverse()
        for role in due:
            self._write(role)

    def _target(self) -> None:
        """Put the target back where the governor was ``userspace`` before us."""
        if self._wanted("governor") == "userspace":
            self._put_back("speed")

    def _write(self, role: Role) -> None:
        knob, wanted = self._knobs[role], self._wanted(role)
        if wanted is None:
            return
        before = knob.node.read_name()
        knob.node.write(wanted)
        after = knob.node.read_name()
        if role == "governor" and after != wanted:
            self.left.append(f"{knob.node.path}: still {after} after writing {wanted}")
            return
        tail = "" if after == wanted else f" (reads {after}: someone else's limit is in force)"
        self.restored.append(f"{knob.node.path}: {before} -> {wanted}{tail}")


def restore_clock(
    files: Files, originals: tuple[Original, ...], slots: Mapping[Role, Slot]
) -> RestoreReport:
    """Put one clock back as it was found; never raises for a file that fails.

    Args:
        files: The board's files.
        originals: What was found.
        slots: What we last did to each.
    """
    return _Restorer(files, originals, slots).run()
