"""A writable board file together with its slot in the restore journal.

A slot says, at any instant a process may be killed, which readings of the file are our own doing.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from governor.boards.node import LIMIT, Node, to_number

Role = Literal["governor", "min", "max", "speed"]

NONE = LIMIT
"""Slot field without a value."""

# A record: adopted original, second half of an adopted name, intended, effective, the effective
# before, the number of the record; then the CRC-32 of all that.
_RECORD = struct.Struct("<6QI")
_BODY = struct.Struct("<6Q")
_ADOPTED, _REST, _INTENDED, _EFFECTIVE, _BEFORE, _NUMBER = range(6)

SLOT_BYTES = 2 * _RECORD.size
"""Size of a slot: two records, written in turn."""

OLD_SLOT_BYTES = 48
"""Size of a slot in journals of format 1: six numbers without a check word."""

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
    """What we last did to one knob.

    Each change is a record of its own, written over the older of two: one that a kill cuts short
    fails its check word and leaves the one before, which still holds, for a change is recorded
    before the file is written.

    Args:
        page: ``SLOT_BYTES`` of the journal's page or of scratch memory.
        words: Code of each name, for a knob that holds a name.

    Attributes:
        damaged: Whether a record failed its check word when the slot was read: what the slot says
            is true, but it may lack the last of what we did.
    """

    __slots__ = ("_fields", "_page", "_words", "damaged")

    def __init__(self, page: memoryview, words: Mapping[str, int]) -> None:
        self._page = page
        self._words = words
        found = [_BODY.unpack_from(raw) for raw in self._records() if _whole(raw)]
        self.damaged = len(found) < SLOT_BYTES // _RECORD.size
        newest = max(found, key=lambda record: record[_NUMBER], default=None)
        self._fields = list(newest) if newest else [NONE] * _NUMBER + [0]

    @classmethod
    def scratch(cls, original: Original) -> "Slot":
        """Make a slot that nobody reads later, for a dry run."""
        slot = cls(memoryview(bytearray(SLOT_BYTES)), codes(original))
        slot.clear()
        return slot

    @classmethod
    def old(cls, original: Original, raw: memoryview) -> "Slot":
        """Read a slot of a journal of format 1; what is recorded in it later goes nowhere."""
        slot = cls.scratch(original)
        adopted, intended, *effective, _, rest = struct.unpack("<6Q", raw)
        slot._fields[:_NUMBER] = adopted, rest, intended, *effective
        return slot

    def clear(self) -> None:
        """Mark as never written."""
        self._fields[:_NUMBER] = [NONE] * _NUMBER
        self._store()
        self._store()
        self.damaged = False

    def intend(self, value: int | str) -> None:
        """Record the value about to be written."""
        self._fields[_INTENDED] = self._code(value)
        self._store()

    def settle(self, value: int | str) -> None:
        """Record what the file reads after the write; the reading before it is kept too."""
        self._fields[_BEFORE] = self._fields[_EFFECTIVE]
        self._fields[_EFFECTIVE] = self._code(value)
        self._store()

    def adopt(self, value: int | str) -> None:
        """Take another writer's value as the one to restore."""
        if isinstance(value, int):
            self._fields[_ADOPTED] = value
        else:
            # Spelled out: a governor loaded since is not among the words.
            raw = value.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
            self._fields[_ADOPTED : _REST + 1] = struct.unpack("<2Q", raw)
        self._store()

    @property
    def written(self) -> bool:
        """Whether we ever meant to write the knob."""
        return self._fields[_INTENDED] != NONE

    @property
    def adopted(self) -> int | str | None:
        """Another writer's value that replaced the original, if any."""
        code = self._fields[_ADOPTED]
        if code == NONE or not self._words:
            return None if code == NONE else code
        raw = struct.pack("<2Q", code, self._fields[_REST])
        return raw.rstrip(b"\0").decode("utf-8", "replace")

    @property
    def ours(self) -> frozenset[int]:
        """Codes of the readings that are our doing."""
        return frozenset(self._fields[_INTENDED:_NUMBER]) - {NONE}

    def is_ours(self, text: str) -> bool:
        """Tell whether a reading of the file is our doing."""
        return self.code_of(text) in self.ours

    def last_was(self, text: str) -> bool:
        """Tell whether a value is the one we last meant to write."""
        return self._fields[_INTENDED] == self.code_of(text)

    def code_of(self, text: str) -> int:
        """Code of a reading; ``NONE`` for one that is no value."""
        if self._words:
            return self._words.get(text, NONE)
        number = to_number(text)
        return NONE if number is None else number

    def _code(self, value: int | str) -> int:
        return value if isinstance(value, int) else self.code_of(value)

    def _store(self) -> None:
        self._fields[_NUMBER] += 1
        body = _BODY.pack(*self._fields)
        at = self._fields[_NUMBER] % 2 * _RECORD.size
        self._page[at : at + _RECORD.size] = body + zlib.crc32(body).to_bytes(4, "little")

    def _records(self) -> list[bytes]:
        return [bytes(self._page[at : at + _RECORD.size]) for at in (0, _RECORD.size)]


def _whole(record: bytes) -> bool:
    """Tell whether a record says what was written to it."""
    return zlib.crc32(record[: _BODY.size]) == int.from_bytes(record[_BODY.size :], "little")


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
