"""A ROUTER socket that others can reach, and that hides before it drowns."""

import grp
import logging
import os
import sys
from pathlib import Path

import zmq

from governor.errors import ConfigError

log = logging.getLogger(__name__)

CONNECTIONS = 512
"""Connections at once; beyond that nobody new is let in until some have gone.

libzmq ends the whole process when it cannot accept for want of descriptors, so the bound is ours.
"""

UNREAD_ANSWERS = 64
"""Answers that wait for one peer; one that does not read must not eat our memory."""

_IPC = "ipc://"
_READABLE = int(zmq.POLLIN)


class Endpoint:
    """One bound ROUTER socket and what is known of its connections.

    Args:
        context: ZeroMQ context.
        address: Where to bind.
        max_bytes: Largest message; a larger one ends its connection.
        group: Group that owns the socket file; empty leaves it.
        mode: Mode of the socket file.

    Attributes:
        socket: The socket.
        monitor: Tells of its connections; watch its descriptor, then call :meth:`watch`.
        opened: Connections ever accepted.
        closed: Connections that ended.

    Raises:
        ConfigError: The address cannot be bound.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        max_bytes: int,
        *,
        group: str = "",
        mode: int = 0o600,
    ) -> None:
        self.address, self._group, self._mode = address, group, mode
        self.opened = self.closed = 0
        self._hidden = False
        named = address.startswith(_IPC) and not address.startswith(f"{_IPC}@")
        self._path = Path(address.removeprefix(_IPC)) if named else None
        self.socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        self.socket.setsockopt(zmq.RCVHWM, 10_000)
        self.socket.setsockopt(zmq.SNDHWM, UNREAD_ANSWERS)
        # An answer that finds no peer, or a peer that is full, is an error we can count.
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # pyzmq's own helper for monitors would load asyncio: 10 MiB.
        inside = f"inproc://monitor-{id(self)}"
        self.socket.monitor(inside, zmq.EVENT_DISCONNECTED | zmq.EVENT_ACCEPTED)
        self.monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self.monitor.connect(inside)
        try:
            self._listen()
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """Close both sockets."""
        if self._hidden and self._path is not None:
            self._move(self._aside(self._path), self._path)
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()

    @property
    def connections(self) -> int:
        """Connections open now."""
        return self.opened - self.closed

    def watch(self) -> None:
        """Count connections, and hide or show the socket file as their number demands.

        To unbind would end the connections of everybody who behaves.
        """
        while int(self.monitor.get(zmq.EVENTS)) & _READABLE:
            event = int.from_bytes(self.monitor.recv_multipart()[0][:2], sys.byteorder)
            if event == zmq.EVENT_DISCONNECTED:
                self.closed += 1
            else:
                self.opened += 1
        if self._path is None:
            return
        if not self._hidden and self.connections >= CONNECTIONS:
            log.warning("%s: %d connections: nobody new is let in", self.address, CONNECTIONS)
            self._move(self._path, self._aside(self._path))
        elif self._hidden and self.connections < CONNECTIONS * 3 // 4:
            self._move(self._aside(self._path), self._path)

    @staticmethod
    def _aside(path: Path) -> Path:
        return path.with_name(f".{path.name}.full")

    def _move(self, old: Path, new: Path) -> None:
        try:
            old.rename(new)
        except OSError as error:
            log.warning("%s: cannot be moved: %s", old, error)
        self._hidden = not self._hidden

    def _listen(self) -> None:
        # Born closed; opened below only to whom it is meant for.
        umask = os.umask(0o177)
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self.socket.bind(self.address)
        except (zmq.ZMQError, OSError) as error:
            raise ConfigError(
                "cannot bind",
                where=self.address,
                why=str(error),
                hint="set sockets.* to a free address",
            ) from None
        finally:
            os.umask(umask)
        if self._path is not None:
            self._open_to_others(self._path)

    def _open_to_others(self, path: Path) -> None:
        if self._group:
            try:
                os.chown(path, -1, grp.getgrnam(self._group).gr_gid)
            except KeyError:
                log.warning("%s: no group '%s': only root can send hints", path, self._group)
            except PermissionError:
                log.warning("%s: not allowed to give it to group '%s'", path, self._group)
        path.chmod(self._mode)
