"""Sparse polynomial regression as the paper does it, and the same idea in logarithms.

The paper fits raw milliseconds and watts by Lasso over polynomial features, with the order and the
penalty chosen by cross-validation. That is kept for fidelity. Errors of layers that differ by a
factor of a thousand are relative, so the logarithmic variant needs a tenth of the terms and is far
better on layers it has not seen.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from estimators.neuralpower.features import (
    PAPER_DEGREE,
    Target,
    log_features,
    log_flop,
    paper_features,
)
from estimators.neuralpower.score import FOLDS, check_targets, rmse
from estimators.neuralpower.shapes import Columns
from estimators.residual import Array

_ALPHAS = 100
_LOWEST = 1e-4  # smallest penalty over the largest, as in the published training
_STEPS = 1_000
_TOLERANCE = 1e-3  # of the duality gap, relative


class SparseRegression:
    """Lasso on standardised columns, penalty at the least cross-validated squared error.

    Monomials are so alike that coordinate descent to full precision takes minutes; like the tool of
    the published training it stops early, and the penalty is chosen for what that gives.

    Attributes:
        size_: Non-zero coefficients and the constant: the paper's "model size".
        cv_rmse_: Root of the least cross-validated squared error.
        converged_: Whether every penalty met the tolerance.
    """

    def fit(self, x: Array, y: Array) -> "SparseRegression":
        """Fit ``[n, d]`` to ``[n]``; constant columns get no weight."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no stubs

        with threadpool_limits(1):  # a thousand small products: threads would only wait
            return self._fit(x, y)

    def _fit(self, x: Array, y: Array) -> "SparseRegression":
        self._mean, spread = x.mean(0), x.std(0)
        self._spread = np.where(spread > 1e-12 * np.abs(self._mean), spread, np.inf)
        z = self._scale(x)
        top = float(np.abs(z.T @ (y - y.mean())).max()) / len(y)
        penalties = max(top, 1e-12) * np.geomspace(1.0, _LOWEST, _ALPHAS)
        squared = np.zeros(_ALPHAS)
        for train, test in _shuffled(len(y)):
            mean, centre = y[train].mean(), z[train].mean(0)
            path, _ = _lasso_path(z[train] - centre, y[train] - mean, penalties)
            squared += ((mean + (z[test] - centre) @ path - y[test, None]) ** 2).sum(0)
        best = int(squared.argmin())
        self.cv_rmse_ = float(np.sqrt(squared[best] / len(y)))
        path, self.converged_ = _lasso_path(z, y - y.mean(), penalties)
        self._coefficients, self._constant = path[:, best], float(y.mean())
        self.size_ = int(np.count_nonzero(self._coefficients)) + 1
        return self

    def predict(self, x: Array) -> Array:
        """Estimate ``[m]`` from ``[m, d]``."""
        result: Array = self._scale(x) @ self._coefficients + self._constant
        return result

    def _scale(self, x: Array) -> Array:
        scaled: Array = (x - self._mean) / self._spread
        return scaled


def _lasso_path(x: Array, y: Array, penalties: Array) -> tuple[Array, bool]:
    """Coefficients at descending penalties, ``[d, p]``, and whether all met the tolerance."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lasso_path

    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ConvergenceWarning)
        _, path, _ = lasso_path(
            np.asfortranarray(x),
            y,
            alphas=penalties,
            precompute=np.ascontiguousarray(x.T @ x),
            Xy=x.T @ y,
            max_iter=_STEPS,
            tol=_TOLERANCE,
            check_input=False,  # a hundred checks of the same arrays take most of the time
        )
    return np.asarray(path, dtype=np.float64), not raised


def _shuffled(rows: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Folds in random order, as sorted files have similar rows close; fewer with fewer rows."""
    fold_of = np.random.default_rng(0).permutation(rows) % min(FOLDS, rows)
    folds = range(int(fold_of.max()) + 1)
    return [(np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k)) for k in folds]


class PaperModel:
    """The paper's model of runtime or power of one layer type.

    Args:
        target: What is predicted.
        degrees: Orders to choose from by cross-validated RMSE; the published one if None.

    Attributes:
        degree_: Order chosen.
        size_: Non-zero coefficients and the constant.
        cv_rmse_: Cross-validated RMSE by order.
        rmse_: RMSE on the training rows, which is what the paper reports.
        converged_: See :class:`SparseRegression`.
    """

    def __init__(self, target: Target = "runtime", degrees: tuple[int, ...] | None = None) -> None:
        self.target, self.degrees = target, degrees

    def fit(self, layers: Columns, y: Array) -> "PaperModel":
        """Fit to measured milliseconds or watts ``[n]``.

        Raises:
            ProfileError: Too few rows, or a value is not positive and finite.
        """
        values = check_targets(layers, y)
        orders = self.degrees or (PAPER_DEGREE[layers.kind, self.target],)
        fitted = {
            order: SparseRegression().fit(paper_features(layers, self.target, order), values)
            for order in orders
        }
        self.cv_rmse_ = {order: model.cv_rmse_ for order, model in fitted.items()}
        self.degree_ = min(self.cv_rmse_, key=lambda order: self.cv_rmse_[order])
        self._model = fitted[self.degree_]
        self.size_, self.converged_ = self._model.size_, self._model.converged_
        # A polynomial can go below zero; nothing runs faster than the fastest layer seen.
        self._floor = float(values.min())
        self.rmse_ = rmse(self.predict(layers), values)
        return self

    def predict(self, layers: Columns) -> Array:
        """Estimate ``[m]``, never below the least value learned from."""
        features = paper_features(layers, self.target, self.degree_)
        return np.maximum(self._model.predict(features), self._floor)


class LogModel:
    """Lasso on logarithms of sizes and products, for the logarithm of the value.

    Attributes:
        size_: Non-zero coefficients and the constant.
    """

    def fit(self, layers: Columns, y: Array) -> "LogModel":
        """Fit to positive values ``[n]``; raises as :meth:`PaperModel.fit`."""
        values = check_targets(layers, y)
        self._model = SparseRegression().fit(log_features(layers), np.log(values))
        self.size_ = self._model.size_
        return self

    def predict(self, layers: Columns) -> Array:
        """Estimate ``[m]``."""
        return np.exp(self._model.predict(log_features(layers)))


class FlopModel:
    """A power law in the operations alone: the one-variable model to beat."""

    def fit(self, layers: Columns, y: Array) -> "FlopModel":
        """Fit to positive values ``[n]``; raises as :meth:`PaperModel.fit`."""
        values = check_targets(layers, y)
        x = log_flop(layers)
        centred = x - x.mean()
        spread = float(centred @ centred)
        self._slope = float(centred @ np.log(values)) / spread if spread > 0 else 0.0
        self._constant = float(np.log(values).mean()) - self._slope * float(x.mean())
        return self

    def predict(self, layers: Columns) -> Array:
        """Estimate ``[m]``."""
        return np.exp(self._constant + self._slope * log_flop(layers))
