"""One daemon per state directory, and sockets that others can reach.

A second daemon that binds the same ipc path silently steals it, so the lock comes before the bind.
"""

import contextlib
import fcntl
import grp
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import zmq

from governor.errors import AlreadyRunningError, BoardError, ConfigError

log = logging.getLogger(__name__)

_IPC = "ipc://"


@contextlib.contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold the lock of a state directory.

    Raises:
        AlreadyRunningError: Somebody else holds it.
        BoardError: The directory cannot be made or written.
    """
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
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(
                "another daemon runs",
                where=str(state_dir),
                why=f"pid {os.pread(fd, 16, 0).decode(errors='replace').strip() or 'unknown'}",
                hint="stop it first (systemctl stop flamegov), or give this one its own state_dir",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def bind(
    context: "zmq.Context[zmq.Socket[bytes]]",
    address: str,
    *,
    max_bytes: int,
    group: str = "",
    mode: int = 0o600,
) -> "zmq.Socket[bytes]":
    """Bind a ROUTER socket and give its file the right mode and group.

    Raises:
        ConfigError: The address cannot be bound.
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    socket.setsockopt(zmq.RCVHWM, 10_000)
    path = Path(address.removeprefix(_IPC)) if address.startswith(_IPC) else None
    # Born closed; opened below only to whom it is meant for.
    umask = os.umask(0o177)
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        socket.bind(address)
    except (zmq.ZMQError, OSError) as error:
        socket.close()
        raise ConfigError(
            "cannot bind", where=address, why=str(error), hint="set sockets.* to a free address"
        ) from None
    finally:
        os.umask(umask)
    if path is not None:
        _open_to(path, group, mode)
    return socket


def _open_to(path: Path, group: str, mode: int) -> None:
    if group:
        try:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
        except KeyError:
            log.warning("%s: no group '%s': only root can send hints", path, group)
        except PermissionError:
            log.warning("%s: not allowed to give it to group '%s'", path, group)
    path.chmod(mode)
