"""The sync client over a mock transport."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from governor import _clientcore
from governor.client import ReplyError, UnavailableError, connect
from governor.messages import (
    AnyRequest,
    Begin,
    Close,
    Code,
    End,
    MessageError,
    Open,
    Ping,
    Policy,
    Query,
    Status,
    Update,
    decode_request,
    encode_error,
)
from governor.testing import MockTransport


class Daemon:
    """Answers as the daemon does: unknown sessions are told to open again."""

    def __init__(self) -> None:
        self.sessions: set[int] = set()
        self.refuse_open: Code | None = None

    def __call__(self, request: AnyRequest) -> dict[str, Any]:
        if isinstance(request, Open):
            if self.refuse_open:
                raise MessageError(self.refuse_open, "$.model", "no table")
            if request.session in self.sessions:
                raise MessageError(Code.DUPLICATE_SESSION, "$.session", "open already")
            self.sessions.add(request.session)
        elif isinstance(request, Begin | End | Update | Close):
            if request.session not in self.sessions:
                raise MessageError(Code.REOPEN, "$.session", "no such session")
            if isinstance(request, Close):
                self.sessions.remove(request.session)
        return {"op": type(request).__name__}

    def restart(self) -> None:
        self.sessions.clear()


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def mock(daemon: Daemon) -> MockTransport:
    return MockTransport(daemon)


def test_a_job_is_told_from_open_to_close(mock: MockTransport) -> None:
    before_ns = time.monotonic_ns()
    with (
        connect(transport=mock) as gov,
        gov.session("resnet50", deadline="20ms") as s,
        s.job() as job,
    ):
        pass
    opened, begin, end, close = mock.sent
    assert opened == Open(v=1, id=1, session=1, model="resnet50", deadline_ns=20_000_000)
    assert isinstance(begin, Begin)
    assert isinstance(end, End)
    assert begin == Begin(v=1, session=1, job=1, start_ns=begin.start_ns)
    assert before_ns <= begin.start_ns <= end.end_ns <= time.monotonic_ns()
    assert end == End(v=1, session=1, job=1, start_ns=begin.start_ns, end_ns=end.end_ns)
    assert job.latency_ns == end.end_ns - begin.start_ns
    assert close == Close(v=1, session=1)
    assert mock.closed
    assert (gov.stats.sent, gov.stats.dropped, gov.stats.errors) == (4, 0, 0)


def test_a_job_may_carry_its_own_deadline_and_stamps(mock: MockTransport) -> None:
    with connect(transport=mock) as gov, gov.session("m") as s:
        with s.job(deadline="15ms", context=3) as job:
            job.end_ns = job.start_ns + 5
        soon_ns = time.monotonic_ns() + 20_000_000
        with s.job(deadline_at_ns=soon_ns):
            pass
        assert s.begin(start_ns=100, deadline=timedelta(milliseconds=2)) == 3
        s.end(start_ns=101, end_ns=103)
        s.end(7, start_ns=1, end_ns=2)
    first, second, third = mock.of(Begin)
    assert (first.deadline_ns, first.context) == (15_000_000, 3)
    assert second.deadline_at_ns == soon_ns
    assert (third.start_ns, third.deadline_ns) == (100, 2_000_000)
    ends = mock.of(End)
    assert ends[0].end_ns - ends[0].start_ns == 5
    assert [(e.job, e.start_ns, e.end_ns) for e in ends[2:]] == [(3, 101, 103), (7, 1, 2)]


def test_an_exception_aborts_the_job_and_passes(mock: MockTransport) -> None:
    with connect(transport=mock) as gov, gov.session("m") as s:
        with pytest.raises(KeyError), s.job():
            raise KeyError("mine")
        with s.job():
            pass
    assert [end.aborted for end in mock.of(End)] == [True, False]


def test_an_exception_is_not_hidden_by_one_of_the_daemon(mock: MockTransport) -> None:
    with (
        pytest.raises(KeyError),
        connect(transport=mock, strict=True) as gov,
        gov.session("m") as s,
        s.job(),
    ):
        mock.up = False
        raise KeyError("mine")


def test_tokens_are_jobs_with_a_growing_context(mock: MockTransport) -> None:
    told_when_pulled = []

    def stream() -> Iterator[str]:
        for token in "abc":
            told_when_pulled.append((len(mock.of(Begin)), len(mock.of(End))))
            yield token

    with connect(transport=mock) as gov, gov.session("llm", phase="decode") as s:
        assert list(s.tokens(stream(), deadline="120ms", context=10)) == ["a", "b", "c"]
        assert list(s.tokens("d")) == ["d"]
    assert told_when_pulled == [(1, 0), (2, 1), (3, 2)]
    assert [begin.context for begin in mock.of(Begin)] == [10, 11, 12, 13, 13, 14]
    assert [begin.deadline_ns for begin in mock.of(Begin)] == [120_000_000] * 4 + [None] * 2
    assert [end.aborted for end in mock.of(End)] == [False, False, False, True, False, True]


def test_a_token_stream_that_is_left_or_breaks(mock: MockTransport) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gpu fell off")

    with connect(transport=mock) as gov, gov.session("llm", phase="decode") as s:
        for _ in s.tokens([1, 2, 3], context=7):
            break
        assert s._core.spec.context == 8
        with pytest.raises(OSError, match="gpu fell off"):
            list(s.tokens(broken()))
    assert [end.aborted for end in mock.of(End)] == [False, False, True]


def test_update_changes_what_a_reopening_asks_for(mock: MockTransport, daemon: Daemon) -> None:
    with connect(transport=mock) as gov, gov.session("m", deadline="20ms", context=4) as s:
        s.update(deadline="12ms", period="33ms", context=5)
        daemon.restart()
        s.update(context=6)
    assert mock.of(Update)[0] == Update(
        v=1, session=1, deadline_ns=12_000_000, context=5, period_ns=33_000_000
    )
    again = mock.of(Open)[1]
    assert (again.deadline_ns, again.period_ns, again.context) == (12_000_000, 33_000_000, 6)


def test_a_restarted_daemon_is_told_the_session_again(mock: MockTransport, daemon: Daemon) -> None:
    with connect(transport=mock, strict=True) as gov, gov.session("m", deadline="20ms") as s:
        daemon.restart()
        for _ in range(3):
            with s.job():
                pass
    opens = mock.of(Open)
    assert len(opens) == 2
    assert opens[1].id != opens[0].id
    assert (opens[1].model, opens[1].deadline_ns) == ("m", 20_000_000)
    assert (gov.stats.reopened, gov.stats.errors, gov.stats.dropped) == (1, 0, 0)


def test_an_ack_across_a_restart_is_answered(mock: MockTransport, daemon: Daemon) -> None:
    with connect(transport=mock, strict=True) as gov, gov.session("m") as s:
        assert s.reply == {"op": "Open"}
        daemon.restart()
        s.begin(ack=True)
        assert s.reply == {"op": "Begin"}
        s.end(ack=True)
        assert s.reply == {"op": "End"}
    assert [type(r).__name__ for r in mock.sent] == [
        "Open",
        "Begin",
        "Open",
        "Begin",
        "End",
        "Close",
    ]


def test_many_reopen_errors_bring_one_open(
    mock: MockTransport, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(transport=mock) as gov, gov.session("m") as s:
        daemon.restart()
        for _ in range(10):
            s.begin()
        stale = [error for error in mock.answers if b"reopen" in error]
        s.end()
        assert len(stale) == 10
        assert len(mock.of(Open)) == 2
        # The answer to that `open` may be lost with one more restart: patience ends.
        mock.answers.clear()
        daemon.restart()
        s._core.open_id = 99
        monkeypatch.setattr(_clientcore, "REOPEN_PATIENCE_NS", 0)
        s.end()
    assert len(mock.of(Open)) == 3
    assert gov.stats.reopened == 2


def test_without_a_daemon_everything_runs_and_is_counted(mock: MockTransport) -> None:
    mock.up = False
    with connect(transport=mock) as gov, gov.session("m", deadline="20ms") as s:
        with s.job():
            pass
        assert list(s.tokens("ab")) == ["a", "b"]
        s.update(deadline="10ms")
        assert gov.query("m") is None
        assert gov.status() is None
        assert not gov.ping()
    assert mock.sent == []
    assert gov.stats.sent == 0
    assert gov.stats.dropped > 10


def test_a_daemon_that_comes_later_gets_the_open_first(mock: MockTransport) -> None:
    mock.up = False
    with connect(transport=mock) as gov, gov.session("m") as s:
        s.update(deadline="9ms")
        mock.up = True
        with s.job():
            pass
    assert [type(r).__name__ for r in mock.sent] == ["Open", "Begin", "End", "Close"]
    assert mock.of(Open)[0].deadline_ns == 9_000_000
    assert gov.stats.reopened == 0


def test_strict_raises_when_the_daemon_is_away(mock: MockTransport) -> None:
    with connect(transport=mock, strict=True) as gov:
        s = gov.session("m")
        mock.up = False
        for call in (s.begin, s.end, s.update, gov.ping, gov.status, s.close):
            with pytest.raises(UnavailableError, match="is flamegov running"):
                call()
        with pytest.raises(UnavailableError):
            gov.session("m")


def test_strict_raises_what_was_refused(mock: MockTransport, daemon: Daemon) -> None:
    with connect(transport=mock, strict=True) as gov:
        s = gov.session("m")
        mock.answers.append(encode_error(MessageError(Code.ORDER, "$.job", "out of order")))
        with pytest.raises(ReplyError, match=r"order: \$\.job: out of order"):
            s.end()
        daemon.refuse_open = Code.UNKNOWN_MODEL
        with pytest.raises(ReplyError, match="unknown-model"):
            gov.session("other")
        assert gov.stats.errors == 2
        assert gov.stats.last_error == "unknown-model: $.model: no table"


def test_a_refused_session_keeps_quiet_and_asks_again_later(
    mock: MockTransport, daemon: Daemon
) -> None:
    def job() -> None:
        with s.job():
            pass

    daemon.refuse_open = Code.UNKNOWN_MODEL
    with connect(transport=mock) as gov, gov.session("m") as s:
        for _ in range(3):
            job()
        assert (len(mock.of(Open)), len(mock.sent), gov.stats.dropped) == (1, 1, 6)
        s._core.retry_at_ns = time.monotonic_ns()
        for _ in range(3):
            job()
        assert len(mock.of(Open)) == 2
        assert s._core.retry_at_ns > time.monotonic_ns()
        daemon.refuse_open = None
        s._core.retry_at_ns = time.monotonic_ns()
        dropped = gov.stats.dropped
        for _ in range(3):
            job()
        assert (len(mock.of(Open)), gov.stats.dropped) == (3, dropped)


@pytest.mark.parametrize("number", [1, 200, 70_000])
@pytest.mark.parametrize("deadline", [None, "15ms"])
@pytest.mark.parametrize("context", [None, 0, 2**20])
def test_the_lean_begin_is_the_same_message(
    mock: MockTransport, number: int, deadline: str | None, context: int | None
) -> None:
    with connect(transport=mock) as gov:
        core = gov.session("m")._core
        core.begin_heads = _clientcore.begin_heads(number)
        core.job = 2**63
        assert decode_request(core.lean_begin(deadline, context)) == Begin(
            v=1,
            session=number,
            job=2**63 + 1,
            start_ns=core.start_ns,
            deadline_ns=15_000_000 if deadline else None,
            context=context,
        )


def test_a_context_stops_at_its_bound(mock: MockTransport) -> None:
    with connect(transport=mock) as gov, gov.session("llm", phase="decode") as s:
        assert len(list(s.tokens("abc", context=2**20 - 1))) == 3
        with pytest.raises(ValueError, match="context"):
            s.begin(context=2**20 + 1)
        with pytest.raises(ValueError, match="context"):
            s.begin(context=-1, start_ns=5)
    assert [begin.context for begin in mock.of(Begin)] == [2**20 - 1, *[2**20] * 3]


def test_a_silent_daemon_times_out(mock: MockTransport) -> None:
    silent = MockTransport(lambda request: None)
    with connect(transport=silent) as gov:
        assert gov.query("m") is None
        assert gov.stats.timeouts == 1
    with (
        connect(transport=silent, strict=True, timeout="10ms") as gov,
        pytest.raises(UnavailableError, match=r"within 0\.01 s"),
    ):
        gov.ping()


def test_questions(mock: MockTransport) -> None:
    with connect(transport=mock) as gov:
        assert gov.ping()
        assert gov.query("m", deadline="20ms", phase="decode", context=7) == {"op": "Query"}
        assert gov.status(detail=True) == {"op": "Status"}
        assert gov.ask(Policy(v=1, action="list")) == {"op": "Policy"}
    assert mock.sent == [
        Ping(v=1, id=1),
        Query(v=1, id=2, model="m", deadline_ns=20_000_000, phase="decode", context=7),
        Status(v=1, id=3, detail=True),
        Policy(v=1, id=4, action="list"),
    ]


def test_answers_to_others_and_garbage_do_not_confuse_a_question(mock: MockTransport) -> None:
    mock.answers.extend(
        [b"garbage", b"\xc0", encode_error(MessageError(Code.LATE, "", "late", 77))]
    )
    with connect(transport=mock) as gov:
        assert gov.ping()
        assert gov.stats.errors == 3


@pytest.mark.parametrize(
    "arguments",
    [
        {"deadline": "soon"},
        {"deadline": "0ms"},
        {"deadline": -1},
        {"deadline": "2h"},
        {"period": 0},
        {"miss_budget": 0.9},
        {"context": -1},
        {"phase": "training"},
        {"name": "x" * 65},
        {"model": ""},
    ],
)
def test_wrong_arguments_are_told_at_once(mock: MockTransport, arguments: dict[str, Any]) -> None:
    with connect(transport=mock) as gov:
        with pytest.raises(ValueError, match=".+"):
            gov.session(**{"model": "m", **arguments})
        with gov.session("m", deadline="20ms") as s:
            with pytest.raises(ValueError, match="not both"):
                s.begin(deadline="1ms", deadline_at_ns=2**62)
            with pytest.raises(ValueError, match="1 h"):
                s.update(deadline="2h")
            with pytest.raises(ValueError, match="context"):
                s.update(context=-1)
            assert s._core.spec.deadline_ns == 20_000_000


def test_stamps_in_the_wrong_order_are_told_as_an_aborted_job(mock: MockTransport) -> None:
    with connect(transport=mock) as gov, gov.session("m") as s:
        s.begin(start_ns=10)
        s.end(end_ns=9)
    assert mock.of(End) == [End(v=1, session=1, job=1, start_ns=10, end_ns=10, aborted=True)]
    assert gov.stats.last_error == "end_ns 9 lies before start_ns 10"


def test_a_deadline_that_has_passed_is_the_daemons_to_refuse(mock: MockTransport) -> None:
    with connect(transport=mock) as gov, gov.session("m") as s:
        with s.job(deadline_at_ns=1):
            pass
        assert gov.stats.errors == 1
        assert gov.stats.last_error.startswith("late: $.deadline_at_ns: ")


def test_closing_twice_and_closing_the_client_close_each_session_once(mock: MockTransport) -> None:
    with connect(transport=mock) as gov:
        first, second = gov.session("a"), gov.session("b")
        first.close(ack=True)
        first.close()
        assert first.reply == {"op": "Close"}
        assert second.reply == {"op": "Open"}
    assert [close.session for close in mock.of(Close)] == [1, 2]


def test_closing_a_session_that_the_daemon_forgot_does_not_wait(
    mock: MockTransport, daemon: Daemon
) -> None:
    with connect(transport=mock) as gov:
        s = gov.session("a")
        daemon.restart()
        s.close(ack=True)
        assert gov.stats.timeouts == 0
