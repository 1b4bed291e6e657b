"""The messages between applications and the daemon: their types, bounds and codec.

Both ends share this module, so it imports nothing but the standard library and msgspec.
``PROTOCOL.md`` describes the same messages for writers of clients in other languages.

A value of one of these types is always consistent: bounds stand in the annotations, relations
between fields in ``__post_init__``. Nothing here looks at a clock.
"""

import enum
import math
import re
from typing import Annotated, Any, Final, Literal, NoReturn, get_args

import msgspec
from msgspec import Meta, Struct

VERSION: Final = 1
"""Version of the protocol; the first entry of every message."""

MAX_REQUEST_BYTES: Final = 4096
"""Largest request; the daemon closes a connection that sends a larger one."""

MAX_ANSWER_BYTES: Final = 1 << 20
"""Largest answer that a client takes."""

MAX_DEADLINE_NS: Final = 3_600_000_000_000
"""Longest deadline and period, 1 h."""

MAX_CONTEXT: Final = 2**20
"""Longest context, tokens."""

DEFAULT_ADDRESS: Final = "ipc:///run/flamegov/hints.sock"
"""Where applications reach the daemon."""

DEFAULT_ADMIN_ADDRESS: Final = "ipc:///run/flamegov/admin.sock"
"""Where root reaches the daemon."""

_PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Names end up in logs and on terminals: no line breaks, no escapes."""

_MAX_REASON_CHARS: Final = 500

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
SessionId = Annotated[int, Meta(ge=0, le=2**32 - 1)]
# No upper bound: MessagePack has no integer above 64 bits, and Meta takes none above 63.
JobId = Annotated[int, Meta(ge=0)]
InstantNs = Annotated[int, Meta(ge=0, le=2**63 - 1)]
DurationNs = Annotated[int, Meta(ge=1, le=MAX_DEADLINE_NS)]
Context = Annotated[int, Meta(ge=0, le=MAX_CONTEXT)]
MissBudget = Annotated[float, Meta(gt=0, le=0.5)]
Label = Annotated[str, Meta(max_length=64, pattern=_PRINTABLE)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=_PRINTABLE)]
Phase = Literal["inference", "decode", "prefill"]
OptionValue = bool | int | float | Annotated[str, Meta(max_length=256)]
Options = Annotated[dict[Name, OptionValue], Meta(max_length=32)]


class Code(str, enum.Enum):
    """Why a request was refused. New codes may come: a client treats them as ``internal``."""

    MALFORMED = "malformed"
    VERSION = "version"
    BAD_FIELD = "bad-field"
    UNKNOWN_OP = "unknown-op"
    UNKNOWN_MODEL = "unknown-model"
    REOPEN = "reopen"
    DUPLICATE_SESSION = "duplicate-session"
    LIMIT = "limit"
    LATE = "late"
    ORDER = "order"
    DENIED = "denied"
    POLICY = "policy"
    INTERNAL = "internal"


class MessageError(Exception):
    """A message cannot be read, or breaks a bound.

    Args:
        code: Kind of failure.
        field: Path of the field at fault, such as ``"$.deadline_ns"``; empty if it is the whole.
        reason: One line for people.
        id: Id of the request; 0 if it could not be read.
        session: Session named by the request, if it could be read.
        job: Job named by the request, if it could be read.
    """

    def __init__(
        self,
        code: Code,
        field: str,
        reason: str,
        id: int = 0,  # noqa: A002 - the name on the wire
        *,
        session: int | None = None,
        job: int | None = None,
    ) -> None:
        self.code, self.field, self.id = code, field, id
        self.reason = " ".join(reason.split())[:_MAX_REASON_CHARS]
        self.session, self.job = session, job
        super().__init__(code, field, self.reason, id)

    def __str__(self) -> str:
        """Join code, field and reason into one line."""
        return f"{self.code.value}: {self.field + ': ' if self.field else ''}{self.reason}"


class Request(
    Struct, kw_only=True, frozen=True, omit_defaults=True, gc=False, tag_field="op", tag=str.lower
):
    """What every request carries.

    Attributes:
        v: Protocol version.
        id: Echoed in the answer; 0 for none.
    """

    v: Literal[1]
    id: Id = 0

    def _refuse(self, field: str, reason: str, code: Code = Code.BAD_FIELD) -> NoReturn:
        session, job = getattr(self, "session", None), getattr(self, "job", None)
        raise MessageError(code, f"$.{field}", reason, self.id, session=session, job=job)


class Open(Request, kw_only=True, frozen=True):
    """Start a session: a stream of jobs of one model with one kind of deadline."""

    session: SessionId
    model: Name
    phase: Phase = "inference"
    deadline_ns: DurationNs | None = None
    period_ns: DurationNs | None = None
    context: Context = 0
    miss_budget: MissBudget | None = None
    name: Label = ""


class Begin(Request, kw_only=True, frozen=True):
    """A job starts. The deadline is relative to ``start_ns``, absolute, or the session's."""

    session: SessionId
    job: JobId
    start_ns: InstantNs
    deadline_ns: DurationNs | None = None
    deadline_at_ns: InstantNs | None = None
    context: Context | None = None
    ack: bool = False

    def __post_init__(self) -> None:
        """Check the deadlines.

        Raises:
            MessageError: Both are given.
        """
        if self.deadline_ns is not None and self.deadline_at_ns is not None:
            self._refuse("deadline_at_ns", "give deadline_ns or deadline_at_ns, not both")


class End(Request, kw_only=True, frozen=True):
    """A job is over. The stamps are the application's own, taken after GPU synchronisation.

    ``aborted`` tells that the time says nothing about the model: it frees the job, and is not
    learnt from.
    """

    session: SessionId
    job: JobId
    start_ns: InstantNs
    end_ns: InstantNs
    aborted: bool = False
    ack: bool = False

    def __post_init__(self) -> None:
        """Check the order of the stamps.

        Raises:
            MessageError: The end lies before the start.
        """
        if self.end_ns < self.start_ns:
            self._refuse("end_ns", "the end lies before the start")


class Update(Request, kw_only=True, frozen=True):
    """Change what a session asks for; what is absent stays."""

    session: SessionId
    deadline_ns: DurationNs | None = None
    context: Context | None = None
    period_ns: DurationNs | None = None
    ack: bool = False


class Close(Request, kw_only=True, frozen=True):
    """End a session."""

    session: SessionId
    ack: bool = False


class Query(Request, kw_only=True, frozen=True):
    """Ask for latencies and slack. Changes nothing."""

    model: Name
    deadline_ns: DurationNs | None = None
    phase: Phase = "inference"
    context: Context = 0


class Ping(Request, kw_only=True, frozen=True):
    """Ask whether the daemon is there; keeps the peer's sessions alive."""


class Status(Request, kw_only=True, frozen=True):
    """Ask for the daemon's state."""

    detail: bool = False


class AdminRequest(Request, kw_only=True, frozen=True):
    """What only the admin socket takes."""


class Policy(AdminRequest, kw_only=True, frozen=True, gc=True):
    """List the policies, show one (without a name: the one in force), or set one.

    ``shadow`` lets one decide along without setting a clock; without a name it ends that.
    """

    action: Literal["list", "show", "set", "shadow"]
    name: Name | None = None
    options: Options = {}

    def __post_init__(self) -> None:
        """Check the action against its arguments.

        Raises:
            MessageError: ``set`` without a name, or an option that is not finite.
        """
        if self.action == "set" and self.name is None:
            self._refuse("name", "action set needs the name of a policy")
        for key, value in self.options.items():
            if isinstance(value, float) and not math.isfinite(value):
                self._refuse(f"options.{key}", "must be finite")


class Reload(AdminRequest, kw_only=True, frozen=True):
    """Read the configuration and the tables again."""


class Pause(AdminRequest, kw_only=True, frozen=True):
    """Hand the board back and decide nothing until ``resume``."""


class Resume(AdminRequest, kw_only=True, frozen=True):
    """Take the board again."""


class Trace(AdminRequest, kw_only=True, frozen=True):
    """Ask for the trace of recent decisions."""


class Answer(Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="op", tag=str.lower):
    """What every answer carries.

    Attributes:
        v: Protocol version.
        id: Id of the request; 0 if it carried none or could not be read.
    """

    v: Literal[1]
    id: Id


class Reply(Answer, kw_only=True, frozen=True):
    """The request was done."""

    session: SessionId | None = None
    body: dict[str, Any]


class Error(Answer, kw_only=True, frozen=True):
    """The request was refused. ``code`` is open-ended here: older clients meet newer codes."""

    code: str
    field: str
    reason: str
    session: SessionId | None = None
    job: JobId | None = None


SessionRequest = Open | Begin | End | Update | Close
AnyRequest = SessionRequest | Query | Ping | Status | Policy | Reload | Pause | Resume | Trace

_ON_ADMIN: Final = (AdminRequest, Query, Ping, Status)
_OPS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(AnyRequest))
_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final = msgspec.msgpack.Decoder(AnyRequest)
_ANY_MAP: Final = msgspec.msgpack.Decoder(dict[str, Any])
_ANSWERS: Final = msgspec.msgpack.Decoder(Reply | Error)
# All that msgspec raises on hostile bytes. Lengths that the bytes do not hold cost no memory.
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_V_FIRST: Final = _ENCODER.encode("v") + _ENCODER.encode(VERSION)


def decode_request(raw: bytes, *, admin: bool = False) -> AnyRequest:
    """Read a request.

    Args:
        raw: One frame.
        admin: Whether it came in on the admin socket, which takes the admin operations, ``query``,
            ``ping`` and ``status``; the other socket takes all but the admin operations.

    Raises:
        MessageError: The bytes are not a request that this socket takes. Nothing else is raised.
    """
    if len(raw) > MAX_REQUEST_BYTES:
        raise MessageError(Code.MALFORMED, "", f"{len(raw)} bytes; the limit is 4096")
    try:
        request: AnyRequest = _REQUESTS.decode(raw)
    except _UNREADABLE as error:
        raise _diagnose(raw, error) from None
    if admin and not isinstance(request, _ON_ADMIN):
        request._refuse("op", "sessions live on the hints socket", Code.DENIED)
    if isinstance(request, AdminRequest) and not admin:
        request._refuse("op", "admin operations go to the admin socket", Code.DENIED)
    if isinstance(request, Begin) and request.deadline_at_ns is not None:
        _check_instant(request, request.deadline_at_ns)
    return request


def decode_answer(raw: bytes) -> Reply | Error:
    """Read an answer.

    Raises:
        MessageError: The bytes are not an answer. Nothing else is raised.
    """
    try:
        answer: Reply | Error = _ANSWERS.decode(raw)
    except _UNREADABLE as error:
        raise MessageError(Code.MALFORMED, "", str(error)) from None
    return answer


def encode(message: Request | Answer) -> bytes:
    """Write a message: ``v`` first, then ``op``, then the fields that differ from their defaults.

    Raises:
        MessageError: A field is of a type or size that MessagePack cannot hold.
    """
    raw = _pack(message)
    # msgspec puts the tag first and `v` after it: map header (1), "op" (3), tag (1 + n), v (3).
    after_tag = 5 + (raw[4] & 0x1F)
    return raw[:1] + _V_FIRST + raw[1:after_tag] + raw[after_tag + len(_V_FIRST) :]


def _pack(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise MessageError(Code.BAD_FIELD, "", str(error)) from None


def encode_body(body: dict[str, Any]) -> msgspec.Raw:
    """Write the body of a reply ahead, to be sent more than once."""
    return msgspec.Raw(_pack(body))


def encode_reply(
    id: int,  # noqa: A002 - the name on the wire
    body: dict[str, Any] | msgspec.Raw | None = None,
    *,
    session: int | None = None,
) -> bytes:
    """Write a reply."""
    head: dict[str, Any] = {"v": VERSION, "op": "reply", "id": id}
    if session is not None:
        head["session"] = session
    head["body"] = {} if body is None else body
    return _pack(head)


def encode_error(error: MessageError) -> bytes:
    """Write the answer to a request that was refused."""
    return encode(
        Error(
            v=1,
            id=error.id,
            code=error.code.value,
            field=error.field,
            reason=error.reason,
            session=error.session,
            job=error.job,
        )
    )


def _check_instant(begin: Begin, deadline_at_ns: int) -> None:
    """Refuse an absolute deadline that leaves no time, or too much.

    Not part of the type: a client that is late already must be able to say so.
    """
    if deadline_at_ns <= begin.start_ns:
        begin._refuse("deadline_at_ns", "the deadline lies before the start", Code.LATE)
    if deadline_at_ns - begin.start_ns > MAX_DEADLINE_NS:
        begin._refuse("deadline_at_ns", "the deadline lies more than 1 h after the start")


def _diagnose(raw: bytes, error: Exception) -> MessageError:
    """Tell what is wrong with a request that did not decode, as precisely as can be."""
    try:
        loose = _ANY_MAP.decode(raw)
    except _UNREADABLE as broken:
        return MessageError(Code.MALFORMED, "", f"not one MessagePack map: {broken}")
    who = [_whole(loose, key, bits) for key, bits in (("id", 63), ("session", 32), ("job", 64))]
    code, field, reason = _classify(loose, str(error))
    return MessageError(code, field, reason, who[0] or 0, session=who[1], job=who[2])


def _classify(loose: dict[str, Any], text: str) -> tuple[Code, str, str]:
    version, op = loose.get("v"), loose.get("op")
    if type(version) is int and version != VERSION:
        return Code.VERSION, "$.v", f"version {version} is not spoken here; send version {VERSION}"
    if isinstance(op, str) and op not in _OPS:
        return Code.UNKNOWN_OP, "$.op", f"unknown operation {op[:32]!r}"
    reason, _, path = text.partition(" - at `")
    missing = re.search(r"missing required field `(\w+)`", reason)
    field = f"$.{missing[1]}" if missing else path.rstrip("`")
    return Code.BAD_FIELD, field, reason


def _whole(loose: dict[str, Any], key: str, bits: int) -> int | None:
    value = loose.get(key)
    return value if type(value) is int and 0 <= value < 2**bits else None
