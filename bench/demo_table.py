"""Measure latency tables on the simulated board, as profiling does on a real one.

Jobs are run with their noise at a sparse set of clocks (24 of 319 points on AGX Orin, as many as
the FLAME paper profiles) and at a few context lengths; the median of each is what the table knows,
and the rest is interpolated. The simulator's formulas are never asked for a value.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec
from bench.plant.engine import Engine
from bench.plant.types import Clocks
from bench.sparse import fill, levels
from estimators.table import LatencyTable, Phase, TableHeader

CPU_LEVELS, GPU_LEVELS = 6, 4
RUNS = 30
"""Jobs per point; their median is 0.3 % from the true one at 1.5 % noise."""


def measure_table(
    engine: Engine, *, emc_hz: int, contexts: Sequence[int] = (0,), phase: Phase = "inference"
) -> LatencyTable:
    """Run a workload at a sparse set of clocks and interpolate.

    Args:
        engine: The workload on its board; its random stream is advanced.
        emc_hz: Memory clock in force, Hz.
        contexts: Context lengths to measure, tokens, ascending.
        phase: Part of the work that one job is.
    """
    board = engine.board
    cpu_hz, gpu_hz = np.array(board.cpu_hz), np.array(board.gpu_hz)
    at_cpu, at_gpu = cpu_hz[levels(cpu_hz, CPU_LEVELS)], gpu_hz[levels(gpu_hz, GPU_LEVELS)]
    measured = np.array(
        [[[_median_us(engine, c, g, emc_hz, x) for g in at_gpu] for c in at_cpu] for x in contexts]
    )
    full = fill(measured, (at_cpu, at_gpu), (cpu_hz, gpu_hz))
    return LatencyTable(
        _header(board, engine, phase, measured),
        emc_hz=np.array([emc_hz]),
        context=np.array(contexts),
        cpu_hz=cpu_hz,
        gpu_hz=gpu_hz,
        latency_us=full[None].astype(np.float32),
    )


def _median_us(engine: Engine, cpu_hz: int, gpu_hz: int, emc_hz: int, context: int) -> float:
    clocks = Clocks(int(cpu_hz), int(gpu_hz), emc_hz)
    return float(np.median(engine.run(clocks, context=context, n=RUNS)))


def _header(
    board: BoardSpec, engine: Engine, phase: Phase, measured: NDArray[np.float64]
) -> TableHeader:
    contexts, cpus, gpus = measured.shape
    return TableHeader(
        board=board.model,
        soc=board.soc,
        model=engine.workload.name,
        engine=engine.workload.engine.name,
        precision=engine.workload.precision,
        phase=phase,
        provenance={
            "measured": "simulated board, median of jobs run with their noise",
            "points": f"{cpus}x{gpus} clocks, {contexts} context lengths",
            "runs_per_point": RUNS,
            "interpolation": "linear in 1/f on each axis",
        },
    )
