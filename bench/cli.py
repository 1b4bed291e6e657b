"""The verbs that the roof adds to the command line: ``demo`` and ``bench``.

The command loads these objects through the entry points ``flamegov.verbs``. Importing this module
must stay cheap: what a verb needs is imported when its arguments are asked for, not before.
"""

import argparse
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

SUB_VERBS: dict[str, tuple[str, str]] = {
    "overhead": ("bench.overhead", "what the governor costs: decisions, messages, memory"),
    "replay": ("bench.replay", "score policies on a measured grid of clocks"),
    "calibration": ("bench.calibration", "the simulated board against published measurements"),
    "plant-speed": ("bench.plant_speed", "how fast the simulated board runs"),
    "profile": (
        "bench.simprofile",
        "profile a model on the simulated board, for flamegov estimate",
    ),
    "estimators": ("bench.estimators", "latency estimators against one another"),
    "neuralpower": ("bench.neuralpower", "layer runtime and power models on measured layers"),
    "paper": ("bench.paper", "the evaluation of the FLAME paper, simulated"),
}
"""Name of each sub-verb of ``bench``: its module, and the line that ``--help`` shows."""


ROOMS = ("bench", "governor", "policies", "estimators")

INSTALL = "pip install '.[build,bench]' in the checkout"


class Verb(Protocol):
    """What the command asks of a verb; a module with these names is one."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class LazyParser(argparse.ArgumentParser):
    """A parser that declares the options of a module when it first parses."""

    module: str | None = None

    def parse_known_args(  # type: ignore[override]  # the overloads of argparse say less
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Declare the options, then parse."""
        if self.module is not None:
            verb, self.module = load(self.module), None
            self.description = verb.HELP
            verb.add_arguments(self)
            self.set_defaults(bench_run=verb.run)
        return super().parse_known_args(args, namespace)


@dataclass(frozen=True, slots=True)
class LazyVerb:
    """A verb whose module is imported when its options are declared."""

    HELP: str
    module: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        load(self.module).add_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        with told():
            return load(self.module).run(args)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """A verb that hands over to one of several modules."""

    HELP: str
    table: dict[str, tuple[str, str]]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare one sub-command for each module that exists."""
        subparsers = parser.add_subparsers(
            metavar="WHAT", required=True, parser_class=LazyParser, title="benches"
        )
        for name, (module, line) in self.table.items():
            if importlib.util.find_spec(module) is not None:
                subparsers.add_parser(name, help=line).module = module

    def run(self, args: argparse.Namespace) -> int:
        """Run the chosen one."""
        with told():
            return int(args.bench_run(args))


@contextmanager
def told() -> Iterator[None]:
    """Tell of a package that a plain installation does not bring in one line.

    Raises:
        FlamegovError: Such a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ROOMS:
            raise  # a mistake of ours, not of the installation
        from estimators.errors import FlamegovError  # brings numpy; listing verbs must not

        raise FlamegovError(f"this needs the package {package}", hint=INSTALL) from error


def load(module: str) -> Verb:
    """Import the module of a verb.

    Raises:
        FlamegovError: A package is missing that a plain installation does not bring.
    """
    with told():
        return cast(Verb, importlib.import_module(module))


demo = LazyVerb("watch the governor hold deadlines on a simulated board", "bench.demo")
bench = Dispatcher("measure: overhead, replay of measured grids, and more", SUB_VERBS)
replay = LazyVerb("score policies on a measured grid of clocks (as bench replay)", "bench.replay")
