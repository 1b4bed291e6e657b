"""One board file, and the way all of them are reached.

The only place that opens, reads or writes a board file and the only place that translates OSError.
Descriptors stay open, so that an access is one pread or pwrite. It must never swallow a failure.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

from governor.errors import BoardError, SysfsBusyError, SysfsError

DryRun = Callable[[Path, str], None]
"""Told ``(path, text)`` of each write that is not made."""

OnWrite = Callable[[Path, int], None]
"""Told ``(path, CLOCK_MONOTONIC ns)`` just before each pwrite; keep it short."""

LIMIT = 2**64 - 1
"""Clocks and limits are below it: 64 bits, of which the journal keeps one value for "none"."""

_PAGE = 4096  # smallest page of a kernel: no sysfs attribute is longer, and all say they are one
_RETRY_EMPTY = 4
_RETRY_S = 0.0005
_REOPEN = frozenset({errno.EBADF, errno.ENODEV, errno.ESTALE, errno.ENOENT, errno.ENXIO})
_BUSY = frozenset({errno.EBUSY, errno.EAGAIN})
_HINTS = {
    errno.EACCES: "run as root",
    errno.EPERM: "run as root",
    errno.EROFS: "/sys is mounted read-only here (a container, or ProtectKernelTunables=yes): "
    "mount it writable or use --dry-run",
    errno.EBUSY: "its CPUs are offline; it works again when one returns",
    errno.EAGAIN: "the driver is not ready yet; try again",
    errno.ENOENT: "the device or its governor went away; it is looked for again",
    errno.ENODEV: "the device or its governor went away; it is looked for again",
    errno.EINVAL: "the kernel refused the value: the governor or the limits have changed",
    errno.EIO: "the driver failed; see dmesg",
}
_EMPTY = "it is empty"


def to_number(text: str, *, signed: bool = False) -> int | None:
    """Read a number from 0 up to ``LIMIT`` (or, signed, as far below 0); None for anything else."""
    digits = text[1:] if signed and text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(LIMIT)):
        return None
    return int(text) if int(digits) < LIMIT else None


class LostControlError(SysfsBusyError):
    """Someone else switched the governor: the clock is theirs until it is taken again."""


class Files:
    """How the files of one board are reached: for real, or dry.

    Args:
        root: Folder that stands for ``/``.
        dry_run: When given, writes are told to it and not made; what a dry write would have
            changed reads back as if it had.
        on_write: Told of each pwrite just before it.
    """

    def __init__(
        self, root: Path, *, dry_run: DryRun | None = None, on_write: OnWrite | None = None
    ) -> None:
        self.root = root
        self.dry_run = dry_run
        self.on_write = on_write
        self.shadow: dict[Path, str] = {}
        self._nodes: WeakSet[Node] = WeakSet()

    def node(self, path: str, *, writable: bool = False) -> "Node":
        """Make the node of a file.

        Args:
            path: Path below the root.
            writable: Whether it will be written too.
        """
        node = Node(self, self.root / path, writable=writable)
        self._nodes.add(node)
        return node

    def close(self) -> None:
        """Close the descriptors of all nodes."""
        for node in list(self._nodes):
            node.close()

    def exists(self, path: str) -> bool:
        """Tell whether a path below the root exists and can be reached (debugfs: by root alone)."""
        try:
            return (self.root / path).exists()
        except PermissionError:
            return False

    def glob(self, pattern: str) -> list[str]:
        """List paths below the root that match, in natural order (hwmon2 before hwmon10)."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return sorted(found, key=lambda text: (len(text), text))

    def read_once(self, path: str) -> str | None:
        """Read a file that may be missing: its text without NUL and blanks, or None."""
        try:
            raw = (self.root / path).read_bytes()
        except OSError:
            return None  # optional by contract: the caller shows it as unknown
        return raw.decode("utf-8", "replace").replace("\0", " ").strip()


class Node:
    """One file with its descriptor kept open.

    Not thread-safe: a node belongs to one thread, or to the lock of its owner.
    """

    __slots__ = ("__weakref__", "_fd", "_files", "_writable", "mirrors", "path", "plain")

    def __init__(self, files: Files, path: Path, *, writable: bool = False) -> None:
        self.path = path
        self.mirrors: tuple[Path, ...] = ()
        """Files that follow this one; used to answer reads after a dry write."""
        self._files = files
        self._fd = -1
        self._writable = writable
        self.plain = False
        """Whether it is a plain file of a simulated board, whose clocks follow a moment later."""

    def read_text(self) -> str:
        """Read the first line.

        Raises:
            SysfsError: The file cannot be read.
        """
        return self._line().decode("utf-8", "replace").strip()

    def read_name(self) -> str:
        """Read a name.

        Raises:
            SysfsBusyError: It is empty: a simulated board shows an offline cluster so.
            SysfsError: The file cannot be read.
        """
        text = self.read_text()
        if not text:
            raise self._empty()
        return text

    def read_int(self, *, signed: bool = False) -> int:
        """Read a number, in the unit of the file.

        Args:
            signed: Whether it may be below 0.

        Raises:
            SysfsBusyError: It is empty: a simulated board shows an offline cluster so.
            SysfsError: The file cannot be read or holds no such number of 64 bits (code 0).
        """
        line = self._line()
        if not line:
            raise self._empty()
        text = line.decode("utf-8", "replace").strip()
        number = to_number(text, signed=signed)
        if number is None:
            why = f"it holds {text[:40]!r}, not a number in range"
            raise SysfsError("read", str(self.path), 0, why=why)
        return number

    def write(self, value: int | str) -> None:
        """Write a value with one pwrite.

        Raises:
            SysfsError: The kernel refused it.
        """
        files = self._files
        if files.dry_run is not None:
            self._pretend(str(value))
            return
        data = b"%d\n" % value if isinstance(value, int) else value.encode() + b"\n"
        if self._fd < 0:
            self._open("write")
        if self.plain:
            self._write_plain(data)
            return
        if files.on_write is not None:
            files.on_write(self.path, time.monotonic_ns())
        try:
            os.pwrite(self._fd, data, 0)
        except OSError as exc:
            self._reopen("write", exc)
            try:
                os.pwrite(self._fd, data, 0)
            except OSError as again:
                raise self.error("write", again) from again

    def _write_plain(self, data: bytes) -> None:
        """Replace the content of a plain file without a moment in which half a value is there.

        Newlines cover the tail of a longer old value until it is cut off.
        """
        try:
            now = os.fstat(self._fd)
            if now.st_nlink == 0:  # removed and made anew, as a governor's folder is
                self._open("write")
            if self._files.on_write is not None:
                self._files.on_write(self.path, time.monotonic_ns())
            os.pwrite(self._fd, data.ljust(now.st_size, b"\n"), 0)
            os.ftruncate(self._fd, len(data))
        except OSError as exc:
            raise self.error("write", exc) from exc

    def tidy(self) -> None:
        """Cut the newlines that a write killed half-way left at the end of a plain file.

        Raises:
            SysfsError: The file cannot be read or cut.
        """
        if not self.plain:
            return
        content = self._pread()
        length = len(content.partition(b"\n")[0]) + 1
        if len(content) > length:
            try:
                os.ftruncate(self._fd, length)
            except OSError as exc:
                raise self.error("write", exc) from exc

    def check_writable(self) -> None:
        """Open the file for writing without writing.

        Raises:
            SysfsError: It cannot be opened so.
        """
        if self._files.dry_run is None:
            self._open("open")

    def close(self) -> None:
        """Close the descriptor; the next access opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def error(self, op: str, exc: OSError) -> SysfsError:
        """Translate an OSError of this file."""
        code = exc.errno or 0
        kind = SysfsBusyError if code in _BUSY else SysfsError
        return kind(op, str(self.path), code, why=exc.strerror or "", hint=_HINTS.get(code, ""))

    def _line(self) -> bytes:
        shadow = self._files.shadow
        if shadow and (text := shadow.get(self.path)) is not None:
            return text.encode()
        for _ in range(_RETRY_EMPTY):
            line = self._pread().partition(b"\n")[0]
            if line:
                return line
            # A plain file is empty for a moment while another program rewrites it.
            time.sleep(_RETRY_S)
        return b""

    def _pread(self) -> bytes:
        try:
            return os.pread(self._fd, _PAGE, 0)
        except OSError as exc:
            if exc.errno != errno.ESPIPE:
                self._reopen("read", exc)
        try:
            return os.pread(self._fd, _PAGE, 0)
        except OSError as exc:
            if exc.errno != errno.ESPIPE:
                raise self.error("read", exc) from exc
        return self._read_fresh()

    def _read_fresh(self) -> bytes:
        """Read a simple attribute of debugfs: from its start alone, and once per open."""
        self._open("read")
        try:
            return os.read(self._fd, _PAGE)
        except OSError as exc:
            raise self.error("read", exc) from exc

    def _reopen(self, op: str, exc: OSError) -> None:
        """Open again after an error that a stale descriptor explains, else raise it."""
        if exc.errno not in _REOPEN:
            raise self.error(op, exc) from exc
        self._open(op)

    def _open(self, op: str) -> None:
        self.close()
        writing = self._writable and self._files.dry_run is None
        try:
            self._fd = os.open(self.path, os.O_RDWR if writing else os.O_RDONLY)
            size = os.fstat(self._fd).st_size
        except OSError as exc:
            raise self.error(op, exc) from exc
        # A file of a simulated board keeps the tail of a longer old value; a sysfs attribute
        # (whose size reads as one page) or a debugfs one (0) has no tail.
        self.plain = writing and 0 < size < _PAGE

    def _empty(self) -> SysfsBusyError:
        hint = "its CPUs are offline; it works again when one returns"
        return SysfsBusyError("read", str(self.path), 0, why=_EMPTY, hint=hint)

    def _pretend(self, text: str) -> None:
        if self._files.dry_run is None:
            raise BoardError("a dry write without a dry run", where=str(self.path))
        self._files.dry_run(self.path, text)
        for path in (self.path, *self.mirrors):
            self._files.shadow[path] = text
