"""From a few measured points to a full grid: which points to measure, and how to fill the rest.

Levels sit at both ends and geometrically between, and values are interpolated linearly in 1/f on
each axis: time is work over speed, so a latency is near to linear in 1/f between neighbours, and
where CPU and GPU overlap (a maximum, convex) the chord errs to the slow, safe side.
"""

import numpy as np
from numpy.typing import NDArray


def levels(clocks_hz: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Choose indices of ``count`` clocks: both ends and geometric steps between.

    Args:
        clocks_hz: Ascending clocks, Hz, shape [n].
        count: How many; all of them if there are fewer.

    Returns:
        Ascending indices; fewer than asked for where two steps fall onto one clock.
    """
    if count >= len(clocks_hz):
        return np.arange(len(clocks_hz))
    targets = np.geomspace(float(clocks_hz[0]), float(clocks_hz[-1]), max(count, 2))
    nearest = [int(np.abs(np.log(clocks_hz / target)).argmin()) for target in targets]
    return np.unique(nearest)


def fill(
    knots_us: NDArray[np.float64],
    knots_hz: tuple[NDArray[np.int64], NDArray[np.int64]],
    clocks_hz: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.float64]:
    """Interpolate between measured points, linear in 1/f along the CPU and the GPU axis.

    Args:
        knots_us: Measured values, shape [..., c, g].
        knots_hz: Ascending CPU [c] and GPU [g] clocks that were measured, Hz.
        clocks_hz: Ascending CPU [C] and GPU [G] clocks wanted, Hz, inside the measured range.

    Returns:
        Values, shape [..., C, G]; those of the knots unchanged.
    """
    cpu = _weights(knots_hz[0], clocks_hz[0])
    gpu = _weights(knots_hz[1], clocks_hz[1])
    filled: NDArray[np.float64] = cpu @ knots_us @ gpu.T
    return filled


def _weights(knots_hz: NDArray[np.int64], clocks_hz: NDArray[np.int64]) -> NDArray[np.float64]:
    """Matrix that interpolates linearly in 1/f, shape [wanted, knots]."""
    identity = np.eye(len(knots_hz))
    x, at = 1.0 / clocks_hz, 1.0 / knots_hz[::-1]  # np.interp wants an ascending axis
    return np.stack([np.interp(x, at, row[::-1]) for row in identity], axis=1)
