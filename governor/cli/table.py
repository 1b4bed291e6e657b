"""``flamegov table``: bring tables in and out, look at them, check them."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from estimators.errors import TableError
from estimators.table import LatencyTable, Phase, TableHeader
from estimators.tablecsv import csv_lines, export_csv, import_csv
from governor.cli import heatmap
from governor.errors import UsageError
from governor.words import printable

HELP = "import, export, show and check latency tables"

_TEXTS = ("model", "board", "soc", "l4t", "power_mode", "engine", "precision")
_ARRAYS = (
    "emc_hz",
    "context",
    "cpu_hz",
    "gpu_hz",
    "latency_us",
    "power_mw",
    "tail_ratio",
    "tail_levels",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    _add_import(verbs.add_parser("import", help="make a table (.npz) from a CSV file"))
    export = verbs.add_parser("export", help="write a table as CSV")
    export.add_argument("table", type=Path)
    export.add_argument(
        "csv", type=Path, nargs="?", help="file to write (default: standard output)"
    )
    show = verbs.add_parser("show", help="draw a table as a heat map")
    show.add_argument("table", type=Path)
    show.add_argument("--emc", type=int, default=0, metavar="HZ", help="memory clock (lowest)")
    show.add_argument("--context", type=int, metavar="N", help="context length (shortest)")
    show.add_argument("--power", action="store_true", help="show power instead of latency")
    show.add_argument("--png", type=Path, metavar="FILE", help="save a picture as well")
    check = verbs.add_parser("check", help="check tables; exit code 3 if one is unsound")
    check.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help="file or folder")
    for verb in verbs.choices.values():
        verb.add_argument("--json", action="store_true", help="print JSON")


def _add_import(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "Columns: latency_us and any of cpu_hz, gpu_hz, emc_hz, context, power_mw; one line per "
        "cell, every combination once. Lines that begin with # are remarks; '# header: {json}', "
        "as written by export, gives the table its header."
    )
    verb.add_argument("csv", type=Path)
    verb.add_argument("table", type=Path, help="file to write, .npz")
    for name in _TEXTS:
        verb.add_argument(f"--{name.replace('_', '-')}", help=f"{name} to put into the header")
    verb.add_argument("--phase", choices=get_args(Phase), help="what one job is")


def run(args: argparse.Namespace) -> int:
    """Do it and tell the exit code."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "import": _import,
        "export": _export,
        "show": _show,
        "check": _check,
    }
    return actions[args.action](args)


def _import(args: argparse.Namespace) -> int:
    if args.table.suffix != ".npz":
        raise UsageError(f"'{args.table}' is no name for a table", hint="let it end in .npz")
    table = import_csv(args.csv)
    given = {key: getattr(args, key) for key in (*_TEXTS, "phase") if getattr(args, key)}
    table = replace(table, header=replace(table.header, **given))
    if not table.header.model:
        raise UsageError("the table has no model's name", hint="add --model NAME")
    table.save(args.table)
    report = {"table": str(args.table), **_summary(table)}
    print(json.dumps(report) if args.json else f"{args.table}: {_shape_text(table)}")
    return 0


def _export(args: argparse.Namespace) -> int:
    table = LatencyTable.load(args.table)
    if args.csv is not None:
        export_csv(table, args.csv)
        report = {"csv": str(args.csv), "rows": table.latency_us.size}
        print(json.dumps(report) if args.json else f"{args.csv}: {table.latency_us.size} rows")
    elif args.json:
        print(json.dumps(_whole(table)))
    else:
        sys.stdout.writelines(csv_lines(table))
    return 0


def _show(args: argparse.Namespace) -> int:
    table = LatencyTable.load(args.table)
    context = int(table.context[0]) if args.context is None else args.context
    values, unit = _plane(table, args, context)
    emc, emc_exact = table.emc_index(args.emc or int(table.emc_hz[0]))
    cut = {
        "emc_hz": int(table.emc_hz[emc]),
        "emc_exact": emc_exact,
        "context": context,
        "context_clamped": table.context_weight(context)[3],
    }
    order = slice(None, None, -1)  # the highest CPU clock on top, as on a chart
    rows = [_mhz(hz) for hz in table.cpu_hz[order].tolist()]
    columns = [_mhz(hz) for hz in table.gpu_hz.tolist()]
    if args.png:
        title = f"{table.header.model} ({table.header.phase})"
        labels = (title, "CPU clock, MHz", "GPU clock, MHz", unit)
        heatmap.save_png(values[order], rows, columns, labels=labels, path=args.png)
    if args.json:
        print(json.dumps({**_summary(table), **cut, "unit": unit, "values": values.tolist()}))
        return 0
    print(printable(_title(table, cut, unit)))
    print(heatmap.draw(values[order], rows, columns, corner="CPU \\ GPU MHz"))
    return 0


def _plane(table: LatencyTable, args: argparse.Namespace, context: int) -> tuple[Any, str]:
    """Cut the ``[C, G]`` plane to show out of a table, with its unit."""
    if not args.power:
        return table.slice_us(args.emc, context) / 1000.0, "ms"
    power_mw = table.slice_mw(args.emc, context)
    if power_mw is None:
        raise TableError("the table has no power", where=str(args.table), hint="leave --power out")
    return power_mw / 1000.0, "W"


def _check(args: argparse.Namespace) -> int:
    reports = [_check_one(path) for path in _files(args.tables)]
    if args.json:
        print(json.dumps({"ok": all(r["ok"] for r in reports), "tables": reports}))
    else:
        for report in reports:
            # A table is a stranger's, and so are the names in it.
            print("\n".join(map(printable, _report_lines(report))))
    return 0 if all(report["ok"] for report in reports) else TableError.exit_code


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not found:
            raise TableError("no tables (*.npz) in folder", where=str(path))
        files += found
    return files


def _check_one(path: Path) -> dict[str, Any]:
    try:
        table = LatencyTable.load(path)
    except TableError as exc:
        return {"file": str(path), "ok": False, "error": str(exc)}
    return {"file": str(path), "ok": True, **_summary(table), "remarks": _remarks(table)}


def _remarks(table: LatencyTable) -> list[str]:
    """Tell what is allowed, but worth a look."""
    remarks = [f"header: no {key}" for key in ("model", "board") if not getattr(table.header, key)]
    if not table.header.online_cpus:
        remarks.append("header: online CPUs unknown, so the board cannot be compared")
    for axis, name in ((2, "CPU"), (3, "GPU")):
        steps = np.diff(table.latency_us, axis=axis)
        rising = int(np.count_nonzero(steps > 0))
        if rising:
            remarks.append(
                f"latency rises with the {name} clock in {rising} of {steps.size} steps"
                " (searches are exact all the same)"
            )
    return remarks


def _report_lines(report: dict[str, Any]) -> list[str]:
    if not report["ok"]:
        return [f"bad  {report['error']}"]
    shape = " x ".join(str(n) for n in report["shape"])
    head = f"ok   {report['file']}: {report['model'] or 'unnamed'} ({report['phase']}), {shape}"
    return [head, *(f"     {remark}" for remark in report["remarks"])]


def _summary(table: LatencyTable) -> dict[str, Any]:
    header: TableHeader = table.header
    return {
        "model": header.model,
        "phase": header.phase,
        "board": header.board,
        "shape": list(table.shape),
        "latency_us": [float(table.latency_us.min()), float(table.latency_us.max())],
        "power": table.power_mw is not None,
        "tail": table.tail_ratio is not None,
    }


def _whole(table: LatencyTable) -> dict[str, Any]:
    parts = {name: getattr(table, name) for name in _ARRAYS}
    lists = {name: None if part is None else part.tolist() for name, part in parts.items()}
    return {"header": msgspec.to_builtins(table.header), **lists}


def _title(table: LatencyTable, cut: dict[str, Any], unit: str) -> str:
    emc = "governed by the board" if cut["emc_hz"] == 0 else f"{_mhz(cut['emc_hz'])} MHz"
    emc += "" if cut["emc_exact"] else " (nearest slower)"
    context = f"{cut['context']} tokens" + (" (clamped)" if cut["context_clamped"] else "")
    header = table.header
    who = " on ".join(part for part in (header.model or "unnamed", header.board) if part)
    return f"{who} ({header.phase}), {unit}; memory {emc}; context {context}; {_shape_text(table)}"


def _shape_text(table: LatencyTable) -> str:
    e, k, c, g = table.shape
    return f"{e} EMC x {k} context x {c} CPU x {g} GPU"


def _mhz(clock_hz: int) -> str:
    return "board" if clock_hz == 0 else f"{clock_hz / 1e6:.6g}"
