"""Charts of the paper's figures: QoS and PPW over rates, and runs over their jobs."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.charts import Panel, Series
from bench.harness import Result
from bench.paper_tables import Row

SHOWN = (
    ("flame", "no margin"),
    ("flame", "margin 5 %"),
    ("max", ""),
    ("schedutil", "MAXN"),
    ("ztt", "released, 3x3, scaled; all decisions"),
    ("oracle", ""),
)
"""Policies that are drawn, in the order of their colours; the tables have all."""

MOST = len(SHOWN)


class Chart(NamedTuple):
    """A chart before it is drawn.

    Attributes:
        name: Name of its file, without suffix.
        panels: What it shows.
        x_label: Its abscissa.
        caption: Line below it.
    """

    name: str
    panels: list[Panel]
    x_label: str
    caption: str


def over_rates(figure: str, rows: Sequence[Row]) -> list[Chart]:
    """Draw QoS, late jobs and PPW over the rate, one chart per board, model and release."""
    charts = []
    groups = sorted({(row["board"], row["model"], row["release"]) for row in rows})
    for board, model, release in groups:
        mine = [
            r for r in rows if (r["board"], r["model"], r["release"]) == (board, model, release)
        ]
        who = _drawn(mine)
        panels = [
            Panel(label, _series(mine, key, who))
            for label, key in (
                ("QoS, %", "qos_run_pct"),
                ("late jobs, %", "miss_pct"),
                ("PPW, %/W", "ppw"),
            )
        ]
        rates = {row["rate_hz"] for row in mine}
        one = f"at {min(rates):g} jobs per second"
        charts.append(
            Chart(
                f"{figure}-{board}-{model}-{release}",
                panels,
                "jobs per second asked for" if len(rates) > 1 else one,
                f"{model} on {board}, {release} jobs (simulated)",
            )
        )
    return charts


def _drawn(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Choose whom to draw: all, if there are few; else those of :data:`SHOWN` and then others."""
    there = list(dict.fromkeys((row["policy"], row["variant"]) for row in rows))
    if len(there) <= MOST:
        return there
    return [*(who for who in SHOWN if who in there), *(w for w in there if w not in SHOWN)][:MOST]


def _series(rows: Sequence[Row], key: str, drawn: Sequence[tuple[str, str]]) -> list[Series]:
    series = []
    for colour, (policy, variant) in enumerate(drawn):
        mine = sorted(
            (r for r in rows if (r["policy"], r["variant"]) == (policy, variant)),
            key=lambda row: float(row["rate_hz"]),
        )
        label = f"{policy}, {variant.split(';')[0]}" if variant else policy
        x, y = [r["rate_hz"] for r in mine], [r[key] for r in mine]
        series.append(Series(label, x, y, dashed=policy == "oracle", colour=colour))
    return series


def over_jobs(figure: str, results: Sequence[Result]) -> list[Chart]:
    """Draw rate, clocks and power over the jobs of the first seed, one chart per model."""
    shown = [r for r in results if r.series and r.unit.policy.name not in ("oracle", "oracle_mean")]
    charts = []
    for model in sorted({result.unit.cell.model for result in shown}):
        mine = [result for result in shown if result.unit.cell.model == model]
        rate = [
            _line(r, colour, [1e6 / us for us in _column(r, "latency_us")])
            for colour, r in enumerate(mine, 1)
        ]
        wanted = [1e6 / us for us in _column(mine[0], "deadline_us")]
        jobs = _column(mine[0], "job")
        rate.append(Series("required", jobs, wanted, dashed=True, colour=0))
        panels = [Panel("jobs/s", rate)]
        for label, name in (
            ("CPU MHz", "cpu_mhz"), ("GPU MHz", "gpu_mhz"), ("power, W", "power_w")
        ):  # fmt: skip
            lines = [_line(r, colour, _column(r, name)) for colour, r in enumerate(mine, 1)]
            panels.append(Panel(label, lines))
        caption = f"{model}: rate achieved and required, clocks and power, first seed (simulated)"
        charts.append(Chart(f"{figure}-{model}", panels, "job", caption))
    return charts


def _line(result: Result, colour: int, values: Sequence[float]) -> Series:
    return Series(result.unit.policy.label, _column(result, "job"), values, colour=colour)


def _column(result: Result, name: str) -> list[float]:
    assert result.series is not None  # only such results are drawn
    return result.series[name]
