"""The wire messages: bounds, diagnosis, hostile bytes and the golden vectors."""

import json
import math
from typing import Any, get_args

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import governor.messages
from governor.messages import (
    MAX_DEADLINE_NS,
    MAX_REQUEST_BYTES,
    Answer,
    AnyRequest,
    Begin,
    Close,
    Code,
    End,
    Error,
    MessageError,
    Open,
    Ping,
    Policy,
    Reload,
    Reply,
    decode_answer,
    decode_request,
    encode,
    encode_error,
    encode_reply,
)
from tests.governor import vectors

GOLDEN = json.loads(vectors.PATH.read_text(encoding="utf-8"))
KINDS: tuple[type[msgspec.Struct], ...] = get_args(AnyRequest)
OPEN = vectors.REQUESTS["open"]
BEGIN = vectors.REQUESTS["begin"]
END = vectors.REQUESTS["end"]


def refused(fields: Any, *, admin: bool = False) -> MessageError:
    raw = fields if isinstance(fields, bytes) else msgpack.packb(fields)
    with pytest.raises(MessageError) as caught:
        decode_request(raw, admin=admin)
    return caught.value


def read(vector: dict[str, Any], raw: bytes) -> Any:
    if vector["socket"] == "answer":
        return decode_answer(raw)
    return decode_request(raw, admin=vector["socket"] == "admin")


def named(vector: dict[str, Any]) -> str:
    return str(vector["name"])


# ---- golden vectors ------------------------------------------------------------------------


def test_the_vector_file_is_the_one_its_function_makes() -> None:
    assert vectors.vectors() == GOLDEN


def test_there_is_a_vector_for_every_operation() -> None:
    ops = {kind.__struct_config__.tag for kind in KINDS}
    assert ops == {v["fields"]["op"] for v in GOLDEN if v["socket"] != "answer"}


@pytest.mark.parametrize("vector", GOLDEN, ids=named)
def test_bytes_give_the_fields(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    assert msgpack.unpackb(raw) == msgspec.msgpack.decode(raw) == vector["fields"]
    message = read(vector, raw)
    assert type(message).__name__.lower() == vector["fields"]["op"]
    for key, value in vector["fields"].items():
        assert key == "op" or getattr(message, key) == value


@pytest.mark.parametrize("vector", GOLDEN, ids=named)
def test_fields_give_the_bytes(vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    assert msgpack.packb(fields).hex() == vector["hex"]
    assert msgspec.msgpack.encode(fields).hex() == vector["hex"]
    kind = getattr(governor.messages, fields["op"].title())
    message = kind(**{key: value for key, value in fields.items() if key != "op"})
    assert encode(message).hex() == vector["hex"]


def test_the_document_shows_the_vectors() -> None:
    assert vectors.split_document()[1] == vectors.section()


def test_the_document_tells_every_code_operation_and_field() -> None:
    text = vectors.DOCUMENT.read_text(encoding="utf-8").partition("## Golden vectors")[0]
    fields = {name for kind in (*KINDS, Reply, Error) for name in kind.__struct_fields__}
    words = {code.value for code in Code} | {kind.__struct_config__.tag for kind in KINDS} | fields
    assert not {word for word in words if f"`{word}`" not in text}
    for number in (MAX_REQUEST_BYTES, "3.6e12", "1 MiB"):
        assert str(number) in text


# ---- reading -------------------------------------------------------------------------------


def test_unknown_fields_and_any_integer_width_are_taken() -> None:
    wide = b"\x84\xa1v\xcf" + (1).to_bytes(8, "big") + b"\xa2op\xa4ping\xa2id\xd1\x00\x07\xa1x\x90"
    assert decode_request(wide) == Ping(v=1, id=7)


def test_the_order_of_the_fields_does_not_matter_to_the_reader() -> None:
    assert decode_request(msgpack.packb(dict(reversed(BEGIN.items())))) == Begin(
        v=1, session=1, job=1, start_ns=123_456_789_012
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"deadline_ns": -1}, "$.deadline_ns"),
        ({"deadline_ns": 0}, "$.deadline_ns"),
        ({"deadline_ns": math.nan}, "$.deadline_ns"),
        ({"deadline_ns": math.inf}, "$.deadline_ns"),
        ({"deadline_ns": "20ms"}, "$.deadline_ns"),
        ({"deadline_ns": 2e7}, "$.deadline_ns"),
        ({"deadline_ns": MAX_DEADLINE_NS + 1}, "$.deadline_ns"),
        ({"period_ns": 0}, "$.period_ns"),
        ({"session": -1}, "$.session"),
        ({"session": 2**32}, "$.session"),
        ({"session": True}, "$.session"),
        ({"model": ""}, "$.model"),
        ({"model": "m" * 65}, "$.model"),
        ({"model": b"bytes"}, "$.model"),
        ({"name": "n" * 65}, "$.name"),
        ({"phase": "training"}, "$.phase"),
        ({"context": -1}, "$.context"),
        ({"context": 2**20 + 1}, "$.context"),
        ({"miss_budget": 0.0}, "$.miss_budget"),
        ({"miss_budget": 0.51}, "$.miss_budget"),
        ({"miss_budget": math.nan}, "$.miss_budget"),
    ],
)
def test_a_value_out_of_bounds_names_its_field(change: dict[str, Any], field: str) -> None:
    error = refused({**OPEN, **change})
    assert (error.code, error.field, error.id) == (Code.BAD_FIELD, field, 1)
    assert error.reason and "\n" not in error.reason


@pytest.mark.parametrize("field", ["v", "session", "model"])
def test_a_missing_field_is_named(field: str) -> None:
    error = refused({key: value for key, value in OPEN.items() if key != field})
    assert (error.code, error.field) == (Code.BAD_FIELD, f"$.{field}")


@pytest.mark.parametrize("version", [0, 2, 2**40])
def test_another_version_is_told_so_whatever_else_it_says(version: int) -> None:
    error = refused({"v": version, "op": "dance", "id": 9, "deadline_ns": []})
    assert (error.code, error.field, error.id) == (Code.VERSION, "$.v", 9)


def test_an_unknown_operation_keeps_the_id() -> None:
    error = refused({"v": 1, "op": "dance\n" * 40, "id": 9})
    assert (error.code, error.field, error.id) == (Code.UNKNOWN_OP, "$.op", 9)
    assert "\n" not in error.reason
    assert len(error.reason) < 100


def test_two_deadlines_are_refused_and_the_job_is_named() -> None:
    error = refused({**BEGIN, "deadline_ns": 5, "deadline_at_ns": 123_456_789_013})
    assert (error.code, error.field) == (Code.BAD_FIELD, "$.deadline_at_ns")
    assert (error.session, error.job) == (1, 1)


@pytest.mark.parametrize(
    ("offset_ns", "code"),
    [(0, Code.LATE), (-1, Code.LATE), (MAX_DEADLINE_NS + 1, Code.BAD_FIELD)],
)
def test_an_absolute_deadline_must_leave_some_time(offset_ns: int, code: Code) -> None:
    error = refused({**BEGIN, "deadline_at_ns": BEGIN["start_ns"] + offset_ns})
    assert (error.code, error.field) == (code, "$.deadline_at_ns")


def test_an_end_before_its_start_is_refused() -> None:
    error = refused({**END, "id": 3, "end_ns": END["start_ns"] - 1})
    assert (error.code, error.field, error.id) == (Code.BAD_FIELD, "$.end_ns", 3)


def test_an_end_at_its_start_is_taken() -> None:
    assert isinstance(decode_request(msgpack.packb({**END, "end_ns": END["start_ns"]})), End)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"action": "delete"}, "$.action"),
        ({"name": None}, "$.name"),
        ({"options": {"margin": math.nan}}, "$.options.margin"),
        ({"options": {f"k{i}": i for i in range(33)}}, "$.options"),
        ({"options": {"k": "x" * 257}}, "$.options[...]"),
        ({"options": {"k": [1]}}, "$.options[...]"),
    ],
)
def test_bad_policy_requests(change: dict[str, Any], field: str) -> None:
    error = refused({**vectors.ADMIN["policy-set"], **change}, admin=True)
    assert (error.code, error.field) == (Code.BAD_FIELD, field)


@pytest.mark.parametrize("name", vectors.ADMIN)
def test_admin_operations_are_denied_on_the_hints_socket(name: str) -> None:
    assert refused(vectors.ADMIN[name]).code == Code.DENIED


@pytest.mark.parametrize("name", ["open", "begin", "end", "update", "close"])
def test_sessions_are_denied_on_the_admin_socket(name: str) -> None:
    assert refused(vectors.REQUESTS[name], admin=True).code == Code.DENIED


# ---- hostile bytes -------------------------------------------------------------------------

PING = msgpack.packb({"v": 1, "op": "ping"})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"garbage",
        PING[:-1],
        PING + b"x",
        b"\x81\xa2op\xa2\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x82\xa1v\x01\xa1x\xdd\xff\xff\xff\xff",
        b"\x91" * MAX_REQUEST_BYTES,
        b"\x82\xa1v\x01\xa1x" + b"\x91" * 4000,
        msgpack.packb([1, 2]),
        msgpack.packb({1: 2}),
    ],
    ids=lambda raw: raw[:8].hex() or "empty",
)
def test_garbage_is_malformed(raw: bytes) -> None:
    error = refused(raw)
    assert (error.code, error.id) == (Code.MALFORMED, 0)


def test_a_message_over_the_limit_is_not_even_read() -> None:
    assert refused(PING.ljust(MAX_REQUEST_BYTES + 1, b"\xc0")).code == Code.MALFORMED


values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.integers(-(2**63), 2**64 - 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
keys = st.sampled_from(sorted({key for vector in GOLDEN for key in vector["fields"]}))


@settings(deadline=None)
@given(st.binary(max_size=64))
@example(b"\xd6\xff\xff\xff\xff\xff")
def test_random_bytes_raise_nothing_else(raw: bytes) -> None:
    for call in (decode_request, decode_answer):
        with pytest.raises(MessageError):
            call(raw)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(GOLDEN), st.dictionaries(keys, values, max_size=3), st.data())
def test_damaged_messages_raise_nothing_else(
    vector: dict[str, Any], damage: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(msgpack.packb({**vector["fields"], **damage}))
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = read(vector, bytes(raw))
    except MessageError as error:
        assert isinstance(decode_answer(encode_error(error)), Error)
    else:
        assert read(vector, encode(message)) == message


# ---- writing -------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))
def test_version_comes_first_then_the_operation(session: int, job: int, start_ns: int) -> None:
    message = Begin(v=1, session=session, job=job, start_ns=start_ns)
    raw = encode(message)
    assert list(msgpack.unpackb(raw))[:2] == ["v", "op"]
    assert decode_request(raw) == message


def test_defaults_are_not_sent() -> None:
    assert msgpack.unpackb(encode(Open(v=1, session=1, model="m"))) == {
        "v": 1,
        "op": "open",
        "session": 1,
        "model": "m",
    }


def test_a_reply_goes_there_and_back() -> None:
    raw = encode_reply(3, {"feasible": True, "predicted_us": 1.5}, session=9)
    assert decode_answer(raw) == Reply(
        v=1, id=3, session=9, body={"feasible": True, "predicted_us": 1.5}
    )


def test_an_error_goes_there_and_back_in_one_line() -> None:
    error = MessageError(Code.ORDER, "$.job", "two\nlines " + "x" * 999, 4, session=1, job=2)
    answer = decode_answer(encode_error(error))
    assert isinstance(answer, Error)
    assert (answer.code, answer.field, answer.id) == ("order", "$.job", 4)
    assert answer.reason.startswith("two lines x")
    assert len(answer.reason) == 500
    assert str(error).startswith("order: $.job: two lines")


def test_a_code_of_the_future_is_read() -> None:
    raw = msgpack.packb({**vectors.ANSWERS["error-reopen"], "code": "tomorrow"})
    answer = decode_answer(raw)
    assert isinstance(answer, Error)
    assert answer.code == "tomorrow"


def test_what_messagepack_cannot_hold_is_a_message_error() -> None:
    with pytest.raises(MessageError, match="bad-field"):
        encode_reply(1, {"x": 2**70})
    with pytest.raises(MessageError, match="bad-field"):
        encode_reply(1, {"x": object()})


@pytest.mark.parametrize("kind", [*Answer.__subclasses__(), Begin, Close, Open, Policy, Reload])
def test_the_map_header_and_the_operation_fit_one_byte_each(kind: type[msgspec.Struct]) -> None:
    config = kind.__struct_config__
    assert len(kind.__struct_fields__) + 1 <= 15
    assert isinstance(config.tag, str)
    assert len(config.tag) <= 31
