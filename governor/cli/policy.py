"""``flamegov policy``: list the policies, show one, swap the one in force, or shadow it."""

import argparse
import json
import sys
from functools import partial
from typing import Any

from governor.cli.link import SilentError, add_address, ask, show
from governor.errors import UsageError
from governor.messages import MessageError, Policy
from governor.words import printable
from policies.registry import installed

HELP = "list, show or swap the policy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    verbs.add_parser("list", help="list what is installed")
    show = verbs.add_parser("show", help="show one with its options (default: the one in force)")
    show.add_argument("name", nargs="?")
    text = "swap the policy of the running daemon: its configured options and those given here"
    swap = verbs.add_parser("set", help=text, description=text)
    swap.add_argument("name")
    swap.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    shadow = verbs.add_parser("shadow", help="let a second policy decide along without acting")
    shadow.add_argument("name", help="the policy, or 'off'; 'flamegov status' tells what it did")
    shadow.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    for verb in verbs.choices.values():
        add_address(verb, admin=True)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon and print."""
    options = dict(_option(text) for text in getattr(args, "option", []))
    name = getattr(args, "name", None)
    if args.action == "shadow" and name == "off":
        name = None
    try:
        request = Policy(v=1, id=1, action=args.action, name=name, options=options)
    except MessageError as error:
        raise UsageError("wrong option", where=error.field, why=error.reason) from None
    try:
        body = ask(args, request, patient=args.action != "list")
    except SilentError as error:
        if args.action != "list":
            raise
        print(f"flamegov: {error}; these are installed here", file=sys.stderr)
        body = {"policies": installed(), "in_force": None}
    print(show(body, None if args.json else partial(_text, args.action)))
    return 0


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"'{text}' is no option", hint="write --option KEY=VALUE")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value
    except (ValueError, RecursionError) as error:  # an integer of 5000 digits, brackets in brackets
        raise UsageError(f"option '{key}'", why=str(error)) from None


def _text(action: str, body: dict[str, Any]) -> str:
    if action == "list":
        return "\n".join(
            printable(f"{'*' if name == body['in_force'] else ' '} {name:<12} {text}")
            for name, text in body["policies"].items()
        )
    if action == "shadow":
        return printable(f"shadow: {body['shadow'] or 'off'}")
    lines = [f"{body['name']}: {body['help']}"]
    for option in body["options"]:
        unit = f" {option['unit']}" if option["unit"] else ""
        lines.append(f"  {option['name']} = {option['value']}{unit}  {option['help']}")
    return "\n".join(map(printable, lines))
