"""The asyncio twin of ``governor.client``: the same calls, awaited.

    from governor.aio import aconnect

    async with aconnect() as gov, gov.session("qwen2-1.5b", deadline="120ms") as s:
        async for token in s.tokens(stream, context=n):
            ...

One-way calls never wait for the daemon here either; they are coroutines so that ``ack=True`` can.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar, cast

import zmq
import zmq.asyncio
from msgspec import structs

from governor._clientcore import (
    ClientError,
    Core,
    ReplyError,
    SessionCore,
    UnavailableError,
    deadline_ns,
    hiding,
    with_ack,
)
from governor._transport import CLOSE_LINGER_MS, configure, find_address, is_absent
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

__all__ = ["AsyncClient", "AsyncSession", "AsyncTransport", "AsyncZmqTransport", "aconnect"]

T = TypeVar("T")


class AsyncTransport(Protocol):
    """Carries frames to the daemon and back."""

    def send(self, frame: bytes) -> bool:
        """Send a frame without waiting; False if that cannot be."""

    async def recv(self) -> bytes:
        """Return the next frame; waits until there is one."""

    def close(self) -> None:
        """Let go of everything, without waiting."""


class AsyncZmqTransport:
    """A DEALER socket to the daemon, on asyncio; belongs to one event loop.

    Args:
        address: ZeroMQ address of the daemon.

    Raises:
        ValueError: The address is not one.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        try:
            configure(self._socket, address)
        except (zmq.ZMQError, ValueError) as error:
            self._context.destroy(linger=0)
            raise ValueError(f"cannot use the address {address!r}: {error}") from None

    async def connected(self, timeout_s: float) -> None:
        """Wait for the connection, unless the socket file does not exist."""
        if not is_absent(self._address):
            poller = zmq.asyncio.Poller()
            poller.register(self._socket, zmq.POLLOUT)
            await poller.poll(round(timeout_s * 1000))

    def send(self, frame: bytes) -> bool:
        """Send a frame without waiting; False if the daemon is away."""
        # With NOBLOCK, and no other send under way, the future that comes back is done already.
        done = cast("asyncio.Future[None]", self._socket.send(frame, zmq.NOBLOCK))
        return done.exception() is None

    async def recv(self) -> bytes:
        """Return the next frame."""
        frame: bytes = await self._socket.recv()
        return frame

    def close(self) -> None:
        """Let go of the socket. What the daemon's connection already took is still delivered."""
        self._context.destroy(linger=CLOSE_LINGER_MS)


@asynccontextmanager
async def aconnect(
    address: str | None = None,
    *,
    strict: bool = False,
    transport: AsyncTransport | None = None,
    timeout: Duration = "250ms",
) -> AsyncIterator["AsyncClient"]:
    """Connect to the daemon; see :func:`governor.client.connect`.

    Raises:
        ValueError: The address or the timeout is not one.
    """
    timeout_s = (deadline_ns(timeout) or 0) / 1e9
    if transport is None:
        transport = zmq_transport = AsyncZmqTransport(find_address(address))
        await zmq_transport.connected(timeout_s)
    client = AsyncClient(transport, strict, timeout_s)
    reader = asyncio.create_task(client._read())
    try:
        yield client
    finally:
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader
        client._close()


class AsyncClient:
    """A connection to the daemon; made by :func:`aconnect`.

    Attributes:
        stats: What became of the messages.
    """

    def __init__(self, transport: AsyncTransport, strict: bool, timeout_s: float) -> None:
        self._transport, self._strict, self._timeout_s = transport, strict, timeout_s
        self._core = Core(transport.send, strict)
        self._waiting: dict[int, asyncio.Future[Reply | Error]] = {}
        self._failure: ClientError | None = None
        self.stats = self._core.stats

    @asynccontextmanager
    async def session(
        self,
        model: str,
        *,
        deadline: Duration | None = None,
        period: Duration | None = None,
        phase: Phase = "inference",
        context: int = 0,
        miss_budget: float | None = None,
        name: str = "",
    ) -> AsyncIterator["AsyncSession"]:
        """Open a session, and close it in the end; see :meth:`governor.client.Client.session`."""
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
            yield AsyncSession(self, core, await self._ask(self._core.open(core)))
        finally:
            close = self._core.forget(core)
            if close is not None:
                self._transport.send(encode(close))

    async def query(
        self,
        model: str,
        *,
        deadline: Duration | None = None,
        phase: Phase = "inference",
        context: int = 0,
    ) -> dict[str, Any] | None:
        """Ask for latencies and slack; None if there was no answer (unless strict)."""
        return await self.ask(
            Query(v=1, model=model, deadline_ns=deadline_ns(deadline), phase=phase, context=context)
        )

    async def status(self, *, detail: bool = False) -> dict[str, Any] | None:
        """Ask for the daemon's state; None if there was no answer (unless strict)."""
        return await self.ask(Status(v=1, detail=detail))

    async def ping(self) -> bool:
        """Tell whether the daemon answers; keeps this client's sessions alive."""
        return await self.ask(Ping(v=1)) is not None

    async def ask(self, request: AnyRequest) -> dict[str, Any] | None:
        """Send any request that is answered; see :meth:`governor.client.Client.ask`."""
        return await self._ask(structs.replace(request, id=self._core.next_id()))

    async def _ask(self, request: AnyRequest) -> dict[str, Any] | None:
        end_s = time.monotonic() + self._timeout_s
        while self._core.post(request):
            answer = await self._answer(request.id, end_s - time.monotonic())
            if answer is None:
                return None
            if isinstance(answer, Reply):
                return answer.body
            if not self._core.worth_repeating(request, answer):
                if self._strict:
                    raise ReplyError(answer)
                return None
        return None

    async def _answer(self, number: int, timeout_s: float) -> Reply | Error | None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiter
        try:
            return await asyncio.wait_for(waiter, max(0, timeout_s))
        except asyncio.TimeoutError:
            self.stats.timeouts += 1
            if self._strict:
                raise UnavailableError(
                    f"the governor did not answer within {self._timeout_s:g} s"
                ) from None
            return None
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        """Take answers as they come, for as long as the client lives."""
        while True:
            raw = await self._transport.recv()
            try:
                answer = self._core.take(raw)
            except UnavailableError as error:
                self._failure = error
                continue
            if answer is None:
                continue
            waiter = self._waiting.get(answer.id)
            if waiter is not None and not waiter.done():
                waiter.set_result(answer)
            elif isinstance(answer, Error) and answer.code != Code.REOPEN:
                self._failure = ReplyError(answer)

    def _check(self) -> None:
        """Raise what the reader met, if strict."""
        failure, self._failure = self._failure, None
        if self._strict and failure is not None:
            raise failure

    def _close(self) -> None:
        for core in list(self._core.sessions.values()):
            close = self._core.forget(core)
            if close is not None:
                self._transport.send(encode(close))
        self._transport.close()


class AsyncSession:
    """A stream of jobs of one model; made by :meth:`AsyncClient.session`.

    Attributes:
        reply: Body of the newest reply to ``open`` or to a call with ``ack``; None if none came.
    """

    def __init__(
        self, client: AsyncClient, core: SessionCore, reply: dict[str, Any] | None
    ) -> None:
        self._client, self._core = client, core
        self.reply = reply

    async def begin(
        self,
        *,
        start_ns: int | None = None,
        deadline: Duration | None = None,
        deadline_at_ns: int | None = None,
        context: int | None = None,
        ack: bool = False,
    ) -> int:
        """Tell that a job starts; see :meth:`governor.client.Session.begin`."""
        request = self._core.begin(start_ns, deadline, deadline_at_ns, context)
        await self._say(request, ack)
        return request.job

    async def end(
        self,
        job: int | None = None,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        aborted: bool = False,
        ack: bool = False,
    ) -> None:
        """Tell that a job is over; see :meth:`governor.client.Session.end`."""
        await self._say(self._core.end(job, start_ns, end_ns, aborted), ack)
        self._client._check()

    async def update(
        self,
        *,
        deadline: Duration | None = None,
        context: int | None = None,
        period: Duration | None = None,
        ack: bool = False,
    ) -> None:
        """Change what the session asks for; see :meth:`governor.client.Session.update`."""
        await self._say(self._core.update(deadline, context, period), ack)
        self._client._check()

    def job(
        self,
        *,
        deadline: Duration | None = None,
        deadline_at_ns: int | None = None,
        context: int | None = None,
    ) -> AbstractAsyncContextManager[int]:
        """Return an async context manager around one job; its value is the job's number."""
        return self._job(deadline, deadline_at_ns, context)

    @asynccontextmanager
    async def _job(
        self, deadline: Duration | None, deadline_at_ns: int | None, context: int | None
    ) -> AsyncIterator[int]:
        start_ns = time.monotonic_ns()
        job = await self.begin(
            start_ns=start_ns, deadline=deadline, deadline_at_ns=deadline_at_ns, context=context
        )
        try:
            yield job
        except BaseException as error:
            with hiding(type(error)):
                await self.end(job, start_ns=start_ns, aborted=True)
            raise
        await self.end(job, start_ns=start_ns)

    async def tokens(
        self,
        stream: AsyncIterator[T],
        *,
        deadline: Duration | None = None,
        context: int | None = None,
    ) -> AsyncIterator[T]:
        """Pass tokens on, each a job; see :meth:`governor.client.Session.tokens`."""
        tokens = aiter(stream)
        context = self._core.context(context)
        while True:
            try:
                async with self.job(deadline=deadline, context=context):
                    token = await anext(tokens)
            except StopAsyncIteration:
                return
            context = self._core.grown(context)
            yield token

    async def _say(self, request: SessionRequest, ack: bool) -> None:
        if ack:
            request = with_ack(request, self._client._core.next_id())
            self.reply = await self._client._ask(request)
        else:
            self._client._core.tell(self._core, request)
