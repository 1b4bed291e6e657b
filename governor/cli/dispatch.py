"""Finding and running the verbs, each a module that is imported only when it is called.

A verb is anything with ``HELP``, ``add_arguments(parser)`` and ``run(args) -> exit code``. The
daemon's own stand here; the rooms above bring theirs through the entry points ``flamegov.verbs``.

Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 bad table or measurements; 4 the
board cannot be driven; 5 another daemon runs; 6 no daemon answers; 130 interrupted.
"""

import argparse
import importlib
import importlib.util
import io
import os
import sys
from typing import TYPE_CHECKING, Protocol

from estimators.errors import FlamegovError
from governor.errors import UsageError
from governor.words import nearest, printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "flamegov.verbs"

_BUILT_IN = {
    name: f"governor.cli.{name}"
    for name in (
        "run",
        "status",
        "doctor",
        "config",
        "policy",
        "reload",
        "pause",
        "resume",
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


def _plugged() -> "list[EntryPoint]":
    from importlib.metadata import entry_points  # here, for a quick start

    return list(entry_points(group=GROUP))


def run(args: list[str]) -> int:
    """Run the verb that the first word names and tell the exit code."""
    _ready_output()
    try:
        try:
            return _dispatch(args)
        finally:
            sys.stdout.flush()  # here, so that a full disk is told like any other failure
    except FlamegovError as error:
        return _failed(error, args, error.exit_code)
    except OSError as error:
        ours = _abandon_output()
        if isinstance(error, BrokenPipeError):
            return 0  # the reader of our output went away ('| head')
        where = "standard output" if ours else str(error.filename or "")
        failure = FlamegovError(
            "input or output failed", where=where, why=error.strerror or str(error)
        )
        failure.__cause__ = error
        return _failed(failure, args, failure.exit_code)
    except KeyboardInterrupt:
        return 130


def _failed(error: FlamegovError, args: list[str], code: int) -> int:
    if "--debug" in args:
        raise error
    print(f"flamegov: {printable(str(error))}", file=sys.stderr)
    return code


def _ready_output() -> None:
    """Let any name be printed in any locale, and let a closed stdout fail as a full disk does.

    Python makes a stream None when its descriptor is closed, and drops what is printed; worse, the
    next socket would get that number. For stdout a descriptor that can only be read stands in.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _abandon_output() -> bool:
    """If stdout is what failed, point it elsewhere, for the flush at exit would fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return True
    return False


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in {"-h", "--help"}:
        return _help()
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"flamegov {version('flamegov')}")
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
