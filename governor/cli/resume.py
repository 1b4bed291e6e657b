"""``flamegov resume``: govern again after ``flamegov pause``."""

import argparse

from governor.cli.link import add_address, ask, show
from governor.messages import Resume

HELP = "govern again after 'flamegov pause'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_address(parser, admin=True)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    body = ask(args, Resume(v=1, id=1))
    print(show(body, None if args.json else lambda _: "resumed"))
    return 0
