"""From results to the rows, gains and ratios that the report and ``--json`` show."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.harness import Result
from bench.harness_score import Metrics, gain_pct, interval, mean
from bench.plant.board import load_board
from bench.plant.workload import get_workload

Row = dict[str, Any]

SCORED, ALL = "scored", "all"
WINDOWS = {SCORED: "after learning", ALL: "all decisions"}

FEASIBLE_MISS_PCT = 2.0
"""A deadline is feasible if the oracle, which allows itself 1 %, is late on no more than this."""

_MEANS = (
    "qos_run_pct", "qos_job_pct", "miss_pct", "miss_from_release_pct", "mean_power_w", "ppw",
    "energy_mj_per_job",
    "energy_mj_per_on_time_job", "switches_per_s", "mean_cpu_hz", "mean_gpu_hz",
)  # fmt: skip


class CellKey(NamedTuple):
    """What policies are compared on."""

    experiment: str
    board: str
    model: str
    rate_hz: float
    release: str


class Contestant(NamedTuple):
    """A policy with its variant, the window that is scored, and what it works with.

    Attributes:
        policy: Its name.
        variant: Its variant.
        window: What is scored of it.
        table: Kind of table that it knows.
        mode: Power mode, if another than the board's default.
    """

    policy: str
    variant: str
    window: str = SCORED
    table: str = "estimated"
    mode: str = ""

    @property
    def label(self) -> str:
        """Variant and window for people."""
        parts = [self.variant] if self.variant else []
        return "; ".join([*parts, WINDOWS[self.window]] if self.policy == "ztt" else parts)


Board = dict[CellKey, dict[Contestant, list[Metrics]]]
"""Runs of every contestant in every cell."""


def collect(results: Iterable[Result]) -> Board:
    """Sort the runs that did not fail; those that count jobs are no race."""
    board: Board = {}
    for result in results:
        if result.error or result.unit.cell.segments[0].jobs:
            continue
        cell, entry = result.unit.cell, result.unit.policy
        key = CellKey(result.unit.experiment, cell.board, cell.model, cell.rate_hz, cell.release)
        # "" and the name of the board's own mode are one.
        mode = "" if cell.mode == load_board(cell.board).default_mode else cell.mode
        for window in (SCORED, ALL) if entry.learn_s else (SCORED,):
            runs = [run[window] for run in result.runs]
            who = Contestant(entry.name, entry.variant, window, entry.table, mode)
            board.setdefault(key, {})[who] = runs
    return board


def rows(results: Sequence[Result], figures: dict[str, str]) -> list[Row]:
    """Make a row for each contestant in each cell, and for each stretch of a run that counts jobs.

    Args:
        results: What was run.
        figures: Figure of the paper by name of the experiment.
    """
    board = collect(results)
    made = [
        _row(key, figures[key.experiment], who, runs, _oracle_ppw(cell))
        for key, cell in board.items()
        for who, runs in cell.items()
    ]
    for result in results:
        if not result.error and result.unit.cell.segments[0].jobs:
            made += _segment_rows(result, figures[result.unit.experiment])
    return sorted(made, key=_order)


def _order(row: Row) -> tuple[Any, ...]:
    names = ("figure", "board", "model", "release", "stretch", "rate_hz", "policy", "variant")
    return tuple(row[name] for name in names)


def _row(
    key: CellKey, figure: str, who: Contestant, runs: list[Metrics], oracle_ppw: float | None
) -> Row:
    own = mean(runs, "ppw")
    return {
        "figure": figure,
        "board": key.board,
        "model": key.model,
        "policy": who.policy,
        "variant": who.label,
        "deadline_ms": round(1e3 / key.rate_hz, 6),
        "rate_hz": round(key.rate_hz, 6),
        "release": key.release,
        "stretch": 0,
        "seeds": len(runs),
        **_figures(runs),
        "ppw_vs_oracle": own / oracle_ppw if own and oracle_ppw else None,
    }


def _figures(runs: list[Metrics]) -> Row:
    tails = {
        f"lateness_{name.replace('.', '_')}_us": float(
            np.mean([run["lateness_us"][name] for run in runs])
        )
        for name in runs[0]["lateness_us"]
    }
    bounds = {f"{key}_ci95": interval(runs, key) for key in ("miss_pct", "qos_run_pct", "ppw")}
    return {**{key: mean(runs, key) for key in _MEANS}, **tails, **bounds}


def _segment_rows(result: Result, figure: str) -> Iterator[Row]:
    cell, entry = result.unit.cell, result.unit.policy
    for index, segment in enumerate(cell.segments):
        runs = [run["segments"][index] for run in result.runs]
        key = CellKey(
            result.unit.experiment, cell.board, cell.model, 1e3 / segment.deadline_ms, cell.release
        )
        notes = [f"beside {segment.world}"] if segment.world != "plain" else []
        notes += [f"{name} {value}" for name, value in segment.options.items()]
        variant = ", ".join([entry.variant, *notes]) if entry.variant else ", ".join(notes)
        row = _row(key, figure, Contestant(entry.name, variant), runs, None)
        yield {**row, "stretch": index + 1}


def _oracle_ppw(cell: dict[Contestant, list[Metrics]]) -> float | None:
    runs = cell.get(Contestant("oracle", ""))
    return mean(runs, "ppw") if runs else None


def ppw_gains(board: Board) -> dict[str, Any]:
    """Compare flame with all others; see the report's words on how margins are matched.

    Returns:
        ``ztt``: by variant; ``max``; ``schedutil``: MAXN, with the other modes in ``by_mode``.
    """
    others = sorted({who for cell in board.values() for who in cell if who.policy == "ztt"})
    modes = sorted({who for cell in board.values() for who in cell if who.policy == "schedutil"})
    com = {who.variant: gain(board, who) for who in modes}
    return {
        "ztt": {who.label: gain(board, who) for who in others},
        "max": gain(board, Contestant("max", "")),
        "schedutil": {**com.get("MAXN", {}), "by_mode": com},
    }


def gain(board: Board, other: Contestant) -> dict[str, Any]:
    """Tell how many percent flame's PPW is above another's, each at its own rates.

    Both are in the same power mode. In each cell the flame is the one of best PPW among the margins
    whose share of late jobs is no higher than the other's, or, if all are later, the one that is
    late least.
    """
    cells = [(key, cell) for key, cell in board.items() if other in cell]
    groups = {
        "dnn": [c for k, c in cells if not _is_language_model(k.model)],
        "slm": [c for k, c in cells if _is_language_model(k.model)],
        "all": [c for _, c in cells],
    }
    found = {name: _gain_over(group, other) for name, group in groups.items()}
    chosen = [matched(cell, other) for cell in groups["all"]]
    pairs = [(who, cell) for who, cell in zip(chosen, groups["all"], strict=True) if who]
    variant = f"no margin, {other.mode}" if other.mode else "no margin"
    no_margin = Contestant("flame", variant, mode=other.mode)
    plain = [cell for _, cell in pairs if no_margin in cell]
    plain_gain = gain_pct(
        [_ppw(cell[no_margin]) for cell in plain], [_ppw(cell[other]) for cell in plain]
    )
    return {
        "dnn": found["dnn"]["mean"],
        "slm": found["slm"]["mean"],
        "mean": found["all"]["mean"],
        "ci95": found["all"]["ci95"],
        "cells": found["all"]["cells"],
        "seeds": found["all"]["seeds"],
        "flame_miss_pct": _average([mean(cell[who], "miss_pct") for who, cell in pairs]),
        "miss_pct": _average([mean(cell[other], "miss_pct") for _, cell in pairs]),
        "qos_gain_pct": _average(
            [
                100.0 * (_mean_of(cell[who], "qos_run_pct") / _mean_of(cell[other], "qos_run_pct"))
                - 100.0
                for who, cell in pairs
            ]
        ),
        "no_margin": plain_gain["mean"],
        "cells_flame_later": sum(
            _mean_of(cell[who], "miss_pct") > _mean_of(cell[other], "miss_pct")
            for who, cell in pairs
        ),
    }


def matched(cell: dict[Contestant, list[Metrics]], other: Contestant) -> Contestant | None:
    """Choose the flame that is compared with another policy in a cell; None if none ran."""
    ours = [
        who for who in cell
        if (who.policy, who.table, who.mode) == ("flame", "estimated", other.mode)
    ]  # fmt: skip
    if not ours:
        return None
    limit = _mean_of(cell[other], "miss_pct")
    on_time = [who for who in ours if _mean_of(cell[who], "miss_pct") <= limit]
    if on_time:
        return max(on_time, key=lambda who: _mean_of(cell[who], "ppw"))
    return min(ours, key=lambda who: _mean_of(cell[who], "miss_pct"))


def oracle_ratios(board: Board) -> dict[str, Any]:
    """Set flame against the minimum-power oracle, over the cells with a feasible deadline.

    Returns:
        ``ppw_vs_oracle``, ``miss_pct`` and ``worst_miss_pct`` (in the worst cell), each by margin,
        and the number of ``cells``.
    """
    oracle = Contestant("oracle", "")
    cells = [
        cell for cell in board.values()
        if oracle in cell and _mean_of(cell[oracle], "miss_pct") <= FEASIBLE_MISS_PCT
    ]  # fmt: skip
    result: dict[str, Any] = {
        "ppw_vs_oracle": {}, "miss_pct": {}, "worst_miss_pct": {}, "cells": len(cells),
    }  # fmt: skip
    for name, variant in (("margin_0", "no margin"), ("margin_default", "margin 5 %")):
        who = Contestant("flame", variant)
        mine = [cell for cell in cells if who in cell]
        ratios = [_mean_of(c[who], "ppw") / _mean_of(c[oracle], "ppw") for c in mine]
        result["ppw_vs_oracle"][name] = _average(ratios)
        late = [_mean_of(c[who], "miss_pct") for c in mine]
        result["miss_pct"][name] = _average(late)
        result["worst_miss_pct"][name] = max(late, default=None)
    return result


def _gain_over(cells: Sequence[dict[Contestant, list[Metrics]]], other: Contestant) -> Row:
    pairs = [(cell[who], cell[other]) for cell in cells if (who := matched(cell, other))]
    return gain_pct([_ppw(a) for a, _ in pairs], [_ppw(b) for _, b in pairs])


def _ppw(runs: list[Metrics]) -> list[float]:
    return [float(run["ppw"]) for run in runs]


def _mean_of(runs: list[Metrics], key: str) -> float:
    return float(np.mean([run[key] for run in runs]))


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _is_language_model(model: str) -> bool:
    return bool(get_workload(model).network.max_context)
