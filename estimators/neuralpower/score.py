"""How good predictions are: the paper's two errors, and folds that keep one layer together."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ProfileError
from estimators.neuralpower.shapes import Columns, LayerShape
from estimators.residual import Array

FOLDS = 10
MIN_ROWS = 6
"""Rows below which nothing is fitted: three folds of two."""


class Predictor(Protocol):
    """What all layer models can do; ``fit`` learns one positive value per layer."""

    def fit(self, layers: Columns, y: Array) -> "Predictor":
        """Learn from measurements ``[n]``."""

    def predict(self, layers: Columns) -> Array:
        """Estimate ``[n]``."""


def rmse(predicted: Array, measured: Array) -> float:
    """Root of the mean squared error, in the unit of the values."""
    return float(np.sqrt(np.mean((predicted - measured) ** 2)))


def rmspe(predicted: Array, measured: Array) -> float:
    """Root of the mean squared relative error, %."""
    return float(100.0 * np.sqrt(np.mean((predicted / measured - 1.0) ** 2)))


def check_targets(layers: Columns, y: Array) -> Array:
    """Refuse too few rows and values that are not positive and finite.

    Raises:
        ProfileError: Names the row.
    """
    values = np.asarray(y, dtype=np.float64)
    if values.shape != (len(layers),):
        raise ProfileError(
            "one value per layer expected", why=f"{len(layers)} layers, values {values.shape}"
        )
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ProfileError(
            "unusable measurement",
            where=f"{layers.kind} layers, row {row}",
            why=f"{values[row]:g} is not a positive finite number ({int(wrong.sum())} such rows)",
            hint="measure the layer again or drop it",
        )
    if len(values) < MIN_ROWS:
        raise ProfileError(
            "too few layers to learn from",
            where=f"{layers.kind} layers",
            why=f"{len(values)} rows, {MIN_ROWS} needed",
            hint="measure more layers of this type",
        )
    return values


def groups_of(shapes: Sequence[LayerShape]) -> NDArray[np.int64]:
    """Number each layer such that the same one at another batch size has the same number."""
    _, groups = np.unique([shape.identity for shape in shapes], axis=0, return_inverse=True)
    result: NDArray[np.int64] = groups.reshape(-1).astype(np.int64)
    return result


def grouped_folds(
    groups: NDArray[np.int64], folds: int = FOLDS, seed: int = 0
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Split rows into training and test rows so that no group is in both.

    With fewer groups than folds each group is a fold of its own.
    """
    count = int(groups.max()) + 1
    order = np.random.default_rng(seed).permutation(count)
    fold_of = np.empty(count, dtype=np.int64)
    fold_of[order] = np.arange(count) % min(folds, count)
    row_fold = fold_of[groups]
    for fold in range(int(fold_of.max()) + 1):
        yield np.flatnonzero(row_fold != fold), np.flatnonzero(row_fold == fold)


def held_out(
    make: Callable[[], Predictor],
    layers: Columns,
    y: Array,
    *,
    groups: NDArray[np.int64] | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> Array:
    """Predict every row by a model that has not seen its group.

    Args:
        make: Makes an unfitted model; all choices it makes are made on the training rows.
        layers: Layers ``[n]``.
        y: Measurements ``[n]``.
        groups: Group of each row; every row its own if None.
        folds: Number of folds.
        seed: Seed of the split.

    Returns:
        Out-of-fold predictions ``[n]``.
    """
    values = check_targets(layers, y)
    parts = np.arange(len(values)) if groups is None else groups
    predicted = np.empty(len(values))
    for train, test in grouped_folds(parts, folds, seed):
        predicted[test] = make().fit(layers.take(train), values[train]).predict(layers.take(test))
    return predicted
