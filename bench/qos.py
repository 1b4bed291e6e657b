"""Score a run as the FLAME paper does, and never without the share of late jobs.

QoS (section VI of the paper) is a ratio of mean rates capped at 100 %: early jobs pay for late
ones, so a run may reach 100 % with every tenth job late. Every score here carries both figures.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.errors import ProfileError

MISS_BUDGET = 0.01
"""Share of jobs that an oracle may be late on."""

LATENESS_LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
"""Quantiles of lateness that are reported."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well the deadlines of one run were kept.

    Attributes:
        jobs: Number of jobs.
        qos_run_pct: ``min(r_a / r_d, 1) * 100`` over the whole run; ``r_a`` is jobs per second of
            execution, ``r_d`` the rate that the deadlines ask for.
        qos_job_pct: Mean over the jobs of ``min(deadline / latency, 1) * 100``.
        miss_pct: Share of jobs that ended after their deadline.
        longest_miss_run: Most late jobs in a row.
        lateness_us: Quantiles of latency minus deadline, us (negative: early), by name.
    """

    jobs: int
    qos_run_pct: float
    qos_job_pct: float
    miss_pct: float
    longest_miss_run: int
    lateness_us: dict[str, float]


def score(latency_us: ArrayLike, deadline_us: ArrayLike) -> Score:
    """Score one run of a closed loop.

    Args:
        latency_us: Time from start to end of each job, us, shape [n].
        deadline_us: Time allowed for each job, us, shape [n], or one for all.

    Raises:
        ProfileError: There is no job, or a time is not a positive finite number.
    """
    latency, deadline = _checked(latency_us, deadline_us)
    late = latency > deadline
    rate_ratio = float(deadline.sum() / latency.sum())
    lateness = latency - deadline
    return Score(
        jobs=latency.size,
        qos_run_pct=100.0 * min(rate_ratio, 1.0),
        qos_job_pct=100.0 * float(np.minimum(deadline / latency, 1.0).mean()),
        miss_pct=100.0 * float(late.mean()),
        longest_miss_run=_longest_run(late),
        lateness_us={name: float(np.quantile(lateness, q)) for name, q in LATENESS_LEVELS.items()},
    )


def ppw(qos_pct: float, mean_power_w: float | None) -> float | None:
    """Divide QoS (percent) by the mean power (W), as the paper does; None without a power."""
    if mean_power_w is None or not mean_power_w > 0:
        return None
    return qos_pct / mean_power_w


def _checked(latency_us: ArrayLike, deadline_us: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    latency = np.asarray(latency_us, dtype=np.float64)
    if latency.ndim != 1 or latency.size == 0:
        raise ProfileError("no jobs to score", why=f"latencies have shape {latency.shape}")
    deadline = np.asarray(deadline_us, dtype=np.float64)
    if deadline.shape not in {(), latency.shape}:
        why = f"{latency.size} latencies, deadlines of shape {deadline.shape}"
        raise ProfileError("each job needs its deadline", why=why)
    deadline = np.broadcast_to(deadline, latency.shape)
    for name, values in (("latency", latency), ("deadline", deadline)):
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if wrong.size:
            why = f"job {wrong[0]} has {values[wrong[0]]} us"
            raise ProfileError(f"a {name} must be a positive number", why=why)
    return latency, deadline


def _longest_run(late: NDArray[Any]) -> int:
    longest = current = 0
    for flag in late.tolist():
        current = current + 1 if flag else 0
        longest = max(longest, current)
    return longest
