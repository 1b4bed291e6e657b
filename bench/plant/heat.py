"""Temperature of a live board as its zones show it, and the thermal framework's throttling."""

from collections.abc import Mapping

from bench.plant.board import BoardSpec
from bench.plant.cooling import Cooling
from bench.plant.devfreq import Devfreq
from bench.plant.semantics import Kernel
from bench.plant.sensors import Zones
from bench.plant.thermal import Thermal

_SHARED_GPU = 0.7
"""GPU's share of a rail that feeds both CPU and GPU (assumption)."""


class Heat:
    """Warms a chip by the power of its rails.

    Args:
        board: The board.
        zones: Where the temperatures are shown.
        idle_mw: Power of each rail while idle, mW; the chip starts as warm as this leaves it.
    """

    def __init__(self, board: BoardSpec, zones: Zones, idle_mw: Mapping[str, float]) -> None:
        self._board, self._zones = board, zones
        power = board.physics["power"]
        self._rail = {region: str(power[region]["rail"]) for region in ("cpu", "gpu", "soc")}
        idle_c = Thermal(board).steady_c(self._watts(idle_mw))["tj"]
        self._thermal = Thermal(board, idle_c)
        self._show()

    @property
    def chip_c(self) -> float:
        """Temperature of the hottest region."""
        return self._thermal.temp_c["tj"]

    def set(self, chip_c: float) -> None:
        """Bring the whole chip to a temperature."""
        self._thermal = Thermal(self._board, chip_c)
        self._show()

    def step(self, power_mw: Mapping[str, float], seconds: float) -> None:
        """Let the mean power of a while warm the chip."""
        self._thermal.step(self._watts(power_mw), seconds)
        self._show()

    def throttle(self, kernel: Kernel) -> bool:
        """Step the cooling devices as the step-wise governor does; tells whether one moved."""
        trends = self._thermal.trends()
        moved = [self._step(cooling, trends) for cooling in kernel.cooling]
        return any(moved)

    def _step(self, cooling: Cooling, trends: Mapping[str, int]) -> bool:
        trend = trends["gpu" if isinstance(cooling.target, Devfreq) else "cpu"]
        state = min(max(cooling.state + trend, 0), cooling.max_state)
        if state == cooling.state:
            return False
        cooling.set_state(state)
        return True

    def _watts(self, power_mw: Mapping[str, float]) -> dict[str, float]:
        """Share the rails' power out to the regions that they feed."""
        cpu, gpu, soc = (power_mw.get(self._rail[part], 0.0) / 1e3 for part in self._rail)
        if self._rail["cpu"] == self._rail["gpu"]:
            cpu, gpu = cpu * (1.0 - _SHARED_GPU), gpu * _SHARED_GPU
        if self._rail["soc"] in (self._rail["cpu"], self._rail["gpu"]):
            soc = 0.0
        return {"cpu": cpu, "gpu": gpu, "soc": soc}

    def _show(self) -> None:
        shown = {part: round(celsius * 1000) for part, celsius in self._thermal.temp_c.items()}
        self._zones.show({**shown, "*": shown["soc"]})
