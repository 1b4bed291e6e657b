"""``flamegov bench replay``: score policies on a measured grid of clocks.

Each policy is driven as the daemon drives it: the point of the next job is decided from what was
observed of the jobs before, and the job then takes the time that was measured at that point. Clock
changes cost nothing here and the board never interferes; the simulated board is for that.
"""

import argparse
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.grids import Grid, choices_text, load_grid
from bench.pretty import table_text
from bench.qos import ppw, score
from bench.recorded import PROFILE_CYCLES, Recording, find_traces, record
from estimators.errors import PolicyError
from governor.durations import parse_ns
from governor.errors import UsageError
from policies.base import Attainable, BoardView, Job, OperatingPoint, Outcome, Policy
from policies.registry import load_policy

HELP = "score policies on a measured grid of clocks"

DEFAULT_POLICIES = ("flame", "max", "powersave")
DEFAULT_POINTS = (6, 4)
DEFAULT_DEADLINES = 6
MISS_BUDGET = 0.01
"""Share of jobs that the oracle may be late on."""

INTERPOLATION = "linear in 1/f on each axis"


@dataclass(frozen=True, slots=True)
class Run:
    """One policy under one deadline: the points taken, as indices, shape [N] each."""

    cpu: NDArray[np.int64]
    gpu: NDArray[np.int64]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--grid",
        required=True,
        type=Path,
        metavar="FILE.csv",
        help="one row per operating point: cpu_*, gpu_*, latency, power",
    )
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
    parser.add_argument(
        "--by",
        nargs="+",
        action="extend",
        default=[],
        metavar="COL=VALUE",
        help="read only the rows with this value",
    )
    parser.add_argument(
        "--jobs-by",
        nargs="+",
        action="extend",
        default=[],
        metavar="COL=VALUE",
        help="draw the jobs from these rows instead",
    )
    parser.add_argument(
        "--points",
        metavar="CxG|all",
        help="CPU x GPU levels that the table is made of (both ends, geometric); "
        "default: 6x4, at most half of an axis and one",
    )
    parser.add_argument(
        "--column", default="", metavar="NAME", help="latency column, or family of quantile columns"
    )
    parser.add_argument(
        "--traces",
        default="auto",
        metavar="FILE.npz|auto|none",
        help="recorded cycles; auto: cells_*.npz in traces/ beside the grid",
    )
    parser.add_argument("--jobs", type=int, default=1000, help="jobs per deadline (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


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


def replay(
    recording: Recording,
    policies: Sequence[tuple[str, Mapping[str, Any]]],
    deadlines_us: Sequence[float],
) -> dict[str, Any]:
    """Score policies, and the oracle, on a recording.

    Args:
        recording: Table and jobs.
        policies: Name and options of each policy.
        deadlines_us: Deadlines, us; one run for each.

    Returns:
        The figures, ready for JSON: a list per policy, one entry per deadline, and labels.

    Raises:
        PolicyError: A policy is unknown or leaves the measured grid.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, options in policies:
        make = load_policy(name, options)
        rows[_label(name, options)] = [
            _figures(recording, drive(make(), recording, d), d) for d in deadlines_us
        ]
    rows["oracle"] = [_figures(recording, oracle(recording, d), d) for d in deadlines_us]
    return {"policies": rows, **_labels(recording)}


def drive(policy: Policy, recording: Recording, deadline_us: float) -> Run:
    """Run all jobs of a recording under one policy and deadline.

    Raises:
        PolicyError: The policy names no point, or one that was not measured.
    """
    grid = recording.grid
    cpu_at = {int(hz): i for i, hz in enumerate(grid.cpu_hz)}
    gpu_at = {int(hz): i for i, hz in enumerate(grid.gpu_hz)}
    attainable = Attainable(tuple(cpu_at), tuple(gpu_at))
    job = Job(recording.table, deadline_us)
    point = OperatingPoint(attainable.cpu_hz[-1], attainable.gpu_hz[-1])
    count = recording.jobs_us.shape[-1]
    cpu, gpu = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for i in range(count):
        decision = policy.decide(job, BoardView(attainable, point, grid.emc_hz))
        if decision.point is None:
            raise PolicyError(
                f"policy {policy.name} leaves the clocks to the board's own governors",
                why="a replay has no board",
                hint="choose another policy, or a bench on the simulated board",
            )
        point = decision.point
        if point.cpu_hz not in cpu_at or point.gpu_hz not in gpu_at:
            raise PolicyError(
                f"policy {policy.name} chose clocks that were not measured",
                where=str(grid.path),
                why=f"{point.cpu_hz} and {point.gpu_hz} Hz",
                hint="choose other options",
            )
        cpu[i], gpu[i] = cpu_at[point.cpu_hz], gpu_at[point.gpu_hz]
        latency_us = float(recording.jobs_us[cpu[i], gpu[i], i])
        policy.observe(Outcome(job, point, grid.emc_hz, latency_us, mixed=False))
    return Run(cpu, gpu)


def oracle(recording: Recording, deadline_us: float) -> Run:
    """Choose the best single point with full knowledge of the jobs.

    Among the points late on at most 1 % of the jobs: the one of least measured power, or, without
    power figures, the lowest GPU clock and then the lowest CPU clock. If there is none, the point
    with the fewest late jobs.
    """
    miss = (recording.jobs_us > deadline_us).mean(axis=-1)
    power = recording.grid.power_w
    _, gpu = np.indices(miss.shape)
    cost = power if power is not None and np.isfinite(power).all() else gpu
    fit = miss <= MISS_BUDGET
    if fit.any():
        candidates = np.argwhere(fit & (cost == cost[fit].min()))
        best = candidates[0]
    else:
        order = np.lexsort((np.median(recording.jobs_us, axis=-1).ravel(), miss.ravel()))
        best = np.array(np.unravel_index(order[0], miss.shape))
    count = recording.jobs_us.shape[-1]
    return Run(np.full(count, best[0]), np.full(count, best[1]))


def default_deadlines(recording: Recording) -> list[float]:
    """Spread deadlines from just above the fastest point to just below the slowest, us."""
    fastest = float(np.quantile(recording.jobs_us, 1 - MISS_BUDGET, axis=-1).min())
    slowest = float(np.median(recording.jobs_us, axis=-1).max())
    spread = np.geomspace(1.05 * fastest, max(0.95 * slowest, 1.1 * fastest), DEFAULT_DEADLINES)
    return [float(f"{value:.4g}") for value in spread]


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


def _label(name: str, options: Mapping[str, Any]) -> str:
    return name + (f":{','.join(f'{k}={v}' for k, v in options.items())}" if options else "")


def _figures(recording: Recording, taken: Run, deadline_us: float) -> dict[str, Any]:
    grid = recording.grid
    latency_us = recording.jobs_us[taken.cpu, taken.gpu, np.arange(len(taken.cpu))]
    got = score(latency_us, deadline_us)
    watts = None
    if grid.power_w is not None:
        mean = float(grid.power_w[taken.cpu, taken.gpu].mean())
        watts = mean if np.isfinite(mean) else None
    return {
        "deadline_ms": deadline_us / 1e3,
        "qos_run_pct": got.qos_run_pct,
        "qos_job_pct": got.qos_job_pct,
        "miss_pct": got.miss_pct,
        "longest_miss_run": got.longest_miss_run,
        "lateness_us": got.lateness_us,
        "mean_cpu_hz": float(grid.cpu_hz[taken.cpu].mean()),
        "mean_gpu_hz": float(grid.gpu_hz[taken.gpu].mean()),
        "mean_power_w": watts,
        "ppw": ppw(got.qos_run_pct, watts),
        "held_out_jobs_pct": 100.0 * float(1 - recording.seen[taken.cpu, taken.gpu].mean()),
        "jobs": got.jobs,
    }


def _labels(recording: Recording) -> dict[str, Any]:
    grid = recording.grid
    cpu, gpu = (len(k) for k in recording.knots)
    total = grid.centre_us.size
    jobs = {
        "traces": f"recorded cycles from {PROFILE_CYCLES} on; the table is made of those before",
        "quantiles": f"drawn from the {grid.latency_column.rpartition('_p50')[0]} quantiles",
        "means": "means only: noise-free",
    }[recording.source]
    in_sample = bool(recording.seen.all())
    return {
        "grid": str(grid.path),
        "slice": {**grid.labels, "emc_hz": grid.emc_hz},
        "latency_column": grid.latency_column,
        "choices": choices_text(grid),
        "notes": [*grid.notes, "a clock change costs nothing in a replay"],
        "table": {
            "points": cpu * gpu,
            "of": total,
            "levels": f"{cpu}x{gpu}",
            "interpolation": INTERPOLATION if cpu * gpu < total else "none: every point measured",
            "in_sample": in_sample,
            "held_out_error_pct": recording.table_error_pct,
        },
        "jobs": {
            "from": jobs,
            "noise_free": recording.source == "means",
            "held_out": "all"
            if not recording.seen.any()
            else "none: in-sample"
            if in_sample
            else "level only at points the table was not made of (see held_out_jobs_pct)",
        },
        "power": "as measured at the chosen points, at the pacing of the measurement"
        if grid.power_w is not None and np.isfinite(grid.power_w).any()
        else "null: the slice has no power figures",
        "oracle": "best single point in hindsight: late on at most 1 % of the jobs, then "
        "least power, or without power lowest GPU and then lowest CPU clock",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


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
