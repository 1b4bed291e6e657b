"""Online correction of a table by what was measured: FLAME, Eqs. 10 and 11.

Of every window of w + 1 jobs the mean error sigma_t (Eq. 10) is smoothed into
``delta_t = alpha * sigma_t + (1 - alpha) * delta_(t-1)``, and the table is shifted by it (Eq. 11).
The paper prints delta_t on both sides, which would leave the measurement out. Windows do not
overlap.

The text leaves open what the "estimated value" of Eq. 10 is, so there are three readings. With a
constant bias B the part of it that remains after each update at alpha = 0.6 is

- ``raw``: the table's own value. delta tends to B: 40, 16, 6 % of B remain.
- ``cumulative``: the shifted value, and Eq. 11 shifts in place, so that deltas add up: 40, -8,
  -22, -15, -3 %.
- ``self``: the shifted value, and delta replaces the shift. It settles at B/2 whatever alpha is;
  kept for comparison.
"""

import math
from typing import Literal, get_args

CorrectorMode = Literal["raw", "cumulative", "self"]

FLOOR_RATIO = 0.1
"""No corrected value is below this share of the table's.

A shift learned at a slow point may exceed the whole latency of a fast one. The floor keeps the
result positive, and still rising with the table's value, so that searches remain valid.
"""


class Corrector:
    """Shift of one table, learned in non-overlapping windows.

    Args:
        mode: Reading of Eqs. 10-11, see above.
        window: Jobs per update, w + 1 in Eq. 10.
        alpha: Weight of the newest window, over 0 up to 1.

    Attributes:
        offset_us: Shift in force, us.

    Raises:
        ValueError: A parameter is out of its range.
    """

    __slots__ = ("_alpha", "_count", "_delta_us", "_mode", "_sum_us", "_window", "offset_us")

    def __init__(
        self, mode: CorrectorMode = "raw", *, window: int = 10, alpha: float = 0.6
    ) -> None:
        if mode not in get_args(CorrectorMode):
            raise ValueError(f"corrector must be one of {get_args(CorrectorMode)}, not {mode!r}")
        if window < 1:
            raise ValueError(f"window must be at least 1 job, not {window}")
        if not 0.0 < alpha <= 1.0:
            raise ValueError(f"alpha must be over 0 and up to 1, not {alpha}")
        self._mode, self._window, self._alpha = mode, window, alpha
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.offset_us = 0.0
        self._delta_us = 0.0
        self._sum_us = 0.0
        self._count = 0

    def apply(self, raw_us: float) -> float:
        """Correct one value of the table, us; never below ``FLOOR_RATIO`` of it."""
        shifted_us, floor_us = raw_us + self.offset_us, raw_us * FLOOR_RATIO
        return shifted_us if shifted_us > floor_us else floor_us

    def raw_limit_us(self, limit_us: float) -> float:
        """Tell the largest value of the table that is corrected to at most ``limit_us``, us."""
        shifted_us, ceiling_us = limit_us - self.offset_us, limit_us / FLOOR_RATIO
        return shifted_us if shifted_us < ceiling_us else ceiling_us

    def observe(self, raw_us: float, measured_us: float) -> bool:
        """Learn from one job.

        Args:
            raw_us: The table's value where the job ran, us.
            measured_us: What it took, us; ignored unless positive and finite, as is ``raw_us``.

        Returns:
            True if this job filled a window and the shift was updated.
        """
        if not (0.0 < raw_us < math.inf and 0.0 < measured_us < math.inf):
            return False
        estimate_us = raw_us if self._mode == "raw" else self.apply(raw_us)
        self._sum_us += measured_us - estimate_us
        self._count += 1
        if self._count < self._window:
            return False
        self._update(self._sum_us / self._count)
        self._sum_us, self._count = 0.0, 0
        return True

    def _update(self, sigma_us: float) -> None:
        self._delta_us = self._alpha * sigma_us + (1.0 - self._alpha) * self._delta_us
        if self._mode == "cumulative":
            self.offset_us += self._delta_us
        else:
            self.offset_us = self._delta_us
