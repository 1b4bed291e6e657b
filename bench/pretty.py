"""Text for people: aligned tables and one line that follows a run.

``rich`` draws the line on a terminal if it is installed; otherwise, and in logs, plain lines appear
from time to time.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

PLAIN_LINE_EVERY_S = 2.0
"""A log gets a line this often; a terminal is refreshed ten times a second."""

Cell = str | int | float | None


def cell_text(value: Cell, digits: int = 2) -> str:
    """Write one cell; a missing figure is a dash, never a zero."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def table_text(headings: Sequence[str], rows: Sequence[Sequence[Cell]], digits: int = 2) -> str:
    """Lay out a table: first column to the left, the others to the right."""
    texts = [list(headings), *([cell_text(value, digits) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


@contextmanager
def live_line(
    clock_s: Callable[[], float], stream: TextIO | None = None
) -> Iterator[Callable[[str], None]]:
    """Give a function that shows the latest line of a run on ``stream`` (stderr).

    Args:
        clock_s: Monotonic clock, s; paces the plain lines.
        stream: Where to write.
    """
    out = stream or sys.stderr
    if out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        try:
            from rich.console import Console
            from rich.live import Live
            from rich.text import Text
        except ImportError:
            pass  # the plain lines below need nothing
        else:
            with Live(console=Console(file=out), refresh_per_second=10, transient=True) as live:
                yield lambda line: live.update(Text(line))
            return
    last = -PLAIN_LINE_EVERY_S

    def show(line: str) -> None:
        nonlocal last
        if clock_s() - last >= PLAIN_LINE_EVERY_S:
            last = clock_s()
            print(line, file=out, flush=True)

    yield show
