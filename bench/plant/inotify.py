"""Tells when a file in a set of folders was written, through Linux's inotify."""

import ctypes
import os
import struct
from pathlib import Path

_IN_MODIFY = 0x0000_0002
_IN_IGNORED = 0x0000_8000
_IN_Q_OVERFLOW = 0x0000_4000
_HEADER = struct.Struct("iIII")
_BUFFER = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Watches folders below a root for writes.

    Args:
        root: Folder that the names are relative to.

    Raises:
        OSError: The kernel has no inotify, or no watch is left.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[int, str] = {}
        self._fd = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))

    def fileno(self) -> int:
        """Give the descriptor, readable when something was written."""
        return self._fd

    def close(self) -> None:
        """Stop watching."""
        os.close(self._fd)

    def watching(self, folder: str) -> bool:
        """Tell whether a folder is watched."""
        return folder in self._folders.values()

    def watch(self, folder: str) -> None:
        """Watch a folder; it stops by itself when the folder is removed."""
        path = os.fsencode(self._root / folder)
        watch = _checked(_libc.inotify_add_watch(self._fd, path, _IN_MODIFY))
        self._folders[watch] = folder

    def written(self) -> list[str]:
        """List the files written since the last call, in order, each once.

        Raises:
            OSError: More was written than the kernel remembers (EOVERFLOW is not recoverable
                here: a lost write would be a lost command).
        """
        seen: dict[str, None] = {}
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return list(seen)
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
                at += _HEADER.size + length
                if mask & _IN_Q_OVERFLOW:
                    raise OSError("inotify queue overflow: writes were lost")
                if mask & _IN_IGNORED:
                    self._folders.pop(watch, None)
                elif watch in self._folders:
                    seen[f"{self._folders[watch]}/{os.fsdecode(name)}"] = None


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
