"""The estimator figures of the FLAME paper, simulated, with the paper's number beside ours.

Fig. 2 CDF of Delta/T, 3 existing methods, 5 Eq. 2 per processor, 6 counters, 7 errors per layer and
over context, 9 estimated against true latency, 11 overall, 16 ablation, 17 sampling, 18 devices,
and the profiling cost of Table II.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.estimators_layers import (
    layer_truth,
    pool_profiles,
    processor_errors,
    total_error,
)
from bench.estimators_plant import (
    COLUMNS,
    LEVELS,
    MODELS,
    Task,
    devices,
    evaluated_contexts,
    make_profile,
    run_tasks,
    sweep,
)
from bench.estimators_profile import Subject, default_contexts, geometric_points, profile_layers
from estimators.errors import ProfileError
from estimators.flame import FlameEstimator
from estimators.flame.parser import select_counters
from estimators.profiles import LayerRecord, merge_profiles

Figures = dict[str, Any]

_STEP = {True: 256, False: 128}
_DNN, _SLM = MODELS[:3], MODELS[3:]


def draw_all(folder: Path, *, quick: bool, workers: int) -> Figures:
    """Draw every figure and tell its numbers.

    Args:
        folder: Where the pictures go; made if missing.
        quick: Fewer contexts, and no sampling sweep.
        workers: Processes.

    Raises:
        ProfileError: The folder cannot be made.
    """
    _make(folder)
    profiles = pool_profiles()
    decoder = profile_layers(
        Subject("gpt2-large"),
        geometric_points(Subject("gpt2-large").spec, *LEVELS),
        default_contexts(Subject("gpt2-large")),
    )
    layers = list(merge_profiles(profiles.values()).layers.values())
    blocks = [record for record in decoder.layers.values() if record.kind == "decoder"]
    own = list(profiles["resnet50"].layers.values())
    found: Figures = {
        "fig2": _figure(folder, "fig2", lambda ax: _delta_cdf(ax, layers + blocks)),
        "fig5": _figure(folder, "fig5", lambda ax: _processors(ax, own + blocks)),
        "fig6": _figure(folder, "fig6", lambda ax: _counters(ax, layers)),
        "fig7a": _figure(folder, "fig7a", lambda ax: _per_layer(ax, own)),
        "fig7b": _figure(folder, "fig7b", lambda ax: _over_context(ax, blocks[0])),
    }
    for model in ("resnet50", "gpt2-large"):
        found[f"fig9_{model}"] = _figure(folder, f"fig9_{model}", partial(_pairs, model=model))
    step = _STEP[quick]
    tasks = [Task(Subject(model), COLUMNS, step) for model in MODELS]
    scores = dict(zip(MODELS, run_tasks(tasks, workers), strict=True))
    found |= {
        name: _figure(folder, name, partial(_methods, scores=scores, columns=columns))
        for name, columns in _METHODS.items()
    }
    found["fig18"] = _figure(folder, "fig18", lambda ax: _devices(ax, devices(workers, step)))
    if not quick:
        swept = sweep(step)
        for part in ("cpu", "gpu", "context"):
            found[f"fig17_{part}"] = _figure(
                folder, f"fig17_{part}", partial(_sweep, part=part, found=swept[part])
            )
    found["table2"] = profiling_cost()
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or ""
        raise ProfileError("cannot make the folder", where=str(folder), why=why) from error


_METHODS: dict[str, dict[str, dict[str, float]]] = {
    # Column: what the paper reports for DNNs and for language models, percent.
    "fig3": {"fixed": {"dnn": 44.5, "slm": 39.5}, "analytic": {}, "mlp": {}},
    "fig11": {
        "maxplus": {"all": 8.14},
        "paper": {"all": 8.14},
        "analytic": {"all": 24.82},
        "mlp": {"all": 26.93},
        "sum_max": {},
        "bilinear": {},
        "constant": {},
    },
    "fig16": {
        "maxplus": {},
        "paper": {},
        # How much of the ablation's error the complete design takes away.
        "no_module": {"dnn_cut": 65.33, "slm_cut": 86.99},
        "no_aggregation": {"dnn_cut": 51.04, "slm_cut": 68.23},
    },
}


def _figure(folder: Path, name: str, draw: Callable[[Axes], Figures]) -> Figures:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    numbers = draw(axes)
    axes.set_title(f"{axes.get_title()} (simulated)".strip(), fontsize=10)
    figure.savefig(folder / f"{name}.png", dpi=120)
    return numbers


def _delta_cdf(ax: Axes, records: list[LayerRecord]) -> Figures:
    numbers: Figures = {}
    for kind in ("conv", "linear", "decoder"):
        chosen = [r.samples.values for r in records if r.kind == kind]
        ratio = np.concatenate(
            [(v["total_us"] - v["cpu_us"] - v["gpu_us"]) / v["total_us"] for v in chosen]
        )
        ax.plot(np.sort(ratio), np.linspace(0, 1, len(ratio)), label=kind)
        numbers[kind] = {
            "negative_pct": float((ratio < 0).mean() * 100),
            "largest_ratio": float(np.abs(ratio).max()),
        }
    ax.set(xlabel="Delta / T", ylabel="share of clock pairs", title="Fig. 2: CDF of Delta / T")
    ax.legend()
    numbers["paper"] = "conv and linear about half negative, transformer nearly all; over 0.6"
    return numbers


def _processors(ax: Axes, records: list[LayerRecord]) -> Figures:
    numbers: Figures = {"paper": {"cpu": 85.0, "gpu": 88.0}}
    for name, errors in processor_errors(records).items():
        ax.plot(np.sort(errors), np.linspace(0, 1, len(errors)), label=name)
        numbers[name] = float((errors <= 10).mean() * 100)
    ax.set(xlabel="error of Eq. 2, %", ylabel="share", title="Fig. 5: independent processor times")
    ax.legend()
    return numbers


def _counters(ax: Axes, records: list[LayerRecord]) -> Figures:
    chosen = select_counters([record for record in records if record.kind == "conv"])
    names, values = zip(*chosen, strict=True)
    ax.barh(names[::-1], values[::-1])
    ax.set(xlabel="Pearson correlation", title="Fig. 6: counters kept for convolutions")
    return dict(chosen)


def _per_layer(ax: Axes, records: list[LayerRecord]) -> Figures:
    subject = Subject("resnet50")
    truth = layer_truth(subject)
    errors = np.array([total_error(r, truth[r.key], subject) for r in records])
    ax.bar(np.arange(len(errors)), errors)
    ax.set(xlabel="layer", ylabel="error, %", title="Fig. 7a: layers of ResNet50")
    return {
        "mean": float(errors.mean()),
        "worst": float(errors.max()),
        "paper": {"mean": 3.19, "worst": 9.88},
    }


def _over_context(ax: Axes, record: LayerRecord) -> Figures:
    """Fit every second profiled context, score the others."""
    from estimators.flame.layers import Layer, LayerWork

    contexts = np.unique(record.samples.context)
    held = contexts[1:-1:2]
    kept = record.samples.where(~np.isin(record.samples.context, held))
    layer = Layer.fit(record.key, kept, saturates=True, threshold="cpu")
    errors = []
    for context in held:
        s = record.samples.at(context=int(context))
        cpu, gpu = s.cpu_hz.astype(np.float64), s.gpu_hz.astype(np.float64)
        work = LayerWork.at_runs(layer, np.full(len(s), float(context)), cpu, gpu)
        total = work.scaled().extra
        errors.append(float(np.abs(total / s.values["total_us"] - 1).mean() * 100))
    ax.plot(held, errors, "o-")
    ax.set(xlabel="context", ylabel="error, %", title="Fig. 7b: a GPT2-large block")
    return {"mean": float(np.mean(errors)), "worst": max(errors), "paper": "0.07-3.87"}


def _pairs(ax: Axes, model: str) -> Figures:
    subject = Subject(model)
    spec = subject.spec
    fitted = FlameEstimator().fit(make_profile(subject), model)
    context = [subject.longest // 2]
    estimate = fitted.predict(spec.cpu_hz, spec.gpu_hz, context=context)[0]
    truth = subject.truth_us(context)[0]
    ax.plot(truth.ravel() / 1000, label="true")
    ax.plot(estimate.ravel() / 1000, "--", label="estimated")
    ax.set(yscale="log", xlabel="clock pair", ylabel="latency, ms", title=f"Fig. 9: {model}")
    ax.legend()
    error = np.abs(estimate / truth - 1) * 100
    return {
        "mean": float(error.mean()),
        "worst": float(error.max()),
        "paper_worst": 8.65 if model == "resnet50" else 10.9,
        "by_region": _regions(error, truth),
    }


def _regions(error: Any, truth: Any) -> dict[str, float]:
    """Mean error where CPU, neither or GPU is the bottleneck, by which clock matters."""
    log = np.log(truth)
    cpu = np.abs(np.gradient(log, axis=0)).clip(1e-12)
    gpu = np.abs(np.gradient(log, axis=1)).clip(1e-12)
    share = cpu / (cpu + gpu)
    masks = {"cpu_bound": share > 0.9, "gpu_bound": share < 0.1}
    masks["balanced"] = ~(masks["cpu_bound"] | masks["gpu_bound"])
    return {name: float(error[mask].mean()) for name, mask in masks.items() if mask.any()}


def _methods(ax: Axes, scores: dict[str, Any], columns: dict[str, dict[str, float]]) -> Figures:
    place = np.arange(len(MODELS))
    width = 0.8 / len(columns)
    numbers: Figures = {}
    for i, (column, paper) in enumerate(columns.items()):
        values = [scores[model][column].mape for model in MODELS]
        ax.bar(place + i * width, values, width, label=column)
        dnn = float(np.mean([scores[m][column].mape for m in _DNN]))
        slm = float(np.mean([scores[m][column].mape for m in _SLM]))
        numbers[column] = {"dnn": dnn, "slm": slm, "paper": paper}
    ax.set_xticks(place + 0.4, MODELS, rotation=15)
    ax.set(ylabel="MAPE, %", title="estimators over all pairs")
    ax.legend(fontsize=8)
    return numbers


def _devices(ax: Axes, found: Figures) -> Figures:
    names = list(found)
    for i, column in enumerate(("maxplus", "analytic", "mlp")):
        values = [found[name][column] for name in names]
        ax.bar(np.arange(len(names)) + i * 0.27, values, 0.27, label=column)
    ax.set_xticks(np.arange(len(names)) + 0.27, names, rotation=10)
    ax.set(ylabel="MAPE, %", title="Fig. 18: boards")
    ax.legend()
    return found


def _sweep(ax: Axes, part: str, found: Figures) -> Figures:
    for model, series in found.items():
        ax.plot(list(series), list(series.values()), "o-", label=model)
    ax.set(xlabel=f"{part} interval", ylabel="MAPE, %", title="Fig. 17: sampling interval")
    ax.legend()
    paper = {"resnet50": [5.79, 6.97], "gpt2-large": [3.65, 3.87]} if part == "cpu" else {}
    return {**found, "paper_interval_1_and_4": paper}


def profiling_cost() -> Figures:
    """Table II: simulated minutes to profile with the default design, and exhaustively.

    DNNs take 400 repetitions, language models 5 at every context, as in the paper; the exhaustive
    way runs the whole model at every pair and context.
    """
    result: Figures = {}
    for model in MODELS:
        subject = Subject(model)
        profile = make_profile(subject)
        repeats = 5 if subject.longest else 400
        layers = sum(float(r.samples.values["total_us"].sum()) for r in profile.layers.values())
        runs = float(profile.runs[model].values["latency_us"].sum())
        contexts = evaluated_contexts(subject, 128)
        per_context = float(subject.truth_us(contexts).sum(axis=(1, 2)).mean())
        exhaustive = per_context * (subject.longest or 1)
        result[model] = {
            "minutes": (layers + runs) * repeats / 60e6,
            "exhaustive_minutes": exhaustive * repeats / 60e6,
        }
    return result
