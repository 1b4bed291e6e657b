"""A grid of numbers as a picture: in the terminal, or as a PNG file."""

import math
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from estimators.errors import FlamegovError

_BLOCKS = " ░▒▓█"
_ASCII = " .:*#"
# Steps of the 256-colour palette, cool (low) to hot (high), and an ink that reads on all of them.
_COLOURS = (24, 30, 36, 71, 107, 143, 179, 173, 167, 124)
_INK = 231
_PIPED_COLUMNS = 120


def draw(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    corner: str,
    stream: TextIO | None = None,
) -> str:
    """Draw a grid as text that the stream can show.

    A cell is its number and a shade of its logarithm; colours take the place of shades on a
    terminal that has them, unless ``NO_COLOR`` is set. If the line is too short, columns between
    both ends are left out and the text says so.

    Args:
        values: Positive numbers, ``[rows, columns]``.
        rows: Label of each row.
        columns: Label of each column.
        corner: What the labels mean.
        stream: Where the text will go; standard output if None.

    Returns:
        Lines joined by newlines.
    """
    stream = sys.stdout if stream is None else stream
    texts = [[f"{value:.4g}" for value in row] for row in values.tolist()]
    head = max(len(text) for text in (corner, *rows))
    width = max(len(text) for text in (*columns, *(text for row in texts for text in row))) + 2
    kept = _kept_columns(len(columns), (_terminal_columns(stream) - head) // width)
    paint = _Painter(stream, float(values.min()), float(values.max()))
    lines = [corner.ljust(head) + "".join(columns[i].rjust(width) for i in kept)]
    for label, row, row_texts in zip(rows, values.tolist(), texts, strict=True):
        cells = "".join(paint(row[i], row_texts[i], width) for i in kept)
        lines.append(label.rjust(head) + cells)
    if len(kept) < len(columns):
        lines.append(f"({len(kept)} of {len(columns)} columns; a wider terminal shows more)")
    return "\n".join(line.rstrip() for line in lines)


def save_png(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    labels: tuple[str, str, str, str],
    path: Path,
) -> None:
    """Save a grid as a PNG picture.

    Args:
        values: Positive numbers, ``[rows, columns]``.
        rows: Label of each row.
        columns: Label of each column.
        labels: Title, row axis, column axis, and what the numbers are.
        path: File to write.

    Raises:
        FlamegovError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise FlamegovError(
            "pictures need matplotlib", why=str(exc), hint="pip install '.[bench]' in the checkout"
        ) from exc
    title, row_label, column_label, value_label = labels
    figure = Figure(figsize=(2 + 0.55 * len(columns), 2 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values, aspect="auto", cmap="viridis", norm="log")
    axes.set_xticks(range(len(columns)), columns, rotation=45)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(title=title, xlabel=column_label, ylabel=row_label)
    figure.colorbar(image, label=value_label)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as exc:
        raise FlamegovError(
            "cannot write picture", where=str(path), why=exc.strerror or str(exc)
        ) from exc


def _terminal_columns(stream: TextIO) -> int:
    return shutil.get_terminal_size().columns if stream.isatty() else _PIPED_COLUMNS


def _kept_columns(count: int, room: int) -> list[int]:
    room = min(count, max(room, 2))
    return sorted({round(i) for i in np.linspace(0, count - 1, room)})


class _Painter:
    """Turns one value into one cell."""

    def __init__(self, stream: TextIO, low: float, high: float) -> None:
        self._low, self._span = low, math.log(high / low) or 1.0
        self._colour = stream.isatty() and not os.environ.get("NO_COLOR") and _has_colours()
        self._shades = _BLOCKS if _can_encode(stream, _BLOCKS) else _ASCII

    def __call__(self, value: float, text: str, width: int) -> str:
        share = math.log(value / self._low) / self._span
        if self._colour:
            colour = _COLOURS[min(int(share * len(_COLOURS)), len(_COLOURS) - 1)]
            return f"\x1b[48;5;{colour};38;5;{_INK}m{text.rjust(width)}\x1b[0m"
        shade = self._shades[min(int(share * len(self._shades)), len(self._shades) - 1)]
        return text.rjust(width - 1) + shade


def _has_colours() -> bool:
    return os.environ.get("TERM", "dumb") != "dumb"


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
