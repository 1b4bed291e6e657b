"""``flamegov estimate``: a latency table for all clocks from a profile of few."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from governor.errors import UsageError

if TYPE_CHECKING:
    from estimators.profiles import Profile
    from estimators.table import LatencyTable

HELP = "make a latency table from a profile; also: estimate power, estimate epr"

_MODES = ("maxplus", "paper", "paper-literal", "paper-insitu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("profile", type=Path, nargs="+", help="profile; several are merged")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="TABLE", help="file to write, .npz"
    )
    parser.add_argument("--model", help="model of the profile (default: its only one)")
    parser.add_argument("--mode", choices=_MODES, default="maxplus", help="how layers are joined")
    parser.add_argument(
        "--zero-run", action="store_true", help="use layers only, no end-to-end runs"
    )
    parser.add_argument(
        "--end-to-end", action="store_true", help="use end-to-end runs only, no layers"
    )
    parser.add_argument(
        "--unseen", action="store_true", help="foretell layers that were not measured"
    )
    parser.add_argument(
        "--contexts", type=_contexts, metavar="N,N,...", help="contexts of the table, tokens"
    )
    parser.add_argument(
        "--idle",
        type=Path,
        metavar="CSV",
        help="idle power of the board; adds power to the table if the profile has any",
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="save a picture of the fit")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do it and tell the exit code."""
    try:
        from estimators.maketable import make_table
    except ImportError as error:
        raise UsageError(
            "estimating needs more packages",
            why=str(error),
            hint="pip install '.[build]' in the checkout",
        ) from error
    from estimators.profilefile import load_profile
    from estimators.profiles import merge_profiles

    if args.output.suffix != ".npz":
        raise UsageError(f"'{args.output}' is no name for a table", hint="let it end in .npz")
    if args.zero_run and args.end_to_end:
        raise UsageError("--zero-run and --end-to-end exclude one another", hint="give one")
    profile = merge_profiles(load_profile(path) for path in args.profile)
    model = args.model or _only_model(profile)
    table = make_table(
        profile,
        model,
        mode=args.mode,
        anchor=not args.zero_run,
        context=args.contexts,
        end_to_end=args.end_to_end,
        unseen=args.unseen,
    )
    if args.idle:
        from estimators.neuralpower.idlefile import load_idle
        from estimators.neuralpower.surface import with_power

        table = with_power(table, profile, load_idle(args.idle))
    table.save(args.output)
    if args.png:
        from governor.cli.fitpicture import save_picture

        save_picture(profile, model, table, args.png)
    report = {"table": str(args.output), "model": model, "shape": table.shape, **table.header.fit}
    print(json.dumps(report) if args.json else _text(table, str(args.output)))
    return 0


def _contexts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _only_model(profile: "Profile") -> str:
    models = sorted(profile.networks)
    if len(models) != 1:
        raise UsageError(
            f"the profile holds {len(models)} models", hint=f"add --model: {', '.join(models)}"
        )
    return models[0]


def _text(table: "LatencyTable", path: str) -> str:
    fit = table.header.fit
    shape = " x ".join(str(length) for length in table.shape)
    head = f"{path}: {table.header.model} ({table.header.phase}), {shape}, {fit['estimator']}"
    if not fit["heldout_runs"]:
        return f"{head}; no runs held out"
    error = f"{fit['heldout_mape_pct']} % mean, {fit['heldout_worst_pct']} % worst"
    return f"{head}; {error} on {fit['heldout_runs']} held-out runs"
