"""``flamegov pause``: give the board back as it was found, until ``flamegov resume``."""

import argparse

from governor.cli.link import add_address, ask, show
from governor.messages import Pause

HELP = "give the board back and hold still until 'flamegov resume'"

_DONE = "paused: the board is given back until 'flamegov resume'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_address(parser, admin=True)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    body = ask(args, Pause(v=1, id=1))
    print(show(body, None if args.json else lambda _: _DONE))
    return 0
