"""``flamegov reload``: let the daemon read its configuration and tables again."""

import argparse
from typing import Any

from governor.cli.link import add_address, ask, show
from governor.messages import Reload
from governor.words import printable

HELP = "let the daemon read its configuration and tables again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_address(parser, admin=True)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    body = ask(args, Reload(v=1, id=1))
    print(show(body, None if args.json else _text))
    return 0


def _text(body: dict[str, Any]) -> str:
    head = f"configuration {body['digest']} is in force, policy {body['policy']}"
    lines = [f"{head}, {body['tables']} tables"]
    if body["needs_restart"]:
        lines.append(f"restart needed for: {', '.join(body['needs_restart'])}")
    lines += [f"error     {text}" for text in body["errors"]]
    return "\n".join(map(printable, lines))
