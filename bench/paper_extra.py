"""The parts of the paper's evaluation that are no race of policies: profiling cost and overhead."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bench.estimators_measured import (
    ORIN_CELLS,
    TX2_GRID,
    Slice,
    data_root,
    orin_slices,
    read_slices,
)
from bench.estimators_plant import MODELS
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


class Top(NamedTuple):
    """The highest clocks against the fastest ones, over some cases.

    Attributes:
        what: What the cases are of.
        cases: How many there are.
        not_fastest: How many have a faster point than the highest clocks.
        worst_pct: By how much the highest clocks are slower, in the worst case.
        worst: Which case that is; empty if there is none.
    """

    what: str
    cases: int
    not_fastest: int
    worst_pct: float
    worst: str


def highest_clocks() -> list[Top]:
    """Tell how often MAX is not the fastest: simulated, and in measured grids where they are."""
    found = [top_of(f"{name}, simulated", _simulated(name)) for name in ("agx-orin", "orin-nx")]
    tx2, orin = data_root() / TX2_GRID, data_root() / ORIN_CELLS
    if tx2.exists():
        found.append(top_of("Jetson TX2, measured", read_slices(tx2, ("model", "batch", "cores"))))
    if orin.exists():
        found.append(top_of("Orin Nano, measured", [part for part, _ in orin_slices(orin)]))
    return found


def _simulated(board: str) -> Iterator[Slice]:
    for model in MODELS:
        found = subject(board, model)
        spec = found.board
        contexts = [64, LONGEST] if found.engine.workload.network.max_context else [0]
        grid_us = found.engine.truth_us(spec.cpu_hz, spec.gpu_hz, found.emc_hz, contexts)
        cpu, gpu = np.meshgrid(spec.cpu_hz, spec.gpu_hz, indexing="ij")
        x_hz = np.column_stack([cpu.ravel(), gpu.ravel(), np.full(cpu.size, found.emc_hz)])
        for context, plane_us in zip(contexts, grid_us, strict=True):
            yield Slice(f"{model} {context}", x_hz.astype(float), plane_us.ravel())


def top_of(what: str, parts: Iterable[Slice]) -> Top:
    """Compare the highest clocks with the fastest ones; cases without such a point are left out."""
    slower = {}
    for part in parts:
        highest = (part.x_hz == part.x_hz.max(axis=0)).all(axis=1)
        if highest.any():
            slower[part.label] = float(part.time_us[highest][0] / part.time_us.min() - 1) * 100
    worst = max(slower, key=lambda label: slower[label])
    late = sum(value > 0 for value in slower.values())
    return Top(what, len(slower), late, slower[worst], worst if slower[worst] else "")


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
