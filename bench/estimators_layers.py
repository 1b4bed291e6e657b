"""Layers one by one: profiled ones at all clocks, and configurations that were never profiled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.estimators_plant import LEVELS
from bench.estimators_profile import Subject, geometric_points, layer_names, profile_layers
from bench.plant.engine import Engine
from estimators.flame.layers import Knot
from estimators.flame.parser import CounterParser, Inputs, select_counters
from estimators.profiles import LayerRecord, Profile, merge_profiles

Array = NDArray[np.float64]

POOL = ("resnet50", "vgg16", "densenet121", "mobilenetv2", "alexnet", "nin", "overfeat")
TARGET = "resnet50"
FOLDS = 2


def pool_profiles(seed: int = 0) -> dict[str, Profile]:
    """Profile the layers of the convolutional models with the default design."""
    points = geometric_points(Subject(TARGET).spec, *LEVELS)
    return {m: profile_layers(Subject(m, seed=seed), points, [0]) for m in POOL}


def layer_truth(subject: Subject) -> dict[str, Array]:
    """Noise-free isolated total of each distinct layer, us, ``[C, G]``."""
    spec, workload = subject.spec, subject.workload
    truth: dict[str, Array] = {}
    for key, layer in layer_names(subject):
        alone = Engine(spec, workload.alone(layer))
        if key not in truth and alone.program.kernels:
            truth[key] = alone.truth_us(spec.cpu_hz, spec.gpu_hz, subject.memory_hz)[0]
    return truth


def total_error(record: LayerRecord, truth: Array, subject: Subject) -> float:
    """Fit a layer and score its isolated total over all pairs, mean percent."""
    knot = Knot.fit(record.key, record.samples, saturates=True, threshold="cpu")
    cpu = np.asarray(subject.spec.cpu_hz, dtype=np.float64)[:, None]
    gpu = np.asarray(subject.spec.gpu_hz, dtype=np.float64)[None, :]
    return float(np.abs(knot.total(cpu, gpu) / truth - 1).mean() * 100)


def processor_errors(records: list[LayerRecord]) -> dict[str, Array]:
    """Relative error of Eq. 2 at the profiled clocks, percent, by processor (Fig. 5)."""
    errors: dict[str, list[Array]] = {"cpu": [], "gpu": []}
    for record in records:
        s = record.samples
        knot = Knot.fit(record.key, s, saturates=False, threshold="cpu")
        for name, model, clock in (("cpu", knot.cpu, s.cpu_hz), ("gpu", knot.gpu, s.gpu_hz)):
            measured = s.values[f"{name}_us"]
            errors[name].append(np.abs(model(clock) / measured - 1) * 100)
    return {name: np.concatenate(parts) for name, parts in errors.items()}


def unseen_errors(
    pool: dict[str, LayerRecord], mine: list[str], truth: dict[str, Array], inputs: Inputs
) -> list[float]:
    """Hold out each fold of a model's convolutions, learn from the rest of the pool."""
    errors = []
    for fold in range(FOLDS):
        held = [key for i, key in enumerate(mine) if i % FOLDS == fold]
        known = [r for key, r in pool.items() if r.kind == "conv" and key not in held]
        parser = CounterParser(inputs=inputs).fit(known)
        subject = Subject(TARGET)
        errors += [
            total_error(parser.predict(pool[key].config), truth[key], subject) for key in held
        ]
    return errors


def counter_errors(pool: dict[str, LayerRecord], mine: list[str]) -> dict[str, float]:
    """Error of each foretold counter on configurations never profiled, mean percent."""
    held = mine[::FOLDS]
    known = [r for key, r in pool.items() if r.kind == "conv" and key not in held]
    parser = CounterParser(inputs="counters").fit(known)
    errors: dict[str, list[float]] = {}
    for key in held:
        for name, value in parser.counts(pool[key].config).items():
            measured = float(np.median(pool[key].samples.values[name]))
            if measured > 0:
                errors.setdefault(name, []).append(abs(value / measured - 1) * 100)
    return {name: float(np.mean(values)) for name, values in errors.items()}


def run_layers() -> dict[str, Any]:
    """Score layers profiled and never profiled.

    Returns:
        ``profiled_mape`` and ``unseen_mape`` over ResNet50's layers, their worst, the same with
        foretold counters, and what each counter costs.
    """
    subject = Subject(TARGET)
    profiles, truth = pool_profiles(), layer_truth(subject)
    pool = merge_profiles(profiles.values()).layers
    own = profiles[TARGET].layers
    profiled = [total_error(record, truth[key], subject) for key, record in own.items()]
    mine = [key for key, record in own.items() if record.kind == "conv"]
    unseen = unseen_errors(pool, mine, truth, "config")
    counted = unseen_errors(pool, mine, truth, "counters")
    processors = processor_errors(list(own.values()))
    return {
        "profiled_mape": float(np.mean(profiled)),
        "profiled_worst": max(profiled),
        "by_layer": dict(zip(own, profiled, strict=True)),
        "unseen_mape": float(np.mean(unseen)),
        "unseen_worst": max(unseen),
        "unseen_counters_mape": float(np.mean(counted)),
        "counter_error_pct": counter_errors(pool, mine),
        "counters": select_counters([r for r in pool.values() if r.kind == "conv"]),
        "within_10_pct": {n: float((e <= 10).mean() * 100) for n, e in processors.items()},
    }
