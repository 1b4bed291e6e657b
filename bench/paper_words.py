"""What the FLAME paper says of a figure, and in words where ours differs and why."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from bench import paper_numbers as paper
from bench.paper_tables import Row
from bench.pretty import cell_text

PLAIN, CAREFUL = ("flame", "no margin"), ("flame", "margin 5 %")
TIE = 1e-3
LATE_PCT = 1.0


def words_on(figures: Iterable[str], rows: Sequence[Row]) -> list[str]:
    """Write the paragraphs above an experiment.

    Args:
        figures: Numbers of the figures that it stands for.
        rows: Its rows.
    """
    if rows and all(row["release"] == "closed" for row in rows):
        return list(_closed())
    makers = dict.fromkeys(_MAKERS[number] for number in figures if number in _MAKERS)
    return [text for maker in makers for text in maker(rows) if text]


def _strategies(rows: Sequence[Row]) -> Iterator[str]:
    figures = [
        f"{row['policy']} {cell_text(row['mean_power_w'], 1)} W ({cell_text(row['miss_pct'], 1)} % "
        "late)"
        for row in rows
    ]
    yield (
        "The paper draws the three strategies without numbers: the deadline-aware one just on time "
        f"at the least power. Ours, 120 jobs of VGG16 at 40 per second: {', '.join(figures)}."
    )


def _dnn(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "The paper: nearly all governors reach 100 % QoS from 20 to 50 FPS, except DVFS-Com; FLAME "
        f"leads zTT by {paper.PPW_OVER_ZTT_PCT['dnn']:.2f} % PPW."
    )
    yield from _commercial(rows)
    yield from _over_rates(rows, ("max", ""))
    yield from _plain(rows)


def _slm(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        f"The paper: FLAME leads DVFS-MAX, DVFS-Com and zTT by {paper.PPW_OVER_MAX_PCT['slm']:.2f},"
        f" {paper.PPW_OVER_COM_PCT['slm']:.2f} and {paper.PPW_OVER_ZTT_PCT['slm']:.2f} % PPW at "
        "rates that it does not list."
    )
    yield from _over_rates(rows, ("max", ""))
    yield from _over_rates(rows, ("schedutil", "MAXN"))
    late = [r for r in rows if r["policy"] == "schedutil" and r["miss_pct"] > LATE_PCT]
    modes = sorted({row["variant"] for row in late})
    yield (
        "The paper's DVFS-Com frequently misses token rates; ours does so "
        + (f"only in the modes {', '.join(modes)}" if modes else "in no mode")
        + ": decoding keeps one CPU core busy, which schedutil answers with high clocks."
    )
    yield from _plain(rows)


def _closed() -> Iterator[str]:
    yield (
        "The same governors when each job starts as soon as the last has ended, which is how zTT's "
        "own code drives them: a fast policy then finishes early instead of idling."
    )


def _nx(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "The paper: on Orin NX all governors reach 100 % QoS on ResNet50, where FLAME and DVFS-Com "
        "are comparable in PPW; on GPT2-large MAX draws substantially more."
    )
    yield from _over_rates(rows, ("schedutil", "MAXN"))
    yield from _over_rates(rows, ("max", ""))
    yield from _plain(rows)


def _deadlines(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "The paper: the rate follows each new deadline and stays slightly above the required one. "
        "It does not say how many single jobs are late."
    )
    for who in (CAREFUL, PLAIN):
        for model, mine in _by_model(rows, who):
            worst = max(mine, key=lambda row: float(row["miss_pct"]))
            yield (
                f"{model}, {who[1]}: QoS at least {min(row['qos_run_pct'] for row in mine):.1f} % "
                f"in all stretches; at most {worst['miss_pct']:.1f} % of jobs late "
                f"(at {worst['deadline_ms']:g} ms)."
            )
    yield (
        "Without a margin, flame plans onto the deadline: the mean holds the rate, jitter decides "
        "over single jobs."
    )


def _concurrent(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "The paper: the rate falls when MobileNet starts and is restored, to no less than the "
        "desired level, once the correction is on."
    )
    for who in (CAREFUL, PLAIN):
        for model, mine in _by_model(rows, who):
            phases = [f"{row['qos_run_pct']:.1f} ({row['miss_pct']:.1f})" for row in mine]
            yield f"{model}, {who[1]}: QoS % (late %) by phase: {', '.join(phases)}."
    yield (
        "The correction restores the mean rate, as in the paper, but not the single jobs: "
        "MobileNet delays some jobs much and others not at all, and Eqs. 10 and 11 shift the table "
        "by the mean. That MobileNet draws power of its own is not simulated."
    )


_MAKERS: dict[str, Callable[[Sequence[Row]], Iterator[str]]] = {
    "10": _strategies, "12": _dnn, "13": _dnn, "14": _slm, "15": _slm, "19": _nx,
    "20": _deadlines, "21": _concurrent,
}  # fmt: skip


def _by_model(rows: Sequence[Row], who: tuple[str, str]) -> Iterator[tuple[str, list[Row]]]:
    """Group the stretches of a policy; a variant may carry notes behind its name."""
    mine = [r for r in rows if r["policy"] == who[0] and r["variant"].split(",")[0] == who[1]]
    for model in sorted({row["model"] for row in mine}):
        yield model, sorted((r for r in mine if r["model"] == model), key=lambda r: r["stretch"])


def _commercial(rows: Sequence[Row]) -> Iterator[str]:
    for model, theirs in paper.COM_QOS_AT_50_PCT.items():
        at_50 = [
            f"{row['variant']}: {cell_text(row['qos_run_pct'])} % ({cell_text(row['miss_pct'], 1)}"
            " % late)"
            for row in rows
            if (row["model"], row["policy"], row["rate_hz"]) == (model, "schedutil", 50.0)
        ]
        if at_50:
            yield (
                f"DVFS-Com on {model} at 50 FPS: the paper has {theirs:.2f} % QoS, in a power mode "
                f"it does not name; ours by mode: {'; '.join(at_50)}. The cap of the power mode, "
                "not the governor, decides this figure (that the 30 W mode of a board also turns "
                "off a part of the GPU is not simulated)."
            )


def _over_rates(rows: Sequence[Row], other: tuple[str, str]) -> Iterator[str]:
    """Say how the lead over another policy depends on the rate."""
    leads: dict[str, list[tuple[float, float]]] = {}
    for row, ours in _pairs(rows, other, CAREFUL):
        lead = 100.0 * (ours["ppw"] / row["ppw"] - 1.0)
        leads.setdefault(row["model"], []).append((row["rate_hz"], lead))
    texts = []
    for model, found in leads.items():
        parts = [f"{lead:+.0f} % at {rate:g}/s" for rate, lead in sorted(found)]
        texts.append(f"{model} {', '.join(parts)}")
    if texts:
        name = " ".join(other).strip()
        yield f"PPW of flame (margin 5 %) over {name}, by rate: {'; '.join(texts)}."


def _plain(rows: Sequence[Row]) -> Iterator[str]:
    pairs = list(_pairs(rows, ("oracle", ""), PLAIN))
    ties = [_name(ours) for row, ours in pairs if abs(ours["ppw"] - row["ppw"]) < TIE * row["ppw"]]
    if ties:
        yield (
            f"In {len(ties)} of {len(pairs)} cells ({', '.join(ties)}) flame without a margin "
            "draws what the oracle draws."
        )
    late = [
        f"{_name(ours)} ({ours['miss_pct']:.1f} %)"
        for _, ours in pairs
        if ours["miss_pct"] > LATE_PCT
    ]
    if late:
        yield (
            "Without a margin, as in the paper, flame plans onto the deadline, and jitter makes "
            f"it late on more than {LATE_PCT:g} % of jobs in: {', '.join(late)}."
        )


def _pairs(
    rows: Sequence[Row], other: tuple[str, str], own: tuple[str, str]
) -> Iterator[tuple[Row, Row]]:
    """Pair the rows of two policies in the cells that have both."""
    cells: dict[tuple[str, float], dict[tuple[str, str], Row]] = {}
    for row in rows:
        cell = cells.setdefault((row["model"], row["rate_hz"]), {})
        cell[row["policy"], row["variant"]] = row
    for cell in cells.values():
        if other in cell and own in cell:
            yield cell[other], cell[own]


def _name(row: Row) -> str:
    return f"{row['model']} {row['rate_hz']:g}/s"
