"""One daemon per state directory and per board.

A second daemon that binds the same ipc path silently steals it, so the lock comes before the bind.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from governor.errors import AlreadyRunningError, BoardError


@contextlib.contextmanager
def locked(state_dir: Path, root: Path) -> Iterator[None]:
    """Hold the locks of a state directory and of a board.

    Two daemons with different state directories on one board would each take the other's pins for
    the operator's, so the board has a lock of its own.

    Args:
        state_dir: Made if missing.
        root: Folder that holds the board's ``sys``.

    Raises:
        AlreadyRunningError: Somebody else holds one of them.
        BoardError: The state directory cannot be made or written.
    """
    with _state_locked(state_dir), _board_locked(root):
        yield


@contextlib.contextmanager
def _board_locked(root: Path) -> Iterator[None]:
    folder = root / "sys/devices/system/cpu"
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield  # no such board: whoever looks for it next says so better
        return
    try:
        _flock(fd, folder, why="with another state_dir", hint="stop it first")
        yield
    finally:
        os.close(fd)


def _flock(fd: int, path: Path, *, why: str, hint: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AlreadyRunningError(
            "another daemon runs", where=str(path), why=why, hint=hint
        ) from None


@contextlib.contextmanager
def _state_locked(state_dir: Path) -> Iterator[None]:
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        fd = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BoardError(
            "cannot use the state directory",
            where=str(state_dir),
            why=error.strerror or str(error),
            hint="run as root, or set state_dir to a folder of yours",
        ) from None
    try:
        holder = os.pread(fd, 16, 0).decode(errors="replace").strip() or "unknown"
        _flock(fd, state_dir, why=f"pid {holder}", hint="stop it first: systemctl stop flamegov")
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
