"""Temperature of a live board, its zones, and the thermal framework's throttling."""

from collections.abc import Mapping

from bench.plant.board import BoardSpec
from bench.plant.semantics import Kernel
from bench.plant.tree import BoardFiles

_TRIP_C, _HYSTERESIS_C = 95.0, 3.0
_C_PER_W, _TAU_S = 0.9, 60.0


class Heat:
    """One thermal mass for the whole chip.

    Attributes:
        chip_c: Temperature of the chip.
    """

    def __init__(self, board: BoardSpec, files: BoardFiles) -> None:
        self._files = files
        self.ambient_c = float(board.physics["thermal"]["ambient_c"])
        self.chip_c = self.ambient_c + 15.0

    def step(self, power_mw: Mapping[str, float], seconds: float) -> None:
        """Let the mean power of a while warm the chip."""
        goal = self.ambient_c + _C_PER_W * sum(power_mw.values()) / 1000
        self.chip_c += (goal - self.chip_c) * min(seconds / _TAU_S, 1.0)
        self._files.zones.show({"*": round(self.chip_c * 1000)})

    def throttle(self, kernel: Kernel) -> bool:
        """Step the cooling devices as the kernel's step-wise governor does."""
        step = 1 if self.chip_c >= _TRIP_C else -1 if self.chip_c < _TRIP_C - _HYSTERESIS_C else 0
        changed = False
        for cooling in kernel.cooling:
            state = min(max(cooling.state + step, 0), cooling.max_state)
            if state != cooling.state:
                cooling.set_state(state)
                changed = True
        return changed
