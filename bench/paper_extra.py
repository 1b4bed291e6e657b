"""The parts of the paper's evaluation that are no race of policies: profiling cost and overhead."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.harness_jobs import subject
from bench.overhead import decide_us
from bench.plant.power import PowerModel, duty_of
from bench.plant.types import Activity
from estimators.sampling import context_levels, interval_levels
from policies.base import Attainable, BoardView, Job, OperatingPoint, Outcome
from policies.ztt import ZttPolicy

INTERVAL = 4
"""Every fourth clock is profiled, as in the paper."""
DNN_RUNS, SLM_RUNS = 400, 5
"""Runs at each point, as in the paper."""
LONGEST = 1024

JOBS_PER_S = 50.0
"""Rate that the power of deciding is stated for."""


def profiling_minutes(board: str, model: str) -> dict[str, float]:
    """Tell how long profiling a model takes, whole and sparse, simulated, minutes.

    The latency of every point times the runs of the paper; nothing is added for setting clocks.
    """
    found = subject(board, model)
    spec, workload = found.board, found.engine.workload
    grows = bool(workload.network.max_context)
    contexts = np.arange(1, LONGEST + 1, 64) if grows else np.zeros(1, dtype=int)
    grid_us = found.engine.truth_us(spec.cpu_hz, spec.gpu_hz, found.emc_hz, contexts.tolist())
    runs = SLM_RUNS if grows else DNN_RUNS
    tokens = LONGEST if grows else 1
    cpu = np.isin(spec.cpu_hz, interval_levels(spec.cpu_hz, INTERVAL))
    gpu = np.isin(spec.gpu_hz, interval_levels(spec.gpu_hz, INTERVAL))
    sparse = grid_us[:, cpu][:, :, gpu]
    sparse_tokens = len(context_levels(LONGEST)) if grows else 1
    minute_us = 6e7
    return {
        "full": float(grid_us.mean(axis=0).sum()) * runs * tokens / minute_us,
        "sparse": float(sparse.mean(axis=0).sum()) * runs * sparse_tokens / minute_us,
    }


def overhead(board: str = "agx-orin") -> dict[str, Any]:
    """Time decisions on this machine, and say what power they would take on the board.

    Power is the share of one core that deciding takes at :data:`JOBS_PER_S` times the power that
    a busy core adds at the highest clock, simulated.
    """
    flame = decide_us(5000)
    ztt = ztt_us()
    core_w = busy_core_w(board)
    return {
        "flame_decide_us": flame,
        "ztt_decide_us": ztt["decide"],
        "ztt_step_us": ztt["step"],
        "core_w": core_w,
        "flame_w": flame["p50"] * 1e-6 * JOBS_PER_S * core_w,
        "ztt_w": ztt["step"]["p50"] * 1e-6 * core_w,
        "jobs_per_s": JOBS_PER_S,
    }


def busy_core_w(board: str) -> float:
    """Tell what one more busy core draws at the highest clock, W, simulated."""
    found = subject(board, "resnet50")
    spec = found.board
    power, clocks = PowerModel(spec), (spec.cpu_hz[-1], spec.gpu_hz[0], spec.emc_hz[-1])
    one = Activity(1.0, 1.0, 0.0, 0.0, 0.0)
    draws = [
        float(power.total_grid(*clocks, duty_of(activity, 1.0), 40.0)) / 1e3
        for activity in (one, None)
    ]
    return draws[0] - draws[1]


def ztt_us(calls: int = 600) -> dict[str, dict[str, float]]:
    """Time zTT's steps: ``decide`` while it holds, ``step`` once it trains at each decision."""
    from bench.overhead_rig import probe_table

    table = probe_table()
    view = BoardView(
        Attainable(tuple(map(int, table.cpu_hz)), tuple(map(int, table.gpu_hz))),
        cpu_power_mw=3000.0, gpu_power_mw=9000.0, cpu_temp_mc=40_000, gpu_temp_mc=40_000,
    )  # fmt: skip
    policy, job = ZttPolicy(interval_ms=1.0), Job(table, 20_000.0)
    outcome = Outcome(job, OperatingPoint(0, 0), 0, 15_000.0, mixed=False)
    hold, step = [], []
    for _ in range(calls):
        policy.observe(outcome)
        step.append(_time_us(lambda: policy.decide(job, view)))
        hold.append(_time_us(lambda: policy.decide(job, view)))
    return {"decide": _quantiles(hold), "step": _quantiles(step[calls // 2 :])}


def _time_us(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e3


def _quantiles(values: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}
