"""``flamegov bench estimators``: latency estimators against one another, simulated and measured.

Simulated figures come from the plant, measured ones from grids of real boards; the two are never
mixed. All errors are on points that were not fitted, except the nine anchor runs of 319 pairs.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

from bench.pretty import table_text

HELP = "latency estimators against one another, on the simulated board and on measured grids"

_BARS = {
    "maxplus": "<= 1.0 mean, <= 5 worst",
    "paper": "<= 8.14 mean",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="one seed, fewer contexts and worlds")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--grid", type=Path, metavar="FILE", help="score a measured grid instead")
    parser.add_argument(
        "--by", default="", metavar="COLUMNS", help="columns that make a slice of --grid: a,b,c"
    )
    parser.add_argument("--points", type=int, default=24, help="cells to fit in each slice (24)")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="draw the paper's figures")


def run(args: argparse.Namespace) -> int:
    """Do it and tell the exit code."""
    if args.grid is not None:
        from bench.estimators_measured import run_grid

        result = run_grid(args.grid, [c for c in args.by.split(",") if c], args.points)
        print(json.dumps(result) if args.json else _grid_text(result))
        return 0
    if args.figures is not None:
        from bench.estimators_figures import draw_all

        result = draw_all(args.figures, quick=args.quick, workers=args.workers)
        print(json.dumps(result) if args.json else _figures_text(result))
        return 0
    result = measure(quick=args.quick, workers=args.workers)
    print(json.dumps(result) if args.json else _text(result))
    return 0


def measure(*, quick: bool, workers: int) -> dict[str, Any]:
    """Measure everything that the command prints.

    Args:
        quick: One seed, a thinner grid of contexts and three models in the disagreeing worlds.
        workers: Processes.
    """
    from bench.estimators_layers import run_layers
    from bench.estimators_measured import run_measured
    from bench.estimators_plant import (
        MODELS,
        compare_models,
        compare_worlds,
        leave_one_out,
        light_layers,
        unprofiled_layers,
    )

    times = time_estimators()
    step = 256 if quick else 64
    compared = compare_models(1 if quick else 3, 1 if quick else 10, step, workers)
    worlds = compare_worlds(("resnet50", "vgg16", "gpt2-large") if quick else MODELS, step, workers)
    measured, orin_risk, tx2_risk = run_measured(thin=4 if quick else 1)
    result = {
        **compared,
        "layers": run_layers(),
        "worlds": worlds,
        "measured": measured,
        "deadline_miss_pct": orin_risk,
        "deadline_miss_tx2_pct": tx2_risk,
        "times_s": times,
        "peak_mib": peak_mib(),
    }
    if not quick:
        result["leave_one_out"] = leave_one_out(step)
        result["unprofiled_layers"] = unprofiled_layers()
        result["light_layers"] = light_layers()
    return result


def time_estimators() -> dict[str, float]:
    """Time fit and table of the smallest and the largest task, s (profiling not counted)."""
    from bench.estimators_plant import make_profile
    from bench.estimators_profile import Subject
    from estimators.flame import FlameEstimator

    times: dict[str, float] = {}
    for model, name in (("resnet50", "resnet50"), ("gpt2-large", "gpt2_large")):
        subject = Subject(model)
        profile = make_profile(subject)
        start = time.perf_counter()
        estimator = FlameEstimator().fit(profile, model)
        fitted = time.perf_counter()
        contexts = range(1, subject.longest + 1) if subject.longest else [0]
        spec = subject.spec
        estimator.predict(spec.cpu_hz, spec.gpu_hz, context=contexts)
        times[f"fit_{name}"] = fitted - start
        times[f"table_{name}"] = time.perf_counter() - fitted
    return times


def peak_mib() -> float:
    """Largest memory of this process or of a worker so far, MiB."""
    kib = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return kib / 1024


def _text(result: dict[str, Any]) -> str:
    models = list(result["models"])
    rows = [
        [
            column,
            *(result["models"][model][column] for model in models),
            result["mean"][column],
            result["worst_cell"][column],
            _BARS.get(column, ""),
        ]
        for column in result["mean"]
    ]
    parts = [
        "simulated AGX Orin, mean absolute percentage error over all pairs and contexts",
        table_text(["estimator", *models, "mean", "worst cell", "bar"], rows),
        "simulated worlds that are no plain stream",
        table_text(
            ["world", "default", "bilinear", "zero run", "default worst"],
            [
                [w, r["default"], r["bilinear"], r["zero_run"], r["default_worst"]]
                for w, r in result["worlds"].items()
            ],
        ),
    ]
    parts += [f"{key}: {json.dumps(_flat(result[key]))}" for key in _REST if key in result]
    return "\n".join(parts)


_REST = (
    "paired",
    "leave_one_out",
    "unprofiled_layers",
    "light_layers",
    "layers",
    "measured",
    "deadline_miss_pct",
    "deadline_miss_tx2_pct",
    "times_s",
    "peak_mib",
)


def _flat(value: Any) -> Any:
    """Round for reading; leave the long tables out."""
    if isinstance(value, dict):
        return {k: _flat(v) for k, v in value.items() if k not in ("by_layer", "counters")}
    return round(value, 3) if isinstance(value, float) else value


def _grid_text(result: dict[str, Any]) -> str:
    rows = [[s["label"], s["mean_mape"], s["worst_mape"]] for s in result["by_slice"]]
    head = f"{result['grid']}: {result['points']} cells fitted in each of {result['slices']} slices"
    table = table_text(["slice", "mean %", "worst %"], rows)
    total = json.dumps(_flat({**result["measured"], "late": result["deadline_miss_pct"]}))
    return f"{head}\n{table}\n{total}"


def _figures_text(result: dict[str, Any]) -> str:
    lines = [f"{name}: {json.dumps(_flat(figures))}" for name, figures in result.items()]
    return "\n".join(lines)
