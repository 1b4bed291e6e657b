"""The main table of the evaluation as Markdown, for the pages that people read first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import paper_numbers as paper
from bench.pretty import cell_text
from bench.report import Table
from estimators.errors import FlamegovError

BEGIN, END = "<!-- main table: begin -->", "<!-- main table: end -->"

_HEAD = """\
| PPW of `flame` above | DNN % | SLM % | mean % (95 %) | late jobs: flame, other | paper, mean % |
|---|---|---|---|---|---|
"""


def main_table(gains: Mapping[str, Any], oracle: Mapping[str, Any], command: str) -> str:
    """Lay out gains and the share of the oracle, with the command that made them.

    Args:
        gains: As :func:`~bench.paper_tables.ppw_gains` tells.
        oracle: As :func:`~bench.paper_tables.oracle_ratios` tells.
        command: What was run.
    """
    rows = [
        _row(f"zTT {name}", found, paper.PPW_OVER_ZTT_PCT["mean"])
        for name, found in gains["ztt"].items()
    ]
    rows.append(_row("`max`", gains["max"], None))
    rows += [
        _row(f"`schedutil`, {mode}", found, None)
        for mode, found in gains["schedutil"]["by_mode"].items()
    ]
    ratios, misses = oracle["ppw_vs_oracle"], oracle["miss_pct"]
    words = [
        f"{ratios[key]:.3f} of the oracle's with {name} ({misses[key]:.2f} % of jobs late)"
        for key, name in (("margin_0", "no margin"), ("margin_default", "the default of 5 %"))
        if ratios[key] is not None
    ]
    joined = " and\n".join(words)
    tail = f"PPW of `flame` is\n{joined}." if words else ""
    return f"`{command}`, simulated:\n\n{_HEAD}{''.join(rows)}\n{tail}".strip()


def table_markdown(table: Table) -> str:
    """Lay a table of the report out as Markdown, its caption above."""
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    texts = ([cell_text(cell, 1) for cell in line] for line in lines)
    body = "\n".join(f"| {' | '.join(line)} |" for line in texts)
    return f"{table.caption}:\n\n{body}"


def place_in(path: Path) -> tuple[str, str]:
    """Read a page; returns what stands before and after the table.

    Raises:
        FlamegovError: The page cannot be read, or has no marks for the table.
    """
    try:
        if not path.is_file():
            raise FlamegovError("no page to put the table into", where=str(path))
        with path.open(encoding="utf-8", newline="") as file:
            before, begin, rest = file.read().partition(BEGIN)
    except (OSError, UnicodeDecodeError) as error:
        raise FlamegovError("cannot read the page", where=str(path), why=str(error)) from error
    _, end, after = rest.partition(END)
    if not begin or not end:
        why = f"it has no {BEGIN} ... {END}"
        raise FlamegovError("nowhere to put the table", where=str(path), why=why)
    return before, after


def put(path: Path, text: str) -> None:
    """Put a text between the marks of a page, whole or not at all.

    Raises:
        FlamegovError: The page cannot be read or written, or has no such marks.
    """
    before, after = place_in(path)
    ending = "\r\n" if "\r\n" in before else "\n"
    table = f"{BEGIN}\n{text}\n{END}".replace("\n", ending)
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(before + table + after, encoding="utf-8", newline="")
        part.chmod(path.stat().st_mode)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FlamegovError("cannot update the page", where=str(path), why=str(error)) from error


def _row(name: str, found: Mapping[str, Any], theirs: float | None) -> str:
    low, high = found["ci95"] or (None, None)
    bounds = f" ({low:+.1f}..{high:+.1f})" if low is not None else ""
    late = f"{_percent(found['flame_miss_pct'])}, {_percent(found['miss_pct'])}"
    cells = [
        name, _signed(found["dnn"]), _signed(found["slm"]), f"{_signed(found['mean'])}{bounds}",
        late, _signed(theirs, 2),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _signed(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:+.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"
