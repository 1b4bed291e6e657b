"""How a client's frames reach the daemon: the ZeroMQ socket and its settings.

Imported into applications: nothing from outside ``governor`` but pyzmq.
"""

import math
import os
import stat
import threading
from pathlib import Path
from typing import Any, Protocol

import zmq

from governor.messages import DEFAULT_ADDRESS, MAX_ANSWER_BYTES

ADDRESS_VARIABLE = "FLAMEGOV_ADDRESS"
"""Environment variable that names the daemon's address."""

SEND_QUEUE = 64
"""Messages that wait for a daemon that is connected but busy; more are dropped and counted."""

CLOSE_LINGER_MS = 50
"""How long closing waits at most for the last messages to leave."""


_NOBLOCK = int(zmq.NOBLOCK)
_getpid = os.getpid


class Transport(Protocol):
    """Carries frames to the daemon and back."""

    def send(self, frame: bytes) -> bool:
        """Send a frame without waiting; False if that cannot be."""

    def recv(self, timeout_s: float) -> bytes | None:
        """Return the next frame, or None if none comes in time; 0 does not wait."""

    def close(self) -> None:
        """Let go of everything, without waiting."""


class ZmqTransport:
    """A DEALER socket to the daemon.

    Args:
        address: ZeroMQ address of the daemon.
        timeout_s: How long to wait for the connection. There is no wait if the socket file does
            not exist; the connection is made in the background when it appears.

    Raises:
        ValueError: The address is not one.
    """

    __slots__ = ("_address", "_context", "_lock", "_pid", "_send", "_socket")

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connect()
        if not is_absent(address):
            self._socket.poll(round(timeout_s * 1000), zmq.POLLOUT)

    def _connect(self) -> None:
        self._pid = _getpid()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        try:
            configure(self._socket, self._address)
        except (zmq.ZMQError, ValueError) as error:
            self._context.destroy(linger=0)
            raise ValueError(f"cannot use the address {self._address!r}: {error}") from None
        # The socket's own send without pyzmq's Python layer, which handles routing ids, groups and
        # draft types: a hint is sent from cold caches, where each layer costs tens of us.
        self._send = super(zmq.Socket, self._socket).send

    def send(self, frame: bytes) -> bool:
        """Send a frame without waiting; False if the daemon is away or another thread is here."""
        if _getpid() != self._pid:
            # A forked child must not touch the parent's socket, nor a lock held at the fork.
            self._lock = threading.Lock()
            self._connect()
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._send(frame, _NOBLOCK)
        except zmq.ZMQError:
            # EAGAIN: the daemon is away or busy. ENOTSOCK: this client was closed.
            return False
        finally:
            self._lock.release()
        return True

    def recv(self, timeout_s: float) -> bytes | None:
        """Return the next frame, or None if none comes in time."""
        if _getpid() != self._pid:
            return None
        with self._lock:
            try:
                if timeout_s > 0:
                    self._socket.poll(math.ceil(timeout_s * 1000), zmq.POLLIN)
                elif not int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
                    return None
                return self._socket.recv(zmq.NOBLOCK)
            except zmq.ZMQError:
                return None

    def close(self) -> None:
        """Let go of the socket. What the daemon's connection already took is still delivered."""
        if _getpid() == self._pid:
            self._context.destroy(linger=CLOSE_LINGER_MS)


def configure(socket: "zmq.Socket[Any]", address: str) -> None:
    """Set the options of a client's socket and connect it."""
    # IMMEDIATE: no queue before there is a connection, so that a send tells if the daemon is away.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, SEND_QUEUE)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_ANSWER_BYTES)
    socket.connect(address)


def is_absent(address: str) -> bool:
    """Tell whether an ipc address has no socket file, so that waiting for it is idle."""
    scheme, _, path = address.partition("://")
    if scheme != "ipc" or path.startswith("@"):
        return False
    try:
        return not stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return True


def find_address(address: str | None) -> str:
    """Return the address given, else the environment's, else the default."""
    return address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
