"""Draw charts as SVG that takes its colours from the page it is put into.

matplotlib draws in the colours of a light page; in the SVG they are replaced by CSS variables,
which ``bench/report.py`` defines for light and dark pages.
"""

import importlib.util
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from estimators.errors import FlamegovError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _GRID = "#1c2126", "#d5d9dd"
_SERIES = ("#0b63a5", "#c2540a", "#17806a", "#9a3f86", "#8a6d00", "#4a5568")

COLOURS = {
    _INK: "var(--ink)",
    _GRID: "var(--grid)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(_SERIES, 1)},
}
"""Colour that is drawn with (a light page's) to CSS variable."""

SERIES_COUNT = len(_SERIES)

FEW = 10
"""Up to so many values are marked each."""


class Series(NamedTuple):
    """One line of a chart.

    Attributes:
        label: Name in the legend.
        x: Abscissae.
        y: Ordinates, as many.
        step: Hold each value until the next.
        dashed: Draw as a limit rather than as a measurement.
        colour: Number of the colour, 0 based; None for the position in the panel.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    step: bool = False
    dashed: bool = False
    colour: int | None = None


class Panel(NamedTuple):
    """One chart of a stack that shares the abscissa."""

    y_label: str
    series: Sequence[Series]


def check_matplotlib() -> None:
    """Refuse early, before a long run, when there is nothing to draw with.

    Raises:
        FlamegovError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise FlamegovError("charts need matplotlib", hint="pip install '.[bench]' in the checkout")


class Picture(NamedTuple):
    """A chart drawn.

    Attributes:
        svg: The ``<svg>`` element for a page.
        png: A PNG file, on white.
    """

    svg: str
    png: bytes


def stack(panels: Sequence[Panel], x_label: str) -> Picture:
    """Draw panels one above the other.

    Raises:
        FlamegovError: matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": "flamegov", "font.size": 9,
        "text.color": _INK, "axes.edgecolor": _GRID, "axes.labelcolor": _INK,
        "xtick.color": _INK, "ytick.color": _INK, "grid.color": _GRID,
        "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    }  # fmt: skip
    svg, png = io.BytesIO(), io.BytesIO()
    with rc_context(style):
        figure = Figure(figsize=(6.4, 0.6 + 1.7 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, panel)
        axes[-1].set_xlabel(x_label)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once for both
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        figure.savefig(png, format="png", dpi=150)
    return Picture(_inline(svg.getvalue().decode()), png.getvalue())


def _draw(axis: "Axes", panel: Panel) -> None:
    if all(len(series.x) == 1 for series in panel.series):
        _draw_bars(axis, panel)
    else:
        _draw_lines(axis, panel)
    axis.set_ylabel(panel.y_label)
    axis.grid(visible=True, linewidth=0.4)
    axis.set_axisbelow(True)
    axis.set_ylim(bottom=0)
    if len(panel.series) > 1:
        axis.legend(fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)


def _draw_bars(axis: "Axes", panel: Panel) -> None:
    """Draw series of one value each side by side."""
    for position, series in enumerate(panel.series):
        bar = axis.bar(position, series.y[0], 0.6, label=series.label, color=_colour(panel, series))
        axis.bar_label(bar, fmt="%.1f", fontsize=8, color=_INK)
    axis.set_xticks([])
    axis.margins(y=0.15)


def _draw_lines(axis: "Axes", panel: Panel) -> None:
    for series in panel.series:
        axis.plot(
            series.x,
            series.y,
            label=series.label,
            color=_colour(panel, series),
            linestyle="--" if series.dashed else "-",
            linewidth=1.2,
            drawstyle="steps-post" if series.step else "default",
            marker="o" if len(series.x) <= FEW else "",
            markersize=3,
        )


def _colour(panel: Panel, series: Series) -> str:
    number = panel.series.index(series) if series.colour is None else series.colour
    return _SERIES[number % SERIES_COUNT]


def _inline(svg: str) -> str:
    """Cut the element out of the document, free its size, and hand its colours to the page."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'<g id="[^"]*">', "<g>", element)  # ids would repeat over charts
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    for colour, variable in COLOURS.items():
        element = element.replace(colour, variable)
    return element.strip()
