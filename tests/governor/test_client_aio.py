"""The asyncio client: over a mock transport, and over real ZeroMQ sockets."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from governor.aio import aconnect
from governor.client import ReplyError, UnavailableError
from governor.messages import (
    AnyRequest,
    Begin,
    Close,
    Code,
    End,
    MessageError,
    Open,
    Policy,
    Update,
    encode_error,
)
from governor.testing import AsyncMockTransport
from tests.governor.fakedaemon import FakeDaemon


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def names(mock: AsyncMockTransport) -> list[str]:
    return [type(request).__name__ for request in mock.sent]


def echo(request: AnyRequest) -> dict[str, Any]:
    return {"op": type(request).__name__}


def test_a_job_is_told_from_open_to_close() -> None:
    async def main() -> None:
        mock = AsyncMockTransport(echo)
        async with (
            aconnect(transport=mock, strict=True) as gov,
            gov.session("m", deadline="20ms") as s,
        ):
            assert s.reply == {"op": "Open"}
            async with s.job(deadline="15ms", context=2) as number:
                assert number == 1
            await s.update(deadline="10ms", ack=True)
            assert s.reply == {"op": "Update"}
        assert names(mock) == ["Open", "Begin", "End", "Update", "Close"]
        begin, end = mock.of(Begin)[0], mock.of(End)[0]
        assert (begin.deadline_ns, begin.context, end.start_ns) == (15_000_000, 2, begin.start_ns)
        assert mock.of(Update)[0].ack
        assert mock.closed

    run(main())


def test_an_exception_aborts_the_job_and_passes() -> None:
    async def main() -> None:
        mock = AsyncMockTransport()
        async with aconnect(transport=mock) as gov, gov.session("m") as s:
            with pytest.raises(KeyError):
                async with s.job():
                    raise KeyError("mine")
        assert [end.aborted for end in mock.of(End)] == [True]

    run(main())


def test_a_cancelled_job_is_aborted_and_the_session_closed() -> None:
    async def main() -> None:
        mock = AsyncMockTransport()

        async def work() -> None:
            async with aconnect(transport=mock) as gov, gov.session("m") as s, s.job():
                await asyncio.sleep(10)

        task = asyncio.create_task(work())
        while not mock.of(Begin):
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert names(mock)[-2:] == ["End", "Close"]
        assert mock.of(End)[0].aborted
        assert mock.closed

    run(main())


def test_tokens_are_jobs_with_a_growing_context() -> None:
    async def stream() -> AsyncIterator[str]:
        for token in "abc":
            yield token

    async def main() -> None:
        mock = AsyncMockTransport()
        async with aconnect(transport=mock) as gov, gov.session("llm", phase="decode") as s:
            assert [t async for t in s.tokens(stream(), deadline="120ms", context=5)] == list("abc")
        assert [begin.context for begin in mock.of(Begin)] == [5, 6, 7, 8]
        assert [end.aborted for end in mock.of(End)] == [False, False, False, True]

    run(main())


def test_questions_of_several_tasks_get_their_own_answers() -> None:
    async def main() -> None:
        mock = AsyncMockTransport(echo)
        async with aconnect(transport=mock) as gov:
            answers = await asyncio.gather(
                gov.ping(), gov.query("m", deadline="20ms"), gov.status(), gov.status(detail=True)
            )
            assert answers == [True, {"op": "Query"}, {"op": "Status"}, {"op": "Status"}]
            assert await gov.ask(Policy(v=1, action="list")) == {"op": "Policy"}

    run(main())


def test_without_a_daemon_everything_runs_and_is_counted() -> None:
    async def main() -> None:
        mock = AsyncMockTransport()
        mock.up = False
        async with aconnect(transport=mock) as gov, gov.session("m") as s:
            async with s.job():
                pass
            assert not await gov.ping()
        assert gov.stats.dropped == 6
        assert gov.stats.sent == 0

    run(main())


def test_strict_raises() -> None:
    async def main() -> None:
        mock = AsyncMockTransport()
        async with (
            aconnect(transport=mock, strict=True, timeout="20ms") as gov,
            gov.session("m") as s,
        ):
            mock.answers.append(encode_error(MessageError(Code.ORDER, "$.job", "order")))
            await gov.ping()
            with pytest.raises(ReplyError, match="order"):
                await s.end()
            await s.end()
            mock.up = False
            with pytest.raises(UnavailableError, match="is flamegov running"):
                await s.begin()
            with pytest.raises(UnavailableError):
                await gov.ping()

    run(main())


def test_refusals_and_silence() -> None:
    def refuse(request: AnyRequest) -> None:
        if isinstance(request, Open):
            raise MessageError(Code.UNKNOWN_MODEL, "$.model", "no table")

    async def main() -> None:
        async with aconnect(transport=AsyncMockTransport(refuse), timeout="20ms") as gov:
            async with gov.session("m") as s:
                assert s.reply is None
            assert not await gov.ping()
            assert (gov.stats.errors, gov.stats.timeouts) == (1, 1)
        mock = AsyncMockTransport(refuse)
        async with aconnect(transport=mock, timeout="20ms", strict=True) as gov:
            with pytest.raises(ReplyError, match="no table"):
                async with gov.session("m"):
                    raise AssertionError("the session was refused")
            with pytest.raises(UnavailableError, match="did not answer"):
                await gov.ping()

    run(main())


def test_a_restarted_daemon_gets_the_session_again(tmp_path: Path) -> None:
    async def until(daemon: FakeDaemon, kind: type[AnyRequest]) -> None:
        while not daemon.of(kind):
            await asyncio.sleep(0.002)

    async def main() -> None:
        path = tmp_path / "hints.sock"
        async with aconnect(f"ipc://{path}") as gov, gov.session("m", deadline="20ms") as s:
            with FakeDaemon(path) as first:
                while not first.of(Begin):
                    await s.begin()
                    await s.end()
                    await asyncio.sleep(0.002)
            with FakeDaemon(path) as second:
                while not second.of(Open):
                    await s.end(aborted=True)
                    await asyncio.sleep(0.002)
                assert second.of(Open)[0].deadline_ns == 20_000_000
                await s.begin(ack=True)
                assert s.reply == {"op": "Begin"}
                await s.end()
                await until(second, End)
            assert gov.stats.errors == 0

    run(main())


def test_the_last_messages_arrive_and_closing_is_fast(tmp_path: Path) -> None:
    async def main() -> None:
        with FakeDaemon(tmp_path / "hints.sock") as daemon:
            async with aconnect(daemon.address, strict=True) as gov, gov.session("m"):
                start_s = time.monotonic()
            assert time.monotonic() - start_s < 0.5
            daemon.wait_for(Close)

    run(main())


def test_a_closed_client_counts_and_does_not_raise(tmp_path: Path) -> None:
    async def main() -> None:
        with FakeDaemon(tmp_path / "hints.sock") as daemon:
            async with aconnect(daemon.address) as gov, gov.session("m") as s:
                pass
            await s.begin()
            assert not await gov.ping()
            assert gov.stats.dropped == 2

    run(main())


def test_an_address_that_is_none() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="nonsense"):
            async with aconnect("nonsense"):
                raise AssertionError("connected to nonsense")

    run(main())
