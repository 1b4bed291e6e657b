"""Estimator errors for Figs. 11 and 16 to 18, from the estimator bench on the simulated board."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench import paper_numbers as paper
from bench.estimators_plant import MODELS, Task, devices, run_tasks, sweep
from bench.estimators_profile import Subject
from bench.plant.workload import get_workload
from bench.pretty import Cell
from bench.report import Section, Table, Text

NAMES = {
    "maxplus": "FLAME, max-plus (default)",
    "paper": "FLAME, Eqs. 1-9",
    "analytic": "Lat-Analytic",
    "mlp": "Lat-Learn",
    "no_module": "w/o module",
    "no_aggregation": "w/o aggregation",
}
CONTEXT_STEP = 256


def compare(models: Sequence[str], workers: int) -> Section:
    """Fig. 11 and Fig. 16: error of each estimator on each model."""
    tasks = [Task(Subject(model), tuple(NAMES), CONTEXT_STEP) for model in models]
    found = [
        {name: score.mape for name, score in scores.items()} for scores in run_tasks(tasks, workers)
    ]
    rows: list[list[Cell]] = [
        [model, *(scores[name] for name in NAMES)]
        for model, scores in zip(models, found, strict=True)
    ]
    rows.append(["mean", *(_mean(found, name) for name in NAMES)])
    rows.append(["paper, mean of six", *(paper.MAPE_PCT.get(name) for name in NAMES)])
    return Section(
        "Figs. 11 and 16: estimation error and ablation",
        [
            Text(
                "Mean absolute percentage error over all clock pairs and contexts up to 1024 "
                "tokens, one seed, against the noise-free latency (simulated). Layers on the plant "
                "meet as on a timeline of launches and kernels, which is what the default assumes: "
                "its column proves consistency, not accuracy on a board (flamegov bench estimators "
                "has departures from it and measured grids). " + _ablation_words(models, found)
            ),
            Table(("model", *NAMES.values()), rows),
        ],
    )


def sampling() -> Section:
    """Fig. 17: error against the sampling interval."""
    found = sweep(CONTEXT_STEP)
    rows: list[tuple[Cell, ...]] = [
        (domain, model, interval, error,
         paper.INTERVAL_MAPE_PCT[model].get(interval) if domain == "cpu" else None)
        for domain, models in found.items()
        for model, errors in models.items()
        for interval, error in errors.items()
    ]  # fmt: skip
    headings = ("interval of", "model", "interval", "error %", "paper %")
    words = (
        "The paper loses 0.2 to 1.2 points from interval 1 to 4. Here the form of the layers is "
        "right and only noise is left to average, so that the errors are far smaller at all "
        "intervals."
    )
    return Section("Fig. 17: sampling interval", [Text(words), Table(headings, rows)])


def boards(workers: int) -> Section:
    """Fig. 18: error on two boards."""
    found = devices(workers, CONTEXT_STEP)
    columns = list(next(iter(found.values())))
    rows = [[name, *(errors[column] for column in columns)] for name, errors in found.items()]
    return Section(
        "Fig. 18: estimation error on two boards",
        [
            Text(
                "The paper shows FLAME best on both boards, slightly worse on Orin NX, where the "
                "system disturbs more. The order is the same here, the distance larger (see above)."
            ),
            Table(("board and model", *(NAMES.get(c, c) for c in columns)), rows),
        ],
    )


def all_models() -> tuple[str, ...]:
    """Name the six models of the paper."""
    return MODELS


def _mean(found: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(scores[name] for scores in found) / len(found)


def _ablation_words(models: Sequence[str], found: Sequence[Mapping[str, Any]]) -> str:
    words = []
    for name, theirs in paper.ABLATION_CUT_PCT.items():
        for group in ("dnn", "slm"):
            mine = [
                scores
                for model, scores in zip(models, found, strict=True)
                if bool(get_workload(model).network.max_context) == (group == "slm")
            ]
            if mine:
                cut = 100.0 * (1.0 - _mean(mine, "paper") / _mean(mine, name))
                words.append(
                    f"{NAMES[name]}, {group.upper()}: Eqs. 1-9 err {cut:.1f} % less "
                    f"(paper {theirs[group]:.2f} %)."
                )
    return " ".join(words)
