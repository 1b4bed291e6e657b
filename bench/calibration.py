"""The simulated board against published measurements, the error printed rather than hidden.

Each row says whether a constant of the plant was chosen to meet it (``fitted``) or nothing was
(``predicted``). The figures are simulated; the published ones come from the source that the row
names.
"""

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from bench.calibration_checks import Check, all_checks
from bench.pretty import table_text

HELP = "compare the simulated board with published measurements"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run all checks and print the table."""
    result = report(all_checks())
    print(json.dumps(result) if args.json else _text(result))
    return 0


def report(checks: Iterable[Check]) -> dict[str, Any]:
    """Put checks into the form that ``--json`` prints."""
    rows: list[dict[str, Any]] = [
        {
            "check": check.name,
            "engine": check.engine,
            "kind": check.kind,
            "source": check.source,
            "published": check.published,
            "simulated": check.simulated,
            "error_pct": check.error_pct,
            "note": check.note,
        }
        for check in checks
    ]
    kinds = {
        kind: _summary([row for row in rows if row["kind"] == kind])
        for kind in ("fitted", "predicted")
    }
    return {"rows": rows, **_summary(rows), "by_kind": kinds}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    errors = [abs(row["error_pct"]) for row in rows]
    return {
        "count": len(errors),
        "mean_abs_error_pct": statistics.fmean(errors),
        "worst_abs_error_pct": max(errors),
    }


def _text(result: dict[str, Any]) -> str:
    headings = ("check", "engine", "kind", "published", "simulated", "error %", "source")
    rows = [
        (row["check"], row["engine"], row["kind"], row["published"], row["simulated"],
         row["error_pct"], row["source"])
        for row in result["rows"]
    ]  # fmt: skip
    lines = [table_text(headings, rows), ""]
    for kind, part in result["by_kind"].items():
        lines.append(
            f"{kind}: {part['count']} rows, mean {part['mean_abs_error_pct']:.1f} %, "
            f"worst {part['worst_abs_error_pct']:.1f} % (absolute)"
        )
    lines += ["", *(f"{row['check']}: {row['note']}" for row in result["rows"] if row["note"])]
    return "\n".join(lines)
