"""Tell the governor what is being computed and by when.

    from governor.client import connect

    with connect() as gov, gov.session("resnet50", deadline="20ms") as s:
        for frame in camera:
            with s.job():
                infer(frame)

Without a daemon everything above runs the same and only counts what it could not send
(``gov.stats``); ``strict=True`` raises instead. ``begin``, ``end``, ``update`` and ``close`` never
wait unless ``ack=True``.

Threads: use one client per thread; connecting is cheap. Sharing one is safe, but a message that
meets another thread's call is dropped and counted. After ``fork`` the child's client connects anew
and its sessions open again by themselves.
"""

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from msgspec import structs

from governor._clientcore import (
    ClientError,
    Core,
    ReplyError,
    SessionCore,
    Stats,
    UnavailableError,
    deadline_ns,
    hiding,
    with_ack,
)
from governor._transport import Transport, ZmqTransport, find_address
from governor.durations import Duration
from governor.messages import (
    AnyRequest,
    Code,
    Error,
    Phase,
    Ping,
    Query,
    Reply,
    SessionRequest,
    Status,
    encode,
)

__all__ = [
    "Client",
    "ClientError",
    "Job",
    "ReplyError",
    "Session",
    "Stats",
    "Transport",
    "UnavailableError",
    "ZmqTransport",
    "connect",
]

_DRAIN = 16
"""Answers read after an ``end``; more wait for the next one."""

T = TypeVar("T")


def connect(
    address: str | None = None,
    *,
    strict: bool = False,
    transport: Transport | None = None,
    timeout: Duration = "250ms",
) -> "Client":
    """Connect to the daemon.

    Args:
        address: ZeroMQ address; default ``$FLAMEGOV_ADDRESS``, else the system's daemon.
        strict: Raise when the daemon is away or refuses a message, instead of counting.
        transport: What to send through instead of ZeroMQ, for tests (``governor.testing``).
        timeout: How long to wait for the connection, and for each answer that is waited for.

    Raises:
        ValueError: The address or the timeout is not one.
    """
    timeout_s = (deadline_ns(timeout) or 0) / 1e9
    return Client(transport or ZmqTransport(find_address(address), timeout_s), strict, timeout_s)


class Client:
    """A connection to the daemon; made by :func:`connect`.

    Attributes:
        stats: What became of the messages.
    """

    def __init__(self, transport: Transport, strict: bool, timeout_s: float) -> None:
        self._transport, self._strict, self._timeout_s = transport, strict, timeout_s
        self._core = Core(transport.send, strict)
        self.stats = self._core.stats

    def session(
        self,
        model: str,
        *,
        deadline: Duration | None = None,
        period: Duration | None = None,
        phase: Phase = "inference",
        context: int = 0,
        miss_budget: float | None = None,
        name: str = "",
    ) -> "Session":
        """Open a session: a stream of jobs of one model with one kind of deadline.

        Args:
            model: Name of the latency table.
            deadline: Time allowed per job; may also be given with each job.
            period: Time between the starts of jobs, if they are periodic.
            phase: ``"inference"``, or ``"decode"`` or ``"prefill"`` of a language model.
            context: Tokens in the context.
            miss_budget: Share of jobs that may be late, up to 0.5; none of today's policies plans
                with it yet.
            name: What to call the session in ``flamegov status``.

        Raises:
            ValueError: An argument is out of bounds.
            ClientError: The daemon is away or refuses (only if strict).
        """
        core = self._core.new_session(
            model,
            deadline=deadline,
            period=period,
            phase=phase,
            context=context,
            miss_budget=miss_budget,
            name=name,
        )
        try:
            reply = self._ask(self._core.open(core))
        except ClientError:
            self._core.forget(core)
            raise
        return Session(self, core, reply)

    def query(
        self,
        model: str,
        *,
        deadline: Duration | None = None,
        phase: Phase = "inference",
        context: int = 0,
    ) -> dict[str, Any] | None:
        """Ask for latencies and slack; None if there was no answer (unless strict)."""
        return self.ask(
            Query(v=1, model=model, deadline_ns=deadline_ns(deadline), phase=phase, context=context)
        )

    def status(self, *, detail: bool = False) -> dict[str, Any] | None:
        """Ask for the daemon's state; None if there was no answer (unless strict)."""
        return self.ask(Status(v=1, detail=detail))

    def ping(self) -> bool:
        """Tell whether the daemon answers; keeps this client's sessions alive."""
        return self.ask(Ping(v=1)) is not None

    def ask(self, request: AnyRequest) -> dict[str, Any] | None:
        """Send any request that is answered, and return the body of the reply.

        Returns:
            The body, or None if the daemon is away, silent, or refused (unless strict).

        Raises:
            ReplyError: The daemon refused (only if strict).
            UnavailableError: The daemon is away or silent (only if strict).
        """
        return self._ask(structs.replace(request, id=self._core.next_id()))

    def close(self) -> None:
        """Close the sessions and the connection, within 50 ms. Never raises about the daemon."""
        for core in list(self._core.sessions.values()):
            close = self._core.forget(core)
            if close is not None:
                self._transport.send(encode(close))
        self._transport.close()

    def __enter__(self) -> "Client":
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _drain(self) -> None:
        """Read what the daemon said about one-way messages, without waiting."""
        for _ in range(_DRAIN):
            raw = self._transport.recv(0)
            if raw is None:
                return
            self._take(raw)

    def _take(self, raw: bytes) -> Reply | Error | None:
        answer = self._core.take(raw)
        if self._strict and isinstance(answer, Error) and answer.code != Code.REOPEN:
            raise ReplyError(answer)
        return answer

    def _ask(self, request: AnyRequest) -> dict[str, Any] | None:
        if not self._core.post(request):
            return None
        end_s = time.monotonic() + self._timeout_s
        while (left_s := end_s - time.monotonic()) > 0:
            raw = self._transport.recv(left_s)
            if raw is None:
                break
            answer = self._take(raw)
            if answer is None or answer.id != request.id:
                continue
            if isinstance(answer, Reply):
                return answer.body
            if not self._core.worth_repeating(request, answer):
                return None
            self._core.post(request)
        self.stats.timeouts += 1
        if self._strict:
            raise UnavailableError(f"the governor did not answer within {self._timeout_s:g} s")
        return None


class Session:
    """A stream of jobs of one model; made by :meth:`Client.session`.

    Attributes:
        reply: Body of the newest reply to ``open`` or to a call with ``ack``; None if none came.
    """

    __slots__ = ("_client", "_core", "_send", "_stats", "reply")

    def __init__(self, client: Client, core: SessionCore, reply: dict[str, Any] | None) -> None:
        self._client, self._core = client, core
        self._send, self._stats = client._transport.send, client.stats
        self.reply = reply

    def begin(
        self,
        *,
        start_ns: int | None = None,
        deadline: Duration | None = None,
        deadline_at_ns: int | None = None,
        context: int | None = None,
        ack: bool = False,
    ) -> int:
        """Tell that a job starts.

        Args:
            start_ns: CLOCK_MONOTONIC when it started; default now.
            deadline: Time allowed from the start; default the session's.
            deadline_at_ns: The same as an instant of CLOCK_MONOTONIC; not both.
            context: Tokens in the context; default the session's.
            ack: Wait until the daemon has decided.

        Returns:
            The job's number, for :meth:`end`.

        Raises:
            ValueError: An argument is out of bounds.
            ClientError: The daemon is away or refuses (only if strict).
        """
        core = self._core
        if ack or core.blocked or start_ns is not None or deadline_at_ns is not None:
            self._say(core.begin(start_ns, deadline, deadline_at_ns, context), ack)
        elif self._send(core.lean_begin(deadline, context)):
            self._stats.sent += 1
        else:
            self._client._core.lost()
        return core.job

    def end(
        self,
        job: int | None = None,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        aborted: bool = False,
        ack: bool = False,
    ) -> None:
        """Tell that a job is over.

        Args:
            job: Its number; default the newest.
            start_ns: CLOCK_MONOTONIC when it started; default that of ``begin``.
            end_ns: CLOCK_MONOTONIC when its result was there (after GPU synchronisation);
                default now.
            aborted: The job did not run as usual: do not learn from it.
            ack: Wait until the daemon has decided.

        Raises:
            ClientError: The daemon is away, or refused this or an earlier message (only if strict).
        """
        self._say(self._core.end(job, start_ns, end_ns, aborted), ack)
        self._client._drain()

    def update(
        self,
        *,
        deadline: Duration | None = None,
        context: int | None = None,
        period: Duration | None = None,
        ack: bool = False,
    ) -> None:
        """Change what the session asks for; what is left out stays.

        Raises:
            ValueError: An argument is out of bounds.
            ClientError: The daemon is away, or refused this or an earlier message (only if strict).
        """
        self._say(self._core.update(deadline, context, period), ack)
        self._client._drain()

    def job(
        self,
        *,
        deadline: Duration | None = None,
        deadline_at_ns: int | None = None,
        context: int | None = None,
    ) -> "Job":
        """Return a context manager around one job."""
        return Job(self, deadline, deadline_at_ns, context)

    def tokens(
        self, stream: Iterable[T], *, deadline: Duration | None = None, context: int | None = None
    ) -> Iterator[T]:
        """Pass tokens on, each a job: ``begin`` before it is pulled, ``end`` after.

        Args:
            stream: The language model's tokens.
            deadline: Time allowed per token; default the session's.
            context: Tokens in the context before the first; default the session's. It grows by
                one per token.
        """
        tokens = iter(stream)
        context = self._core.context(context)
        while True:
            with self.job(deadline=deadline, context=context) as job:
                token = next(tokens, _END)
                job.aborted = isinstance(token, _End)
            if isinstance(token, _End):
                return
            context = self._core.grown(context)
            yield token

    def close(self, *, ack: bool = False) -> None:
        """End the session; a second call does nothing."""
        request = self._client._core.forget(self._core)
        if request is not None:
            self._say(request, ack)

    def __enter__(self) -> "Session":
        """Return the session."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; an exception of the block is never hidden by one of the daemon's."""
        with hiding(kind):
            self.close()

    def _say(self, request: SessionRequest, ack: bool) -> None:
        if ack:
            self.reply = self._client._ask(with_ack(request, self._client._core.next_id()))
        else:
            self._client._core.tell(self._core, request)


class _End:
    """Marks the end of a token stream."""


_END = _End()


class Job:
    """One job as a context manager; made by :meth:`Session.job`.

    Attributes:
        number: The job's number.
        start_ns: CLOCK_MONOTONIC at the start.
        end_ns: CLOCK_MONOTONIC at the end; set it inside the block to give a stamp of your own.
        aborted: Whether the daemon is told not to learn from the job; True after an exception.
    """

    __slots__ = (
        "_context",
        "_deadline",
        "_deadline_at_ns",
        "_session",
        "aborted",
        "end_ns",
        "number",
        "start_ns",
    )

    def __init__(
        self,
        session: Session,
        deadline: Duration | None,
        deadline_at_ns: int | None,
        context: int | None,
    ) -> None:
        self._session, self._deadline = session, deadline
        self._deadline_at_ns, self._context = deadline_at_ns, context
        self.number = self.start_ns = 0
        self.end_ns: int | None = None
        self.aborted = False

    @property
    def latency_ns(self) -> int:
        """Time from start to end, ns; to now while the job runs."""
        return (self.end_ns or time.monotonic_ns()) - self.start_ns

    def __enter__(self) -> "Job":
        """Tell that the job starts."""
        self.number = self._session.begin(
            deadline=self._deadline, deadline_at_ns=self._deadline_at_ns, context=self._context
        )
        self.start_ns = self._session._core.start_ns
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell that the job is over; after an exception, that it was aborted."""
        self.end_ns = self.end_ns or time.monotonic_ns()
        with hiding(kind):
            self._session.end(
                self.number,
                start_ns=self.start_ns,
                end_ns=self.end_ns,
                aborted=self.aborted or kind is not None,
            )
