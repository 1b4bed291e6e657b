"""The parts of the report: each figure of the paper, its number beside ours, and words on both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import paper_numbers as paper
from bench.charts import Picture
from bench.paper_charts import Chart
from bench.paper_extra import Top
from bench.paper_tables import Board, Row
from bench.pretty import Cell
from bench.report import Figure, Part, Section, Table, Text

GAIN_HEADINGS = (
    "flame against", "DNN %", "paper DNN %", "SLM %", "paper SLM %", "mean %", "95 % from", "to",
    "late: flame %", "late: other %", "mean %, no margin", "QoS gain %", "cells", "flame later in",
    "seeds",
)  # fmt: skip
ROW_HEADINGS = (
    "model", "policy", "variant", "rate /s", "release", "QoS run %", "QoS job %", "late %",
    "late from release %", "W", "PPW", "PPW / oracle", "mJ per job", "mJ per on-time job",
    "p99 late ms", "p99.9 late ms", "changes /s", "seeds",
)  # fmt: skip

DEPENDENCE = "What the lead over zTT depends on"


def summary(gains: Mapping[str, Any], oracle: Mapping[str, Any]) -> Section:
    """Put the paper's headline figures beside ours."""
    parts: list[Part] = [
        Text(
            "All figures are simulated. PPW is QoS (percent, over a run) per watt of mean power of "
            "the whole module, idle time included. In each cell flame takes the margin of best PPW "
            "among 0, 2 and 5 % that makes it late no more often than the policy it is compared "
            "with, in the same power mode (where all are later, the one that is late least; the "
            "table counts such cells); the column 'no margin' is the paper's own form, whatever it "
            "misses. Intervals: seeds drawn with replacement, both policies at the same seeds."
        ),
        Table(GAIN_HEADINGS, gain_rows(gains), "PPW of flame above that of others, periodic jobs"),
        Text(_against_ztt(gains)),
    ]
    ratios, misses = oracle["ppw_vs_oracle"], oracle["miss_pct"]
    if oracle["cells"]:
        parts.append(
            Table(
                ("flame", "PPW / oracle", "late %", "late % in the worst cell"),
                [
                    (name, ratios[key], misses[key], oracle["worst_miss_pct"][key])
                    for name, key in (("no margin", "margin_0"), ("margin 5 %", "margin_default"))
                ],
                f"Against the minimum-power oracle, {oracle['cells']} cells with a feasible "
                "deadline; without a margin flame may beat it by being late more often",
                digits=3,
            )
        )
    return Section("Power efficiency at equal lateness", parts)


def gain_rows(gains: Mapping[str, Any]) -> list[list[Cell]]:
    """Lay the gains out under :data:`GAIN_HEADINGS`."""
    rows = [
        _gain_row(f"ztt: {name}", found, paper.PPW_OVER_ZTT_PCT)
        for name, found in gains["ztt"].items()
    ]
    rows.append(_gain_row("max", gains["max"], paper.PPW_OVER_MAX_PCT))
    for mode, found in gains["schedutil"].get("by_mode", {}).items():
        rows.append(_gain_row(f"schedutil: {mode}", found, paper.PPW_OVER_COM_PCT))
    return rows


def _gain_row(name: str, found: Mapping[str, Any], theirs: Mapping[str, float]) -> list[Cell]:
    low, high = found["ci95"] or (None, None)
    return [
        name, found["dnn"], theirs.get("dnn"), found["slm"], theirs.get("slm"), found["mean"],
        low, high, found["flame_miss_pct"], found["miss_pct"], found["no_margin"],
        found["qos_gain_pct"], found["cells"], found["cells_flame_later"], found["seeds"],
    ]  # fmt: skip


def _against_ztt(gains: Mapping[str, Any]) -> str:
    known = {name: found for name, found in gains["ztt"].items() if found["mean"] is not None}
    if not known:
        return "No run of zTT is part of this report."
    least = min(known, key=lambda name: known[name]["mean"])
    most = max(known, key=lambda name: known[name]["mean"])
    worse = [name for name, found in known.items() if (found["ci95"] or [0.0])[0] < 0]
    verdict = (
        "No variant has a better PPW than flame within its interval."
        if not worse
        else f"The interval reaches below zero against: {', '.join(worse)}."
    )
    return (
        f"The paper reports {paper.PPW_OVER_ZTT_PCT['mean']:+.2f} % PPW and "
        f"{paper.QOS_OVER_ZTT_PCT:+.2f} % QoS over zTT without saying which levels, power scale "
        f"or learning time it had. Ours spans {known[least]['mean']:+.1f} % ({least}) to "
        f"{known[most]['mean']:+.1f} % ({most}). {verdict} QoS hides lateness, since early jobs "
        "pay for late ones: compare the shares of late jobs instead."
    )


def dependence(periodic: Board, closed: Board, gains_of: Callable[[Board], Any]) -> Section:
    """Show how much of the lead over zTT hangs on levels, learning and pacing."""
    shared = {(key.board, key.model, key.rate_hz) for key in closed}
    same = {k: v for k, v in periodic.items() if (k.board, k.model, k.rate_hz) in shared}
    columns = {"periodic": gains_of(same)["ztt"], "closed": gains_of(closed)["ztt"]}
    names = sorted({name for found in columns.values() for name in found})
    rows: list[list[Cell]] = []
    for name in names:
        variant, _, window = name.partition("; ")
        row: list[Cell] = [variant, window]
        for found in columns.values():
            entry = found.get(name, {"mean": None, "ci95": None, "miss_pct": None})
            row += [entry["mean"], *(entry["ci95"] or (None, None)), entry["miss_pct"]]
        rows.append(row)
    return Section(
        DEPENDENCE,
        [
            Text(
                "The same models and rates, with jobs released once per deadline (idle power "
                "counts) and back to back (each job starts when the last has ended, so that early "
                "jobs do not idle). 'All decisions' includes the 150 seconds in which zTT learns."
            ),
            Table(
                (
                    "zTT variant",
                    "window",
                    "periodic: flame %",
                    "from",
                    "to",
                    "zTT late %",
                    "closed: flame %",
                    "from",
                    "to",
                    "zTT late %",
                ),  # fmt: skip
                rows,
                f"PPW of flame above zTT's, {len(same)} cells periodic, {len(closed)} closed",
            ),
        ],
    )


def race(
    title: str, rows: Sequence[Row], charts: Sequence[tuple[Chart, Picture]], words: Sequence[str]
) -> Section:
    """Show the rows and charts of one experiment."""
    parts: list[Part] = [Text(text) for text in words]
    parts += [Figure(picture.svg, chart.caption) for chart, picture in charts]
    parts.append(Table(ROW_HEADINGS, [_race_row(row) for row in rows]))
    return Section(title, parts)


def _race_row(row: Row) -> list[Cell]:
    keys = (
        "model", "policy", "variant", "rate_hz", "release", "qos_run_pct", "qos_job_pct",
        "miss_pct", "miss_from_release_pct", "mean_power_w", "ppw", "ppw_vs_oracle",
        "energy_mj_per_job",
        "energy_mj_per_on_time_job",
    )  # fmt: skip
    tails = [row["lateness_p99_us"] / 1e3, row["lateness_p99_9_us"] / 1e3]
    return [*(row[key] for key in keys), *tails, row["switches_per_s"], row["seeds"]]


def profiling(minutes: Mapping[str, Mapping[str, float]]) -> Section:
    """Set the time that profiling takes beside Tables I and II."""
    rows = [
        (model, found["sparse"], paper.PROFILING_MIN[model][0], found["full"],
         paper.PROFILING_MIN[model][1], found["full"] / found["sparse"])
        for model, found in minutes.items()
    ]  # fmt: skip
    headings = (
        "model", "sparse min", "paper: sparse", "full min", "paper: full", "full / sparse",
    )  # fmt: skip
    return Section(
        "Tables I and II: time that profiling takes",
        [
            Text(
                "Simulated: the latency at every point times the paper's number of runs (400 for "
                "DNNs, 5 per token for SLMs). Sparse is every fourth clock and every 90th token. "
                "Ours takes longer than the paper's because both ends of each list are among its "
                "levels, 32 of 319 pairs instead of a sixteenth, and they include the slowest."
            ),
            Table(headings, rows, digits=1),
        ],
    )


def fastest(found: Sequence[Top]) -> Section:
    """Say how often the highest clocks are not the fastest ones."""
    words = (
        "A table can say that lower clocks are faster, and flame then chooses them; MAX cannot. On "
        "the simulated board the highest clocks are always the fastest. "
    )
    if any(top.not_fastest for top in found):
        words += (
            "In the measured grid they often are not: part of that is the scatter of single runs, "
            "part is real (an Orin Nano runs one workload that fits its cache 8 % slower at 1020 "
            "than at 918 MHz)."
        )
    else:
        words += "Measured grids, where they are not always, can be named by FLAMEGOV_DATA."
    headings = ("grid", "cases", "MAX not fastest", "slower by at most %", "where")
    return Section("MAX is not always the fastest", [Text(words), Table(headings, found)])


def costs(found: Mapping[str, Any]) -> Section:
    """Set what deciding costs beside the paper's overhead."""
    rows: list[tuple[Cell, ...]] = [
        ("flame: one decision", found["flame_decide_us"]["p50"], found["flame_decide_us"]["p99"],
         found["flame_w"]),
        ("zTT: a decision between intervals", found["ztt_decide_us"]["p50"],
         found["ztt_decide_us"]["p99"], None),
        ("zTT: a step that trains", found["ztt_step_us"]["p50"], found["ztt_step_us"]["p99"],
         found["ztt_w"]),
    ]  # fmt: skip
    return Section(
        "What deciding costs",
        [
            Text(
                f"Times measured on the machine named below. Watts: share of one core at "
                f"{found['jobs_per_s']:g} jobs per second (zTT: one step per second) times the "
                f"{found['core_w']:.2f} W that a busy core adds at its highest clock, simulated. "
                f"The paper states {paper.OVERHEAD_W} W and {paper.ESTIMATE_MS} ms per estimation; "
                "ours looks the latency up in a table that was estimated beforehand. The whole "
                "daemon, messages included, is measured by flamegov bench overhead."
            ),
            Table(("what", "p50 us", "p99 us", "W"), rows, digits=4),
        ],
    )


def failures(failed: Sequence[Mapping[str, str]]) -> Section:
    """List the runs that failed."""
    rows = [(f["policy"], f["model"], f["error"].strip().splitlines()[-1]) for f in failed]
    return Section("Runs that failed", [Table(("policy", "model", "error"), rows)])
