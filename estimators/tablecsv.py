"""Tables as CSV in long form, one line per cell, for people's own measurements.

Columns, in any order, found by the names in the first line:

=============  ========  =====================================================================
``latency_us``           latency, us
``cpu_hz``     optional  CPU clock, Hz; left out or 0: governed by the board
``gpu_hz``     optional  GPU clock, Hz; likewise
``emc_hz``     optional  memory clock, Hz; likewise
``context``    optional  context length, tokens; left out: 0
``power_mw``   optional  power while a job runs, mW; for all cells or for none
=============  ========  =====================================================================

Other columns are refused, for they are most often misspelt ones, and so are clocks below 10 MHz:
they are MHz or kHz. Every combination of the clocks and contexts that occur must occur exactly
once. Lines that begin with ``#`` are remarks; export writes the header into one (``# header:
{json}``), and import reads it back. Tails are not carried.
"""

import csv
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from estimators.errors import TableError
from estimators.table import LatencyTable, TableHeader, decode_header
from estimators.tablefile import replacing

KEYS = ("emc_hz", "context", "cpu_hz", "gpu_hz")
_VALUES = ("latency_us", "power_mw")
_HEADER = "# header:"
MAX_ROWS = 2_000_000
"""Cap on the rows of one file; 319 points x 1024 contexts x 4 EMC points are 1.3 million."""
_MAX_WHOLE = 2**53
_MIN_HZ = 10_000_000  # no clock of a board is slower; in kHz even the fastest is below
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

Key = tuple[int, ...]
Cells = dict[Key, tuple[int, tuple[float, ...]]]
"""For each key the line it stands on, for messages, and its values."""


def export_csv(table: LatencyTable, path: str | Path) -> None:
    """Write a table as CSV, replacing what was there in one step.

    Raises:
        TableError: The file cannot be written.
    """
    try:
        with replacing(Path(path)) as stream:
            stream.writelines(line.encode() for line in csv_lines(table))
    except OSError as exc:
        raise _io_error("cannot write CSV", Path(path), exc) from exc


def csv_lines(table: LatencyTable) -> Iterator[str]:
    """Yield the lines of a table as CSV, line ends included."""
    yield f"{_HEADER} {msgspec.json.encode(table.header).decode()}\n"
    names = KEYS if table.power_mw is None else (*KEYS, "power_mw")
    yield ",".join((*names, "latency_us")) + "\n"
    axes = [getattr(table, name).tolist() for name in KEYS]
    arrays = [table.latency_us] if table.power_mw is None else [table.power_mw, table.latency_us]
    columns = [array.reshape(-1) for array in arrays]  # str(float32) is the shortest exact text
    for key, *values in zip(itertools.product(*axes), *columns, strict=True):
        yield ",".join(str(value) for value in (*key, *values)) + "\n"


def import_csv(path: str | Path, header: TableHeader | None = None) -> LatencyTable:
    """Make a table from a CSV file.

    Args:
        path: The file.
        header: Header to give to the table; None takes the file's own, or an empty one.

    Raises:
        TableError: The file cannot be read or is no full grid of sound values; the message names
            the row and column.
    """
    path = Path(path)
    remarks: list[str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.reader(_blank_remarks(stream, remarks))
            numbered = ((rows.line_num, row) for row in rows if row)
            _, first = next(numbered, (0, []))
            names = _column_names(path, first)
            cells = _read_cells(path, names, numbered)
    except OSError as exc:
        raise _io_error("cannot read CSV", path, exc) from exc
    except (UnicodeDecodeError, csv.Error) as exc:
        raise _bad(str(path), str(exc)) from exc
    return _assemble(path, names, cells, header or _own_header(path, remarks))


def _blank_remarks(lines: Iterable[str], remarks: list[str]) -> Iterator[str]:
    """Set remarks aside, leaving blank lines so that line numbers stay right."""
    for line in lines:
        if line.startswith("#"):
            remarks.append(line)
            yield "\n"
        else:
            yield line


def _own_header(path: Path, remarks: list[str]) -> TableHeader:
    for remark in remarks:
        if remark.startswith(_HEADER):
            return decode_header(str(path), remark.removeprefix(_HEADER))
    return TableHeader()


def _column_names(path: Path, row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    for name in names:
        if name not in (*KEYS, *_VALUES):
            known = ", ".join((*KEYS, *_VALUES))
            raise _bad(str(path), f"unknown column {name!r}; known are {known}")
        if names.count(name) > 1:
            raise _bad(str(path), f"column {name} stands twice")
    if "latency_us" not in names:
        raise _bad(str(path), "no column latency_us")
    return names


def _read_cells(path: Path, names: list[str], rows: Iterable[tuple[int, list[str]]]) -> Cells:
    cells: Cells = {}
    for line, row in rows:
        where = f"{path}: row {line}"
        if len(row) != len(names):
            raise _bad(where, f"{len(row)} fields, but {len(names)} columns")
        fields = dict(zip(names, row, strict=True))
        key = tuple(_whole(where, name, fields.get(name, "0")) for name in KEYS)
        values = tuple(_value(where, name, fields[name]) for name in _VALUES if name in fields)
        if key in cells:
            other, before = cells[key]
            same = "a duplicate of" if before == values else "in conflict with"
            raise _bad(where, f"{same} row {other}: {_text(key)}")
        if len(cells) == MAX_ROWS:
            raise _bad(where, f"more than {MAX_ROWS} rows")
        cells[key] = line, values
    if not cells:
        raise _bad(str(path), "no rows")
    return cells


def _assemble(path: Path, names: list[str], cells: Cells, header: TableHeader) -> LatencyTable:
    axes = [sorted({key[i] for key in cells}) for i in range(len(KEYS))]
    wanted = math.prod(len(axis) for axis in axes)
    if wanted != len(cells):
        missing = next(key for key in itertools.product(*axes) if key not in cells)
        count = wanted - len(cells)
        raise _bad(str(path), f"{count} of {wanted} cells missing, first {_text(missing)}")
    shape = tuple(len(axis) for axis in axes)
    rows = [cells[key][1] for key in itertools.product(*axes)]
    columns = np.array(rows, dtype=np.float32).T.reshape(-1, *shape)
    arrays = dict(zip((name for name in _VALUES if name in names), columns, strict=True))
    emc_hz, context, cpu_hz, gpu_hz = (np.array(axis, dtype=np.int64) for axis in axes)
    return LatencyTable(
        header,
        emc_hz,
        context,
        cpu_hz,
        gpu_hz,
        arrays["latency_us"],
        power_mw=arrays.get("power_mw"),
        source=str(path),
    )


def _whole(where: str, name: str, text: str) -> int:
    """Read a whole number; spreadsheets like to write ``1.02e9`` and ``1020000000.0``."""
    number = _number(where, name, text)
    if not 0 <= number <= _MAX_WHOLE or number != int(number):
        raise _bad(
            f"{where}, column {name}", f"{text.strip()!r} is not a whole number of 0 or more"
        )
    if name.endswith("_hz") and 0 < number < _MIN_HZ:
        unit, hz = ("MHz", 1_000_000) if number < 10_000 else ("kHz", 1000)
        why = f"{text.strip()} must be {unit}, for no clock is below 10 MHz"
        raise _bad(f"{where}, column {name}", f"{why}; give Hz, here {int(number) * hz}")
    return int(number)


def _value(where: str, name: str, text: str) -> float:
    number = _number(where, name, text)
    if not 0 < number <= _MAX_FLOAT32:
        raise _bad(f"{where}, column {name}", f"{text.strip()!r} is not a positive finite number")
    return number


def _number(where: str, name: str, text: str) -> float:
    try:
        if "_" in text:  # Python reads 1_00 as 100; no spreadsheet does
            raise ValueError
        return float(text)
    except ValueError:
        raise _bad(f"{where}, column {name}", f"{text.strip()!r} is not a number") from None


def _text(key: Key) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(KEYS, key, strict=True))


def _bad(where: str, why: str) -> TableError:
    return TableError(
        "unusable CSV", where=where, why=why, hint="flamegov table import --help lists the columns"
    )


def _io_error(what: str, path: Path, exc: OSError) -> TableError:
    return TableError(what, where=str(path), why=exc.strerror or str(exc), hint="check the path")
