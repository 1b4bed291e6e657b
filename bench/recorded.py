"""Turn a measured grid into what a replay needs: a latency table and jobs it has not seen.

The table is made from a stated subset of the points and interpolated. The jobs come, best first,
from

- recorded traces (cycles after those that the table was made of),
- recorded quantiles of each point (the level of the table's own points is then in-sample),
- the means themselves: a noise-free replay, held out only off the table's points.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.grids import Grid, same_value
from bench.sparse import fill, levels
from estimators.errors import ProfileError
from estimators.table import LatencyTable, TableHeader

Source = Literal["traces", "quantiles", "means"]

PROFILE_CYCLES = 100
"""Cycles at the start of each trace that the table is made of; the jobs are the later ones."""

TAIL_LEVELS = (0.5, 0.9, 0.95, 0.99)

_CELL = re.compile(r"emc(\d+)_gpu(\d+)_(.+)__(\w+)_us")


@dataclass(frozen=True, slots=True)
class Recording:
    """A table and the jobs to score it with.

    Attributes:
        grid: The measured grid.
        table: Latency table from ``knots``, on every clock of the grid.
        knots: Indices of the CPU and GPU clocks that the table was made of.
        source: What the jobs were drawn from.
        jobs_us: Latency of job ``n`` had it run at each point, us, shape [C, G, N].
        seen: Points whose job latencies are, in level, those of the table, shape [C, G].
        table_error_pct: Mean absolute error of the table against the median job at the points
            that are not ``seen``, %; None if there is no such point.
    """

    grid: Grid
    table: LatencyTable
    knots: tuple[NDArray[np.int64], NDArray[np.int64]]
    source: Source
    jobs_us: NDArray[np.float64]
    seen: NDArray[np.bool_]
    table_error_pct: float | None


def record(
    grid: Grid,
    *,
    points: tuple[int, int],
    jobs: int,
    seed: int,
    traces: Path | None = None,
    jobs_grid: Grid | None = None,
) -> Recording:
    """Make the table and draw the jobs.

    Args:
        grid: Slice that the table is made of.
        points: Numbers of CPU and GPU levels in the table's subset.
        jobs: How many jobs; recorded traces may hold fewer.
        seed: Seed of the draw from quantiles.
        traces: ``.npz`` of recorded cycles named ``emc<MHz>_gpu<MHz>_<workload>__<column>_us``.
        jobs_grid: Another slice that the jobs come from; the same clocks are needed.

    Raises:
        ProfileError: The traces are unreadable or lack a point, or the slices do not fit.
    """
    cycles = None if traces is None else read_traces(traces, grid)
    knots = levels(grid.cpu_hz, points[0]), levels(grid.gpu_hz, points[1])
    profile = None if cycles is None else cycles[..., :PROFILE_CYCLES]
    centre = grid.centre_us if profile is None else np.median(profile, axis=-1)
    table = _table(grid, knots, centre, profile)
    other = jobs_grid or grid
    if jobs_grid is not None:
        _check_same_clocks(grid, jobs_grid)
    source, jobs_us = _jobs(other, None if jobs_grid else cycles, jobs, seed)
    seen = np.zeros(centre.shape, dtype=bool)
    seen[np.ix_(*knots)] = source != "traces" and jobs_grid is None
    return Recording(grid, table, knots, source, jobs_us, seen, _error_pct(table, jobs_us, seen))


def find_traces(grid: Grid) -> Path | None:
    """Look beside the grid for a file of traces of this campaign that has every point."""
    if len(grid.cpu_hz) != 1:
        return None
    for path in sorted((grid.path.parent / "traces").glob("cells_*.npz")):
        if grid.labels.get("campaign", "") in path.name and _cells(path, grid) is not None:
            return path
    return None


def read_traces(path: Path, grid: Grid) -> NDArray[np.float64]:
    """Read the recorded cycles of every point of a grid with one CPU clock, us, [1, G, N].

    Raises:
        ProfileError: The file cannot be read, a point is missing, or the cycles are too few.
    """
    cells = _cells(path, grid)
    if cells is None or len(grid.cpu_hz) != 1:
        raise ProfileError(
            "the traces do not have every point of the slice",
            where=str(path),
            why=f"wanted emc<MHz>_gpu<MHz>_<workload>__{_family(grid)}_us at one CPU clock",
            hint="choose another slice with --by, or leave --traces away",
        )
    length = min(len(cell) for cell in cells)
    if length <= PROFILE_CYCLES:
        why = f"{length} cycles, the table alone takes {PROFILE_CYCLES}"
        raise ProfileError("the traces are too short", where=str(path), why=why)
    block = np.stack([cell[:length] for cell in cells])[None]
    if not (np.isfinite(block) & (block > 0)).all():
        raise ProfileError("a recorded cycle is not a positive number", where=str(path))
    return block


def _cells(path: Path, grid: Grid) -> list[NDArray[np.float64]] | None:
    """Find the trace of each GPU clock of the slice; None if one is missing."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {}
            for name in file.files:
                match = _CELL.fullmatch(name)
                if match and _matches(match, grid):
                    found[int(match[2])] = file[name].astype(np.float64)
    except (OSError, ValueError) as error:
        raise ProfileError("cannot read the traces", where=str(path), why=str(error)) from error
    wanted = [int(hz // 1_000_000) for hz in grid.gpu_hz]
    return [found[mhz] for mhz in wanted] if set(wanted) <= set(found) else None


def _matches(match: re.Match[str], grid: Grid) -> bool:
    workload = grid.labels.get("workload") or grid.labels.get("model", "")
    emc_mhz = grid.emc_hz // 1_000_000
    return int(match[1]) == emc_mhz and same_value(match[3], workload) and match[4] == _family(grid)


def _family(grid: Grid) -> str:
    return grid.latency_column.partition("_")[0]


def _table(
    grid: Grid,
    knots: tuple[NDArray[np.int64], NDArray[np.int64]],
    centre: NDArray[np.float64],
    profile: NDArray[np.float64] | None,
) -> LatencyTable:
    at = np.ix_(*knots)
    measured = grid.cpu_hz[knots[0]], grid.gpu_hz[knots[1]]
    full = fill(centre[at], measured, (grid.cpu_hz, grid.gpu_hz))
    tail = _tail(grid, at, profile)
    labels = grid.labels
    header = TableHeader(
        board=labels.get("board", ""),
        engine=labels.get("engine", ""),
        model=labels.get("model") or labels.get("workload", ""),
        provenance={"file": grid.path.name, "points": len(knots[0]) * len(knots[1])},
    )
    return LatencyTable(
        header=header,
        emc_hz=np.array([grid.emc_hz]),
        context=np.array([0]),
        cpu_hz=grid.cpu_hz.copy(),
        gpu_hz=grid.gpu_hz.copy(),
        latency_us=full[None, None].astype(np.float32),
        tail_ratio=None if tail is None else tail[None].astype(np.float32),
        tail_levels=None if tail is None else np.array(TAIL_LEVELS),
    )


def _tail(
    grid: Grid, at: tuple[NDArray[np.int64], ...], profile: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """Quantiles of latency over the median, mean over the table's own points."""
    if profile is not None:
        ratio = profile[at] / np.median(profile[at], axis=-1, keepdims=True)
        by_level = np.quantile(ratio, TAIL_LEVELS, axis=-1).reshape(len(TAIL_LEVELS), -1)
        mean: NDArray[np.float64] = by_level.mean(axis=1)
        return mean
    if not len(grid.levels):
        return None
    ratio = grid.quantile_us[at] / grid.centre_us[at][..., None]
    recorded = ratio.reshape(-1, len(grid.levels)).mean(axis=0)
    tail: NDArray[np.float64] = np.interp(TAIL_LEVELS, grid.levels, recorded)
    return tail


def _jobs(
    grid: Grid, cycles: NDArray[np.float64] | None, jobs: int, seed: int
) -> tuple[Source, NDArray[np.float64]]:
    """Latency of each job at each point; every policy meets the same jobs."""
    if cycles is not None:
        return "traces", cycles[..., PROFILE_CYCLES : PROFILE_CYCLES + jobs]
    if not len(grid.levels):
        return "means", np.repeat(grid.centre_us[..., None], jobs, axis=-1)
    luck = np.random.default_rng(seed).random(jobs)
    flat = grid.quantile_us.reshape(-1, len(grid.levels))
    drawn = np.stack([np.interp(luck, grid.levels, row) for row in flat])
    return "quantiles", drawn.reshape(*grid.centre_us.shape, jobs)


def _error_pct(
    table: LatencyTable, jobs_us: NDArray[np.float64], seen: NDArray[np.bool_]
) -> float | None:
    if seen.all():
        return None
    truth = np.median(jobs_us, axis=-1)
    error = np.abs(table.slice_us() / truth - 1)[~seen]
    return 100.0 * float(error.mean())


def _check_same_clocks(grid: Grid, other: Grid) -> None:
    same = [
        np.array_equal(grid.cpu_hz, other.cpu_hz),
        np.array_equal(grid.gpu_hz, other.gpu_hz),
    ]
    if not all(same):
        raise ProfileError(
            "the slice of --jobs-by has other clocks than the table's",
            where=str(grid.path),
            why=f"{other.centre_us.shape} CPU x GPU clocks against {grid.centre_us.shape}",
            hint="choose rows that were measured at the same clocks",
        )
