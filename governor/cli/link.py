"""How the verbs talk to a running daemon."""

import argparse
from typing import Any

import zmq

from estimators.errors import FlamegovError, Transient
from governor.config import load_config
from governor.messages import Request, decode_answer, encode

TIMEOUT_MS = 3000


class NoDaemonError(FlamegovError, Transient):
    """No daemon answers at the address."""

    exit_code = 6


class AnswerError(FlamegovError):
    """The daemon refused."""


def add_address(parser: argparse.ArgumentParser, *, admin: bool = False) -> None:
    """Declare ``--address`` and remember which socket is meant."""
    parser.add_argument("--address", help="endpoint of the daemon (default: as configured)")
    parser.set_defaults(admin=admin)


def ask(args: argparse.Namespace, request: Request) -> dict[str, Any]:
    """Send one request and return the body of the reply.

    Raises:
        NoDaemonError: Nobody answers in time.
        AnswerError: The daemon refused.
    """
    sockets = load_config().config.sockets
    address = args.address or (sockets.admin if args.admin else sockets.hints)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        socket.send(encode(request))
        if not socket.poll(TIMEOUT_MS):
            raise NoDaemonError(
                "no daemon answers",
                where=address,
                why=f"waited {TIMEOUT_MS / 1000:.0f} s",
                hint="is it running and may you use its socket? systemctl status flamegov; "
                "usermod -aG flamegov $USER",
            )
        answer = decode_answer(socket.recv())
    body = getattr(answer, "body", None)
    if body is None:
        raise AnswerError(getattr(answer, "reason"), where=address, why=getattr(answer, "code"))  # noqa: B009
    return dict(body)
