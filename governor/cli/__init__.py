"""The command ``flamegov``: verbs, each a module that is imported only when it is called.

A verb is anything with ``HELP``, ``add_arguments(parser)`` and ``run(args) -> exit code``. The
daemon's own stand here; the rooms above bring theirs through the entry points ``flamegov.verbs``.

Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 bad table or measurements; 4 the
board cannot be driven; 5 another daemon runs; 6 no daemon answers; 130 interrupted.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from estimators.errors import FlamegovError
from governor.errors import UsageError
from governor.words import nearest

GROUP = "flamegov.verbs"

_BUILT_IN = {
    name: f"governor.cli.{name}"
    for name in (
        "run",
        "status",
        "doctor",
        "config",
        "policy",
        "table",
        "profile",
        "estimate",
        "restore",
    )
}

_NESTED = {
    ("estimate", "power"): "estimators.neuralpower.powerverb",
    ("estimate", "epr"): "estimators.neuralpower.eprverb",
}
"""Verbs of two words."""


class Verb(Protocol):
    """A verb of the command line."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and tell the exit code."""


def verb_names() -> list[str]:
    """List the verbs that are installed, the daemon's first."""
    built_in = [n for n, m in _BUILT_IN.items() if importlib.util.find_spec(m) is not None]
    return built_in + sorted(point.name for point in _plugged())


def load_verb(name: str) -> Verb:
    """Import one verb.

    Raises:
        UsageError: There is none of that name.
    """
    if name in _BUILT_IN:
        verb: Verb = importlib.import_module(_BUILT_IN[name])
        return verb
    for point in _plugged():
        if point.name == name:
            loaded: Verb = point.load()
            return loaded
    raise UsageError(f"unknown verb '{name}'", hint=_hint(name))


def _hint(name: str) -> str:
    return f"{nearest(name, verb_names())}; run: flamegov --help".lstrip("; ")


def _plugged() -> list[importlib.metadata.EntryPoint]:
    return list(importlib.metadata.entry_points(group=GROUP))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _isolate()
    try:
        return _dispatch(args)
    except FlamegovError as error:
        if "--debug" in args:
            raise
        print(f"flamegov: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output went away ('| head'); point stdout elsewhere for the exit flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _isolate() -> None:
    """Start again with ``python -I`` if the environment could put other packages before ours.

    The package names are plain words; a folder on PYTHONPATH with a ``policies`` of its own must
    not end up inside a process that runs as root.
    """
    if not sys.flags.isolated and (os.environ.get("PYTHONPATH") or os.environ.get("PYTHONHOME")):
        os.execv(sys.executable, [sys.executable, "-I", "-m", "governor.cli", *sys.argv[1:]])


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in {"-h", "--help"}:
        return _help()
    if args[0] == "--version":
        print(f"flamegov {importlib.metadata.version('flamegov')}")
        return 0
    nested = _NESTED.get((args[0], args[1] if len(args) > 1 else ""))
    verb: Verb = importlib.import_module(nested) if nested else load_verb(args[0])
    words = 2 if nested else 1
    prog = " ".join(["flamegov", *args[:words]])
    parser = argparse.ArgumentParser(prog=prog, description=verb.HELP)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(args[words:]))


def _help() -> int:
    print("usage: flamegov VERB [options]   (flamegov VERB --help tells more)\n")
    for name in verb_names():
        print(f"  {name:<10} {load_verb(name).HELP}")
    print("\n  --version  print the version")
    return 0
