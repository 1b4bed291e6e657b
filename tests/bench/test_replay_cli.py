"""The roof's verbs: cheap to list, loaded when used."""

import argparse
import subprocess
import sys
import types

import pytest

from bench import cli
from estimators.errors import FlamegovError


def test_listing_imports_no_bench() -> None:
    code = (
        "import argparse, sys; from bench import cli; p = argparse.ArgumentParser();"
        "cli.bench.add_arguments(p); p.format_help(); cli.demo.HELP;"
        "print([m for m in sys.modules if m.startswith('bench.')], 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['bench.cli'] False", done.stderr


def test_sub_verb_is_dispatched_with_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("bench.fake")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--depth", type=int, default=1)

    def run(args: argparse.Namespace) -> int:
        return int(args.depth)

    vars(module).update(HELP="fake", add_arguments=add_arguments, run=run)
    monkeypatch.setattr(cli, "load", lambda name: {"bench.qos": module}[name])
    dispatcher = cli.Dispatcher("x", {"fake": ("bench.qos", "line"), "gone": ("bench.gone", "no")})
    parser = argparse.ArgumentParser()
    dispatcher.add_arguments(parser)
    assert "gone" not in parser.format_help() and "fake" in parser.format_help()
    assert dispatcher.run(parser.parse_args(["fake", "--depth", "7"])) == 7
    for wrong in (["gone"], [], ["fake", "--deep"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)


def test_every_listed_verb_keeps_the_contract() -> None:
    for name in ("replay", "demo"):
        verb = cli.load(f"bench.{name}")
        assert verb.HELP and callable(verb.run)
        verb.add_arguments(argparse.ArgumentParser())


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr(cli.importlib, "import_module", lambda module: missing("scipy.optimize"))
    with pytest.raises(FlamegovError, match="needs the package scipy; pip"):
        cli.load("bench.paper")
    monkeypatch.setattr(cli.importlib, "import_module", lambda module: missing("bench.papre"))
    with pytest.raises(ModuleNotFoundError):
        cli.load("bench.papre")
