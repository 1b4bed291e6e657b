"""The FLAME estimator and its rivals on the simulated board, over all clock pairs.

Every estimator sees the same design: 24 clock pairs for layers and, for those that see only whole
runs, 24 runs of the model at the same pairs; the two that work from few runs (the anchored timeline
and the bilinear interpolation) share nine. Truth is the plant's noise-free latency.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.estimators_profile import (
    Subject,
    anchor_conditions,
    default_contexts,
    geometric_points,
    interval_points,
    per_op,
    profile_layers,
    run_samples,
    with_places,
    with_runs,
)
from bench.plant.worlds import WORLDS
from estimators.baselines import (
    AnalyticEstimator,
    BilinearEstimator,
    ConstantEstimator,
    Estimator,
    FixedEstimator,
    MlpEstimator,
    OverContext,
)
from estimators.endtoend import EndToEndEstimator
from estimators.flame import FlameEstimator, Mode
from estimators.flame.unseen import complete_layers
from estimators.profiles import Profile, check_profile, merge_profiles

Array = NDArray[np.float64]
Predict = Callable[[Sequence[int]], Array]

MODELS = ("resnet50", "vgg16", "densenet121", "gpt2-large", "qwen2-1.5b", "qwen2-7b")
"""The six models of the paper."""

LAYER_MODES: dict[str, Mode] = {
    "paper": "paper",
    "paper_literal": "paper-literal",
    "paper_insitu": "paper-insitu",
    "sum_max": "sum-max",
    "no_module": "no-module",
    "no_aggregation": "no-aggregation",
}
RUN_METHODS: dict[str, Callable[[], Estimator]] = {
    "end_to_end": EndToEndEstimator,
    "fixed": FixedEstimator,
    "constant": ConstantEstimator,
    "analytic": AnalyticEstimator,
    "analytic_ols": partial(AnalyticEstimator, relative=False),
    "mlp": MlpEstimator,
}
COLUMNS = ("maxplus", "zero_run", "bilinear", *LAYER_MODES, *RUN_METHODS)

LEVELS = (4, 6)
"""CPU and GPU levels of the default design: 24 of 319 pairs."""

_RUN_CONTEXTS = 3  # contexts at which whole runs are made for estimators that know no context


class Score(NamedTuple):
    """Errors over all pairs and contexts, percent."""

    mape: float
    worst: float


@dataclass(frozen=True, slots=True)
class Task:
    """One model under one seed in one world.

    Attributes:
        subject: What runs where.
        columns: Estimators to score.
        context_step: Tokens between evaluated contexts.
    """

    subject: Subject
    columns: tuple[str, ...]
    context_step: int = 64


def evaluated_contexts(subject: Subject, step: int) -> list[int]:
    """Contexts to score at: both ends and every ``step`` tokens, off the profiled ones."""
    if not subject.longest:
        return [0]
    return sorted({1, *range(step // 2 + 1, subject.longest, step), subject.longest})


def run_task(task: Task) -> dict[str, Score]:
    """Profile, fit and score."""
    subject = task.subject
    profile = make_profile(subject, places="paper_insitu" in task.columns)
    contexts = evaluated_contexts(subject, task.context_step)
    truth = subject.truth_us(contexts)
    predictors = _predictors(subject, profile, task.columns)
    return {name: _score(predictors[name](contexts), truth) for name in task.columns}


def make_profile(
    subject: Subject, *, levels: tuple[int, int] = LEVELS, places: bool = False
) -> Profile:
    """Profile with the default design: layers, nine anchor runs, and places if asked for."""
    points = geometric_points(subject.spec, *levels)
    profile = profile_layers(subject, points, default_contexts(subject))
    profile = with_runs(profile, subject.model, run_samples(subject, anchor_conditions(subject)))
    if places:
        contexts = _run_contexts(subject)
        profile = with_places(profile, subject, points, contexts)
    return check_profile(profile)


def _run_contexts(subject: Subject) -> list[int]:
    if not subject.longest:
        return [0]
    return [int(t) for t in np.linspace(1, subject.longest, _RUN_CONTEXTS)]


def _predictors(subject: Subject, profile: Profile, columns: Sequence[str]) -> dict[str, Predict]:
    spec, model = subject.spec, subject.model
    found: dict[str, Predict] = {}
    anchored = FlameEstimator().fit(profile, model)
    layered = {"maxplus": anchored, "zero_run": anchored.joined("maxplus")}
    if LAYER_MODES.keys() & set(columns):
        paper = FlameEstimator(mode="paper").fit(profile, model)
        layered |= {name: paper.joined(mode) for name, mode in LAYER_MODES.items()}
    if "paper_insitu" in columns:
        layered["paper_insitu"] = FlameEstimator(mode="paper-insitu").fit(profile, model)
    found |= {
        name: partial(_on_grid, layered[name], subject) for name in columns if name in layered
    }
    run_columns = [name for name in columns if name in RUN_METHODS]
    if run_columns:
        points = geometric_points(spec, *LEVELS)
        conditions = [(c, g, k) for k in _run_contexts(subject) for c, g in points]
        runs = run_samples(subject, conditions, stream=4)
        for name in run_columns:
            found[name] = partial(_on_grid, OverContext(RUN_METHODS[name]).fit(runs), subject)
    if "bilinear" in columns:
        nine = [(c, g) for c, g, _ in anchor_conditions(subject)]
        ends = (1, subject.longest) if subject.longest else (0,)
        runs = run_samples(subject, [(c, g, k) for k in ends for c, g in nine])
        found["bilinear"] = partial(_on_grid, OverContext(BilinearEstimator).fit(runs), subject)
    return found


def _on_grid(
    estimator: FlameEstimator | OverContext, subject: Subject, contexts: Sequence[int]
) -> Array:
    spec = subject.spec
    return estimator.predict(spec.cpu_hz, spec.gpu_hz, emc_hz=subject.memory_hz, context=contexts)


def _score(estimate: Array, truth: Array) -> Score:
    error = np.abs(estimate / truth - 1) * 100
    return Score(float(error.mean()), float(error.max()))


def run_tasks(tasks: Sequence[Task], workers: int = 2) -> list[dict[str, Score]]:
    """Run tasks in processes; results in order."""
    # One thread each: the matrices are small, and the workers are the parallelism.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if workers <= 1:
        return [run_task(task) for task in tasks]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run_task, tasks))


def compare_models(seeds: int, paired: int, context_step: int, workers: int) -> dict[str, Any]:
    """Score every estimator on the six models.

    Args:
        seeds: Seeds under which all columns are scored.
        paired: Seeds under which ``maxplus``, ``zero_run`` and ``bilinear`` are scored.
        context_step: Tokens between evaluated contexts.
        workers: Processes.

    Returns:
        ``models``, ``mean`` and ``worst_cell`` by column, the six-model mean of each seed, and 95 %
        intervals of paired differences.
    """
    few = ("maxplus", "zero_run", "bilinear")
    tasks = [
        Task(Subject(model, seed=seed), COLUMNS if seed < seeds else few, context_step)
        for seed in range(max(seeds, paired))
        for model in MODELS
    ]
    scores = run_tasks(tasks, workers)
    by_model: dict[str, dict[str, list[Score]]] = {m: {c: [] for c in COLUMNS} for m in MODELS}
    for task, found in zip(tasks, scores, strict=True):
        for name, value in found.items():
            by_model[task.subject.model][name].append(value)
    models = {
        m: {c: float(np.mean([s.mape for s in rows])) for c, rows in columns.items()}
        for m, columns in by_model.items()
    }
    return {
        "models": models,
        "mean": {c: float(np.mean([models[m][c] for m in MODELS])) for c in COLUMNS},
        "worst_cell": {c: max(s.worst for m in MODELS for s in by_model[m][c]) for c in COLUMNS},
        "paired": {
            other: paired_interval(_per_seed(by_model, "maxplus"), _per_seed(by_model, other))
            for other in ("zero_run", "bilinear")
        },
        "seeds": {"all": seeds, "paired": max(seeds, paired)},
    }


def _per_seed(by_model: dict[str, dict[str, list[Score]]], column: str) -> Array:
    """MAPE by seed and model, ``[seeds, models]``."""
    table: Array = np.array([[s.mape for s in by_model[m][column]] for m in MODELS]).T
    return table


def paired_interval(ours: Array, theirs: Array, draws: int = 2000) -> dict[str, Any]:
    """Bootstrap the mean difference by seed.

    A win needs two seeds or more and a 95 % interval that excludes zero.

    Args:
        ours: Errors, ``[seeds, models]``; a seed is a block.
        theirs: The same of the other estimator.
        draws: Resamples.
    """
    difference = (ours - theirs).mean(axis=1)
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(difference), (draws, len(difference)))
    low, high = np.quantile(difference[picks].mean(axis=1), (0.025, 0.975))
    return {
        "difference": float(difference.mean()),
        "low": float(low),
        "high": float(high),
        "win": bool(high < 0) and len(difference) > 1,
    }


def compare_worlds(models: Sequence[str], context_step: int, workers: int) -> dict[str, Any]:
    """Score the default and the bilinear interpolation where the board is not a plain stream."""
    worlds = [name for name in WORLDS if name != "plain"]
    tasks = [
        Task(Subject(model, world=WORLDS[world]), ("maxplus", "zero_run", "bilinear"), context_step)
        for world in worlds
        for model in models
    ]
    scores = run_tasks(tasks, workers)
    result: dict[str, Any] = {}
    for i, world in enumerate(worlds):
        rows = scores[i * len(models) : (i + 1) * len(models)]
        result[world] = {
            "default": float(np.mean([r["maxplus"].mape for r in rows])),
            "bilinear": float(np.mean([r["bilinear"].mape for r in rows])),
            "zero_run": float(np.mean([r["zero_run"].mape for r in rows])),
            "default_median": float(np.median([r["maxplus"].mape for r in rows])),
            "default_worst": max(r["maxplus"].worst for r in rows),
            "bilinear_worst": max(r["bilinear"].worst for r in rows),
        }
    return result


def leave_one_out(context_step: int) -> dict[str, Any]:
    """Estimate each model without a run of its own: its layers, the anchors of the others."""
    profiles = {m: make_profile(Subject(m)) for m in MODELS}
    fitted = {m: FlameEstimator().fit(profiles[m], m) for m in MODELS}
    result: dict[str, Any] = {}
    for model in MODELS:
        subject = Subject(model)
        alone = FlameEstimator(anchor=False).fit(profiles[model], model)
        alone.borrow([fitted[m] for m in MODELS if m != model])
        contexts = evaluated_contexts(subject, context_step)
        score = _score(_on_grid(alone, subject, contexts), subject.truth_us(contexts))
        result[model] = {"mape": score.mape, "worst": score.worst}
    result["mean"] = float(np.mean([result[m]["mape"] for m in MODELS]))
    return result


def unprofiled_layers() -> dict[str, float]:
    """The harder reading: no layer of the model was profiled either, only other models'.

    DenseNet121 is left out: nobody else concatenates or normalises first, so its types are unknown.
    """
    donors = ("mobilenetv2", "alexnet", "nin", "overfeat")
    points = geometric_points(Subject("resnet50").spec, *LEVELS)
    models = [m for m in MODELS if not Subject(m).longest]
    profiles = {m: profile_layers(Subject(m), points, [0]) for m in (*models, *donors)}
    fitted = {m: FlameEstimator().fit(make_profile(Subject(m)), m) for m in models}
    result: dict[str, float] = {}
    for model in ("resnet50", "vgg16"):
        others = merge_profiles(p for m, p in profiles.items() if m != model)
        target = profiles[model].networks[model]
        known = replace(others, networks=others.networks | {model: target})
        estimator = FlameEstimator(anchor=False)
        estimator.fit(known, model, layers=complete_layers(known, model))
        estimator.borrow([fitted[m] for m in models if m != model])
        subject = Subject(model)
        result[model] = _score(_on_grid(estimator, subject, [0]), subject.truth_us()).mape
    return result


def sweep(context_step: int) -> dict[str, Any]:
    """Fig. 17: error against the sampling interval of CPU clock, GPU clock and context."""
    result: dict[str, Any] = {"cpu": {}, "gpu": {}, "context": {}}
    for model in ("resnet50", "gpt2-large"):
        subject = Subject(model)
        for domain in ("cpu", "gpu"):
            for interval in range(1, 7):
                steps = (interval, 4) if domain == "cpu" else (4, interval)
                points = interval_points(subject.spec, *steps)
                score = _sweep_score(subject, points, default_contexts(subject), context_step)
                result[domain].setdefault(model, {})[interval] = score.mape
    subject = Subject("gpt2-large")
    for interval in (10, 30, 90, 180, 360):
        contexts = sorted({1, *range(interval, subject.longest + 1, interval), subject.longest})
        points = geometric_points(subject.spec, *LEVELS)
        score = _sweep_score(subject, points, contexts, context_step)
        result["context"].setdefault("gpt2-large", {})[interval] = score.mape
    return result


def _sweep_score(
    subject: Subject,
    points: Sequence[tuple[int, int]],
    contexts: Sequence[int],
    context_step: int,
) -> Score:
    profile = profile_layers(subject, points, contexts)
    runs = run_samples(subject, anchor_conditions(subject))
    profile = check_profile(with_runs(profile, subject.model, runs))
    fitted = FlameEstimator().fit(profile, subject.model)
    scored = evaluated_contexts(subject, context_step)
    return _score(_on_grid(fitted, subject, scored), subject.truth_us(scored))


def devices(workers: int, context_step: int) -> dict[str, Any]:
    """Fig. 18: ResNet50 and GPT2-large on AGX Orin and Orin NX."""
    tasks = [
        Task(Subject(model, board=board), ("maxplus", "analytic", "mlp"), context_step)
        for board in ("agx-orin", "orin-nx")
        for model in ("resnet50", "gpt2-large")
    ]
    return {
        f"{task.subject.board} {task.subject.model}": {c: s.mape for c, s in found.items()}
        for task, found in zip(tasks, run_tasks(tasks, workers), strict=True)
    }


def light_layers() -> dict[str, float]:
    """Neglect BN and ReLU as the paper does: each op a layer, with and without the light."""
    result: dict[str, float] = {}
    for model in ("resnet50", "densenet121"):
        subject = Subject(model)
        profile = per_op(subject, geometric_points(subject.spec, *LEVELS))
        for name, ignore in (("all", False), ("without_light", True)):
            fitted = FlameEstimator(anchor=False, ignore_light_layers=ignore).fit(profile, model)
            result[f"{model}_{name}"] = _score(
                _on_grid(fitted, subject, [0]), subject.truth_us()
            ).mape
    return result
