"""What a client remembers and says, without any input or output of its own.

The sync client (``client.py``) and the asyncio one (``aio.py``) stand on this module: it builds
requests, reads answers, knows which sessions the daemon has forgotten, and counts. It is imported
into applications, so it takes nothing from outside ``governor`` but msgspec.

Errors:

    ClientError
    ├── ReplyError          the daemon refused a request
    └── UnavailableError    the daemon is away or does not answer
"""

import itertools
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

from msgspec import structs

from governor.durations import Duration, parse_ns
from governor.messages import (
    MAX_CONTEXT,
    MAX_DEADLINE_NS,
    AnyRequest,
    Begin,
    Close,
    Code,
    End,
    Error,
    MessageError,
    Open,
    Phase,
    Reply,
    SessionRequest,
    Update,
    decode_answer,
    decode_request,
    encode,
)

REOPEN_PATIENCE_NS = 1_000_000_000
"""How long an unanswered ``open`` holds back the next one for the same session."""

REFUSED_RETRY_NS = 5_000_000_000
"""How long a refused session (unknown model, too many of them) stays quiet before it asks again."""


class ClientError(Exception):
    """Root of what the client raises about the daemon; wrong arguments are ``ValueError``s."""


class ReplyError(ClientError):
    """The daemon refused a request.

    Args:
        error: Its answer.
    """

    def __init__(self, error: Error) -> None:
        self.code, self.field, self.reason = error.code, error.field, error.reason
        where = f"{error.field}: " if error.field else ""
        super().__init__(f"the governor refused a request: {error.code}: {where}{error.reason}")


class UnavailableError(ClientError, ConnectionError):
    """The daemon is away or does not answer."""


_BEGIN_TAIL, _START_KEY = struct.Struct(">Q10sQ"), b"\xa8start_ns\xcf"
_DEADLINE, _DEADLINE_KEY = struct.Struct(">13sQ"), b"\xabdeadline_ns\xcf"
_CONTEXT, _CONTEXT_KEY = struct.Struct(">9sI"), b"\xa7context\xce"


def begin_heads(session: int) -> tuple[bytes, ...]:
    """Return the bytes of a ``begin`` up to the number of the job, for 0, 1, 2 optional fields."""
    whole = encode(Begin(v=1, session=session, job=2**64 - 1, start_ns=2**63 - 1))
    rest = whole[1 : -_BEGIN_TAIL.size]
    return tuple(bytes((whole[0] + fields,)) + rest for fields in range(3))


@dataclass(slots=True)
class Stats:
    """What became of a client's messages.

    Attributes:
        sent: Messages handed to the transport.
        dropped: Messages that could not be sent: the daemon is away, or refused the session.
        timeouts: Questions that got no answer in time.
        errors: Error answers, without those that a new ``open`` repaired.
        reopened: Sessions opened again because the daemon did not know them.
        last_error: Newest error answer, for people; empty if there was none.
    """

    sent: int = 0
    dropped: int = 0
    timeouts: int = 0
    errors: int = 0
    reopened: int = 0
    last_error: str = ""

    def count_error(self, text: str) -> None:
        """Count an error."""
        self.errors += 1
        self.last_error = text


def deadline_ns(value: Duration | None) -> int | None:
    """Turn a deadline or period into ns.

    Raises:
        ValueError: It is not a duration, or not within 1 ns to 1 h.
    """
    if value is None:
        return None
    duration_ns = parse_ns(value)
    if not 1 <= duration_ns <= MAX_DEADLINE_NS:
        raise ValueError(f"a deadline or period lies between 1 ns and 1 h; got {value!r}")
    return duration_ns


def bounded(context: int) -> int:
    """Return the context.

    Raises:
        ValueError: It is out of bounds.
    """
    if not 0 <= context <= MAX_CONTEXT:
        raise ValueError(f"a context lies between 0 and {MAX_CONTEXT} tokens; got {context!r}")
    return context


class SessionCore:
    """One session: what was asked for, and the job in hand.

    Args:
        spec: The ``open`` that would bring the session back as it is now.
        stats: The client's counts.
    """

    __slots__ = (
        "_stats",
        "begin_heads",
        "blocked",
        "job",
        "open_id",
        "retry_at_ns",
        "spec",
        "start_ns",
        "tried_ns",
    )

    def __init__(self, spec: Open, stats: Stats) -> None:
        self.spec = spec
        self.blocked = True
        """Whether an ``open`` must go out first: none was sent yet, or it was refused."""
        self.retry_at_ns = 0
        """When a blocked session may send its ``open``."""
        self.open_id: int | None = None
        """Id of the ``open`` in flight."""
        self.tried_ns = 0
        """When the last ``open`` was sent."""
        self.job = 0
        self.start_ns = 0
        self.begin_heads = begin_heads(spec.session)
        self._stats = stats

    def lean_begin(self, deadline: Duration | None, context: int | None) -> bytes:
        """Start the next job now; return the message's bytes.

        The same as encoding :meth:`begin`, but with integers of full width and without building a
        ``Begin``: this is the one message that a deadline waits for.

        Raises:
            ValueError: An argument is out of bounds.
        """
        extras, fields = b"", 0
        if deadline is not None:
            extras, fields = _DEADLINE.pack(_DEADLINE_KEY, deadline_ns(deadline)), 1
        if context is not None:
            extras, fields = extras + _CONTEXT.pack(_CONTEXT_KEY, bounded(context)), fields + 1
        self.job += 1
        self.start_ns = time.monotonic_ns()
        tail = _BEGIN_TAIL.pack(self.job, _START_KEY, self.start_ns)
        return self.begin_heads[fields] + tail + extras

    def begin(
        self,
        start_ns: int | None,
        deadline: Duration | None,
        deadline_at_ns: int | None,
        context: int | None,
    ) -> Begin:
        """Start the next job.

        Raises:
            ValueError: An argument is out of bounds, or the deadline is given twice.
        """
        if deadline is not None and deadline_at_ns is not None:
            raise ValueError("give deadline or deadline_at_ns, not both")
        self.job += 1
        self.start_ns = time.monotonic_ns() if start_ns is None else start_ns
        return Begin(
            v=1,
            session=self.spec.session,
            job=self.job,
            start_ns=self.start_ns,
            deadline_ns=deadline_ns(deadline),
            deadline_at_ns=deadline_at_ns,
            context=None if context is None else bounded(context),
        )

    def end(self, job: int | None, start_ns: int | None, end_ns: int | None, aborted: bool) -> End:
        """End a job; the one in hand unless told otherwise.

        Stamps in the wrong order are counted as an error and the job is told as aborted: a
        strange clock must not stop the application.
        """
        start = self.start_ns if start_ns is None else start_ns
        end = time.monotonic_ns() if end_ns is None else end_ns
        if end < start:
            self._stats.count_error(f"end_ns {end} lies before start_ns {start}")
            end, aborted = start, True
        return End(
            v=1,
            session=self.spec.session,
            job=self.job if job is None else job,
            start_ns=start,
            end_ns=end,
            aborted=aborted,
        )

    def update(
        self, deadline: Duration | None, context: int | None, period: Duration | None
    ) -> Update:
        """Change what is asked for, here and in the request.

        Raises:
            ValueError: An argument is out of bounds.
        """
        request = Update(
            v=1,
            session=self.spec.session,
            deadline_ns=deadline_ns(deadline),
            context=context,
            period_ns=deadline_ns(period),
        )
        given = {
            key: value
            for key in ("deadline_ns", "context", "period_ns")
            if (value := getattr(request, key)) is not None
        }
        self.spec = checked(structs.replace(self.spec, **given))
        return request

    def context(self, context: int | None) -> int:
        """Return the context given, else the session's.

        Raises:
            ValueError: It is out of bounds.
        """
        return self.spec.context if context is None else bounded(context)

    def grown(self, context: int) -> int:
        """Add a token, as far as the protocol goes; the daemon learns of it with ``begin``."""
        context = min(context + 1, MAX_CONTEXT)
        self.spec = structs.replace(self.spec, context=context)
        return context


class Core:
    """A client's sessions, ids and counts.

    Args:
        send: Hands a frame to the transport without waiting; False if that cannot be.
        strict: Raise what is otherwise only counted.
    """

    def __init__(self, send: Callable[[bytes], bool], strict: bool) -> None:
        self.stats = Stats()
        self.sessions: dict[int, SessionCore] = {}
        self._send, self._strict = send, strict
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)

    def next_id(self) -> int:
        """Return an id for a request that wants an answer."""
        return next(self._ids)

    def new_session(
        self,
        model: str,
        *,
        deadline: Duration | None,
        period: Duration | None,
        phase: Phase,
        context: int,
        miss_budget: float | None,
        name: str,
    ) -> SessionCore:
        """Make a session.

        Raises:
            ValueError: An argument is out of bounds.
        """
        spec = Open(
            v=1,
            session=next(self._numbers),
            model=model,
            phase=phase,
            deadline_ns=deadline_ns(deadline),
            period_ns=deadline_ns(period),
            context=context,
            miss_budget=miss_budget,
            name=name,
        )
        session = SessionCore(checked(spec), self.stats)
        self.sessions[spec.session] = session
        return session

    def open(self, session: SessionCore) -> Open:
        """Build the ``open`` of a session and note that it is on its way."""
        session.open_id, session.tried_ns = self.next_id(), time.monotonic_ns()
        session.blocked = False
        return structs.replace(session.spec, id=session.open_id)

    def forget(self, session: SessionCore) -> Close | None:
        """Take a session off the books; None if there is nothing to close at the daemon."""
        known = self.sessions.pop(session.spec.session, None) is not None
        if not known or session.blocked:
            return None
        return Close(v=1, session=session.spec.session)

    def post(self, request: AnyRequest) -> bool:
        """Send a request; False if it was dropped.

        Raises:
            UnavailableError: It was dropped (only if strict).
        """
        if self._send(encode(request)):
            self.stats.sent += 1
            return True
        if isinstance(request, Open):
            self._block(request.session, 0)
        self.lost()
        return False

    def lost(self) -> None:
        """Count a message that could not be sent.

        Raises:
            UnavailableError: Only if strict.
        """
        self.stats.dropped += 1
        if self._strict:
            raise UnavailableError("the governor is away; is flamegov running? (flamegov status)")

    def tell(self, session: SessionCore, request: SessionRequest) -> None:
        """Send a one-way request of a session, and its ``open`` first if that is due.

        Raises:
            UnavailableError: It was dropped (only if strict).
        """
        if session.blocked:
            if time.monotonic_ns() < session.retry_at_ns:
                self.stats.dropped += 1
                return
            self.post(self.open(session))
        self.post(request)

    def take(self, raw: bytes) -> Reply | Error | None:
        """Read an answer, and open again a session that the daemon has forgotten.

        Returns:
            The answer, or None if it could not be read (which is counted).

        Raises:
            UnavailableError: The ``open`` was dropped (only if strict).
        """
        try:
            answer = decode_answer(raw)
        except MessageError as error:
            self.stats.count_error(str(error))
            return None
        session = None if answer.session is None else self.sessions.get(answer.session)
        if session is not None:
            self._note(session, answer)
        if isinstance(answer, Error) and (session is None or answer.code != Code.REOPEN):
            self.stats.count_error(f"{answer.code}: {answer.field}: {answer.reason}")
        return answer

    def worth_repeating(self, request: AnyRequest, answer: Reply | Error) -> bool:
        """Tell whether a request failed only because its session was being opened again."""
        session = self.sessions.get(getattr(request, "session", -1))
        forgotten = isinstance(answer, Error) and answer.code == Code.REOPEN
        return forgotten and session is not None and not session.blocked

    def _note(self, session: SessionCore, answer: Reply | Error) -> None:
        if answer.id and answer.id == session.open_id:
            session.open_id = None
            if isinstance(answer, Error) and answer.code != Code.DUPLICATE_SESSION:
                self._block(session.spec.session, time.monotonic_ns() + REFUSED_RETRY_NS)
        elif isinstance(answer, Error) and answer.code == Code.REOPEN and not session.blocked:
            # Every message that was under way when the daemon went away brings one such error;
            # the `open` that answers the first of them repairs them all.
            waited_ns = time.monotonic_ns() - session.tried_ns
            if session.open_id is None or waited_ns > REOPEN_PATIENCE_NS:
                self.stats.reopened += 1
                self.post(self.open(session))

    def _block(self, number: int, retry_at_ns: int) -> None:
        session = self.sessions[number]
        session.blocked, session.open_id, session.retry_at_ns = True, None, retry_at_ns


def hiding(kind: type[BaseException] | None) -> AbstractContextManager[None]:
    """Hide the daemon's errors while another exception is under way."""
    return suppress(ClientError) if kind else nullcontext()


def with_ack(request: SessionRequest, number: int) -> SessionRequest:
    """Return the request asking for an answer under an id."""
    return structs.replace(request, id=number, ack=True)


def checked(spec: Open) -> Open:
    """Return the request if the daemon would take it.

    Raises:
        ValueError: A field is out of bounds.
    """
    try:
        decode_request(encode(spec))
    except MessageError as error:
        raise ValueError(f"{error.field}: {error.reason}") from None
    return spec
