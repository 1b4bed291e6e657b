"""A daemon in miniature on a real ROUTER socket: knows sessions, decides nothing."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from governor.messages import (
    AnyRequest,
    Code,
    MessageError,
    Open,
    decode_request,
    encode_error,
    encode_reply,
)
from governor.testing import wants_answer


class FakeDaemon:
    """Serves an ipc address from a thread while its ``with`` block runs."""

    def __init__(self, path: Path, *, silent: bool = False) -> None:
        self.address = f"ipc://{path}"
        self.received: list[AnyRequest] = []
        self._silent = silent
        self._sessions: set[tuple[bytes, int]] = set()
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "FakeDaemon":
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def of(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.received if isinstance(request, kind)]

    def wait_for(self, kind: type[Any], count: int = 1) -> list[Any]:
        wait_until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    def _run(self) -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(self.address)
            self._ready.set()
            while not self._stop.is_set():
                if socket.poll(5):
                    peer, raw = socket.recv_multipart()
                    answer = self._answer(peer, raw)
                    if answer is not None and not self._silent:
                        socket.send_multipart([peer, answer])

    def _answer(self, peer: bytes, raw: bytes) -> bytes | None:
        request = decode_request(raw)
        self.received.append(request)
        number = getattr(request, "session", None)
        try:
            self._note(peer, request)
        except MessageError as error:
            return encode_error(error)
        body = {"op": type(request).__name__}
        return encode_reply(request.id, body, session=number) if wants_answer(request) else None

    def _note(self, peer: bytes, request: AnyRequest) -> None:
        if isinstance(request, Open):
            self._sessions.add((peer, request.session))
            return
        number = getattr(request, "session", None)
        if number is not None and (peer, number) not in self._sessions:
            reason = "no such session"
            raise MessageError(Code.REOPEN, "$.session", reason, request.id, session=number)


def wait_until(true: Callable[[], object], timeout_s: float = 30) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end_s, "timed out"
        time.sleep(0.002)
