"""``flamegov run``: the daemon."""

import argparse
import os
from pathlib import Path
from typing import Any

HELP = "run the daemon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", type=Path, help="file to read instead of the default one")
    parser.add_argument("--root", help="folder that holds the board's sys/ and proc/")
    parser.add_argument("--policy", help="policy to use instead of the configured one")
    parser.add_argument(
        "--dry-run", action="store_true", help="do everything, but log the writes, not make them"
    )


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    # Before numpy loads: its threads would cost memory and a daemon has no use for them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from governor.config import Loaded, load_config
    from governor.daemon import run_daemon
    from governor.logs import setup_logging

    overrides: dict[str, Any] = {}
    if args.root:
        overrides["board"] = {"root": args.root}
    if args.policy:
        overrides["policy"] = args.policy

    def load() -> Loaded:
        return load_config(args.config, overrides)

    setup_logging(load().config.log_level)
    return run_daemon(load, dry_run=args.dry_run)
