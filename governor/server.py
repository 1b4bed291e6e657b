"""The daemon's one loop: two ZeroMQ sockets, the actuator's news, signals and a timer.

libzmq's descriptor is edge-triggered: it tells once that something happened, so EVENTS is read
again before every wait, and after every send. Each drain is bounded; nothing here blocks.
"""

import logging
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import zmq

from governor.actuator import Actuator
from governor.controller import Controller
from governor.endpoint import Endpoint
from governor.messages import (
    AnyRequest,
    Begin,
    Close,
    Code,
    End,
    MessageError,
    Open,
    Ping,
    Update,
    decode_request,
    encode_body,
    encode_error,
    encode_reply,
)
from governor.sessions import RefusedError, Session
from policies.base import Decision

log = logging.getLogger(__name__)

DRAIN = 64
"""Requests taken from one socket before the other gets its turn."""

TIMER_S = 0.1

BODIES = 256
"""Encoded answers kept: an application that alternates deadlines gets the same few again."""

# Plain names: looking an attribute up in zmq for each message is measurable.
_READABLE = int(zmq.POLLIN)
_EVENTS, _RCVMORE, _NOBLOCK = zmq.EVENTS, zmq.RCVMORE, int(zmq.NOBLOCK)
_SNDMORE = int(zmq.SNDMORE) | _NOBLOCK

_CREDENTIALS = 3

_OF_A_SESSION = (Begin, End, Update, Close)


class Answerer(Protocol):
    """Answers what is not about sessions: status, query and the admin operations."""

    def __call__(self, request: AnyRequest) -> dict[str, Any]:
        """Do it.

        Raises:
            RefusedError: It cannot be done.
        """


class Server:
    """Feeds requests to the controller until told to stop.

    Args:
        hints: Endpoint of the applications.
        admin: Endpoint of root.
        controller: Decides.
        actuator: Writes.
        answer: Handles everything that is not about sessions.
        on_signal: Called with each signal number received; returns False to stop the loop.

    Attributes:
        counters: Refusals by code, bad frames, answers dropped, faults of ours.
        requests: Requests by type.
    """

    def __init__(
        self,
        hints: Endpoint,
        admin: Endpoint,
        controller: Controller,
        actuator: Actuator,
        *,
        answer: Answerer,
        on_signal: Callable[[int], bool],
    ) -> None:
        self.hints, self.admin = hints, admin
        self.controller, self.actuator = controller, actuator
        self.answer, self._on_signal = answer, on_signal
        self.counters: Counter[str] = Counter()
        self.requests: Counter[type] = Counter()
        self._bodies: dict[Decision | None, msgspec.Raw] = {}
        self._running = True
        self._answered = False
        self._handlers: dict[type, Callable[[bytes, Any, int], Session]] = {
            Begin: controller.begin,
            End: controller.end,
            Update: controller.update,
            Close: controller.close,
        }

    def run(self, signals_fd: int) -> None:
        """Serve until a signal says stop.

        Args:
            signals_fd: Where the numbers of signals arrive.
        """
        poller = select.poll()
        next_timer = time.monotonic() + TIMER_S
        # What may have come in before the first wait made no edge to wake us.
        more = {self.hints.socket: True, self.admin.socket: True}
        fds = {socket: int(socket.FD) for socket in more}
        monitor_fd = int(self.hints.monitor.FD)
        for fd in (*fds.values(), monitor_fd, self.actuator.wake_fd, signals_fd):
            poller.register(fd, select.POLLIN)
        while self._running:
            wait_s = 0.0 if any(more.values()) else max(0.0, next_timer - time.monotonic())
            ready = {fd for fd, _ in poller.poll(wait_s * 1000)}
            for socket, pending in more.items():
                if pending or fds[socket] in ready:
                    more[socket] = self._drain(socket)
            if self._answered:
                # The answer is still with libzmq's own thread: let it go before writers wake.
                self._answered = False
                os.sched_yield()
            self.actuator.flush()
            if self.actuator.wake_fd in ready:
                self.actuator.take_news()
                self.controller.state_changed()
                self.actuator.flush()
            if monitor_fd in ready:
                self.hints.watch()
            if signals_fd in ready:
                self._take_signals(signals_fd)
            if time.monotonic() >= next_timer:
                next_timer = time.monotonic() + TIMER_S
                self._end_dead_peers()
                self.controller.timer(time.monotonic_ns())
                self.actuator.flush()
                self.hints.watch()

    def _end_dead_peers(self) -> None:
        """End the sessions of processes that are gone, without waiting for their lease."""
        for identity, peer in list(self.controller.sessions.peers.items()):
            pid = peer.address.rpartition(":")[2]
            if pid.isdecimal() and not _alive(int(pid)):
                log.info("client %s is gone: its sessions end", pid)
                self.controller.peer_died(identity, time.monotonic_ns())

    def _take_signals(self, signals_fd: int) -> None:
        """Take all that came: an end goes before a reload, and many reloads are one."""
        numbers = set(os.read(signals_fd, 4096))
        for number in sorted(numbers, key=lambda number: number == signal.SIGHUP):
            self._running = self._on_signal(number) and self._running
            if not self._running:
                return

    def _drain(self, socket: "zmq.Socket[bytes]") -> bool:
        """Serve what is there, up to a bound; tell whether more may be there."""
        peers, admin = self.controller.sessions.peers, socket is self.admin.socket
        for _ in range(DRAIN):
            # Read again after every answer: sending may consume the edge of what came in.
            if not int(socket.get(_EVENTS)) & _READABLE:
                return False
            identity = socket.recv(_NOBLOCK)
            if identity in peers:
                raw, address = socket.recv(_NOBLOCK), ""
            else:
                # Only a frame object tells who is at the other end, and it costs more.
                frame = socket.recv(zmq.NOBLOCK, copy=False)
                raw, address = frame.bytes, _address(frame)
            if socket.get(_RCVMORE):
                self._skip_frames(socket)
            else:
                self._serve(socket, identity, raw, address, admin=admin)
        return True

    def _skip_frames(self, socket: "zmq.Socket[bytes]") -> None:
        self.counters["bad_frames"] += 1
        while socket.get(zmq.RCVMORE):
            socket.recv(zmq.NOBLOCK)

    def _serve(
        self,
        socket: "zmq.Socket[bytes]",
        identity: bytes,
        raw: bytes,
        address: str,
        *,
        admin: bool,
    ) -> None:
        try:
            request = decode_request(raw, admin=admin)
            self.requests[type(request)] += 1
            self._handle(socket, identity, request, address)
        except MessageError as error:
            self._refuse(socket, identity, error)
        except RefusedError as error:
            if error.code is Code.UNKNOWN_MODEL:
                log.warning("a session is refused: %s", error.reason)
            self._refuse(socket, identity, _about(request, error.code, error.field, error.reason))
        except Exception as error:
            # A fault of ours in one request must not take the clocks from all the others.
            log.exception("a request failed")
            self.counters["faults"] += 1
            reason = f"fault of the daemon, see its log: {type(error).__name__}"
            self._refuse(socket, identity, _about(request, Code.INTERNAL, "", reason))

    def _handle(
        self, socket: "zmq.Socket[bytes]", identity: bytes, request: AnyRequest, address: str
    ) -> None:
        now_ns = time.monotonic_ns()
        controller = self.controller
        if isinstance(request, _OF_A_SESSION):
            session = self._handlers[type(request)](identity, request, now_ns)
            if request.ack:
                self._send(socket, identity, self._told(session, request.id))
        elif isinstance(request, Open):
            session = controller.open(identity, request, address, now_ns)
            self._send(socket, identity, self._told(session, request.id))
        else:
            controller.sessions.touch(identity, now_ns)
            body = {} if isinstance(request, Ping) else self.answer(request)
            self._send(socket, identity, encode_reply(request.id, body))

    def _told(self, session: Session, request_id: int) -> bytes:
        """Encode what an application learns about its session."""
        decision = session.decision
        body = self._bodies.get(decision)
        if body is None:
            if len(self._bodies) >= BODIES:
                self._bodies.clear()
            body = self._bodies[decision] = encode_body(_decision_body(decision))
        return encode_reply(request_id, body, session=session.key[1])

    def _refuse(self, socket: "zmq.Socket[bytes]", identity: bytes, error: MessageError) -> None:
        self.counters[f"refused_{error.code.value}"] += 1
        self._send(socket, identity, encode_error(error))

    def _send(self, socket: "zmq.Socket[bytes]", identity: bytes, raw: bytes) -> None:
        try:
            socket.send(identity, _SNDMORE)
            socket.send(raw, _NOBLOCK)
            self._answered = True
        except zmq.ZMQError as error:
            # A peer that does not read, or is gone: its loss, not the others'.
            self.counters["answers_dropped"] += 1
            log.debug("answer dropped: %s", error)


def _about(request: AnyRequest, code: Code, field: str, reason: str) -> MessageError:
    """Say what was wrong with a request that could be read."""
    session, job = getattr(request, "session", None), getattr(request, "job", None)
    return MessageError(code, field, reason, request.id, session=session, job=job)


def _alive(pid: int) -> bool:
    """Tell whether a process exists; 0, a process of another namespace, counts as alive."""
    try:
        os.kill(pid, 0)
        # A killed process whose parent does not wait for it still has an entry, in state Z.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (ProcessLookupError, FileNotFoundError):
        return False
    except OSError:
        return True  # of another user, or /proc is hidden from us: the lease decides
    return stat.rpartition(")")[2].split()[:1] != ["Z"]


def _address(frame: zmq.Frame) -> str:
    """Tell the credentials of the peer, ``uid:gid:pid`` on ipc; empty if libzmq does not say."""
    try:
        return ":".join(str(frame.get("Peer-Address")).split(":")[-_CREDENTIALS:])
    except zmq.ZMQError:
        return ""


def _decision_body(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        return {}
    cpu_hz, gpu_hz = decision.point or (0, 0)
    return {
        "cpu_hz": cpu_hz,
        "gpu_hz": gpu_hz,
        "predicted_us": decision.predicted_us,
        "feasible": decision.feasible,
        "reason": decision.reason,
    }
