"""Stand-ins for the daemon, for the tests of applications.

from governor.client import connect
from governor.messages import Begin
from governor.testing import MockTransport

def test_every_frame_is_told():
    mock = MockTransport()
    with connect(transport=mock) as gov, gov.session("resnet50", deadline="20ms") as s:
        run(frames=3, session=s)
    assert len(mock.of(Begin)) == 3
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from governor.messages import (
    AdminRequest,
    AnyRequest,
    Code,
    MessageError,
    Open,
    Ping,
    Query,
    Status,
    decode_request,
    encode_error,
    encode_reply,
)

__all__ = ["AsyncMockTransport", "MockTransport"]

R = TypeVar("R")

Handler = Callable[[AnyRequest], dict[str, Any] | None]
"""Makes the body of the reply; None for no answer; raises ``MessageError`` to refuse."""


def wants_answer(request: AnyRequest) -> bool:
    """Tell whether the daemon answers a request even if all is well."""
    always = isinstance(request, Open | Query | Ping | Status | AdminRequest)
    return always or getattr(request, "ack", False)


def _read(frame: bytes) -> AnyRequest:
    """Read a request as either socket would."""
    try:
        return decode_request(frame)
    except MessageError as error:
        if error.code != Code.DENIED:
            raise
        return decode_request(frame, admin=True)


class MockTransport:
    """Records what a client sends and answers as told; for ``connect(transport=...)``.

    Args:
        handler: Makes the answers; default an empty reply to whatever wants one. Refusals go out
            for one-way messages too, as the daemon's do, and for what breaks a bound.

    Attributes:
        sent: Requests that the daemon would have taken, in order.
        answers: Frames that the client has not read yet; a test may add to them.
        up: Whether the daemon is there; set it to False to take it away.
        closed: Whether the client has closed.
    """

    def __init__(self, handler: Handler | None = None) -> None:
        self.sent: list[AnyRequest] = []
        self.answers: deque[bytes] = deque()
        self.up = True
        self.closed = False
        self._handler = handler or (lambda _: {})

    def send(self, frame: bytes) -> bool:
        """Take a frame; False while the daemon is away."""
        if not self.up:
            return False
        try:
            request = _read(frame)
        except MessageError as error:
            self.answers.append(encode_error(error))
        else:
            self.sent.append(request)
            self._answer(request)
        return True

    def recv(self, timeout_s: float) -> bytes | None:
        """Return the next answer; does not wait, since nothing more can come."""
        del timeout_s
        return self.answers.popleft() if self.answers else None

    def close(self) -> None:
        """Note that the client has closed."""
        self.closed = True

    def of(self, kind: type[R]) -> list[R]:
        """Return the requests of one type, in order."""
        return [request for request in self.sent if isinstance(request, kind)]

    def _answer(self, request: AnyRequest) -> None:
        session = getattr(request, "session", None)
        try:
            body = self._handler(request)
        except MessageError as error:
            error.id, error.session = request.id, session
            error.job = getattr(request, "job", None)
            self.answers.append(encode_error(error))
            return
        if body is not None and wants_answer(request):
            self.answers.append(encode_reply(request.id, body, session=session))


class AsyncMockTransport(MockTransport):
    """The same for ``aconnect(transport=...)``."""

    async def recv(self) -> bytes:  # type: ignore[override] # the twin differs in exactly this
        """Return the next answer; waits until there is one."""
        while not self.answers:
            await asyncio.sleep(0.001)
        return self.answers.popleft()
