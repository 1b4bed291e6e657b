"""``flamegov estimate epr``: which network trades error for energy best."""

import argparse
import csv
import json
from pathlib import Path

from estimators.errors import ProfileError
from estimators.neuralpower import published
from estimators.neuralpower.epr import Candidate, energy_precision, winners

HELP = "rank networks by energy-precision ratio, error^alpha x energy"

_COLUMNS = ("name", "error", "energy_mj")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "networks",
        type=Path,
        nargs="?",
        help=f"CSV with columns {', '.join(_COLUMNS)}; error is a share, energy per input "
        "(default: the published networks)",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        nargs="+",
        default=list(published.ALPHAS),
        help="how much error counts (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do it and tell the exit code."""
    candidates = published.candidates() if args.networks is None else load(args.networks)
    ratios, best = energy_precision(candidates, args.alpha), winners(candidates, args.alpha)
    if args.json:
        rows = [
            {"name": c.name, "error": c.error, "energy_mj": c.energy_mj, "ratio": row.tolist()}
            for c, row in zip(candidates, ratios, strict=True)
        ]
        print(json.dumps({"alpha": args.alpha, "networks": rows, "best": best}))
        return 0
    width = max(len("network"), *(len(candidate.name) for candidate in candidates))
    print(
        f"{'network':<{width}} {'error':>7} {'mJ':>9}",
        *(f"{'a=' + f'{a:g}':>10}" for a in args.alpha),
    )
    for candidate, row in zip(candidates, ratios, strict=True):
        marks = (
            f"{value:9.3f}{'*' if name == candidate.name else ' '}"
            for value, name in zip(row, best, strict=True)
        )
        print(
            f"{candidate.name:<{width}} {candidate.error:7.2%} {candidate.energy_mj:9.1f}", *marks
        )
    return 0


def load(path: Path) -> list[Candidate]:
    """Read networks.

    Raises:
        ProfileError: The file cannot be read, or a value is unusable.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
        return [
            Candidate(row["name"], float(row["error"]), float(row["energy_mj"])) for row in rows
        ]
    except OSError as error:
        raise ProfileError(
            "cannot read networks", where=str(path), why=error.strerror or str(error)
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise ProfileError(
            "not a list of networks",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            hint=f"columns are {', '.join(_COLUMNS)}",
        ) from error
