"""From a layer's configuration to its times, without running it: the paper's counter path.

Layers of one type do the same kind of work in different amounts. Hardware counters tell the amount;
those that follow latency are kept (Pearson, section III-A3). A parser foretells them from the
configuration, and times are regressed from the counters. Trees do not extrapolate in size, so in
both steps a physical law comes first, a product of powers or a sum of costs, and trees learn only
what it leaves over, in log.

What is regressed are times at the profiled clocks rather than the coefficients of Eqs. 2 and 4:
slope and offset of one layer trade against one another from fit to fit, its times do not. The
coefficients follow from the times as for a profiled layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from scipy.optimize import nnls

from estimators.errors import ProfileError
from estimators.flame.trees import TreeArrays
from estimators.flame.work import static_work
from estimators.profiles import AXES, LAYER_COLUMNS, LayerRecord, Samples
from estimators.residual import Array, distances2

Inputs = Literal["counters", "config"]

TOP = 10
"""Counters kept for each layer type."""

_MIN_LAYERS = 4
_FLOOR = 1e-6
_ROUNDING = 1e-12  # relative variation that is none
_SAME = 0.995  # correlation beyond which two counters say the same
_SIZES, _LENGTHS, _NOISES = (0.1, 0.4), (1.0, 2.0, 4.0, 8.0), (0.01, 0.05)


def select_counters(records: Sequence[LayerRecord], top: int = TOP) -> list[tuple[str, float]]:
    """Rank counters by their Pearson correlation with CPU or GPU time over layers at equal clocks.

    Both processors have coefficients to regress, so the best of each are taken in turn. A counter
    that says what a chosen one says already is passed over.

    Args:
        records: Layers of one type, profiled at the same clocks.
        top: How many to keep.

    Returns:
        Name and correlation, the most relevant first.
    """
    names = sorted(set.intersection(*(set(record.counters) for record in records)))
    table = {name: _by_layer(records, name) for name in names}
    rankings = []
    for column in ("cpu_us", "gpu_us"):
        time_us = _by_layer(records, column)
        scored = [(name, _pearson(values, time_us)) for name, values in table.items()]
        telling = [item for item in scored if item[1] != 0]
        rankings.append(iter(sorted(telling, key=lambda item: -abs(item[1]))))
    chosen: list[tuple[str, float]] = []
    while rankings and len(chosen) < top:
        ranking = rankings.pop(0)
        fresh = next((item for item in ranking if _is_new(item[0], chosen, table)), None)
        if fresh is not None:
            chosen.append(fresh)
            rankings.append(ranking)
    return chosen


def _is_new(name: str, chosen: list[tuple[str, float]], table: dict[str, Array]) -> bool:
    return all(abs(_pearson(table[name], table[other])) < _SAME for other, _ in chosen)


def _by_layer(records: Sequence[LayerRecord], column: str) -> Array:
    """Values of a column, ``[conditions, layers]``."""
    return np.stack([record.samples.values[column] for record in records], axis=1)


def _pearson(a: Array, b: Array) -> float:
    """Correlation over layers, averaged over conditions; 0 where either does not vary."""
    size = np.abs(a).sum(1) * np.abs(b).sum(1)
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    spread = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    products = (a * b).sum(1)
    varying = spread > _ROUNDING * size
    return float(np.mean(np.where(varying, products / np.where(varying, spread, 1.0), 0.0)))


@dataclass(frozen=True, slots=True)
class _Costs:
    """``w . x + c``: non-negative costs per counted event, fitted in relative error."""

    weights: Array

    @classmethod
    def fit(cls, features: Array, target: Array) -> "_Costs":
        rows = _with_one(features) / target[:, None]
        size = np.maximum(np.sqrt((rows**2).sum(0)), _FLOOR)
        return cls(nnls(rows / size, np.ones(len(rows)))[0] / size)

    def __call__(self, features: Array) -> Array:
        result: Array = np.maximum(_with_one(features) @ self.weights, _FLOOR)
        return result


def _with_one(features: Array) -> Array:
    return np.column_stack([features, np.ones(len(features))])


@dataclass(frozen=True, slots=True)
class _CounterLaw:
    """A counter from the configuration: costs first, trees on the log of what they leave over."""

    costs: _Costs
    trees: TreeArrays

    @classmethod
    def fit(cls, features: Array, target: Array, seed: int) -> "_CounterLaw":
        safe = np.maximum(target, _FLOOR)
        costs = _Costs.fit(features, safe)
        rest = np.log(safe / costs(features))
        return cls(costs, TreeArrays.fit(np.log1p(features), rest, seed=seed))

    def __call__(self, features: Array) -> Array:
        result: Array = self.costs(features) * np.exp(self.trees(np.log1p(features)))
        return result


@dataclass(frozen=True, slots=True)
class _TimeLaw:
    """A time from amounts of work: costs first, a smooth function on the log of the rest."""

    costs: _Costs
    centre: Array
    width: Array
    points: Array
    solved: Array
    length: float

    @classmethod
    def fit(cls, features: Array, target: Array) -> "_TimeLaw":
        safe = np.maximum(target, _FLOOR)
        costs = _Costs.fit(features, safe)
        logs = np.log1p(features)
        centre, width = logs.mean(0), np.maximum(logs.std(0), _FLOOR)
        points = (logs - centre) / width
        solved, length = _smooth(points, np.log(safe / costs(features)))
        return cls(costs, centre, width, points, solved, length)

    def __call__(self, features: Array) -> Array:
        points = (np.log1p(features) - self.centre) / self.width
        rest = np.exp(-0.5 * distances2(points, self.points) / self.length**2) @ self.solved
        result: Array = self.costs(features) * np.exp(rest)
        return result


def _smooth(points: Array, rest: Array) -> tuple[Array, float]:
    """Weights of a Gaussian process on the rest, size, length and noise by evidence."""
    answer: Array = np.zeros(len(rest))
    best, chosen = -np.inf, 1.0
    between = distances2(points, points)
    for size, length, noise in product(_SIZES, _LENGTHS, _NOISES):
        kernel = size**2 * np.exp(-0.5 * between / length**2)
        covariance = kernel + noise**2 * np.eye(len(rest))
        solved = np.asarray(np.linalg.solve(covariance, rest), dtype=np.float64)
        evidence = -0.5 * float(rest @ solved) - 0.5 * float(np.linalg.slogdet(covariance)[1])
        if evidence > best:
            best, answer, chosen = evidence, size**2 * solved, length
    return answer, chosen


class CounterParser:
    """Foretells the profile of layers that were never run, for one layer type.

    Args:
        inputs: ``config``: times from the configuration and the work it implies. ``counters``:
            times from foretold counters, as in the paper.
        top: Counters kept.
        seed: Seed of the trees.

    Attributes:
        kind_: Layer type.
        counters_: Counters kept and their correlation with latency.
    """

    def __init__(self, *, inputs: Inputs = "config", top: int = TOP, seed: int = 0) -> None:
        self.inputs, self.top, self.seed = inputs, top, seed

    def fit(self, records: Sequence[LayerRecord]) -> "CounterParser":
        """Learn from profiled layers of one type, all profiled at the same clocks and contexts.

        Raises:
            ProfileError: Too few layers, several types, or different clocks.
        """
        _check_records(records)
        self.kind_ = records[0].kind
        self.counters_ = select_counters(records, self.top) if self.inputs == "counters" else []
        self._names = sorted({name for record in records for name in record.config})
        self._axes = {name: getattr(records[0].samples, name).copy() for name in AXES}
        config = np.array([self._row(record.config) for record in records])
        counts = np.array([np.median(_by_layer(records, n), axis=0) for n, _ in self.counters_])
        self._parsers = [_CounterLaw.fit(config, row, self.seed) for row in counts]
        inputs = counts.T if self.inputs == "counters" else config
        self._laws = {
            column: [_TimeLaw.fit(inputs, times) for times in _by_layer(records, column)]
            for column in LAYER_COLUMNS
        }
        return self

    def counts(self, config: Mapping[str, float]) -> dict[str, float]:
        """Foretell the counters kept, per run of the layer, median over clocks."""
        row = np.array([self._row(config)])
        return {
            name: float(parser(row)[0])
            for (name, _), parser in zip(self.counters_, self._parsers, strict=True)
        }

    def predict(self, config: Mapping[str, float]) -> LayerRecord:
        """Foretell what profiling a layer of this configuration would show."""
        row = np.array([self._row(config)])
        if self.inputs == "counters":
            row = np.array([list(self.counts(config).values())])
        times = {
            column: np.array([float(law(row)[0]) for law in laws])
            for column, laws in self._laws.items()
        }
        longer = np.maximum(times["cpu_us"], times["gpu_us"])
        times["total_us"] = np.maximum(times["total_us"], longer)
        return LayerRecord(self.kind_, dict(config), Samples(values=times, **self._axes))

    def _row(self, config: Mapping[str, float]) -> list[float]:
        work = static_work(self.kind_, config)
        return [*(float(config.get(name, 0.0)) for name in self._names), *work.values()]


def _check_records(records: Sequence[LayerRecord]) -> None:
    if len(records) < _MIN_LAYERS:
        raise ProfileError(
            "too few layers to learn a type from",
            where=records[0].kind if records else "",
            why=f"{len(records)} profiled, {_MIN_LAYERS} needed",
            hint="merge profiles of other models",
        )
    kinds = {record.kind for record in records}
    if len(kinds) > 1:
        raise ProfileError("one parser learns one layer type", why=", ".join(sorted(kinds)))
    first = records[0].samples
    for record in records:
        if any(not np.array_equal(getattr(record.samples, a), getattr(first, a)) for a in AXES):
            raise ProfileError(
                "layers were profiled at different clocks or contexts",
                where=f"{records[0].key} and {record.key}",
                hint="profile a type with one design",
            )
