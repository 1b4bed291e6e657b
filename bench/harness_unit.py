"""Computes one unit of an experiment: one policy in one cell under all its seeds."""

import dataclasses
import math
import traceback
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from bench.demo_table import measure_table
from bench.estimators_profile import Subject as Profiled
from bench.estimators_profile import full_profile
from bench.harness_jobs import KNOT, Subject, subject
from bench.harness_kernel import GpuKind, KernelBoard
from bench.harness_plan import ORACLES, Cell, PolicyEntry, Segment, TableKind, Unit
from bench.harness_score import Metrics, measure
from bench.harness_sim import Records, Stretch, VirtualBoard, jobs_of, run_policy
from bench.oracle import Basis, Oracle
from bench.plant.engine import Engine
from bench.plant.power import PowerModel
from estimators.maketable import make_table
from estimators.table import LatencyTable, Phase
from policies.base import Attainable, BasePolicy, BoardView, Decision, Job, OperatingPoint, Policy
from policies.registry import describe_options, load_policy, load_policy_class

BASES: dict[str, Basis] = dict(zip(ORACLES, ("tail", "mean"), strict=True))
KERNEL = ("schedutil", "simple_ondemand")

_TABLE_SEED, _ORACLE_SEED = 1_000_003, 1_000_033
"""Apart from the seeds of jobs: a table and an oracle have seen other jobs than the scored ones."""
_ORACLE_TEMP_C = 30.0

SERIES_LENGTH = 4000
"""Jobs in a chart at most; no screen has more pixels."""


def run_unit(unit: Unit) -> dict[str, Any]:
    """Run a unit; a policy that raises marks its result as failed and harms nobody else.

    Returns:
        ``runs``: one entry per seed with its ``seed``, the figures of the scored jobs as ``scored``
        and of all jobs, learning included, as ``all``, and one list of ``segments``; ``series`` of
        the first seed where the experiment counts jobs; ``error``: a traceback or None.
    """
    runs: list[dict[str, Any]] = []
    series: dict[str, list[float]] | None = None
    error: str | None = None
    try:
        for seed in range(unit.seeds):
            records = run_seed(unit.cell, unit.policy, seed, unit.skip)
            runs.append({"seed": seed, **_figures(unit, records)})
            if seed == 0 and unit.cell.segments[0].jobs:
                series = _series(records)
    except (Exception, SystemExit):  # policies of others raise anything; the other units go on
        error = traceback.format_exc()
    return {"runs": runs, "series": series, "error": error}


def run_seed(cell: Cell, entry: PolicyEntry, seed: int, skip: int = 0) -> Records:
    """Run one policy in one cell under one seed, learning part included."""
    stretches = [
        Stretch(segment, subject(cell.board, cell.model, segment.world))
        for segment in jobs_of(cell, entry.learn_s)
    ]
    first = stretches[0].subject
    attainable = first.attainable(cell.mode)
    table = learned_table(cell.board, cell.model, entry.table, cell.prompt, cell.answer)
    if entry.name in KERNEL:
        gpu: GpuKind = "simple_ondemand" if entry.name == "simple_ondemand" else "nvhost_podgov"
        kernel = KernelBoard(first, attainable, seed, jetpack=entry.jetpack, gpu=gpu)
        return run_policy(kernel, None, stretches, cell, table, skip=skip)
    board = VirtualBoard(first, attainable, seed)

    def make(segment: Segment) -> Policy:
        if entry.name in ORACLES:
            return held_by_oracle(cell, BASES[entry.name])
        return _make(entry.name, {**entry.options, **segment.options}, seed)

    return run_policy(board, make, stretches, cell, table, skip=skip)


@lru_cache(maxsize=32)
def learned_table(
    board: str, model: str, kind: TableKind, prompt: int, answer: int
) -> LatencyTable:
    """Make the table of a model as an operator does: from measurements on the plain board.

    Args:
        board: Name of the board.
        model: Name of the model.
        kind: See :class:`~bench.harness_plan.PolicyEntry`.
        prompt: Shortest context that an interpolated table must know.
        answer: Tokens that are added to it.
    """
    if kind == "estimated":
        return make_table(full_profile(Profiled(model, board, seed=_TABLE_SEED)), model)
    subject_ = subject(board, model)
    workload = subject_.engine.workload
    grows = bool(workload.network.max_context)
    engine = Engine(subject_.board, workload, seed=_TABLE_SEED)
    contexts = (prompt, prompt + answer) if grows else (0,)
    phase: Phase = "decode" if grows else "inference"
    return measure_table(engine, emc_hz=subject_.emc_hz, contexts=contexts, phase=phase)


@dataclasses.dataclass(slots=True)
class HeldPolicy(BasePolicy):
    """Holds points that somebody else chose, by deadline and range of contexts."""

    name: ClassVar[str] = "held"

    points: Mapping[tuple[float, int], OperatingPoint] = dataclasses.field(default_factory=dict)

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Look the point up."""
        point = self.points[job.deadline_us, job.context // KNOT]
        return Decision(point, math.nan, True, "chosen with hindsight")


def held_by_oracle(cell: Cell, basis: Basis) -> HeldPolicy:
    """Make the policy that holds what the oracle chose."""
    points: dict[tuple[float, int], OperatingPoint] = {}
    for deadline_ms in {segment.deadline_ms for segment in cell.segments}:
        found = _oracle_points(
            cell.board,
            cell.model,
            mode=cell.mode,
            deadline_ms=deadline_ms,
            prompt=cell.prompt,
            answer=cell.answer,
            basis=basis,
        )
        points |= {(deadline_ms * 1e3, knot): point for knot, point in found}
    return HeldPolicy(points=points)


@lru_cache(maxsize=512)
def _oracle_points(
    board: str,
    model: str,
    *,
    mode: str,
    deadline_ms: float,
    prompt: int,
    answer: int,
    basis: Basis,
) -> tuple[tuple[int, OperatingPoint], ...]:
    """Ask the oracle at the longest context of each range."""
    subject_ = subject(board, model)
    oracle = _oracle(board, model, subject_.attainable(mode))
    last = prompt + answer - 1 if subject_.engine.workload.network.max_context else 0
    first = prompt if last else 0
    result = []
    for knot in range(first // KNOT, last // KNOT + 1):
        context = min((knot + 1) * KNOT - 1, last)
        best = oracle.best(deadline_ms * 1e3, context=context, basis=basis)
        result.append((knot, OperatingPoint(best.cpu_hz, best.gpu_hz)))
    return tuple(result)


@lru_cache(maxsize=32)
def _oracle(board: str, model: str, attainable: Attainable) -> Oracle:
    subject_: Subject = subject(board, model)
    return Oracle(
        Engine(subject_.board, subject_.engine.workload),
        PowerModel(subject_.board),
        cpu_hz=attainable.cpu_hz,
        gpu_hz=attainable.gpu_hz,
        emc_hz=subject_.emc_hz,
        temp_c=_ORACLE_TEMP_C,
        seed=_ORACLE_SEED,
    )


def _make(name: str, options: Mapping[str, Any], seed: int) -> Policy:
    seeded = any(info.name == "seed" for info in describe_options(load_policy_class(name)))
    return load_policy(name, {**options, "seed": seed} if seeded else options)()


def _figures(unit: Unit, records: Records) -> dict[str, Any]:
    scored = records
    if unit.policy.learn_s:
        segment = jobs_of(unit.cell, 0.0)[0]
        scored = records.part(len(records.start_us) - segment.jobs)
    whole = measure(scored)
    result: dict[str, Any] = {"scored": whole}
    result["all"] = measure(records) if unit.policy.learn_s else whole
    result["segments"] = _by_segment(records) if unit.cell.segments[0].jobs else []
    return result


def _by_segment(records: Records) -> list[Metrics]:
    edges = np.flatnonzero(np.diff(records.segment)) + 1
    bounds = [0, *edges.tolist(), len(records.segment)]
    return [measure(records.part(a, b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def _series(records: Records) -> dict[str, list[float]]:
    """Keep what a chart over jobs needs; of very long runs only every so many jobs."""
    power_w = records.energy_mj / records.span_us * 1e3
    columns = {
        "job": np.arange(len(power_w)),
        "latency_us": records.latency_us,
        "deadline_us": records.deadline_us,
        "cpu_mhz": records.cpu_hz / 1e6,
        "gpu_mhz": records.gpu_hz / 1e6,
        "power_w": power_w,
    }
    every = slice(None, None, -(-len(power_w) // SERIES_LENGTH))
    return {
        name: np.round(column[every].astype(float), 3).tolist() for name, column in columns.items()
    }
