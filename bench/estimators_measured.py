"""The end-to-end estimator on measured grids: fitted to few cells, scored on all the others.

MAPE hides what a governor does with a table: it plans onto the deadline, so every cell that is
estimated too fast becomes a miss. Both are therefore reported.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.gridcolumns import find_columns, plain_number
from bench.grids import read_rows
from estimators.baselines import AnalyticEstimator, Estimator, FixedEstimator
from estimators.endtoend import MIN_RUNS, EndToEndEstimator
from estimators.errors import ProfileError
from estimators.sampling import spread_points

Array = NDArray[np.float64]

MARGINS = (0.0, 0.03, 0.05)
DEADLINES = 60
TX2_POINTS, ORIN_GPU_MHZ = 8, (306, 612, 1020)
"""What is fitted: 8 of 48 points of each TX2 slice; three GPU clocks at each memory clock."""

TX2_GRID, ORIN_CELLS = "tx2_cnn_grid.csv", "orin_lab/traces/cells_estimator_break_dev.npz"
_ORIN_CPU_HZ, _ORIN_EMC_HZ = (
    1_728_000_000,
    {"665": 665_600_000, "2133": 2_133_000_000, "3199": 3_199_000_000},
)


@dataclass(frozen=True, slots=True)
class Slice:
    """Cells measured under one label.

    Attributes:
        label: What the cells have in common.
        x_hz: Clocks (CPU, GPU, EMC), Hz, ``[n, 3]``; 1 where not known.
        time_us: Latency, us, ``[n]``.
    """

    label: str
    x_hz: Array
    time_us: Array

    def design(self, points: int) -> NDArray[np.int64]:
        """Cells to fit: those of the spread design."""
        return spread_points(np.log(self.x_hz), points)


def data_root() -> Path:
    """Folder of measured data: ``FLAMEGOV_DATA``, or ``../shared/data`` from the project's root."""
    given = os.environ.get("FLAMEGOV_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[1] / "../shared/data"


def read_slices(path: Path, by: Sequence[str]) -> list[Slice]:
    """Cut a measured grid into slices.

    Args:
        path: CSV file with clock columns and a latency.
        by: Columns whose values make a slice; the clocks among the other columns vary within.

    Raises:
        ProfileError: The file is unreadable, lacks a column, or holds two latencies for one cell.
    """
    rows = read_rows(path)
    header = list(rows[0].cells)
    columns = find_columns(path, header)
    for name in by:
        if name not in header:
            raise ProfileError(
                f"no column '{name}'", where=str(path), hint=f"columns: {', '.join(header)}"
            )
    cells: dict[str, dict[tuple[float, ...], tuple[int, float]]] = {}
    for row in rows:
        if not row.cells[columns.centre[0]]:
            continue
        label = " ".join(row.cells[name] for name in by) or path.stem
        clocks = tuple(
            _clock(path, row.line, row.cells, columns.clocks.get(d)) for d in ("cpu", "gpu", "emc")
        )
        value = (
            _number(path, row.line, columns.centre[0], row.cells[columns.centre[0]])
            * columns.centre[1]
        )
        line, before = cells.setdefault(label, {}).setdefault(clocks, (row.line, value))
        if before != value:
            raise ProfileError(
                "two latencies for one cell",
                where=f"{path}, rows {line} and {row.line}, column {columns.centre[0]}",
                why=f"{before:g} and {value:g} us in slice '{label}'",
                hint="name the column that tells them apart in --by",
            )
    return [
        Slice(label, np.array(list(found)), np.array([value for _, value in found.values()]))
        for label, found in cells.items()
    ]


def _clock(
    path: Path, line: int, cells: Mapping[str, str], column: tuple[str, float] | None
) -> float:
    if column is None or not cells[column[0]]:
        return 1.0
    return _number(path, line, column[0], cells[column[0]]) * column[1]


def _number(path: Path, line: int, column: str, text: str) -> float:
    value = plain_number(text)
    if not (np.isfinite(value) and value > 0):
        raise ProfileError(
            "unusable measurement",
            where=f"{path}, row {line}, column {column}",
            why=f"{text!r} is not a positive number",
            hint="repair or remove the row",
        )
    return value


def orin_slices(path: Path) -> list[tuple[Slice, NDArray[np.int64]]]:
    """Median response of each cell of the Orin Nano grid, and the nine cells to fit."""
    with np.load(path, allow_pickle=False) as archive:
        names = [name for name in archive.files if name.endswith("__response_us")]
        medians = {name: float(np.median(archive[name])) for name in names}
    found: dict[str, dict[tuple[int, int], float]] = {}
    for name, value in medians.items():
        emc, gpu, workload = name.removesuffix("__response_us").split("_")
        cell = (int(gpu.removeprefix("gpu")), _ORIN_EMC_HZ[emc.removeprefix("emc")])
        found.setdefault(workload, {})[cell] = value
    result = []
    for workload, cells in found.items():
        keys = sorted(cells)
        x_hz = np.array([(_ORIN_CPU_HZ, gpu * 1e6, emc) for gpu, emc in keys], dtype=np.float64)
        fitted = np.array([i for i, (gpu, _) in enumerate(keys) if gpu in ORIN_GPU_MHZ])
        result.append((Slice(workload, x_hz, np.array([cells[k] for k in keys])), fitted))
    return result


def score(
    part: Slice, fitted: NDArray[np.int64], estimator: Estimator | None = None
) -> dict[str, Any]:
    """Fit to some cells, score on the others.

    Returns:
        ``mean_mape`` and ``worst_mape`` over cells not fitted, and ``misses``: late and all
        decisions for each of :data:`MARGINS`.
    """
    model = EndToEndEstimator() if estimator is None else estimator
    estimate = model.fit(part.x_hz[fitted], part.time_us[fitted]).predict(part.x_hz)
    unseen = np.ones(len(part.time_us), dtype=bool)
    unseen[fitted] = False
    error = np.abs(estimate / part.time_us - 1)[unseen] * 100
    return {
        "label": part.label,
        "mean_mape": float(error.mean()),
        "worst_mape": float(error.max()),
        "misses": [deadline_misses(part, estimate, margin) for margin in MARGINS],
    }


def deadline_misses(part: Slice, estimate: Array, margin: float) -> tuple[int, int]:
    """Play the greedy search (Eqs. 13 and 14) on an estimate against the truth.

    For each memory clock, 60 log-spaced deadlines from 1.02 of the fastest to 1.05 of the slowest.

    Returns:
        Late decisions, and all of them.
    """
    late = total = 0
    for emc in np.unique(part.x_hz[:, 2]):
        rows = np.flatnonzero(part.x_hz[:, 2] == emc)
        truth, clocks = part.time_us[rows], part.x_hz[rows]
        planned = estimate[rows] * (1 + margin)
        for deadline in np.geomspace(1.02 * truth.min(), 1.05 * truth.max(), DEADLINES):
            late += bool(truth[_greedy(clocks, planned, deadline)] > deadline)
            total += 1
    return late, total


def _greedy(clocks: Array, planned: Array, deadline: float) -> int:
    """Lowest GPU clock at the highest CPU clock, then lowest CPU clock; else the fastest point."""
    top = np.flatnonzero(clocks[:, 0] == clocks[:, 0].max())
    fits = top[planned[top] <= deadline]
    if not len(fits):
        return int(planned.argmin())
    gpu = clocks[fits, 1].min()
    column = np.flatnonzero((clocks[:, 1] == gpu) & (planned <= deadline))
    return int(column[clocks[column, 0].argmin()])


def run_grid(path: Path, by: Sequence[str], points: int) -> dict[str, Any]:
    """Score one measured grid, slice by slice.

    Raises:
        ProfileError: See :func:`read_slices`; or a slice has too few cells.
    """
    slices = read_slices(path, by)
    for part in slices:
        if len(part.time_us) <= points or points < MIN_RUNS:
            raise ProfileError(
                f"cannot fit {points} of {len(part.time_us)} cells",
                where=f"{path}: slice '{part.label}'",
                why=f"at least {MIN_RUNS} are needed and one must be left to score",
                hint="change --points, or join slices with fewer columns in --by",
            )
    results = [score(part, part.design(points)) for part in slices]
    others = {
        name: float(np.mean([score(p, p.design(points), make())["mean_mape"] for p in slices]))
        for name, make in (("fixed", FixedEstimator), ("analytic", AnalyticEstimator))
    }
    return {
        "grid": str(path),
        "by": list(by),
        "points": points,
        "slices": len(results),
        "measured": {
            "mean_mape": float(np.mean([r["mean_mape"] for r in results])),
            "worst_mape": max(r["worst_mape"] for r in results),
            **{f"{name}_mean_mape": value for name, value in others.items()},
        },
        "deadline_miss_pct": miss_percentages(results),
        "by_slice": [{k: r[k] for k in ("label", "mean_mape", "worst_mape")} for r in results],
    }


def run_measured(*, thin: int = 1) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Score the project's measured data.

    Args:
        thin: Score every n-th slice of the TX2 grid only.

    Returns:
        ``measured`` figures, ``deadline_miss_pct`` of the Orin grid and of the TX2 grid; empty
        dictionaries where the data is not there.
    """
    root = data_root()
    figures: dict[str, Any] = {}
    risks: list[dict[str, Any]] = [{}, {}]
    if (root / ORIN_CELLS).exists():
        results = [score(part, fitted) for part, fitted in orin_slices(root / ORIN_CELLS)]
        figures |= _named("orin", results)
        risks[0] = miss_percentages(results)
    if (root / TX2_GRID).exists():
        slices = read_slices(root / TX2_GRID, ("model", "cores", "mem_hz"))[::thin]
        results = [score(part, part.design(TX2_POINTS)) for part in slices]
        figures |= _named("tx2", results)
        risks[1] = miss_percentages(results)
    return figures, risks[0], risks[1]


def _named(name: str, results: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {
        f"{name}_mean_mape": float(np.mean([r["mean_mape"] for r in results])),
        f"{name}_worst_mape": max(r["worst_mape"] for r in results),
    }


def miss_percentages(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Late decisions of all slices together, percent, by margin."""
    return {
        f"margin_{round(margin * 100)}": 100
        * sum(r["misses"][i][0] for r in results)
        / sum(r["misses"][i][1] for r in results)
        for i, margin in enumerate(MARGINS)
    }
