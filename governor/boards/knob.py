"""A writable board file together with its slot in the restore journal.

A slot says, at any instant a process may be killed, which readings of the file are our own doing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from governor.boards.node import LIMIT, Node, to_number

Role = Literal["governor", "min", "max", "speed"]

NONE = LIMIT
"""Slot field without a value."""

FIELDS = 6
"""64-bit fields of a slot: adopted original, intended, effective (two, in turn), the turn, and
the second half of an adopted name."""

_ADOPTED, _INTENDED, _EFFECTIVE, _TURN, _REST = 0, 1, 2, 4, 5
_NAME_BYTES = 16  # CPUFREQ_NAME_LEN and DEVFREQ_NAME_LEN of the kernel


@dataclass(frozen=True, slots=True)
class Original:
    """A knob as found before the first write.

    Attributes:
        role: What the knob is.
        path: File, relative to the board's root.
        text: Content then (first line); None when it had no value worth restoring.
        words: Values it can take, for a knob that holds a name.
    """

    role: Role
    path: str
    text: str | None
    words: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether it is of a kind that can be put back."""
        if self.role == "governor":
            return self.text in self.words
        if self.text is None:
            return self.role == "speed"
        return not self.words and to_number(self.text) is not None


class Slot:
    """What we last did to one knob; each store is one aligned 64-bit write.

    Args:
        fields: View of ``FIELDS`` unsigned 64-bit numbers; the journal's page or scratch memory.
        words: Code of each name, for a knob that holds a name.
    """

    __slots__ = ("_fields", "_words")

    def __init__(self, fields: memoryview, words: Mapping[str, int]) -> None:
        self._fields = fields
        self._words = words

    @classmethod
    def scratch(cls, original: Original) -> "Slot":
        """Make a slot that nobody reads later, for a dry run."""
        slot = cls(memoryview(bytearray(8 * FIELDS)).cast("Q"), codes(original))
        slot.clear()
        return slot

    def clear(self) -> None:
        """Mark as never written."""
        for index in range(_TURN):
            self._fields[index] = NONE
        self._fields[_TURN] = 0

    def intend(self, value: int | str) -> None:
        """Record the value about to be written."""
        self._fields[_INTENDED] = self._code(value)

    def settle(self, value: int | str) -> None:
        """Record what the file reads after the write; the reading before it is kept too."""
        turn = 1 - self._fields[_TURN]
        self._fields[_EFFECTIVE + turn] = self._code(value)
        self._fields[_TURN] = turn

    def adopt(self, value: int | str) -> None:
        """Take another writer's value as the one to restore."""
        if isinstance(value, int):
            self._fields[_ADOPTED] = value
            return
        # Spelled out: a governor loaded since is not among the words.
        raw = value.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
        self._fields[_ADOPTED] = NONE
        self._fields[_REST] = int.from_bytes(raw[8:], "little")
        self._fields[_ADOPTED] = int.from_bytes(raw[:8], "little")

    @property
    def written(self) -> bool:
        """Whether we ever meant to write the knob."""
        return bool(self._fields[_INTENDED] != NONE)

    @property
    def adopted(self) -> int | str | None:
        """Another writer's value that replaced the original, if any."""
        code = self._fields[_ADOPTED]
        if code == NONE or not self._words:
            return None if code == NONE else code
        raw = code.to_bytes(8, "little") + self._fields[_REST].to_bytes(8, "little")
        return raw.rstrip(b"\0").decode("utf-8", "replace")

    @property
    def ours(self) -> frozenset[int]:
        """Codes of the readings that are our doing."""
        return frozenset(self._fields[_INTENDED:_TURN]) - {NONE}

    def is_ours(self, text: str) -> bool:
        """Tell whether a reading of the file is our doing."""
        return self.code_of(text) in self.ours

    def last_was(self, text: str) -> bool:
        """Tell whether a value is the one we last meant to write."""
        return bool(self._fields[_INTENDED] == self.code_of(text))

    def code_of(self, text: str) -> int:
        """Code of a reading; ``NONE`` for one that is no value."""
        if self._words:
            return self._words.get(text, NONE)
        number = to_number(text)
        return NONE if number is None else number

    def _code(self, value: int | str) -> int:
        return value if isinstance(value, int) else self.code_of(value)


def codes(original: Original) -> dict[str, int]:
    """Number the words of a knob."""
    return {word: index for index, word in enumerate(original.words)}


class Knob:
    """A writable file and its slot."""

    __slots__ = ("node", "slot")

    def __init__(self, node: Node, slot: Slot) -> None:
        self.node = node
        self.slot = slot

    def put(self, value: int) -> int:
        """Write a number and read it back, in the unit of the file.

        Raises:
            SysfsError: The file cannot be written or read back.
        """
        self.slot.intend(value)
        self.node.write(value)
        shown = self.node.read_int()
        self.slot.settle(shown)
        return shown

    def put_name(self, value: str) -> str:
        """Write a name and read it back.

        Raises:
            SysfsError: The file cannot be written or read back.
        """
        self.slot.intend(value)
        self.node.write(value)
        shown = self.node.read_name()
        self.slot.settle(shown)
        return shown

    def wish(self, value: int) -> None:
        """Write a number to a file that reads back the wish itself.

        Raises:
            SysfsError: The file cannot be written.
        """
        self.slot.intend(value)
        self.node.write(value)
