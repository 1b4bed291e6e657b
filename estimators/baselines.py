"""Estimators to compare with, behind one interface: ``fit(X, y)`` and ``predict(X)``.

X holds clocks ``[n, 3]`` (CPU, GPU, EMC in Hz), y latency in us. All see only end-to-end runs.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from estimators.errors import ProfileError
from estimators.profiles import Samples
from estimators.residual import Array

_EXPONENTS = np.linspace(0.05, 3.0, 119)


class Estimator(Protocol):
    """What all end-to-end estimators offer."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> "Estimator":
        """Learn from runs."""

    def predict(self, X: ArrayLike) -> Array:
        """Estimate latency, us."""


class FixedEstimator:
    """One latency for all clocks, that of the run at the highest ones."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> "FixedEstimator":
        """Remember the run at the highest clocks."""
        x_hz, time_us = _arrays(X, y)
        self.latency_us_ = float(time_us[np.log(x_hz).sum(1).argmax()])
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Tell it for every point."""
        return np.full(len(np.atleast_2d(np.asarray(X))), self.latency_us_)


class ConstantEstimator:
    """The one latency with the least mean relative error: what knowing nothing of clocks costs."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> "ConstantEstimator":
        """Find the weighted median of the runs, weights ``1/y``."""
        _, time_us = _arrays(X, y)
        order = np.argsort(time_us)
        weight = np.cumsum(1 / time_us[order])
        self.latency_us_ = float(time_us[order][np.searchsorted(weight, weight[-1] / 2)])
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Tell it for every point."""
        return np.full(len(np.atleast_2d(np.asarray(X))), self.latency_us_)


class AnalyticEstimator:
    """``T = a f_g^-b + c``: the analytic scaling law that the FLAME paper compares with.

    Args:
        relative: Least squares in relative error, else in time.
    """

    def __init__(self, *, relative: bool = True) -> None:
        self.relative = relative

    def fit(self, X: ArrayLike, y: ArrayLike) -> "AnalyticEstimator":
        """Search b, solve a and c."""
        x_hz, time_us = _arrays(X, y)
        gpu = x_hz[:, 1]
        weight = 1 / time_us if self.relative else np.ones_like(time_us)
        best = np.inf
        self.top_hz_ = float(gpu.max())
        for b in _EXPONENTS:
            rows = np.stack([(gpu / self.top_hz_) ** -b, np.ones_like(gpu)], 1) * weight[:, None]
            solution, *_ = np.linalg.lstsq(rows, time_us * weight, rcond=None)
            error = float(((rows @ solution - time_us * weight) ** 2).sum())
            if error < best:
                best, self.coefficients_ = error, (float(solution[0]), float(b), float(solution[1]))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Evaluate the law."""
        a, b, c = self.coefficients_
        gpu = np.atleast_2d(np.asarray(X, dtype=np.float64))[:, 1]
        result: Array = a * (gpu / self.top_hz_) ** -b + c
        return result


class MlpEstimator:
    """A small neural network over the scaled clocks (64 and 32 units), end to end.

    Args:
        seed: Seed of its initial weights.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> "MlpEstimator":
        """Train on clocks over their maximum and latency over its mean."""
        from sklearn.neural_network import MLPRegressor

        x_hz, time_us = _arrays(X, y)
        self._top, self._mean = x_hz.max(0), float(time_us.mean())
        self._model = MLPRegressor(
            hidden_layer_sizes=(64, 32),
            solver="lbfgs",
            max_iter=2000,
            max_fun=20000,
            random_state=self.seed,
        )
        self._model.fit(x_hz / self._top, time_us / self._mean)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Evaluate the network."""
        x_hz = np.atleast_2d(np.asarray(X, dtype=np.float64))
        result: Array = self._model.predict(x_hz / self._top) * self._mean
        return result


class BilinearEstimator:
    """Interpolation linear in ``1/f_c`` and ``1/f_g`` between runs on a full grid of levels."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> "BilinearEstimator":
        """Arrange the runs as a grid.

        Raises:
            ProfileError: The runs are not all pairs of some CPU and GPU clocks.
        """
        x_hz, time_us = _arrays(X, y)
        self._cpu, self._gpu = np.unique(x_hz[:, 0]), np.unique(x_hz[:, 1])
        c, g = np.searchsorted(self._cpu, x_hz[:, 0]), np.searchsorted(self._gpu, x_hz[:, 1])
        self._grid = np.full((len(self._cpu), len(self._gpu)), np.nan)
        self._grid[c, g] = time_us
        if np.isnan(self._grid).any():
            raise ProfileError(
                "runs do not fill a grid",
                why=f"{len(time_us)} runs for {len(self._cpu)} x {len(self._gpu)} clocks",
                hint="measure all pairs, or use another estimator",
            )
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Interpolate; clamped outside."""
        x_hz = np.atleast_2d(np.asarray(X, dtype=np.float64))
        cpu, gpu = _weights(self._cpu, x_hz[:, 0]), _weights(self._gpu, x_hz[:, 1])
        result: Array = np.einsum("nc,cg,ng->n", cpu, self._grid, gpu)
        return result


def _weights(levels_hz: Array, clocks_hz: Array) -> Array:
    """Weights of the levels, linear in 1/f, ``[n, levels]``."""
    unit, x = np.eye(len(levels_hz)), 1 / levels_hz[::-1]
    columns = [np.interp(1 / clocks_hz, x, row[::-1]) for row in unit]
    return np.stack(columns, axis=1)


class OverContext:
    """One estimator for each profiled context, linear in between.

    Args:
        make: Makes an estimator.
    """

    def __init__(self, make: Callable[[], Estimator]) -> None:
        self._make = make

    def fit(self, runs: Samples) -> "OverContext":
        """Fit to the runs of one model.

        Args:
            runs: Runs with column ``latency_us``.
        """
        self.context_ = np.unique(runs.context)
        self.estimators_ = []
        for context in self.context_:
            here = runs.at(context=int(context))
            x_hz = np.stack([here.cpu_hz, here.gpu_hz, np.maximum(here.emc_hz, 1)], axis=1)
            self.estimators_.append(self._make().fit(x_hz, here.values["latency_us"]))
        return self

    def predict(
        self,
        cpu_hz: ArrayLike,
        gpu_hz: ArrayLike,
        *,
        emc_hz: int = 1,
        context: Sequence[int] = (0,),
    ) -> Array:
        """Estimate latency on a grid, us, ``[K, C, G]``; contexts outside are clamped."""
        cpu, gpu = np.meshgrid(np.asarray(cpu_hz), np.asarray(gpu_hz), indexing="ij")
        x_hz = np.stack([cpu.ravel(), gpu.ravel(), np.full(cpu.size, max(emc_hz, 1))], axis=1)
        knots = np.stack([e.predict(x_hz) for e in self.estimators_])
        tokens, axis = np.asarray(context, dtype=np.float64), self.context_.astype(np.float64)
        unit = np.eye(len(axis))
        weights = np.stack([np.interp(tokens, axis, row) for row in unit], axis=1)
        result: Array = (weights @ knots).reshape(len(tokens), *cpu.shape)
        return result


def _arrays(X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    return np.atleast_2d(np.asarray(X, dtype=np.float64)), np.asarray(y, dtype=np.float64)
