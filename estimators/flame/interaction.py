"""How the CPU and GPU parts of a layer overlap: Eqs. 1 and 4 of the FLAME paper, or max-plus.

Eq. 4 gives the timing factor Delta in two planes over 1/f, chosen by a threshold. For an in-order
stream Delta is a smooth-edged minimum of a CPU and a GPU time, so the threshold belongs to the
ratio of clocks where the GPU is bound by arithmetic, and to the CPU clock alone where it is bound
by memory: both are offered. The max-plus form models the isolated total itself as the longer of two
paths.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.flame.processor import fit_nonnegative
from estimators.residual import Array

Threshold = Literal["cpu", "ratio"]

_MIN_SIDE = 3  # points that a plane with three coefficients needs
_ROUNDS = 8  # rounds of assigning points to paths; two or three settle it


def _plane(cpu_hz: Array, gpu_hz: Array) -> Array:
    return np.stack([1 / cpu_hz, 1 / gpu_hz, np.ones_like(cpu_hz)], axis=-1)


@dataclass(frozen=True, slots=True)
class Delta:
    """Eq. 4: the timing factor in two regimes.

    Attributes:
        below: ``(k_c, k_g, b)`` up to the breakpoint (GPU unsaturated), us Hz and us.
        above: The same beyond it (GPU saturated).
        breakpoint: CPU clock in Hz, or ratio of CPU to GPU clock.
        threshold: What the breakpoint is compared with.
    """

    below: Array
    above: Array
    breakpoint: float
    threshold: Threshold

    def __call__(self, cpu_hz: Array, gpu_hz: Array) -> Array:
        """Timing factor, us; clocks broadcast."""
        cpu, gpu = np.broadcast_arrays(
            np.asarray(cpu_hz, dtype=np.float64), np.asarray(gpu_hz, dtype=np.float64)
        )
        plane = _plane(cpu, gpu)
        x = cpu if self.threshold == "cpu" else cpu / gpu
        result: Array = np.where(x <= self.breakpoint, plane @ self.below, plane @ self.above)
        return result

    @classmethod
    def fit(
        cls, cpu_hz: Array, gpu_hz: Array, delta_us: Array, total_us: Array, threshold: Threshold
    ) -> "Delta":
        """Detect the breakpoint and fit both regimes.

        Every split that leaves each side enough points is tried; the one with the least squared
        error (relative to the layer's total) is kept, so a layer without a break gets one plane.

        Args:
            cpu_hz: CPU clocks, Hz, ``[n]``.
            gpu_hz: GPU clocks, Hz, ``[n]``.
            delta_us: Timing factor, us, ``[n]``.
            total_us: Layer total that errors are relative to, us, ``[n]``.
            threshold: ``"cpu"`` as in the paper, or ``"ratio"``.
        """
        x = cpu_hz if threshold == "cpu" else cpu_hz / gpu_hz
        rows = _plane(cpu_hz, gpu_hz) / total_us[:, None]
        target = delta_us / total_us
        whole, error = _plane_fit(rows, target)
        best = cls(whole, whole, float(x.max()), threshold)
        for edge in np.unique(x)[:-1]:
            low = x <= edge
            if low.sum() < _MIN_SIDE or (~low).sum() < _MIN_SIDE:
                continue
            below, left = _plane_fit(rows[low], target[low])
            above, right = _plane_fit(rows[~low], target[~low])
            if left + right < error:
                middle = (edge + x[~low].min()) / 2
                best, error = cls(below, above, float(middle), threshold), left + right
        return best


def _plane_fit(rows: Array, target: Array) -> tuple[Array, float]:
    """Least squares and the squared error it leaves."""
    size = np.sqrt((rows**2).sum(0))
    size[size == 0] = 1.0
    # A cut-off, as one side of a break may hold a single clock of one domain.
    solution = np.linalg.lstsq(rows / size, target, rcond=1e-6)[0] / size
    return solution, float(((rows @ solution - target) ** 2).sum())


@dataclass(frozen=True, slots=True)
class Paths:
    """Isolated total as the longer of two paths, both falling in both clocks.

    ``max(C + u . (G, 1/f_c, 1), G + v . (C, 1/f_c, 1))``: the GPU trails the CPU by part of its own
    work and a launch delay, or the CPU leads the GPU by the part that precedes the first kernel.

    Attributes:
        trail: ``u``, non-negative, ``[3]``.
        lead: ``v``, non-negative, ``[3]``.
    """

    trail: Array
    lead: Array

    def __call__(self, cpu_hz: Array, cpu_us: Array, gpu_us: Array) -> Array:
        """Isolated total, us; arguments broadcast."""
        inverse = 1 / np.asarray(cpu_hz, dtype=np.float64)
        u, v = self.trail, self.lead
        result: Array = np.maximum(
            cpu_us + u[0] * gpu_us + u[1] * inverse + u[2],
            gpu_us + v[0] * cpu_us + v[1] * inverse + v[2],
        )
        return result

    @classmethod
    def fit(cls, cpu_hz: Array, cpu_us: Array, gpu_us: Array, total_us: Array) -> "Paths":
        """Fit by assigning each measurement to the path that is longer there.

        Args:
            cpu_hz: CPU clocks, Hz, ``[n]``.
            cpu_us: Fitted CPU time, us, ``[n]``.
            gpu_us: Fitted GPU time, us, ``[n]``.
            total_us: Isolated total, us, ``[n]``.
        """
        inverse, ones = 1 / cpu_hz, np.ones_like(cpu_hz)
        trail_rows = np.stack([gpu_us, inverse, ones], axis=1)
        lead_rows = np.stack([cpu_us, inverse, ones], axis=1)
        late = cpu_us >= gpu_us
        zero = np.zeros(3)
        best, error, seen = cls(zero, zero), np.inf, set[bytes]()
        for _ in range(_ROUNDS):
            # A path without points of its own must not exceed the other: it gets nothing to add.
            trail = _path(trail_rows, total_us - cpu_us, total_us, late)
            lead = _path(lead_rows, total_us - gpu_us, total_us, ~late)
            trial = cls(trail, lead)
            left = float((((trial(cpu_hz, cpu_us, gpu_us) - total_us) / total_us) ** 2).sum())
            if left < error:
                best, error = trial, left
            late = cpu_us + trail_rows @ trail >= gpu_us + lead_rows @ lead
            if late.tobytes() in seen:
                break
            seen.add(late.tobytes())
        return best


def _path(rows: Array, extra_us: Array, total_us: Array, own: NDArray[np.bool_]) -> Array:
    if not own.any():
        return np.zeros(3)
    return fit_nonnegative(rows[own], extra_us[own], total_us[own])
