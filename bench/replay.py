"""``flamegov bench replay``: score policies on a measured grid of clocks.

Each policy is driven as the daemon drives it: the point of the next job is decided from what was
observed of the jobs before, and the job then takes the time that was measured at that point. Clock
changes cost nothing here and the board never interferes; the simulated board is for that.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.grids import Grid, load_grid
from bench.pretty import table_text
from bench.recorded import find_traces, record
from bench.replay_run import default_deadlines, replay
from governor.durations import parse_ns
from governor.errors import UsageError

HELP = "score policies on a measured grid of clocks"

DEFAULT_POLICIES = ("flame", "max", "powersave")
DEFAULT_POINTS = (6, 4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    _add_data(parser.add_argument_group("data"))
    parser.add_argument(
        "--policy",
        nargs="+",
        default=list(DEFAULT_POLICIES),
        metavar="NAME",
        help=f"each NAME or NAME:OPTION=VALUE,... (default: {' '.join(DEFAULT_POLICIES)})",
    )
    parser.add_argument(
        "--deadlines",
        nargs="+",
        metavar="MS",
        help="deadlines, ms or with a unit; default: spread over the grid",
    )
    parser.add_argument("--jobs", type=int, default=1000, help="jobs per deadline (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_data(group: "argparse._ArgumentGroup") -> None:
    pairs: dict[str, Any] = {
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "COL=VALUE",
    }
    group.add_argument(
        "--grid",
        required=True,
        type=Path,
        metavar="FILE.csv",
        help="one row per operating point: cpu_*, gpu_*, latency, power",
    )
    group.add_argument("--by", help="read only the rows with this value", **pairs)
    group.add_argument("--jobs-by", help="draw the jobs from these rows instead", **pairs)
    group.add_argument(
        "--points",
        metavar="CxG|all",
        help="CPU x GPU levels that the table is made of (both ends, geometric); "
        "default: 6x4, at most half of an axis and one",
    )
    group.add_argument(
        "--column", default="", metavar="NAME", help="latency column, or family of quantile columns"
    )
    group.add_argument(
        "--traces",
        default="auto",
        metavar="FILE.npz|auto|none",
        help="recorded cycles; auto: cells_*.npz in traces/ beside the grid",
    )


def run(args: argparse.Namespace) -> int:
    """Replay and print; returns the exit code."""
    if args.jobs < 1:
        raise UsageError("--jobs must be at least 1", why=f"it is {args.jobs}")
    grid = load_grid(args.grid, by=parse_by(args.by), column=args.column)
    recording = record(
        grid,
        points=parse_points(args.points, grid),
        jobs=args.jobs,
        seed=args.seed,
        traces=_traces(args.traces, grid, bool(args.jobs_by)),
        jobs_grid=_jobs_grid(args),
    )
    deadlines_us = parse_deadlines(args.deadlines) or default_deadlines(recording)
    policies = [parse_policy(text) for text in args.policy]
    result = replay(recording, policies, deadlines_us)
    result["seed"] = args.seed
    if args.json:
        print(json.dumps(result))
    else:
        print(_text(result))
    return 0


def parse_deadlines(words: Sequence[str] | None) -> list[float]:
    """Read deadlines: bare numbers are ms; the result is in us.

    Raises:
        UsageError: A word is not a positive duration.
    """
    result = []
    for word in [part for text in words or [] for part in text.split(",") if part]:
        try:
            bare = word.replace(".", "", 1).isdecimal()
            deadline_us = parse_ns(f"{word} ms" if bare else word) / 1e3
        except ValueError as error:
            raise UsageError(
                "--deadlines", why=str(error), hint="e.g. --deadlines 12 20ms"
            ) from error
        if deadline_us <= 0:
            raise UsageError("--deadlines", why=f"{word} is not above zero")
        result.append(deadline_us)
    return result


def parse_points(text: str | None, grid: Grid) -> tuple[int, int]:
    """Read ``CxG`` or ``all``; without either, 6x4 but at most half of an axis and one.

    Raises:
        UsageError: The text is neither, or asks for no level.
    """
    size = len(grid.cpu_hz), len(grid.gpu_hz)
    if text is None:
        cpu, gpu = (min(d, n // 2 + 1) for d, n in zip(DEFAULT_POINTS, size, strict=True))
        return cpu, gpu
    if text == "all":
        return size
    left, _, right = text.lower().partition("x")
    if not (left.isdecimal() and right.isdecimal() and int(left) and int(right)):
        raise UsageError("--points wants CxG or all", why=f"it is {text!r}", hint="e.g. 6x4")
    return int(left), int(right)


def parse_by(words: Sequence[str]) -> dict[str, str]:
    """Read ``COLUMN=VALUE`` words.

    Raises:
        UsageError: A word has no ``=``.
    """
    result = {}
    for word in words:
        column, equals, value = word.partition("=")
        if not (equals and column):
            raise UsageError("--by wants COLUMN=VALUE", why=f"it is {word!r}", hint="e.g. cores=4")
        result[column.strip()] = value.strip()
    return result


def parse_policy(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``NAME`` or ``NAME:OPTION=VALUE,OPTION=VALUE``; values are JSON, else text.

    Raises:
        UsageError: An option has no ``=``.
    """
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        option, equals, value = pair.partition("=")
        if not equals:
            raise UsageError("--policy wants NAME:OPTION=VALUE", why=f"it is {text!r}")
        try:
            options[option] = json.loads(value)
        except json.JSONDecodeError:
            options[option] = value
    return name, options


def _traces(text: str, grid: Grid, other_rows: bool) -> Path | None:
    if text == "none" or (text == "auto" and other_rows):
        return None
    return find_traces(grid) if text == "auto" else Path(text)


def _jobs_grid(args: argparse.Namespace) -> Grid | None:
    if not args.jobs_by:
        return None
    by = {**parse_by(args.by), **parse_by(args.jobs_by)}
    return load_grid(args.grid, by=by, column=args.column)


def _text(result: Mapping[str, Any]) -> str:
    for line in (*result["choices"], *result["notes"]):
        print(f"note: {line}", file=sys.stderr)
    table, jobs = result["table"], result["jobs"]
    error = table["held_out_error_pct"]
    head = [
        f"slice: {', '.join(f'{k}={v}' for k, v in result['slice'].items())}",
        f"table: {table['points']} of {table['of']} points ({table['levels']}), interpolation: "
        f"{table['interpolation']}; mean error at unseen points: "
        + ("none are unseen (in-sample)" if error is None else f"{error:.2f} %"),
        f"jobs: {jobs['from']}; held out: {jobs['held_out']}",
        f"power: {result['power']}",
        f"oracle: {result['oracle']}",
    ]
    names = (
        "policy",
        "deadline ms",
        "QoS run %",
        "QoS job %",
        "late %",
        "CPU MHz",
        "GPU MHz",
        "W",
        "held out %",
    )
    rows = [
        (
            policy,
            f"{f['deadline_ms']:g}",
            f["qos_run_pct"],
            f["qos_job_pct"],
            f["miss_pct"],
            f["mean_cpu_hz"] / 1e6,
            f["mean_gpu_hz"] / 1e6,
            f["mean_power_w"],
            f["held_out_jobs_pct"],
        )
        for policy, figures in result["policies"].items()
        for f in figures
    ]
    return "\n".join([*head, "", table_text(names, rows)])
