"""The default layer model: a trend that physics gives, a Gaussian process for what it leaves over.

The value is ``exp(log trend + linear in log features + smooth function of them + noise)``. The
trend is a roofline, a sum of terms none of which is negative, so that it extrapolates as physics
does. Length scales, sizes and noise are set by the marginal likelihood of the training rows with
weak priors, which keep them sane with 30 rows. Where a library switches algorithms the roofline is
wrong; a second process without it then knows better, so the two are weighted by their certainty.
"""

from dataclasses import dataclass

import numpy as np

from estimators.neuralpower.features import log_features, roofline_terms
from estimators.neuralpower.score import check_targets
from estimators.neuralpower.shapes import Columns
from estimators.residual import Array

# Natural logs of the hyper-parameters, (mean, spread) of their priors: length scales in standard
# deviations of the features, size of the smooth part, noise, slope of the linear part.
_LENGTH, _SIZE, _NOISE, _SLOPE = (1.2, 1.0), (-0.9, 1.0), (-2.5, 0.7), (-0.35, 1.0)
_WIDEST = 4.0  # prior spreads that the search may go
_STEPS = 60
_SEARCH_ROWS = 300  # rows that set the hyper-parameters; all rows then carry the estimate
_JITTER = 1e-7


@dataclass(frozen=True, slots=True)
class _Theta:
    """Hyper-parameters on their natural scale."""

    lengths: Array
    size: float
    noise: float
    slope: float

    @classmethod
    def of(cls, logs: Array) -> "_Theta":
        size, noise, slope = np.exp(logs[-3:])
        return cls(np.exp(logs[:-3]), float(size), float(noise), float(slope))

    def smooth(self, a: Array, b: Array) -> Array:
        left, right = a / self.lengths, b / self.lengths
        # The matrix product is ten times faster than differences, and exact enough for a kernel.
        square = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2.0 * left @ right.T
        covariance: Array = self.size**2 * np.exp(-0.5 * np.maximum(square, 0.0))
        return covariance

    def cross(self, a: Array, b: Array) -> Array:
        covariance: Array = self.smooth(a, b) + self.slope**2 * (a @ b.T)
        return covariance

    def own(self, a: Array) -> Array:
        variance: Array = self.size**2 + self.slope**2 * (a**2).sum(1)
        return variance


class GaussianProcess:
    """Regression ``[n, d] -> [n]`` with a linear part, one length scale per column, and noise."""

    def fit(self, x: Array, y: Array) -> "GaussianProcess":
        """Set hyper-parameters and condition on the rows."""
        from scipy.linalg import cho_solve
        from scipy.optimize import minimize

        self._mean, spread = x.mean(0), x.std(0)
        self._spread = np.where(spread > 1e-9, spread, 1.0)
        self._y_mean = float(y.mean())
        z, target = (x - self._mean) / self._spread, y - self._y_mean
        pairs = np.array([_LENGTH] * x.shape[1] + [_SIZE, _NOISE, _SLOPE])
        self._prior, self._prior_spread = pairs.T
        rows = np.random.default_rng(0).permutation(len(y))[:_SEARCH_ROWS]
        reach = _WIDEST * self._prior_spread
        found = minimize(
            self._cost,
            self._prior,
            args=(z[rows], target[rows]),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(self._prior - reach, self._prior + reach, strict=True)),
            options={"maxiter": _STEPS},
        )
        self._theta, self._z = _Theta.of(found.x), z
        self._solved: Array = cho_solve(self._factor(z), target)
        self._few = z[rows]
        self._inverse: Array = cho_solve(self._factor(self._few), np.eye(len(rows)))
        return self

    def _factor(self, z: Array) -> tuple[Array, bool]:
        from scipy.linalg import cho_factor

        noise = (self._theta.noise**2 + _JITTER) * np.eye(len(z))
        factor, lower = cho_factor(self._theta.cross(z, z) + noise, lower=True)
        return factor, bool(lower)

    def predict(self, x: Array) -> Array:
        """Mean of a new measurement, ``[m]``."""
        z = (x - self._mean) / self._spread
        mean: Array = self._y_mean + self._theta.cross(z, self._z) @ self._solved
        return mean

    def variance(self, x: Array) -> Array:
        """Variance of a new measurement, ``[m]``; from at most some hundred rows, so not less."""
        z = (x - self._mean) / self._spread
        cross = self._theta.cross(z, self._few)
        known = ((cross @ self._inverse) * cross).sum(1)
        variance: Array = self._theta.own(z) + self._theta.noise**2 - known
        return np.maximum(variance, 1e-9)

    def _cost(self, logs: Array, z: Array, target: Array) -> tuple[float, Array]:
        """Negative log of marginal likelihood times prior, and its gradient."""
        from scipy.linalg import cho_factor, cho_solve

        theta, rows = _Theta.of(logs), len(z)
        smooth, linear = theta.smooth(z, z), theta.slope**2 * (z @ z.T)
        factor = cho_factor(smooth + linear + (theta.noise**2 + _JITTER) * np.eye(rows), lower=True)
        solved = cho_solve(factor, target)
        surplus = np.outer(solved, solved) - cho_solve(factor, np.eye(rows))
        weighted, scaled = surplus * smooth, z / theta.lengths
        squares = weighted.sum(1) @ scaled**2 - ((weighted @ scaled) * scaled).sum(0)
        gradient = -np.concatenate(
            [
                squares,
                [weighted.sum(), theta.noise**2 * np.trace(surplus), (surplus * linear).sum()],
            ]
        )
        off = (logs - self._prior) / self._prior_spread
        cost = 0.5 * target @ solved + np.log(np.diag(factor[0])).sum() + 0.5 * off @ off
        return float(cost), gradient + off / self._prior_spread


def fit_roofline(terms: Array, y: Array) -> Array:
    """Coefficients of a sum of terms, none negative, least squared relative error, ``[t]``."""
    from scipy.optimize import nnls

    scale = np.maximum(terms.max(0), 1e-300)  # a term may not occur at all
    coefficients, _ = nnls(terms / scale / y[:, None], np.ones(len(y)))
    result: Array = coefficients / scale
    return result


@dataclass(frozen=True, slots=True)
class _Member:
    """A trend and what it leaves over.

    Attributes:
        roofline: Coefficients of the trend; None for no trend.
        rest: Process on the log of value over trend.
    """

    roofline: Array | None
    rest: GaussianProcess

    @classmethod
    def fit(cls, layers: Columns, y: Array, *, roofline: bool) -> "_Member":
        coefficients = fit_roofline(roofline_terms(layers), y) if roofline else None
        rest = np.log(y) - _log_trend(layers, coefficients)
        return cls(coefficients, GaussianProcess().fit(log_features(layers), rest))

    def predict(self, layers: Columns, features: Array) -> Array:
        return self.rest.predict(features) + _log_trend(layers, self.roofline)


def _log_trend(layers: Columns, coefficients: Array | None) -> Array:
    if coefficients is None:
        return np.zeros(len(layers))
    trend: Array = np.log(roofline_terms(layers) @ coefficients)
    return trend


class DefaultModel:
    """Runtime or power of one layer type; see the module.

    Args:
        roofline: Runtime: one member with a roofline trend and one without, weighted by their
            certainty at each layer. False for power, which is bounded and needs no such trend.
    """

    def __init__(self, *, roofline: bool = True) -> None:
        self.roofline = roofline

    def fit(self, layers: Columns, y: Array) -> "DefaultModel":
        """Fit to positive values ``[n]``.

        Raises:
            ProfileError: Too few rows, or a value is not positive and finite.
        """
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no stubs

        values = check_targets(layers, y)
        trends = (True, False) if self.roofline else (False,)
        with threadpool_limits(1):  # matrices are too small to share; threads would only wait
            self._members = [_Member.fit(layers, values, roofline=trend) for trend in trends]
        return self

    def predict(self, layers: Columns) -> Array:
        """Estimate the median, ``[m]``."""
        features = log_features(layers)
        if len(self._members) == 1:
            return np.exp(self._members[0].predict(layers, features))
        means = np.array([member.predict(layers, features) for member in self._members])
        weights, _ = self._certainty(features)
        estimate: Array = np.exp((weights * means).sum(0))
        return estimate

    def spread(self, layers: Columns) -> Array:
        """Relative standard deviation of a new measurement, ``[m]``."""
        weights, variance = self._certainty(log_features(layers))
        spread: Array = np.sqrt((weights * variance).sum(0))
        return spread

    def _certainty(self, features: Array) -> tuple[Array, Array]:
        """Weights of the members by their certainty, and their variances, ``[members, m]``."""
        variance = np.array([member.rest.variance(features) for member in self._members])
        return (1.0 / variance) / (1.0 / variance).sum(0), variance
