"""Read measured grids of clocks: CSV files with one row per operating point.

A file may hold many grids (models, memory clocks, campaigns); :func:`load_grid` cuts one slice out
of it, tells what it chose and what else there was, and refuses what it cannot read. It never
repairs a measurement. ``gridcolumns.py`` lists the columns that are understood.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.gridcolumns import Columns, find_columns, missing_column, plain_number
from estimators.errors import ProfileError

LABELS = (
    "board", "model", "network", "workload", "task", "phase", "engine", "precision", "batch",
    "campaign", "nvpmodel", "clocks", "contention", "context", "period_ms", "cores",
)  # fmt: skip
"""Columns of which a slice has one value, in the order in which they are fixed."""


MAX_POINTS = 40_000
"""Cap on CPU times GPU clocks, 200 x 200; a board has a few hundred operating points."""


class Row(NamedTuple):
    """One line of the file.

    Attributes:
        line: Line number, 1 for the header.
        cells: Text by column, stripped.
    """

    line: int
    cells: Mapping[str, str]


class Choice(NamedTuple):
    """A column that had several values, the one taken and the others."""

    column: str
    value: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """One slice: a full rectangle of clocks at one memory clock.

    Attributes:
        path: The file.
        cpu_hz: Ascending CPU clocks, shape [C].
        gpu_hz: Ascending GPU clocks, shape [G].
        emc_hz: Memory clock; 0 when the file does not tell.
        centre_us: Median (or mean) latency, us, shape [C, G].
        levels: Quantile levels, ascending, shape [Q]; empty for a grid of means.
        quantile_us: Latency quantiles, us, shape [C, G, Q].
        power_w: Mean power, W, shape [C, G], nan where not measured; None without such a column.
        latency_column: Name of the column behind ``centre_us``.
        labels: Value of each labelling column.
        choices: Columns in which a value had to be taken.
        notes: What was left out, in words.
    """

    path: Path
    cpu_hz: NDArray[np.int64]
    gpu_hz: NDArray[np.int64]
    emc_hz: int
    centre_us: NDArray[np.float64]
    levels: NDArray[np.float64]
    quantile_us: NDArray[np.float64]
    power_w: NDArray[np.float64] | None
    latency_column: str
    labels: Mapping[str, str]
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]


def load_grid(path: Path, *, by: Mapping[str, str] | None = None, column: str = "") -> Grid:
    """Cut one slice out of a measured grid.

    Args:
        path: The CSV file.
        by: Column to value; only rows that match are read.
        column: Family or name of the latency column; empty for the best known one.

    Raises:
        ProfileError: The file is missing or unreadable, lacks columns, holds a value that is no
            positive number, two rows for one point, or fewer than two operating points.
    """
    rows = read_rows(path)
    columns = find_columns(path, list(rows[0].cells), column)
    rows = _filter(path, rows, by or {})
    kept, notes = _measured(path, rows, columns)
    kept, choices = _choose(kept, columns)
    kept, more = _separate(path, kept, columns)
    points = {_point(row, columns): row for row in kept}
    cpu_hz, gpu_hz, dropped = _rectangle(path, set(points))
    if len(cpu_hz) * len(gpu_hz) < 2:
        raise ProfileError(
            "a replay needs at least two operating points",
            where=str(path),
            why=f"the slice has {len(points)}: {_describe(choices + more)}",
            hint="choose another slice with --by COLUMN=VALUE",
        )
    block = [[points[cpu, gpu] for gpu in gpu_hz] for cpu in cpu_hz]
    return _assemble(path, columns, block, choices + more, notes + dropped)


def read_rows(path: Path) -> list[Row]:
    """Read a CSV file with a header.

    Raises:
        ProfileError: The file is missing, is not text, is empty, or a line is too short.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            rows = [_row(path, header, reader.line_num, cells) for cells in reader if any(cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        hint = "give a CSV file with one row per operating point"
        raise ProfileError(
            "cannot read the grid", where=str(path), why=why or "", hint=hint
        ) from error
    if not rows:
        raise ProfileError("the grid has no rows", where=str(path), hint="give a measured grid")
    return rows


def _row(path: Path, header: Sequence[str], line: int, cells: Sequence[str]) -> Row:
    if len(cells) != len(header):
        raise ProfileError(
            "a row has another number of cells than the header",
            where=f"{path}:{line}",
            why=f"{len(cells)} instead of {len(header)}",
            hint="repair the line",
        )
    return Row(line, {name: cell.strip() for name, cell in zip(header, cells, strict=True)})


def _filter(path: Path, rows: list[Row], by: Mapping[str, str]) -> list[Row]:
    for column, value in by.items():
        if column not in rows[0].cells:
            raise missing_column(path, list(rows[0].cells), column)
        matching = [row for row in rows if same_value(row.cells[column], value)]
        if not matching:
            known = ", ".join(_distinct(rows, column)[:12])
            raise ProfileError(
                f"no row has {column}={value}", where=str(path), hint=f"choose of: {known}"
            )
        rows = matching
    return rows


def same_value(cell: str, value: str) -> bool:
    """Compare as numbers where both are, else as text."""
    try:
        return math.isclose(float(cell), float(value), rel_tol=1e-9)
    except ValueError:
        return cell == value


def _measured(path: Path, rows: list[Row], columns: Columns) -> tuple[list[Row], tuple[str, ...]]:
    """Leave out rows without a pinned clock or a latency; refuse values that are no number."""
    needed = [columns.clocks["cpu"], columns.clocks["gpu"], columns.centre]
    kept = []
    for row in rows:
        if all(row.cells[name] for name, _ in needed):
            for name, _ in needed:
                _number(path, row, name)
            kept.append(row)
    if not kept:
        raise ProfileError(
            "no row has both clocks and a latency",
            where=str(path),
            hint="choose other rows with --by COLUMN=VALUE",
        )
    left_out = len(rows) - len(kept)
    return kept, (f"{left_out} rows without pinned clocks or latency left out",) if left_out else ()


def _number(path: Path, row: Row, column: str) -> float:
    value = plain_number(row.cells[column])
    if not (math.isfinite(value) and value > 0):
        raise ProfileError(
            f"{column} is not a positive number",
            where=f"{path}:{row.line}",
            why=f"it reads {row.cells[column]!r}",
            hint="repair or remove the row",
        )
    return value


def _choose(rows: list[Row], columns: Columns) -> tuple[list[Row], tuple[Choice, ...]]:
    """Fix each labelling column to the value that covers the most operating points."""
    emc = [columns.clocks["emc"][0]] if "emc" in columns.clocks else []
    choices = []
    for column in [name for name in LABELS if name in rows[0].cells] + emc:
        values = _distinct(rows, column)
        if len(values) > 1:
            cover = {v: _coverage(rows, columns, column, v) for v in values}
            best = max(values, key=lambda v: (cover[v], _rank(v)))
            choices.append(Choice(column, best, tuple(v for v in values if v != best)))
            rows = [row for row in rows if row.cells[column] == best]
    return rows, tuple(choices)


def _separate(
    path: Path, rows: list[Row], columns: Columns
) -> tuple[list[Row], tuple[Choice, ...]]:
    """Tell repeated points apart by a column that is constant over a whole grid, or refuse."""
    seen: dict[tuple[int, int], Row] = {}
    pair = None
    for row in rows:
        other = seen.setdefault(_point(row, columns), row)
        if other is not row:
            pair = pair or (other, row)
    if pair is None:
        return rows, ()
    for column in rows[0].cells:
        values = _distinct(rows, column)
        cover = {v: _coverage(rows, columns, column, v) for v in values}
        counts = {v: sum(row.cells[column] == v for row in rows) for v in values}
        if len(values) > 1 and cover == counts and min(cover.values()) > 1:
            best = max(values, key=lambda v: cover[v])
            kept = [row for row in rows if row.cells[column] == best]
            return kept, (Choice(column, best, tuple(v for v in values if v != best)),)
    differ = [c for c in rows[0].cells if pair[0].cells[c] != pair[1].cells[c]]
    raise ProfileError(
        "two rows measure the same operating point",
        where=f"{path}:{pair[1].line}",
        why=f"as line {pair[0].line}; they differ in: {', '.join(differ[:8]) or 'nothing'}",
        hint="remove one, or choose with --by COLUMN=VALUE",
    )


def _rectangle(
    path: Path,
    points: set[tuple[int, int]],
) -> tuple[list[int], list[int], tuple[str, ...]]:
    """Leave out clocks with the fewest points until every pair of the rest was measured."""
    cpu, gpu = sorted({c for c, _ in points}), sorted({g for _, g in points})
    if len(cpu) * len(gpu) > MAX_POINTS:
        raise ProfileError(
            "too many clocks for a grid",
            where=str(path),
            why=f"{len(cpu)} CPU x {len(gpu)} GPU clocks, the cap is {MAX_POINTS} points",
            hint="choose a slice with --by COLUMN=VALUE, or round the clocks to those of the board",
        )
    dropped = []
    while len(cpu) * len(gpu) > sum((c, g) in points for c in cpu for g in gpu):
        by_cpu = min((sum((c, g) in points for g in gpu) / len(gpu), c) for c in cpu)
        by_gpu = min((sum((c, g) in points for c in cpu) / len(cpu), g) for g in gpu)
        if by_cpu[0] <= by_gpu[0]:
            cpu.remove(by_cpu[1])
            dropped.append(f"CPU {by_cpu[1] / 1e6:g} MHz")
        else:
            gpu.remove(by_gpu[1])
            dropped.append(f"GPU {by_gpu[1] / 1e6:g} MHz")
    note = f"clocks without a full set of measurements left out: {', '.join(dropped)}"
    return cpu, gpu, (note,) if dropped else ()


def _assemble(
    path: Path,
    columns: Columns,
    block: list[list[Row]],
    choices: tuple[Choice, ...],
    notes: tuple[str, ...],
) -> Grid:
    flat = [row for line in block for row in line]
    shape = (len(block), len(block[0]))

    def values(column: tuple[str, float]) -> NDArray[np.float64]:
        numbers = [_number(path, row, column[0]) for row in flat]
        return np.array(numbers).reshape(shape) * column[1]

    full = {q: c for q, c in columns.quantiles.items() if all(row.cells[c[0]] for row in flat)}
    levels = sorted(full) if len(full) >= 3 else []
    quantile_us = (
        np.stack([values(full[q]) for q in levels], -1) if levels else np.empty((*shape, 0))
    )
    if (np.diff(quantile_us, axis=-1) < 0).any():
        raise ProfileError(
            f"the {columns.latency} quantiles of a row decrease",
            where=str(path),
            hint="check the columns",
        )
    emc = columns.clocks.get("emc")
    text = flat[0].cells[emc[0]] if emc else ""
    labels = {name: flat[0].cells[name] for name in LABELS if flat[0].cells.get(name)}
    return Grid(
        path=path,
        cpu_hz=np.array([_hz(line[0], columns, "cpu") for line in block]),
        gpu_hz=np.array([_hz(row, columns, "gpu") for row in block[0]]),
        emc_hz=_hz(flat[0], columns, "emc") if text else 0,
        centre_us=values(columns.centre),
        levels=np.array(levels),
        quantile_us=quantile_us,
        power_w=_power(path, flat, columns.power, shape),
        latency_column=columns.centre[0],
        labels=labels,
        choices=choices,
        notes=notes,
    )


def _power(
    path: Path, rows: list[Row], column: tuple[str, float] | None, shape: tuple[int, int]
) -> NDArray[np.float64] | None:
    if column is None:
        return None
    watts = [_number(path, r, column[0]) if r.cells[column[0]] else math.nan for r in rows]
    return np.array(watts).reshape(shape) * column[1]


def _hz(row: Row, columns: Columns, domain: str) -> int:
    name, scale = columns.clocks[domain]
    return round(float(row.cells[name]) * scale)


def _point(row: Row, columns: Columns) -> tuple[int, int]:
    return _hz(row, columns, "cpu"), _hz(row, columns, "gpu")


def _coverage(rows: Iterable[Row], columns: Columns, column: str, value: str) -> int:
    return len({_point(row, columns) for row in rows if row.cells[column] == value})


def _distinct(rows: Iterable[Row], column: str) -> list[str]:
    return list(dict.fromkeys(row.cells[column] for row in rows))


def _rank(value: str) -> float:
    """Order numbers by size (the highest memory clock, the most cores); text keeps its order."""
    try:
        return float(value)
    except ValueError:
        return -math.inf


def _describe(choices: tuple[Choice, ...]) -> str:
    return ", ".join(f"{c.column}={c.value}" for c in choices) or "the whole file"


def choices_text(grid: Grid) -> list[str]:
    """Tell in a line per column what was taken and what else there was."""
    return [
        f"{c.column}: took {c.value!r} of {len(c.others) + 1} (others: {', '.join(c.others[:6])}"
        f"{', ...' if len(c.others) > 6 else ''}); choose with --by {c.column}=VALUE"
        for c in grid.choices
    ]
