"""A board's ``/sys`` through FUSE: writes are refused with the kernel's errno and take their time.

Needs ``/dev/fuse``, libfuse (``apt-get install fuse3``) and the ``fuse`` extra; whoever may not
mount uses plain files instead (``tree.py``).
"""

import errno
import importlib
import itertools
import os
import stat
import subprocess
import threading
import time
from collections.abc import Mapping
from ctypes.util import find_library
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.plant.errors import KernelError, PlantError
from bench.plant.kfile import Attr, Device
from bench.plant.machine import Machine
from bench.plant.tree import relative_target

_TOP = "sys"
_PAGE = 4096
_MOUNT_S = 5.0
_POLL_S = 0.005
_CACHED_S = 0.1  # how long the kernel may believe a name: a path has ten parts to look up
_HINT = "install libfuse (apt-get install fuse3) and the fuse extra, or use plain files"


def _library() -> ModuleType:
    """Import mfusepy on libfuse 3 where there is one: left to itself it takes libfuse 2 first.

    Raises:
        ImportError: mfusepy is not installed.
        OSError: There is no libfuse.
    """
    newest = find_library("fuse3")
    if newest:
        os.environ.setdefault("FUSE_LIBRARY_PATH", newest)
    return importlib.import_module("mfusepy")


def fuse_missing() -> str:
    """Tell what FUSE lacks on this machine, in a few words; empty when it can be used."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing or not accessible"
    try:
        _library()
    except ImportError:
        return "the Python package mfusepy is missing"
    except OSError as error:
        return f"libfuse is missing ({error})"
    return ""


class Operations:
    """What FUSE calls. All of it runs in libfuse's threads, under the machine's lock.

    Args:
        machine: The board.
        lock: Held while the machine is used.
        wake: Descriptor of an eventfd that is told of each write.
    """

    use_ns = True

    def __init__(self, machine: Machine, lock: threading.Lock, wake: int) -> None:
        self._machine, self._lock, self._wake = machine, lock, wake
        self._index: dict[str, tuple[Device, str]] = {}
        self._version: tuple[object, ...] = ()
        self._handles: dict[int, tuple[Device, str, int]] = {}
        self._numbers = itertools.count(1)
        self._links = {
            link: relative_target(link, target) for link, target in machine.files.links.items()
        }

    def getattr(self, path: str, _: int | None = None) -> dict[str, Any]:
        """Tell kind and mode of a path."""
        relative = _TOP + path.rstrip("/")
        with self._lock:
            files = self._files()
            if relative in self._links:
                return {"st_mode": stat.S_IFLNK | 0o777, "st_nlink": 1}
            if relative in files:
                device, name = files[relative]
                mode = device.files()[name].mode
                return {"st_mode": stat.S_IFREG | mode, "st_nlink": 1, "st_size": _PAGE}
            if self._children(relative):
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        raise KernelError(errno.ENOENT)

    def readdir(self, path: str, _: int) -> list[str]:
        """List a folder."""
        with self._lock:
            return [".", "..", *sorted(self._children(_TOP + path.rstrip("/")))]

    def readlink(self, path: str) -> str:
        """Tell where a link points."""
        return self._links[_TOP + path]

    def open(self, path: str, flags: int) -> int:
        """Open a file; not even root may write what has no write bit."""
        with self._lock:
            found = self._files().get(_TOP + path)
            if found is None:
                raise KernelError(errno.ENOENT)
            device, name = found
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            if writes and not device.files()[name].mode & 0o200:
                raise KernelError(errno.EACCES)
            handle = next(self._numbers)
            self._handles[handle] = device, name, self._epoch(name)
            return handle

    def release(self, _: str, handle: int) -> int:
        """Forget an open file."""
        with self._lock:
            del self._handles[handle]
        return 0

    def truncate(self, _: str, __: int, ___: int | None = None) -> int:
        """Take no notice, as sysfs does."""
        return 0

    def read(self, _: str, size: int, offset: int, handle: int) -> bytes:
        """Read what the file shows now."""
        with self._lock:
            self._machine.advance(time.monotonic_ns())
            attr = self._attr(handle)
        if attr.errno:
            raise KernelError(attr.errno)
        return attr.text.encode("latin-1")[offset : offset + size]

    def write(self, _: str, data: bytes, __: int, handle: int) -> int:
        """Hand a write to the board and return when its clock has followed."""
        with self._lock:
            self._attr(handle)
            device, name, _epoch = self._handles[handle]
            self._machine.write(device, name, bytes(data), time.monotonic_ns())
            due_ns = self._machine.due_ns(device)
        os.eventfd_write(self._wake, 1)
        time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
        with self._lock:
            self._machine.advance(time.monotonic_ns())
        return len(data)

    def _attr(self, handle: int) -> Attr:
        device, name, epoch = self._handles[handle]
        attr = device.files().get(name)
        if attr is None or epoch != self._epoch(name):
            raise KernelError(errno.ENODEV)  # its governor went away, and a new one is not it
        return attr

    def _epoch(self, name: str) -> int:
        return self._machine.kernel.gpu.epoch if "/userspace/" in f"/{name}" else 0

    def _files(self) -> Mapping[str, tuple[Device, str]]:
        """Index all files; which ones exist depends on the governors alone."""
        kernel = self._machine.kernel
        version = (kernel.gpu.epoch, *(policy.governor for policy in kernel.policies))
        if version != self._version:
            self._version = version
            self._index = {
                f"{device.where}/{name}": (device, name)
                for device in self._machine.files.devices
                for name in device.files()
                if device.where
            }
        return self._index

    def _children(self, folder: str) -> set[str]:
        prefix = folder + "/"
        return {
            path[len(prefix) :].split("/", 1)[0]
            for path in (*self._files(), *self._links)
            if path.startswith(prefix)
        }


class FuseFiles:
    """A mounted ``/sys``, with the same face as plain files towards the live process.

    Args:
        root: Folder that stands for ``/``; ``root/sys`` is mounted over.
        machine: The board.

    Raises:
        PlantError: FUSE cannot be used here.
    """

    def __init__(self, root: Path, machine: Machine) -> None:
        missing = fuse_missing()
        if missing:
            raise PlantError("cannot mount", where=str(root), why=missing, hint=_HINT)
        self.lock = threading.Lock()
        self._machine = machine
        self._point = root / _TOP
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        operations = Operations(machine, self.lock, self._wake)
        self._thread = threading.Thread(
            target=_mount, args=(operations, self._point), name="fuse", daemon=True
        )
        self._thread.start()
        self._await_mount()

    def fileno(self) -> int:
        """Give the descriptor that is readable after a write."""
        return self._wake

    def take(self, _: int) -> None:
        """Note that the writes have been seen; they were carried out already."""
        os.eventfd_read(self._wake)

    def show(self) -> None:
        """Do nothing: reads ask the board itself."""
        self._machine.touched.clear()

    def close(self) -> None:
        """Unmount."""
        unmount(self._point.parent)
        self._thread.join(_MOUNT_S)
        os.close(self._wake)

    def _await_mount(self) -> None:
        deadline = time.monotonic() + _MOUNT_S
        while not self._point.is_mount():
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise PlantError("cannot mount", where=str(self._point), hint=_HINT)
            time.sleep(_POLL_S)


def unmount(root: Path) -> None:
    """Unmount ``root/sys`` if it is mounted, even when the process behind it is gone."""
    point = str(root.resolve() / _TOP)
    if f" {point} fuse" in Path("/proc/self/mounts").read_text():
        subprocess.run(["fusermount3", "-u", "-z", point], check=True, timeout=_MOUNT_S)


def _mount(operations: Operations, point: Path) -> None:
    fuse = _library()
    fuse.FUSE(
        operations,
        str(point),
        foreground=True,
        direct_io=True,
        default_permissions=True,
        allow_other=True,
        attr_timeout=_CACHED_S,
        entry_timeout=_CACHED_S,
        negative_timeout=0,
        fsname="flamegov-plant",
    )
