"""``flamegov bench paper``: the evaluation of the FLAME paper on the simulated board.

Figures 10 to 21 and Tables I and II; Figures 2 to 9 belong to ``flamegov bench estimators``.
"""

import argparse
import csv
import importlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import paper_numbers
from bench import paper_report as report
from bench.charts import Picture, check_matplotlib, stack
from bench.cores import at_most, parallel
from bench.harness import Result, run_all
from bench.harness_load import load_experiment
from bench.harness_plan import Experiment, Unit, units
from bench.paper_charts import Chart, over_jobs, over_rates
from bench.paper_extra import highest_clocks, overhead, profiling_minutes
from bench.paper_front import main_table, place_in, put, table_markdown
from bench.paper_tables import Board, Row, collect, oracle_ratios, ppw_gains, rows
from bench.paper_words import words_on
from bench.pretty import table_text
from bench.report import Section, Table, check_place, facts_of, render, write
from estimators.errors import FlamegovError
from governor.errors import UsageError
from governor.words import nearest

HELP = "the evaluation of the FLAME paper, simulated"

FIGURES: dict[str, tuple[str, ...]] = {
    "10": ("strategies",),
    "11": ("estimators",),
    "12": ("dnn",),
    "13": ("dnn",),
    "14": ("slm",),
    "15": ("slm",),
    "16": ("estimators",),
    "17": ("sampling",),
    "18": ("devices",),
    "19": ("nx",),
    "20": ("deadlines",),
    "21": ("concurrent",),
    "ztt": ("dnn", "slm", "closed"),
    "table1": ("profiling",),
    "table2": ("profiling",),
    "max": ("fastest",),
    "overhead": ("overhead",),
}
"""What each figure is made of: experiments, and parts that are no race."""

EXPERIMENTS = ("dnn", "slm", "closed", "nx", "strategies", "deadlines", "concurrent")
SLOW = ("sampling", "devices", "estimators")
"""Left out of ``--quick`` unless asked for by ``--only``."""

_DIGITS = 9

SHORT = (
    "model", "policy", "variant", "rate_hz", "stretch", "qos_run_pct", "miss_pct", "mean_power_w",
    "ppw", "ppw_vs_oracle",
)  # fmt: skip
"""Columns that a terminal has room for."""

TITLE = "The FLAME paper's evaluation on a simulated board"

Drawn = tuple[Chart, Picture]


class Outcome(NamedTuple):
    """Everything that the report and ``--json`` are made of."""

    results: dict[str, list[Result]]
    experiments: dict[str, Experiment]
    rows: list[Row]
    gains: dict[str, Any]
    oracle: dict[str, Any]
    failed: list[dict[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="FIG",
        help=f"figures to make: {', '.join(f'fig{n}' if n.isdigit() else n for n in FIGURES)}",
    )
    parser.add_argument(
        "--experiment",
        nargs="+",
        default=[],
        metavar="FILE.toml",
        help="experiments of your own instead (see bench/experiments)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer models and rates, shorter runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("results/paper.html"),
        metavar="PATH",
        help="the HTML report; CSV and PNG files go beside it (default: %(default)s)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results/runs"),
        metavar="DIR",
        help="finished runs, so that an interrupted evaluation goes on (default: %(default)s)",
    )
    parser.add_argument(
        "--readme",
        type=Path,
        metavar="FILE.md",
        help="put the main table between the marks of this page as well",
    )
    parser.add_argument("--workers", type=int, default=0, help="processes (default: one per core)")
    parser.add_argument(
        "--scheduler", default="", metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786"
    )


def run(args: argparse.Namespace) -> int:
    """Run what is missing, write the report, print the main table; returns the exit code."""
    check_arguments(args)
    parts = [] if args.experiment else parse_only(args.only, quick=args.quick)
    names = args.experiment or [name for name in EXPERIMENTS if name in parts]
    experiments = {Path(n).stem: load_experiment(n, quick=args.quick) for n in names}
    check_matplotlib()
    check_place(args.report)
    outcome = evaluate(experiments, args)
    charts = draw_charts(outcome, args.workers)
    made = sections(outcome, charts) + extra_sections(parts, args)
    write(
        args.report,
        render(
            "Policies on a simulated board" if args.experiment else TITLE,
            made,
            facts_of(
                seeds=", ".join(
                    f"{name}: 0..{found.seeds - 1}" for name, found in experiments.items()
                ),
                simulated="all latencies, powers and temperatures; decision times are measured",
            ),
        ),
    )
    save_beside(args.report, outcome, charts)
    if args.readme:
        put(args.readme, front(outcome, made, quick=args.quick))
    if args.json:
        print(json.dumps(as_json(outcome, args.report) | {"tables": as_tables(made)}))
    else:
        print(as_text(outcome, args.report, own=bool(args.experiment)))
    return 1 if outcome.failed else 0


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what would only show after the run.

    Raises:
        UsageError: Options that are wrong or do not go together.
        FlamegovError: A page without a place for the table.
    """
    stems = [Path(name).stem for name in args.experiment]
    wrong = (
        (args.workers < 0, "--workers must be 0 or more", f"it is {args.workers}"),
        (args.report.suffix != ".html", "--report must end in .html", f"it is {args.report}"),
        (len(set(stems)) < len(stems), "--experiment names two files alike", ", ".join(stems)),
        (args.experiment and args.only, "--only chooses among the paper's figures",
         "--experiment has its own"),
        (args.readme and (args.experiment or args.only), "--readme needs all figures",
         "--only and --experiment have some"),
    )  # fmt: skip
    for is_wrong, what, why in wrong:
        if is_wrong:
            raise UsageError(what, why=why)
    if args.readme:
        place_in(args.readme)


def parse_only(words: Sequence[str] | None, *, quick: bool) -> list[str]:
    """Read ``fig12``, ``12``, ``table2`` ...; without any, all that the mode has time for.

    Raises:
        UsageError: There is no such figure.
    """
    if not words:
        every = dict.fromkeys(part for parts in FIGURES.values() for part in parts)
        return [part for part in every if not (quick and part in SLOW)]
    found: dict[str, None] = {}
    for word in (part for text in words for part in text.split(",") if part):
        key = word.lower().removeprefix("fig").removeprefix("ure").strip(".")
        if key not in FIGURES:
            known = [f"fig{name}" if name.isdigit() else name for name in FIGURES]
            why = f"there are {', '.join(known)}"
            raise UsageError(f"unknown figure {word!r}", why=why, hint=nearest(word, known))
        found |= dict.fromkeys(FIGURES[key])
    return list(found)


def evaluate(experiments: Mapping[str, Experiment], args: argparse.Namespace) -> Outcome:
    """Run the experiments and work the figures out."""
    wanted: list[Unit] = [u for name, found in experiments.items() for u in units(name, found)]
    results = run_all(wanted, folder=args.results, workers=args.workers, scheduler=args.scheduler)
    grouped: dict[str, list[Result]] = {name: [] for name in experiments}
    for result in results:
        grouped[result.unit.experiment].append(result)
    figures = {name: _figure(name, found) for name, found in experiments.items()}
    periodic = _only(collect(results), "periodic")
    apart = () if args.experiment else ("nx",)  # Fig. 19 stands for itself
    main = {key: cell for key, cell in periodic.items() if key.experiment not in apart}
    failed = [
        {"policy": r.unit.policy.label, "model": r.unit.cell.model, "error": r.error}
        for r in results
        if r.error
    ]
    return Outcome(
        grouped, dict(experiments), rows(results, figures), ppw_gains(main),
        oracle_ratios(main), failed,
    )  # fmt: skip


def _figure(name: str, experiment: Experiment) -> str:
    ours = name in EXPERIMENTS and experiment.figures  # else two files may claim one figure
    return "fig" + "+".join(experiment.figures) if ours else name


def _only(board: Board, release: str) -> Board:
    return {key: cell for key, cell in board.items() if key.release == release}


def draw_charts(outcome: Outcome, workers: int) -> dict[str, list[Drawn]]:
    """Draw the charts of each experiment, over cores: each takes the better part of a second."""
    from joblib import delayed

    charts = {name: _charts(outcome, name) for name in outcome.experiments}
    every = [chart for group in charts.values() for chart in group]
    drawn = (delayed(stack)(chart.panels, chart.x_label) for chart in every)
    pictures = iter(parallel(at_most(workers, len(every)))(drawn))
    return {name: [(chart, next(pictures)) for chart in group] for name, group in charts.items()}


def _charts(outcome: Outcome, name: str) -> list[Chart]:
    experiment = outcome.experiments[name]
    figure = _figure(name, experiment)
    if experiment.schedule:
        return over_jobs(figure, outcome.results[name])
    releases = set(experiment.release)
    mine = [r for r in outcome.rows if r["figure"] == figure and r["release"] in releases]
    return over_rates(figure, mine)


def sections(outcome: Outcome, charts: Mapping[str, list[Drawn]]) -> list[Section]:
    """Make the sections on policies."""
    made = []
    boards = collect(result for found in outcome.results.values() for result in found)
    if any(entry["mean"] is not None for entry in (*outcome.gains["ztt"].values(),
                                                   outcome.gains["max"])):  # fmt: skip
        made.append(report.summary(outcome.gains, outcome.oracle))
    periodic, closed = _only(boards, "periodic"), _only(boards, "closed")
    if closed and outcome.gains["ztt"]:
        made.append(report.dependence(periodic, closed, ppw_gains))
    for name, experiment in outcome.experiments.items():
        figure = _figure(name, experiment)
        mine = [
            row for row in outcome.rows
            if row["figure"] == figure and row["release"] in experiment.release
        ]  # fmt: skip
        words = words_on(experiment.figures, mine)
        made.append(report.race(f"{figure}: {experiment.title}", mine, charts[name], words))
    if outcome.failed:
        made.append(report.failures(outcome.failed))
    return made


def extra_sections(parts: Sequence[str], args: argparse.Namespace) -> list[Section]:
    """Make the sections that are no race of policies."""
    made: list[Section] = []
    if any(part in SLOW for part in parts):
        errors: Any = importlib.import_module("bench.paper_estimators")
        workers = args.workers or 2
        makers: dict[str, Callable[[], Section]] = {
            "estimators": lambda: errors.compare(errors.all_models(), workers),
            "sampling": errors.sampling,
            "devices": lambda: errors.boards(workers),
        }
        made += [make() for part, make in makers.items() if part in parts]
    if "profiling" in parts:
        models = paper_numbers.PROFILING_MIN
        made.append(report.profiling({m: profiling_minutes("agx-orin", m) for m in models}))
    if "fastest" in parts:
        made.append(report.fastest(highest_clocks()))
    if "overhead" in parts:
        made.append(report.costs(overhead()))
    return made


def front(outcome: Outcome, made: Sequence[Section], *, quick: bool) -> str:
    """Lay out what a page shows: the gains and, of a full run, what they depend on."""
    command = f"flamegov bench paper{' --quick' if quick else ''}"
    texts = [main_table(outcome.gains, outcome.oracle, command)]
    if not quick:
        texts += [
            table_markdown(part)
            for section in made
            if section.title == report.DEPENDENCE
            for part in section.parts
            if isinstance(part, Table)
        ]
    return "\n\n".join(texts)


def save_beside(place: Path, outcome: Outcome, charts: Mapping[str, list[Drawn]]) -> None:
    """Write the rows as CSV and the charts as PNG beside the report.

    Raises:
        FlamegovError: A file cannot be written.
    """
    try:
        place.with_suffix(".csv").write_text(as_csv(outcome.rows), encoding="utf-8")
        for chart, picture in (drawn for group in charts.values() for drawn in group):
            place.with_name(f"{place.stem}-{chart.name}.png").write_bytes(picture.png)
    except OSError as error:
        raise FlamegovError(
            "cannot write beside the report", where=str(place.parent),
            why=error.strerror or str(error), hint="name another place with --report",
        ) from error  # fmt: skip


def as_csv(made: Sequence[Row]) -> str:
    """Write rows as CSV; the same rows give the same bytes."""
    if not made:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(made[0])
    for row in made:
        writer.writerow([_csv_cell(value) for value in row.values()])
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, list):
        return " ".join(f"{item:.{_DIGITS}g}" for item in value)
    return str(value)


def as_json(outcome: Outcome, place: Path) -> dict[str, Any]:
    """Lay the figures out for ``--json``."""
    return {
        "rows": outcome.rows,
        "ppw_gain_pct": outcome.gains,
        "flame_ppw_vs_oracle": outcome.oracle["ppw_vs_oracle"],
        "flame_miss_pct": outcome.oracle["miss_pct"],
        "flame_worst_miss_pct": outcome.oracle["worst_miss_pct"],
        "failed": outcome.failed,
        "report": str(place),
    }


def as_tables(made: Sequence[Section]) -> dict[str, list[dict[str, Any]]]:
    """Lay the tables of the report out, by heading, but for those whose rows stand in ``rows``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for section in made:
        for part in section.parts:
            if isinstance(part, Table) and part.headings != report.ROW_HEADINGS:
                rows = [dict(zip(part.headings, row, strict=True)) for row in part.rows]
                found.setdefault(section.title, []).extend(rows)
    return found


def as_text(outcome: Outcome, place: Path, *, own: bool) -> str:
    """Lay the main table out for a terminal, for one's own experiments every row as well."""
    for failed in outcome.failed:
        last = failed["error"].strip().splitlines()[-1]
        print(f"failed: {failed['policy']} on {failed['model']}: {last}", file=sys.stderr)
    parts = [f"Simulated. Report: {place}"]
    gains = [row for row in report.gain_rows(outcome.gains) if row[5] is not None]
    if gains:
        parts.insert(0, table_text(report.GAIN_HEADINGS, gains))
    if outcome.rows and (own or not gains):
        parts.insert(0, table_text(SHORT, [[row[key] for key in SHORT] for row in outcome.rows]))
    return "\n\n".join(parts)
