"""Files as the kernel shows them: what one is, and how the kernel reads the text written to it."""

import errno
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from bench.plant.errors import KernelError

_DIGITS = re.compile(rb"[ \t\n\v\f\r]*([0-9]+)")
_STRICT = re.compile(rb"\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\n?")


class Attr(NamedTuple):
    """One file as it is shown now.

    Attributes:
        mode: Permission bits.
        text: Content, with its newline.
        errno: What reading it fails with; 0 when it can be read.
    """

    mode: int
    text: str
    errno: int = 0


def ro(value: object) -> Attr:
    """Show a value in a file that nobody may write."""
    return Attr(0o444, f"{value}\n")


def rw(value: object) -> Attr:
    """Show a value in a file that root may write."""
    return Attr(0o644, f"{value}\n")


def scan_unsigned(data: bytes, bits: int) -> int:
    """Read a number as the kernel's ``sscanf("%u")`` does: leading digits only, wrapping around.

    Raises:
        KernelError: EINVAL, there is no digit.
    """
    found = _DIGITS.match(data.split(b"\0", 1)[0])
    if not found:
        raise KernelError(errno.EINVAL)
    return int(found[1]) % (1 << bits)


def parse_unsigned(data: bytes) -> int:
    """Read a number as ``kstrtoul(..., 0, ...)`` does: the whole text, C prefixes, no blanks.

    Raises:
        KernelError: EINVAL, not a number; ERANGE, beyond 64 bits.
    """
    text = data.split(b"\0", 1)[0]
    found = _STRICT.fullmatch(text)
    if not found:
        raise KernelError(errno.EINVAL)
    digits = found[1].lower()
    base = 16 if digits.startswith(b"0x") else 8 if digits.startswith(b"0") else 10
    value = int(digits, base)
    if value >= 1 << 64:
        raise KernelError(errno.ERANGE)
    return value


def first_word(data: bytes, limit: int) -> str:
    """Read one word as ``sscanf("%15s")`` does; an empty one is EINVAL."""
    words = data.split(b"\0", 1)[0].split()
    if not words:
        raise KernelError(errno.EINVAL)
    return words[0][:limit].decode("latin-1")


def as_s32(value: int) -> int:
    """Store a number in a C ``s32``."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class Device(Protocol):
    """A folder of files with one thing behind them.

    Attributes:
        where: The folder, relative to the root of the tree.
    """

    where: str

    def files(self) -> dict[str, Attr]:
        """Show all files there are now, by name below ``where``."""

    def write(self, name: str, data: bytes) -> None:
        """Take a write of one or more bytes.

        Raises:
            KernelError: The kernel refuses it.
        """

    @property
    def moving(self) -> bool:
        """Whether a clock was asked for that is not yet in force."""

    def settle(self) -> None:
        """Put the clock that was asked for in force."""


class ClockDevice(Device, Protocol):
    """A device with a clock that takes time to follow a request."""

    @property
    def asked(self) -> int:
        """What was asked for last, in the unit of the device's files."""

    def settle(self, at: int | None = None) -> None:
        """Put what was asked for in force, or an earlier request when one is given."""


Store = Callable[[bytes], None]


def dispatch(stores: dict[str, Store], files: dict[str, Attr], name: str, data: bytes) -> None:
    """Hand a write to its file's handler, as the virtual file system does.

    Raises:
        KernelError: ENOENT, no such file; EACCES, not writable; or what the handler raises.
    """
    if name not in files:
        raise KernelError(errno.ENOENT)
    if name not in stores:
        raise KernelError(errno.EACCES)
    if data:
        stores[name](data)


def locate(devices: Iterable[Device], path: str) -> tuple[Device, str]:
    """Find the device and the file name behind a path relative to the root.

    Raises:
        KernelError: ENOENT.
    """
    for device in devices:
        prefix = f"{device.where}/" if device.where else ""
        if path.startswith(prefix) and path[len(prefix) :] in device.files():
            return device, path[len(prefix) :]
    raise KernelError(errno.ENOENT)


def read(devices: Iterable[Device], path: str) -> str:
    """Read a file by its path relative to the root.

    Raises:
        KernelError: There is no such file, or it cannot be read now.
    """
    device, name = locate(devices, path)
    attr = device.files()[name]
    if attr.errno:
        raise KernelError(attr.errno)
    return attr.text
