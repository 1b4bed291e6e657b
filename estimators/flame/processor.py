"""Time of one processor against its clock: Eq. 2 of the FLAME paper, and a form that saturates.

All fits minimise relative error and keep every coefficient non-negative, so a time never rises with
its clock and never turns negative outside the profiled clocks.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from estimators.residual import Array

_KNEES = 16  # candidates for the saturation clock; a finer search does not lower the error
_RIDGE = 1e-12  # keeps equal columns solvable; far below any measuring error
_SHARPNESS = (2.0, 4.0, 16.0)  # of the bend: many kernels bend softly, a single one sharply


def fit_nonnegative(features: Array, target: Array, scale: Array | None = None) -> Array:
    """Least squares in relative error with coefficients >= 0, for many feature sets at once.

    With at most three coefficients, the best of all subsets left free is found faster by solving
    each of them than by walking from one to the next.

    Args:
        features: ``[..., n, d]``, d at most 3.
        target: What the features shall add up to, ``[n]``.
        scale: What errors are relative to, ``[n]``; the target itself if None.

    Returns:
        Coefficients, ``[..., d]``.
    """
    weight = 1.0 / np.maximum(np.abs(target if scale is None else scale), 1e-9)
    rows, goal = features * weight[:, None], target * weight
    size = np.sqrt((rows**2).sum(-2, keepdims=True))
    size[size == 0] = 1.0
    rows = rows / size
    normal, right = np.swapaxes(rows, -1, -2) @ rows, np.swapaxes(rows, -1, -2) @ goal
    best = np.zeros_like(right)
    error = np.zeros(right.shape[:-1])
    for subset in _subsets(features.shape[-1]):
        block = normal[..., subset[:, None], subset] + _RIDGE * np.eye(len(subset))
        solution = np.linalg.solve(block, right[..., subset, None])[..., 0]
        # The squared error less that of all zeros.
        change = -(solution * right[..., subset]).sum(-1)
        better = (solution >= 0).all(-1) & (change < error)
        full = np.zeros_like(best)
        full[..., subset] = solution
        best = np.where(better[..., None], full, best)
        error = np.where(better, change, error)
    coefficients: Array = best / size[..., 0, :]
    return coefficients


@lru_cache(maxsize=8)
def _subsets(count: int) -> tuple[NDArray[np.int64], ...]:
    """All non-empty subsets of ``count`` columns."""
    masks = product((False, True), repeat=count)
    return tuple(np.flatnonzero(mask) for mask in masks if any(mask))


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """``k/f + h (f^-q + knee^-q)^(1/q) + b``: work, work that saturates (memory), a fixed part.

    Attributes:
        k: Clock-bound work, us Hz.
        h: Work that hardly speeds up above the knee, us Hz; 0 in Eq. 2.
        b: Time that no clock changes, us.
        knee_hz: Saturation clock, Hz.
        sharpness: ``q``.
    """

    k: float
    h: float
    b: float
    knee_hz: float = 1.0
    sharpness: float = 1.0

    def __call__(self, clock_hz: NDArray[np.generic] | Array) -> Array:
        """Time at each clock, us."""
        f = np.asarray(clock_hz, dtype=np.float64)
        saturating = self.h * _saturating(f, self.knee_hz, self.sharpness) if self.h else 0.0
        result: Array = self.k / f + saturating + self.b
        return result

    @classmethod
    def fit(cls, clock_hz: Array, time_us: Array, *, saturates: bool = False) -> "ProcessorTime":
        """Fit to measurements.

        Args:
            clock_hz: Clocks, Hz, ``[n]``.
            time_us: Times, us, ``[n]``.
            saturates: Whether to look for a knee; Eq. 2 otherwise.
        """
        f = np.asarray(clock_hz, dtype=np.float64)
        if not time_us.any():
            return cls(0.0, 0.0, 0.0)
        ones = np.ones_like(f)
        k, b = fit_nonnegative(np.stack([1 / f, ones], 1), time_us)
        best = cls(float(k), 0.0, float(b))
        if not saturates or np.unique(f).size < 3:
            return best
        knees, sharpness = np.meshgrid(np.geomspace(f.min(), f.max(), _KNEES)[1:-1], _SHARPNESS)
        bend = _saturating(f, knees[..., None], sharpness[..., None])
        plain = np.broadcast_to(np.stack([1 / f, ones], -1), (*bend.shape, 2))
        features = np.concatenate([plain, bend[..., None]], axis=-1)
        found = fit_nonnegative(features, time_us)
        fitted = (features @ found[..., None])[..., 0]
        errors = ((fitted / time_us - 1) ** 2).sum(-1)
        at = np.unravel_index(int(errors.argmin()), errors.shape)
        k, b, h = (float(value) for value in found[at])
        return cls(k, h, b, float(knees[at]), float(sharpness[at]))


def _saturating(f: Array, knee_hz: Array | float, sharpness: Array | float) -> Array:
    """Inverse clock that levels off at ``1/knee``: two resources in series."""
    result: Array = (1 / f) * (1 + (f / knee_hz) ** sharpness) ** (1 / sharpness)
    return result
