"""The restore journal: how each clock was found, and what we last did to it.

One small file per clock in a folder on tmpfs (``/run``). It is written whole, under another name,
before the first write to the clock, and mapped from then on, so that recording a write is two
copies to memory that outlives the process however it ends. It must never be made from our own
pins: a clock that still has a file is restored before it is taken again.
"""

import logging
import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from governor.boards.knob import OLD_SLOT_BYTES, SLOT_BYTES, Original, Role, Slot, codes
from governor.boards.node import Files
from governor.boards.restore import RestoreReport, restore_clock
from governor.errors import JournalError

_log = logging.getLogger(__name__)

# 1: page of slots, then b"FLGVJRNL", length and CRC-32 of a JSON header, the header.
# 2: a slot is two records, each with a check word.
FORMAT = 2
_OLD = 1
SUFFIX = ".journal"
ASIDE = ".corrupt"
_MAGIC = b"FLGVJRNL"
_SLOTS_BYTES = 4096
_PREFIX = len(_MAGIC) + 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Version(msgspec.Struct):
    format: int


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    boot_id: str
    root: str
    name: str
    knobs: list[Original]


class Entry:
    """The journal of one clock.

    Attributes:
        name: Name of the clock.
        path: File.
        originals: How its knobs were found.
        slots: What we last did to each.
    """

    def __init__(self, path: Path, header: _Header, page: mmap.mmap) -> None:
        self.path = path
        self.name = header.name
        self.originals = tuple(header.knobs)
        pages, old = memoryview(page), header.format == _OLD
        size = OLD_SLOT_BYTES if old else SLOT_BYTES
        self.slots: dict[Role, Slot] = {}
        for at, original in enumerate(self.originals):
            part = pages[at * size : (at + 1) * size]
            slot = Slot.old(original, part) if old else Slot(part, codes(original))
            self.slots[original.role] = slot


class Journal:
    """The folder of journals of one board.

    Args:
        directory: Folder on tmpfs; made if missing.
        root: Root of the board's files.

    Attributes:
        entries: Clocks that are not as they were found, by name.
        notes: What was discarded or kept aside while opening.
    """

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        self.root = root.resolve()
        self.entries: dict[str, Entry] = {}
        self.notes: list[str] = []
        self._unread: dict[Path, str] = {}
        self._foreign: set[str] = set()

    @classmethod
    def open(cls, directory: Path, root: Path) -> "Journal":
        """Open a folder with whatever an earlier daemon left in it.

        Files of an earlier boot are discarded (the kernel forgot our writes too); damaged ones,
        and those of a newer format, are kept aside as ``NAME.corrupt``. Until that is removed the
        clock is owed: nobody can tell how it was found, so it must not be taken again.

        Raises:
            JournalError: The folder cannot be made or read.
        """
        journal = cls(directory, root)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            paths = sorted(directory.glob(f"*{SUFFIX}"))
        except OSError as exc:
            raise _cannot("open", directory, exc) from exc
        for path in paths:
            journal._load(path)
        return journal

    @classmethod
    def create(cls, directory: Path, root: Path) -> "Journal":
        """Open a folder that must hold no unfinished business.

        Raises:
            JournalError: An earlier daemon left clocks unrestored, or the folder cannot be used.
        """
        journal = cls.open(directory, root)
        owed = sorted({*journal.entries, *journal._damaged()})
        if owed:
            raise JournalError(
                "it still holds unrestored clocks",
                where=str(directory),
                why=", ".join(owed),
                hint="run flamegov restore",
            )
        return journal

    def add(self, name: str, originals: tuple[Original, ...]) -> Mapping[Role, Slot]:
        """Keep how a clock was found; to be called before the first write to it.

        Args:
            name: Name of the clock.
            originals: How its knobs were found.

        Returns:
            The slot of each knob.

        Raises:
            JournalError: The clock is not restored yet, or the file cannot be written whole.
        """
        if name in self.entries:
            raise JournalError(
                "it is not restored yet",
                where=str(self.entries[name].path),
                hint="run flamegov restore",
            )
        if (line := self._damaged().get(name)) is not None:
            raise JournalError(line)
        header = _Header(FORMAT, boot_id(), str(self.root), name, list(originals))
        path = self.directory / f"{name}{SUFFIX}"
        try:
            page = self._write(path, header)
        except OSError as exc:
            raise _cannot("write", path, exc) from exc
        self.entries[name] = Entry(path, header, page)
        return self.entries[name].slots

    def owes(self, name: str) -> bool:
        """Tell whether a clock is still to be put back: by us or, its file damaged, by hand."""
        return name in self.entries or name in self._damaged()

    def restore(self, *, only: str | None = None) -> RestoreReport:
        """Put clocks back as they were found and forget those that are.

        Args:
            only: Name of the one clock to restore; all by default.

        Returns:
            What was restored, kept and left; failures are collected, not raised.
        """
        for path in list(self._unread):
            self._load(path)
        files = Files(self.root)
        left = tuple(line for name, line in self._damaged().items() if only in (None, name))
        foreign = tuple(sorted(self._foreign))
        report = RestoreReport(left=left, notes=tuple(self.notes), elsewhere=foreign)
        self.notes.clear()
        for entry in [e for e in self.entries.values() if only in (None, e.name)]:
            one = restore_clock(files, entry.originals, entry.slots)
            report += one
            if not one.complete:
                continue
            try:
                self.discard(entry.name)
            except JournalError as exc:  # the other clocks come first
                report += RestoreReport(left=(str(exc),))
        files.close()
        return report

    def discard(self, name: str | None = None) -> None:
        """Forget a clock, or all, without restoring.

        Raises:
            JournalError: The file cannot be removed.
        """
        for entry in [e for e in self.entries.values() if name in (None, e.name)]:
            try:
                entry.path.unlink(missing_ok=True)
            except OSError as exc:
                raise _cannot("remove", entry.path, exc) from exc
            del self.entries[entry.name]

    def _write(self, path: Path, header: _Header) -> mmap.mmap:
        fresh = path.with_suffix(".new")
        try:
            page = _fill(fresh, msgspec.json.encode(header))
            for slot in Entry(path, header, page).slots.values():
                slot.clear()
            fresh.replace(path)  # only now, complete, does it count
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        return page

    def _load(self, path: Path) -> None:
        self._unread.pop(path, None)
        try:
            self._sort_in(path)
        except FileNotFoundError:
            return  # removed by hand since it was listed
        except OSError as exc:  # no reason to call it damaged: it is tried again
            hint = "see to it, then run flamegov restore"
            self._unread[path] = f"{path}: cannot be used: {exc.strerror or exc}; {hint}"

    def _sort_in(self, path: Path) -> None:
        try:
            header, page = _read(path)
        except (ValueError, RecursionError, msgspec.MsgspecError) as exc:
            aside = path.with_suffix(ASIDE)
            path.replace(aside)
            self._note(f"{path}: unreadable ({exc}); kept aside as {aside.name}")
            return
        if header.boot_id != boot_id():
            path.unlink()
            self._note(f"{path}: from an earlier boot; discarded")
        elif header.root != str(self.root):
            self._foreign.add(header.root)
            self._note(f"{path}: for the board under {header.root}; left alone")
        else:
            entry = self.entries[header.name] = Entry(path, header, page)
            damaged = [role for role, slot in entry.slots.items() if slot.damaged]
            if damaged:
                self._note(f"{path}: its record of {', '.join(damaged)} is damaged")

    def _damaged(self) -> dict[str, str]:
        """Name the clocks that only a person can put back, and say how; asks the folder itself."""
        lines = {path.stem: line for path, line in self._unread.items()}
        for path in sorted(self.directory.glob(f"*{ASIDE}")):
            lines[path.stem] = (
                f"{path}: how {path.stem} was found cannot be read; look at the file, "
                f"set the clock by hand, then remove the file"
            )
        return lines

    def _note(self, text: str) -> None:
        self.notes.append(text)
        _log.warning("%s", text)


def restore_from(journal: Journal, root: Path) -> RestoreReport:
    """Put all clocks of a journal back as they were found.

    Args:
        journal: An opened journal.
        root: Root of the board's files.

    Returns:
        What was restored, kept and left; failures are collected, not raised.

    Raises:
        JournalError: The journal is of another root.
    """
    if journal.root != root.resolve():
        raise JournalError(
            "it belongs to another board", where=str(journal.directory), why=str(journal.root)
        )
    return journal.restore()


def boot_id() -> str:
    """Name of this boot; empty where the kernel does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""  # without one, files of all boots look alike: restoring is the safe reading


def _read(path: Path) -> tuple[_Header, mmap.mmap]:
    data = path.read_bytes()
    head = data[_SLOTS_BYTES:]
    if head[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not a journal")
    length = int.from_bytes(head[len(_MAGIC) : len(_MAGIC) + 4], "little")
    crc = int.from_bytes(head[len(_MAGIC) + 4 : _PREFIX], "little")
    body = head[_PREFIX : _PREFIX + length]
    if len(body) != length or zlib.crc32(body) != crc:
        raise ValueError("its header is damaged")
    version = msgspec.json.decode(body, type=_Version).format
    if version not in (_OLD, FORMAT):
        raise ValueError(f"its format is {version}, this program reads {FORMAT}")
    header = msgspec.json.decode(body, type=_Header)
    _check(path, header)
    with path.open("r+b") as file:
        return header, mmap.mmap(file.fileno(), _SLOTS_BYTES)


def _check(path: Path, header: _Header) -> None:
    if header.name != path.stem:
        raise ValueError(f"it is of another clock, {header.name[:40]!r}")
    roles = {original.role for original in header.knobs}
    if len(roles) != len(header.knobs):
        raise ValueError("it holds a knob twice")
    if ("min" in roles) != ("max" in roles) or ("speed" in roles and "governor" not in roles):
        raise ValueError("it lacks a knob that belongs to another")
    for original in header.knobs:
        if not original.sound:
            raise ValueError(f"{original.path[:200]} cannot have held {str(original.text)[:40]!r}")


def _fill(fresh: Path, body: bytes) -> mmap.mmap:
    """Write a new file whole and map its page of slots.

    Its room is taken beforehand: storing to a mapped hole of a full tmpfs is a SIGBUS.
    """
    prefix = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little")
    data = bytes(_SLOTS_BYTES) + _MAGIC + prefix + body
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w+b") as file:
        os.posix_fallocate(fd, 0, len(data))
        file.write(data)
        file.flush()  # all of it, or OSError
        return mmap.mmap(fd, _SLOTS_BYTES)


def _cannot(act: str, path: Path, exc: OSError) -> JournalError:
    return JournalError(
        f"cannot {act} the journal",
        where=str(path),
        why=exc.strerror or str(exc),
        hint="set the state directory to a writable tmpfs folder",
    )
