"""Drive policies over a recording, as the daemon would, and score them beside an oracle."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.grids import choices_text
from bench.qos import MISS_BUDGET, ppw, score
from bench.recorded import PROFILE_CYCLES, Recording
from estimators.errors import PolicyError
from policies.base import Attainable, BoardView, Job, OperatingPoint, Outcome, Policy
from policies.registry import load_policy

DEFAULT_DEADLINES = 6
INTERPOLATION = "linear in 1/f on each axis"


@dataclass(frozen=True, slots=True)
class Run:
    """One policy under one deadline: the points taken, as indices, shape [N] each."""

    cpu: NDArray[np.int64]
    gpu: NDArray[np.int64]


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
