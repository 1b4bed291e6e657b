"""``flamegov doctor``: check what the daemon needs, and say how to mend what is missing."""

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from estimators.errors import FlamegovError
from estimators.tablestore import TableStore
from governor.boards import Board
from governor.cli.config import check_policies
from governor.config import Config, load_config
from governor.daemon import check_writable, open_board
from governor.errors import BoardError

HELP = "check what the daemon needs"

PACKAGES = ("estimators", "policies", "governor", "bench")


class Check(NamedTuple):
    """One finding.

    Attributes:
        name: What was looked at.
        state: ``ok``, ``warn`` (works, with less) or ``fail`` (the daemon would not run).
        text: What was found and, if it is not well, how to mend it.
    """

    name: str
    state: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", type=Path, help="file to read instead of the default one")
    parser.add_argument("--root", help="folder that holds the board's sys/ and proc/")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Check everything; exit code 4 if anything fails."""
    checks = list(examine(args))
    if args.json:
        print(json.dumps([check._asdict() for check in checks], indent=2))
    else:
        for check in checks:
            print(f"{check.state:<4}  {check.name:<9} {check.text}")
    return 4 if any(check.state == "fail" for check in checks) else 0


def examine(args: argparse.Namespace) -> Iterator[Check]:
    """Look at everything, one finding after the other; nothing is written."""
    yield _python()
    yield from _shadows()
    try:
        overrides = {"board": {"root": args.root}} if args.root else None
        loaded = load_config(args.config, overrides)
        check_policies(loaded)
    except FlamegovError as error:
        yield Check("config", "fail", str(error))
        return
    yield Check("config", "ok", ", ".join(loaded.files) or "defaults")
    yield from _board(loaded.config)
    yield from _tables(loaded.config)
    yield _state_dir(loaded.config)


def _python() -> Check:
    isolated = "isolated" if sys.flags.isolated else "not isolated (systemd's unit uses -I)"
    return Check("python", "ok", f"{sys.version.split()[0]}, {isolated}")


def _shadows() -> Iterator[Check]:
    """Report packages of ours that another folder on the path would win over."""
    homes = {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        homes[name] = Path(spec.origin).parent.parent if spec and spec.origin else None
    ours = homes["governor"]
    for name, home in homes.items():
        if home is not None and home != ours:
            yield Check(
                "shadowing",
                "fail",
                f"package '{name}' comes from {home}, not {ours}; remove that folder from the "
                "path or run python -I",
            )


def _board(config: Config) -> Iterator[Check]:
    try:
        board = open_board(config, dry_run=True)
    except FlamegovError as error:
        yield Check("board", "fail", str(error))
        return
    try:
        yield from _findings(board)
        check_writable(board, Path(config.board.root))
    except BoardError as error:
        yield Check("board", "fail", str(error))
    finally:
        board.close()


def _findings(board: Board) -> Iterator[Check]:
    identity, state = board.identity, board.poll()
    yield Check("board", "ok", f"{identity.model or 'unknown'}, L4T {identity.l4t or 'unknown'}")
    yield from (Check("board", "warn", note) for note in board.notes)
    for domain, clocks in (("cpu", state.attainable.cpu_hz), ("gpu", state.attainable.gpu_hz)):
        if clocks:
            text = f"{len(clocks)} clocks, {clocks[0] / 1e6:.1f} to {clocks[-1] / 1e6:.1f} MHz"
            yield Check(domain, "ok" if len(clocks) > 1 else "warn", text)
    for name, reason in state.missing.items():
        yield Check(name, "warn", reason)
    watts = "no rail to read" if state.total_mw is None else f"{state.total_mw / 1000:.1f} W"
    yield Check("power", "warn" if state.total_mw is None else "ok", watts)


def _tables(config: Config) -> Iterator[Check]:
    store = TableStore.load(config.tables.dir)
    yield from (Check("table", "warn", str(problem)) for problem in store.problems)
    names = ", ".join(f"{model}/{phase}" for model, phase in store)
    if names:
        yield Check("tables", "ok", names)
    else:
        yield Check(
            "tables",
            "warn",
            f"none in {config.tables.dir}; make one: flamegov table import",
        )


def _state_dir(config: Config) -> Check:
    folder = Path(config.state_dir)
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if os.access(existing, os.W_OK):
        return Check("state", "ok", str(folder))
    return Check("state", "fail", f"{existing} is not writable; run as root or set state_dir")
