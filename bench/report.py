"""Build one self-contained HTML page out of text, tables and charts.

The page loads nothing from anywhere: style and the few lines of script are inside. It follows the
reader's light or dark setting, fits a phone, and states how its figures were made.
"""

import html
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from bench.pretty import Cell, cell_text
from estimators.errors import FlamegovError


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Table(NamedTuple):
    """Rows that the reader can sort by any column."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    digits: int = 2


class Figure(NamedTuple):
    """A chart: an ``<svg>`` element and what it shows."""

    svg: str
    caption: str


Part = Text | Table | Figure


class Section(NamedTuple):
    """A headed part of the page."""

    title: str
    parts: Sequence[Part]


def render(title: str, sections: Sequence[Section], facts: Mapping[str, str]) -> str:
    """Make the page.

    Args:
        title: Heading of the page.
        sections: Its parts, in order.
        facts: How the figures were made: command, seed, versions, machine (see :func:`facts_of`).
    """
    body = "\n".join(
        f"<section><h2>{html.escape(section.title)}</h2>\n{_parts(section.parts)}\n</section>"
        for section in sections
    )
    origin = "\n".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
        for name, value in facts.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{html.escape(title)}</h1>
{body}
<section><h2>How this was made</h2>
<dl>
{origin}
</dl>
</section>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def check_place(path: Path) -> None:
    """Refuse early, before a long run, a place that no page can be written to.

    Raises:
        FlamegovError: It is a folder, or its folder cannot be written.
    """
    folder = next(p for p in (path.parent, *path.absolute().parents) if p.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FlamegovError(
            "cannot write the report", where=str(path), hint="name another place with --report"
        )


def write(path: Path, page: str) -> None:
    """Write the page.

    Raises:
        FlamegovError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise FlamegovError(
            "cannot write the report",
            where=str(path),
            why=error.strerror or str(error),
            hint="name another place with --report",
        ) from error


def facts_of(*, seed: int | None = None, **more: str) -> dict[str, str]:
    """Collect how this process makes its figures, for :func:`render`.

    Args:
        seed: Seed of the run.
        more: Further facts by name; underscores read as spaces.
    """
    facts = {"command": shlex.join(["flamegov", *sys.argv[1:]])}
    if seed is not None:
        facts["seed"] = str(seed)
    facts |= {name.replace("_", " "): value for name, value in more.items()}
    packages = [f"{name} {v}" for name in ("flamegov", "numpy", "pyzmq") if (v := _version(name))]
    facts["versions"] = ", ".join([f"Python {platform.python_version()}", *packages])
    facts["machine"] = ", ".join(
        filter(None, [platform.machine(), _cpu_model(), f"{os.cpu_count()} CPUs",
                      f"{platform.system()} {platform.release()}"])
    )  # fmt: skip
    facts["made"] = datetime.now().astimezone().isoformat(timespec="seconds")
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else ""


def _parts(parts: Sequence[Part]) -> str:
    return "\n".join(_part(part) for part in parts)


def _part(part: Part) -> str:
    if isinstance(part, Text):
        return f"<p>{html.escape(part.text)}</p>"
    if isinstance(part, Figure):
        caption = html.escape(part.caption)
        return f"<figure>{part.svg}<figcaption>{caption}</figcaption></figure>"
    head = "".join(
        f'<th scope="col"><button type="button">{html.escape(heading)}</button></th>'
        for heading in part.headings
    )
    rows = "\n".join(
        f"<tr>{''.join(_cell(cell, part.digits) for cell in row)}</tr>" for row in part.rows
    )
    caption = f"<caption>{html.escape(part.caption)}</caption>" if part.caption else ""
    return (
        f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _cell(cell: Cell, digits: int) -> str:
    """Write a cell; figures carry their exact value for sorting."""
    text = html.escape(cell_text(cell, digits))
    if isinstance(cell, str) or cell is None:
        return f"<td>{text}</td>"
    return f'<td class="number" data-value="{cell!r}">{text}</td>'


_STYLE = """
:root { --ink:#1c2126; --soft:#59636e; --paper:#fdfdfc; --grid:#d5d9dd;
  --series-1:#0b63a5; --series-2:#c2540a; --series-3:#17806a;
  --series-4:#9a3f86; --series-5:#8a6d00; --series-6:#4a5568 }
@media (prefers-color-scheme: dark) { :root {
  --ink:#e6e9ec; --soft:#9aa5b0; --paper:#14181c; --grid:#39424b;
  --series-1:#62b0ec; --series-2:#f29a5c; --series-3:#5fcfb3;
  --series-4:#dd93cc; --series-5:#dcc04f; --series-6:#aab4c0 } }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.5 system-ui,sans-serif }
main { max-width:56rem; margin:0 auto; padding:1rem }
h1 { font-size:1.5rem; line-height:1.25 } h2 { font-size:1.15rem; margin-top:2rem }
figure { margin:1rem 0; overflow-x:auto }
svg { width:100%; min-width:30rem; height:auto; font-family:inherit }
figcaption, caption, dt { color:var(--soft); font-size:.9rem; text-align:left }
.wide { overflow-x:auto } table { border-collapse:collapse; min-width:100% }
th, td { padding:.3rem .6rem; border-bottom:1px solid var(--grid); text-align:left;
  white-space:nowrap }
td.number { text-align:right; font-variant-numeric:tabular-nums }
th button { all:unset; cursor:pointer; font-weight:600 }
th button:focus-visible { outline:2px solid var(--series-1) }
th[aria-sort=ascending] button::after { content:" \\2191" }
th[aria-sort=descending] button::after { content:" \\2193" }
dd { margin:0 0 .5rem; overflow-wrap:anywhere }
"""

_SCRIPT = """
for (const button of document.querySelectorAll("th button")) button.onclick = () => {
  const th = button.parentElement, body = th.closest("table").tBodies[0];
  const up = th.ariaSort !== "ascending", key = row => {
    const cell = row.cells[th.cellIndex];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value) };
  const order = (a, b) => typeof a === "number" && typeof b === "number"
    ? a - b : String(a).localeCompare(String(b));
  const rows = [...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
  for (const other of th.parentElement.cells) other.removeAttribute("aria-sort");
  th.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...rows);
};
"""
