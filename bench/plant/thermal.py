"""Heat of a board: a small network of thermal resistances and capacities, with trip points.

Three regions of the die sit on one heat sink that gives its heat to the air. The constants are in
``physics.thermal`` of the board file. Regions react within a second, the sink within minutes.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec
from bench.plant.physics import physics

REGIONS = ("cpu", "gpu", "soc")
_STEP_S = 0.02
"""Longest step of the integration; the fastest region settles in about 0.3 s."""


class Thermal:
    """Temperatures of a board.

    Args:
        board: Its definition.
        start_c: Temperature of everything at the start; None for the air's.

    Attributes:
        ambient_c: Temperature of the air.
    """

    def __init__(self, board: BoardSpec, start_c: float | None = None) -> None:
        t = physics(board, "thermal")
        self.ambient_c = float(t["ambient_c"])
        self._trip_c, self._hysteresis_c = float(t["trip_c"]), float(t["hysteresis_c"])
        self._die_j, self._sink_j = float(t["die_j_per_k"]), float(t["sink_j_per_k"])
        self._die_k, self._sink_k = float(t["die_k_per_w"]), float(t["sink_k_per_w"])
        start = self.ambient_c if start_c is None else start_c
        self._die: NDArray[np.float64] = np.full(len(REGIONS), start)
        self._sink = start

    @property
    def temp_c(self) -> dict[str, float]:
        """Temperature of each region and of the sink; ``"tj"`` is the hottest."""
        shown = dict(zip(REGIONS, self._die.tolist(), strict=True))
        return {**shown, "sink": self._sink, "tj": float(self._die.max())}

    def step(self, watts: Mapping[str, float], seconds: float) -> None:
        """Let constant power flow for a while.

        Args:
            watts: Power of each region, W; missing ones are 0.
            seconds: How long.
        """
        power = np.array([watts.get(region, 0.0) for region in REGIONS])
        for _ in range(whole := max(1, int(np.ceil(seconds / _STEP_S)))):
            span = seconds / whole
            flow = (self._die - self._sink) / self._die_k
            out = (self._sink - self.ambient_c) / self._sink_k
            self._die = self._die + (power - flow) * (span / self._die_j)
            self._sink += (float(flow.sum()) - out) * (span / self._sink_j)

    def steady_c(self, watts: Mapping[str, float]) -> dict[str, float]:
        """Tell the temperatures that constant power ends at."""
        sink = self.ambient_c + self._sink_k * sum(watts.get(region, 0.0) for region in REGIONS)
        shown = {region: sink + self._die_k * watts.get(region, 0.0) for region in REGIONS}
        return {**shown, "sink": sink, "tj": max(shown.values())}

    def trends(self) -> dict[str, int]:
        """Say what the step-wise thermal governor does next, for ``"cpu"`` and ``"gpu"``.

        Returns:
            1 to take one more clock away, -1 to give one back, 0 to stay.
        """
        temps = self.temp_c
        return {region: self._trend(temps[region]) for region in ("cpu", "gpu")}

    def _trend(self, temp_c: float) -> int:
        if temp_c >= self._trip_c:
            return 1
        return -1 if temp_c < self._trip_c - self._hysteresis_c else 0
