"""First-hit searches along one clock axis of a table, exact on values in any order.

Policies ask for the lowest clock that is in time, thousands of times a second and between two
contexts. Running minima along the axis tell in two bisections where a hit can lie at the earliest;
from there on plain floats are looked at one by one. (The minima of two contexts bound what lies
between them but are not it: they may open the search, never end it.)
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Lines:
    """Latencies in rows along one clock axis.

    Args:
        values: Latency, us, float32 ``[rows, clocks]``.
    """

    __slots__ = ("_bounds", "_length", "_values")

    def __init__(self, values: NDArray[np.float32]) -> None:
        self._length = values.shape[1]
        # Negated, because bisect wants an ascending sequence.
        bounds = -np.minimum.accumulate(values, axis=1)
        # array.array, because its items are read twice as fast as a memoryview's.
        self._values, self._bounds = array("f", values.tobytes()), array("f", bounds.tobytes())

    def first(
        self,
        low: int,
        high: int,
        weight: float,
        limit_us: float,
        *,
        usable: Sequence[bool],
        begin: int = 0,
    ) -> tuple[int, float] | None:
        """Find the first usable clock whose value is within the limit.

        Values are interpolated first and compared then: ``v[low] + (v[high] - v[low]) * weight``.

        Args:
            low: First row.
            high: Second row.
            weight: Share of the second, 0..1.
            limit_us: Limit, us; nothing is within nan.
            usable: For each clock whether it may be the answer.
            begin: Index to start from.

        Returns:
            Index of the clock and the value there, us; None if there is none.
        """
        values, bounds, length, least = self._values, self._bounds, self._length, -limit_us
        low *= length
        start = bisect_left(bounds, least, low, low + length) - low
        high *= length
        if high != low:
            other = bisect_left(bounds, least, high, high + length) - high
            start = other if other < start else start  # min() takes three times as long
        for index in range(start if start > begin else begin, length):
            lower = values[low + index]
            value = lower + (values[high + index] - lower) * weight
            if value <= limit_us and usable[index]:
                return index, value
        return None

    def least(
        self, low: int, high: int, weight: float, limit_us: float, *, usable: Sequence[bool]
    ) -> tuple[int, float] | None:
        """Find the lowest value within a limit, and of equal ones the first; see :meth:`first`.

        Returns:
            Index of the clock and the value there, us; None if none is within the limit.
        """
        best, begin = None, 0
        while hit := self.first(low, high, weight, limit_us, usable=usable, begin=begin):
            best, begin, limit_us = hit, hit[0] + 1, math.nextafter(hit[1], -math.inf)
        return best
