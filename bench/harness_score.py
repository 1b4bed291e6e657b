"""From the jobs of runs to figures, with intervals from resampling whole runs.

Late jobs cluster, so that jobs are not independent; runs under different seeds are. Intervals come
from drawing seeds with replacement: a run is the block of the block bootstrap. When two policies
are compared, both are taken at the same seeds, which gave both the same jobs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.harness_sim import Records
from bench.qos import ppw, score

TAILS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
DRAWS = 2000
LEVEL_PCT = (2.5, 97.5)

Metrics = dict[str, Any]


def measure(records: Records) -> Metrics:
    """Score some jobs of a run.

    Returns:
        Figures by name; powers in W, energies in mJ, times in us. ``energy_mj_per_on_time_job`` is
        None if no job was on time.
    """
    got = score(records.latency_us, records.deadline_us)
    energy_mj = float(records.energy_mj.sum(dtype=np.float64))
    seconds = float(records.span_us.sum(dtype=np.float64)) / 1e6
    watts = energy_mj / 1e3 / seconds
    lateness = records.latency_us.astype(np.float64) - records.deadline_us
    on_time = int((lateness <= 0).sum())
    moved = (np.diff(records.cpu_hz.astype(np.int64)) != 0) | (
        np.diff(records.gpu_hz.astype(np.int64)) != 0
    )
    return {
        "jobs": got.jobs,
        "seconds": seconds,
        "qos_run_pct": got.qos_run_pct,
        "qos_job_pct": got.qos_job_pct,
        "miss_pct": got.miss_pct,
        "miss_from_release_pct": 100.0 * float((lateness + records.wait_us > 0).mean()),
        "longest_miss_run": got.longest_miss_run,
        "mean_power_w": watts,
        "ppw": ppw(got.qos_run_pct, watts),
        "energy_mj_per_job": energy_mj / got.jobs,
        "energy_mj_per_on_time_job": energy_mj / on_time if on_time else None,
        "lateness_us": {name: float(np.quantile(lateness, q)) for name, q in TAILS.items()},
        "switches_per_s": float(moved.sum()) / seconds,
        "mean_cpu_hz": float(records.cpu_hz.mean(dtype=np.float64)),
        "mean_gpu_hz": float(records.gpu_hz.mean(dtype=np.float64)),
    }


def mean(runs: Sequence[Metrics], key: str) -> float | None:
    """Average a figure over runs; None if one of them has none."""
    values = [run[key] for run in runs]
    return None if any(value is None for value in values) or not values else float(np.mean(values))


def interval(runs: Sequence[Metrics], key: str) -> list[float] | None:
    """Tell the 95 % interval of the mean of a figure over runs; None for less than two."""
    values = np.array([run[key] for run in runs], dtype=np.float64)
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    return _bounds(values[_draws(len(values))].mean(axis=1))


def gain_pct(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Compare a figure of two policies over cells, paired by seed.

    Args:
        ours: Figure of each cell and seed, ``[cells][seeds]``.
        theirs: The other's, alike; a cell counts the seeds that both have.

    Returns:
        ``mean``: over cells, how many percent the mean of ours is above the mean of theirs;
        ``ci95``: its interval, None for less than two seeds; ``seeds``, ``cells``.
    """
    if not ours:
        return {"mean": None, "ci95": None, "seeds": 0, "cells": 0}
    seeds = min(min(len(a), len(b)) for a, b in zip(ours, theirs, strict=True))
    a, b = (np.array([cell[:seeds] for cell in side], dtype=np.float64) for side in (ours, theirs))
    ratio = float((a.mean(axis=1) / b.mean(axis=1)).mean())
    bounds = None
    if seeds > 1:
        picked = _draws(seeds)
        drawn = a[:, picked].mean(axis=2) / b[:, picked].mean(axis=2)
        bounds = _bounds(100.0 * (drawn.mean(axis=0) - 1.0))
    return {"mean": 100.0 * (ratio - 1.0), "ci95": bounds, "seeds": seeds, "cells": len(ours)}


def _draws(count: int) -> NDArray[np.int64]:
    """Draw runs with replacement, always the same draws, ``[DRAWS, count]``."""
    return np.random.default_rng(count).integers(0, count, (DRAWS, count))


def _bounds(values: NDArray[np.float64]) -> list[float]:
    return [float(bound) for bound in np.percentile(values, LEVEL_PCT)]
