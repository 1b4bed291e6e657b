"""Where to measure: few clocks that say most about all of them.

Where the points stand matters more than how many there are. Three designs:

- ``geometric`` (default for layers): levels in equal ratios with both ends, all pairs;
- ``interval``: every fourth clock from the lowest, as the FLAME paper does (section V); it leaves
  out the top clock unless the list is one longer than a multiple;
- ``spread`` (default for end-to-end runs): the corners, then the points that leave least
  uncertainty on average over the whole grid under a smooth prior (I-optimal, by exchange).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ProfileError
from estimators.residual import Array, distances2

Design = Literal["geometric", "interval", "spread"]

CONTEXT_INTERVAL = 90
"""Tokens between two profiled contexts (FLAME paper, section V)."""

# Prior of log latency over log clocks for the spread design: a plane, plus bends of 30 % over a
# factor of 1.6 in clock; measurements repeat to 2 %.
_PLANE, _BEND, _BEND_LENGTH, _NOISE, _LEVEL = 1.0, 0.3, 0.5, 0.02, 2.0
_SWEEPS = 5
_CORNERS_FROM = 5  # points from which the corners of a plane are worth their place


def geometric_levels(clocks_hz: Sequence[int], count: int) -> list[int]:
    """Choose levels in equal ratios, both ends included; fewer if clocks coincide.

    Args:
        clocks_hz: Ascending clocks, Hz.
        count: Levels wanted, at least 1; 1 takes the highest.
    """
    clocks = np.asarray(clocks_hz, dtype=np.float64)
    if count <= 1 or len(clocks) == 1:
        return [int(clocks_hz[-1])]
    wanted = np.log(np.geomspace(clocks[0], clocks[-1], count))
    # Reversed, so that of two clocks equally near the higher is taken.
    nearest = np.abs(wanted[:, None] - np.log(clocks[::-1])[None, :]).argmin(1)
    return sorted({int(clocks_hz[len(clocks) - 1 - i]) for i in nearest})


def interval_levels(values: Sequence[int], interval: int) -> list[int]:
    """Choose every ``interval``-th value from the first on (FLAME paper, section V)."""
    return [int(value) for value in values[::interval]]


def context_levels(longest: int, interval: int = CONTEXT_INTERVAL) -> list[int]:
    """Choose 1, every ``interval`` tokens and ``longest``; ``[0]`` if that is 0."""
    if longest <= 0:
        return [0]
    return sorted({1, *range(interval, longest + 1, interval), longest})


def spread_points(points: Array, count: int) -> NDArray[np.int64]:
    """Choose the rows that leave least average uncertainty over all rows.

    Args:
        points: Candidates, natural log of clocks, ``[n, d]``.
        count: How many to choose.

    Returns:
        Indices, ascending, ``[min(count, n)]``.
    """
    centred = points - points.mean(0)
    bends = _BEND**2 * np.exp(-0.5 * distances2(centred, centred) / _BEND_LENGTH**2)
    prior = _LEVEL**2 + _PLANE**2 * (centred @ centred.T) + bends
    count = min(count, len(points))
    chosen = _corners(centred)[:count] if count >= _CORNERS_FROM else []
    fixed = len(chosen)
    while len(chosen) < count:
        chosen.append(_best_addition(prior, chosen))
    for _ in range(_SWEEPS):
        if not _exchange(prior, chosen, fixed):
            break
    return np.array(sorted(chosen), dtype=np.int64)


def _corners(points: Array) -> list[int]:
    """Rows nearest to the corners of the box around a plane of points; none beyond a plane."""
    varying = np.flatnonzero(np.ptp(points, axis=0) > 0)
    if len(varying) > 2:
        return []
    low, high = points.min(0), points.max(0)
    corners = []
    for ends in product((0, 1), repeat=len(varying)):
        target = low.copy()
        target[varying] = np.where(ends, high[varying], low[varying])
        corners.append(int(((points - target) ** 2).sum(1).argmin()))
    return list(dict.fromkeys(corners))


def _best_addition(prior: Array, chosen: list[int]) -> int:
    """Row whose measurement takes away most variance, given those already chosen."""
    left = prior
    if chosen:
        known = prior[np.ix_(chosen, chosen)] + _NOISE**2 * np.eye(len(chosen))
        left = prior - prior[:, chosen] @ np.linalg.solve(known, prior[chosen])
    gain = (left**2).sum(0) / (np.diag(left) + _NOISE**2)
    gain[chosen] = -1.0
    return int(gain.argmax())


def _exchange(prior: Array, chosen: list[int], fixed: int) -> bool:
    """Put each free choice where it helps most now; tells whether any moved."""
    moved = False
    for place in range(fixed, len(chosen)):
        rest = chosen[:place] + chosen[place + 1 :]
        better = _best_addition(prior, rest)
        moved |= better != chosen[place]
        chosen[place] = better
    return moved


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and about how long it takes.

    Attributes:
        points: Clock pairs ``(cpu_hz, gpu_hz)``, Hz.
        context: Context lengths, tokens; ``[0]`` for models without one.
        iterations: Repetitions at each point and context.
        design: How the points were chosen.
        total: Pairs of the whole grid.
    """

    points: tuple[tuple[int, int], ...]
    context: tuple[int, ...]
    iterations: int
    design: Design
    total: int

    def expected_s(self, fastest_us: float) -> float:
        """Upper estimate of the measuring time: everything slows down with the slower clock.

        Args:
            fastest_us: Latency at the highest clocks, us.
        """
        top_cpu = max(cpu for cpu, _ in self.points)
        top_gpu = max(gpu for _, gpu in self.points)
        slowdown = sum(max(top_cpu / cpu, top_gpu / gpu) for cpu, gpu in self.points)
        return slowdown * fastest_us * 1e-6 * self.iterations * len(self.context)


def make_plan(
    cpu_hz: Sequence[int],
    gpu_hz: Sequence[int],
    *,
    design: Design = "geometric",
    points: int = 24,
    interval: int = 4,
    context: Sequence[int] = (0,),
    iterations: int = 400,
) -> Plan:
    """Plan the profiling of one model at one memory clock.

    Args:
        cpu_hz: Ascending CPU clocks of the board, Hz.
        gpu_hz: Ascending GPU clocks of the board, Hz.
        design: See the module.
        points: Pairs wanted (``geometric`` and ``spread``).
        interval: Step through the lists (``interval``).
        context: Contexts to measure at.
        iterations: Repetitions (the paper takes 400 for DNNs, 5 for language models).

    Raises:
        ProfileError: There are no clocks, or fewer than one point is wanted.
    """
    if not cpu_hz or not gpu_hz or points < 1 or interval < 1:
        raise ProfileError(
            "no plan possible",
            why=f"{len(cpu_hz)} CPU and {len(gpu_hz)} GPU clocks, {points} points, step {interval}",
            hint="give at least one clock per domain and one point",
        )
    if design == "spread":
        grid = list(product(cpu_hz, gpu_hz))
        chosen = [grid[i] for i in spread_points(np.log(np.array(grid, dtype=np.float64)), points)]
    elif design == "interval":
        chosen = list(product(interval_levels(cpu_hz, interval), interval_levels(gpu_hz, interval)))
    else:
        cpus, gpus = _levels_for(points, len(cpu_hz), len(gpu_hz))
        chosen = list(product(geometric_levels(cpu_hz, cpus), geometric_levels(gpu_hz, gpus)))
    total = len(cpu_hz) * len(gpu_hz)
    pairs = tuple((int(cpu), int(gpu)) for cpu, gpu in chosen)
    return Plan(pairs, tuple(int(c) for c in context), iterations, design, total)


def _levels_for(points: int, cpus: int, gpus: int) -> tuple[int, int]:
    """Split a number of points into CPU x GPU levels.

    Near 2 : 3 and never more than there are: GPU time bends where memory takes over, CPU time is
    nearly ``k/f``.
    """
    best = (1, 1)
    for gpu in range(1, min(gpus, points) + 1):
        cpu = min(cpus, points // gpu)
        better = cpu * gpu > best[0] * best[1]
        as_many = cpu * gpu == best[0] * best[1]
        if better or (as_many and abs(gpu - 1.5 * cpu) < abs(best[1] - 1.5 * best[0])):
            best = (cpu, gpu)
    return best
