"""How the verbs talk to a running daemon."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from estimators.errors import FlamegovError, Transient
from governor.config import load_config
from governor.errors import UsageError
from governor.messages import (
    MAX_ANSWER_BYTES,
    Code,
    Error,
    MessageError,
    Request,
    decode_answer,
    decode_request,
    encode,
)

TIMEOUT_MS = 3000

_USAGE = {Code.POLICY.value, Code.BAD_FIELD.value}
_STRANGER = "is another program at this address, or a daemon of another version?"


class NoDaemonError(FlamegovError, Transient):
    """No daemon answers at the address."""

    exit_code = 6


class SilentError(NoDaemonError):
    """Nobody is at the address, or nobody that answers in time."""


class AnswerError(FlamegovError):
    """The daemon refused."""


def add_address(parser: argparse.ArgumentParser, *, admin: bool = False) -> None:
    """Declare where the daemon is and how to print, and remember which socket is meant."""
    parser.add_argument("--address", help="endpoint of the daemon (default: as configured)")
    parser.add_argument("--config", type=Path, help="file to read instead of the default one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(admin=admin)


def ask(args: argparse.Namespace, request: Request, *, patient: bool = True) -> dict[str, Any]:
    """Send one request and return the body of the reply.

    Args:
        args: Where the daemon is.
        request: What to ask.
        patient: Wait for a daemon whose socket is not there yet.

    Raises:
        ConfigError: The address stands in a configuration that cannot be read.
        UsageError: There can be no such address or request, or the daemon knows no such policy or
            option.
        SilentError: Nobody answers in time.
        NoDaemonError: What answers is not in our protocol, or we may not ask.
        AnswerError: The daemon refused for another reason.
    """
    address = _address(args)
    raw = _written(request, admin=args.admin)
    _check_allowed(address, admin=args.admin)
    if not patient and not _there(address):
        raise _silent(address, "no such socket")
    try:
        answer = decode_answer(_exchange(address, raw))
    except MessageError as error:
        raise _stranger(address, error.reason) from None
    if isinstance(answer, Error):
        kind = UsageError if answer.code in _USAGE else AnswerError
        raise kind(answer.reason, where=address)
    return answer.body


def show(body: dict[str, Any], text: Callable[[dict[str, Any]], str] | None) -> str:
    """Write a reply as text, or as JSON if there is no writer of text.

    Raises:
        NoDaemonError: The reply is not what a daemon of this version sends.
    """
    try:
        return json.dumps(body, indent=2) if text is None else text(body)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _stranger("", f"{type(error).__name__}: {error}") from error


def _address(args: argparse.Namespace) -> str:
    """Tell where the daemon is: what is nearest to the command counts."""
    if args.address is not None:
        return str(args.address)
    # The variable that applications follow names the hints socket.
    if not args.admin and args.config is None and (named := os.environ.get("FLAMEGOV_ADDRESS")):
        return named
    sockets = load_config(args.config).config.sockets
    return sockets.admin if args.admin else sockets.hints


def _check_allowed(address: str, *, admin: bool) -> None:
    """Refuse a socket file that is not for us: ZeroMQ would try it again and again in silence."""
    try:
        path = os.fsencode(address.removeprefix("ipc://"))
        refused = os.access(path, os.F_OK) and not os.access(path, os.W_OK)
    except ValueError:  # no path of any file; connecting says why
        return
    if refused:
        group = "sudo usermod -aG flamegov $USER, then log in again"
        hint = "it is for root alone: use sudo" if admin else group
        raise NoDaemonError("you may not use it", where=address, why="no permission", hint=hint)


def _written(request: Request, *, admin: bool) -> bytes:
    """Write a request, but only one that the daemon would read: it hangs up on others."""
    try:
        raw = encode(request)
        decode_request(raw, admin=admin)
    except MessageError as error:
        raise UsageError("wrong argument", where=error.field, why=error.reason) from None
    except UnicodeError:
        raise UsageError("wrong argument", why="it is not UTF-8") from None
    return raw


def _exchange(address: str, raw: bytes) -> bytes:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_ANSWER_BYTES)
        try:
            socket.connect(address)
        except (zmq.ZMQError, UnicodeError) as error:
            hint = "write ipc://PATH, with a path of at most 107 bytes"
            raise UsageError("no address", where=address, why=str(error), hint=hint) from None
        socket.send(raw)
        if not socket.poll(TIMEOUT_MS):
            raise _silent(address, f"waited {TIMEOUT_MS / 1000:.0f} s")
        return socket.recv()


def _there(address: str) -> bool:
    """Tell whether there is a socket; of what is no socket file, nobody knows but ZeroMQ."""
    try:
        return not address.startswith("ipc://") or os.access(address[6:], os.F_OK)
    except ValueError:
        return True


def _silent(address: str, why: str) -> SilentError:
    hint = "is it running (systemctl status flamegov), and there (--config, --address)?"
    return SilentError("no daemon answers", where=address, why=why, hint=hint)


def _stranger(address: str, why: str) -> NoDaemonError:
    return NoDaemonError("the answer is no daemon's", where=address, why=why, hint=_STRANGER)
