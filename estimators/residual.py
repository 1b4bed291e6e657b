"""What physics leaves over: a Gaussian process in log clocks on the logarithm of latency.

A physical form has the right shape between the measured points but is never exact on a real board.
Its relative error varies slowly with the clocks, so it is interpolated rather than ignored.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Scale(NamedTuple):
    """A candidate for how the systematic relative error behaves.

    Attributes:
        size: Its standard deviation.
        noise: Relative standard deviation of a measurement.
        length: Distance, in natural log of clock, over which it stays alike.
    """

    size: float
    noise: float
    length: float = 1.0


SCALES = (
    Scale(0.02, 0.005),
    Scale(0.05, 0.005),
    Scale(0.05, 0.015),
    Scale(0.03, 0.03),
    Scale(0.1, 0.03),
    Scale(0.05, 0.005, 0.25),
)
"""Smooth errors of several sizes, and one that changes from one clock to the next."""


def distances2(points: Array, others: Array) -> Array:
    """Squared distance between rows, ``[n, d]`` and ``[m, d]`` to ``[n, m]``."""
    square: Array = ((points[:, None, :] - others[None, :, :]) ** 2).sum(-1)
    return square


@dataclass(frozen=True, slots=True)
class Kernel:
    """Squared-exponential covariance of relative errors.

    Attributes:
        points: Where the measurements stand, ``[n, d]``, natural log of clocks.
        scale: How errors behave.
    """

    points: Array
    scale: Scale

    def cross(self, others: Array) -> Array:
        """Covariance of the systematic error at ``[m, d]`` points with the measured ones."""
        distance = distances2(others, self.points) / self.scale.length**2
        result: Array = self.scale.size**2 * np.exp(-0.5 * distance)
        return result

    def covariance(self) -> Array:
        """Covariance of the measured relative errors, ``[n, n]``."""
        result: Array = self.cross(self.points) + self.scale.noise**2 * np.eye(len(self.points))
        return result


def interpolate(points: Array, errors: Array, others: Array) -> Array:
    """Carry log errors from measured points to others, choosing the scale by its evidence.

    Args:
        points: Measured points, ``[n, d]``.
        errors: Log of measured over predicted there, ``[n]``.
        others: Where to estimate, ``[m, d]``.

    Returns:
        Estimated log error, ``[m]``: the candidates of :data:`SCALES` averaged by evidence.
    """
    log_evidence, means = [], []
    for scale in SCALES:
        kernel = Kernel(points, scale)
        covariance = kernel.covariance()
        solved = np.linalg.solve(covariance, errors)
        _, log_det = np.linalg.slogdet(covariance)
        log_evidence.append(-0.5 * float(errors @ solved) - 0.5 * float(log_det))
        means.append(kernel.cross(others) @ solved)
    result: Array = softmax(np.array(log_evidence)) @ np.array(means)
    return result


def softmax(log_weights: Array) -> Array:
    """Turn log evidence into weights that add up to 1."""
    weights = np.exp(log_weights - log_weights.max())
    result: Array = weights / weights.sum()
    return result
