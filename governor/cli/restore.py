"""``flamegov restore``: put back what a daemon left behind."""

import argparse
import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from governor.boards import RestoreReport
from governor.config import load_config
from governor.daemon import restore_leftovers
from governor.lock import locked

HELP = "put back the clocks that a killed daemon left pinned"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", type=Path, help="file to read instead of the default one")
    parser.add_argument("--root", help="folder that holds the board's sys/, as given to run")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Restore; exit code 4 if something is left, be it of a board under another root."""
    overrides: dict[str, Any] = {"board": {"root": args.root}} if args.root else {}
    config = load_config(args.config, overrides).config
    with locked(Path(config.state_dir), Path(config.board.root)):
        report = restore_leftovers(config)
    if args.json:
        print(json.dumps(dataclasses.asdict(report)))
    else:
        print(_text(report, config.state_dir))
    return 0 if report.complete and not report.elsewhere else 4


def _text(report: RestoreReport, state_dir: str) -> str:
    lines = [f"restored  {line}" for line in report.restored]
    lines += [f"kept      {line} (another writer owns it now)" for line in report.kept]
    lines += [f"left      {line}" for line in report.left]
    lines += [
        f"left      the board under {root}; run flamegov restore --root {shlex.quote(root)}"
        for root in report.elsewhere
    ]
    return "\n".join(lines) or f"nothing to restore in {state_dir}"
