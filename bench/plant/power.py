"""Power of a board, rail by rail: C V^2 f with activity, leakage with heat, memory by traffic.

Constants come from ``physics.power`` of the board file. All sums work on arrays as well as on
single operating points, so that an oracle can ask for a whole grid at once.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.plant.board import BoardSpec
from bench.plant.physics import physics
from bench.plant.types import Activity, Clocks, Rails

Array = NDArray[np.float64]

_LEAK_DOUBLING_C = 40.0
"""Rise of temperature that doubles leakage; usual for these processes (assumption)."""
_REFERENCE_C = 25.0


def _floats(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


class Duty(NamedTuple):
    """Mean activity over a period; each a number or an array.

    Attributes:
        cpu: Busy cores, a mean.
        gpu: Share of time that kernels run.
        compute: Share of time that arithmetic limits them.
        bytes_per_us: Memory traffic.
    """

    cpu: Array
    gpu: Array
    compute: Array
    bytes_per_us: Array


def duty_of(activity: Activity | None, period_us: ArrayLike) -> Duty:
    """Average an activity over a period; a job longer than the period fills it.

    Args:
        activity: What a job does (its fields may be arrays), or None for an idle board.
        period_us: From one job to the next, us; 0 for back to back.
    """
    if activity is None:
        zero = np.zeros(())
        return Duty(zero, zero, zero, zero)
    span = np.maximum(np.asarray(period_us, dtype=np.float64), activity.latency_us)
    cores = _floats(activity.cpu_busy_us) + activity.helper_us
    busy = (cores, activity.gpu_busy_us, activity.gpu_compute_us, activity.dram_bytes)
    return Duty(*(_floats(part) / span for part in busy))


class PowerModel:
    """True power of a board.

    Args:
        board: Its definition.
    """

    def __init__(self, board: BoardSpec) -> None:
        self.board = board
        self._p = physics(board, "power")
        self._labels = tuple(rail.label for rail in board.rails)
        totals = tuple(rail.label for rail in board.rails if rail.is_total)
        memory = self._p["memory"]["rail"]
        self._total = totals[0] if totals else ""
        self._disjoint = totals or tuple(label for label in self._labels if label != memory)

    def volts(self, domain: str, hz: ArrayLike) -> Array:
        """Supply voltage of ``"cpu"`` or ``"gpu"`` at a clock, V."""
        table = self._p[domain]
        return np.interp(_floats(hz), table["volt_hz"], np.asarray(table["volt_mv"]) / 1e3)

    def rails(
        self,
        clocks: Clocks,
        activity: Activity | None = None,
        period_us: float = 0.0,
        temp_c: float = 45.0,
    ) -> Rails:
        """Tell the mean true power of each rail over a period.

        Args:
            clocks: Clocks held over the period, Hz.
            activity: The job in it; None for an idle board. Outside the job all clocks stay pinned.
            period_us: Length of the period, us; 0 for back to back.
            temp_c: Temperature of the chip.
        """
        grid = self.rails_grid(*clocks, duty_of(activity, period_us), temp_c)
        return Rails({label: float(value) for label, value in grid.items()}, self._disjoint)

    def mean_power_mw(
        self,
        clocks: Clocks,
        activity: Activity | None = None,
        period_us: float = 0.0,
        temp_c: float = 45.0,
    ) -> float:
        """Tell the mean true power of the module over a period, mW; arguments as :meth:`rails`."""
        return self.rails(clocks, activity, period_us, temp_c).total_mw

    def parts_grid(
        self, cpu_hz: ArrayLike, gpu_hz: ArrayLike, emc_hz: ArrayLike, duty: Duty, temp_c: ArrayLike
    ) -> dict[str, Array]:
        """Tell the mean power of ``"cpu"``, ``"gpu"``, ``"memory"`` and ``"soc"``, W.

        All arguments broadcast against each other.
        """
        leak = 2.0 ** ((_floats(temp_c) - _REFERENCE_C) / _LEAK_DOUBLING_C)
        return {
            "cpu": self._cpu(cpu_hz, duty, leak),
            "gpu": self._gpu(gpu_hz, duty, leak),
            "memory": self._memory(emc_hz, duty),
            "soc": self._soc(emc_hz, duty),
        }

    def rails_grid(
        self, cpu_hz: ArrayLike, gpu_hz: ArrayLike, emc_hz: ArrayLike, duty: Duty, temp_c: ArrayLike
    ) -> dict[str, Array]:
        """Tell the mean power of each rail, mW; arguments as :meth:`parts_grid`."""
        parts = self.parts_grid(cpu_hz, gpu_hz, emc_hz, duty, temp_c)
        system = self._p["system"]
        watts: dict[str, Any] = dict.fromkeys(self._labels, 0.0)
        for name, power in parts.items():
            label = self._p[name]["rail"]
            if label != system["rail"]:
                watts[label] = watts[label] + power
        chip = parts["cpu"] + parts["gpu"] + parts["soc"]
        base = system["idle_w"] + parts["memory"] + system["loss"] * chip
        watts[system["rail"]] = base + (chip if self._total else 0.0)
        shape = np.broadcast_shapes(*(np.shape(value) for value in watts.values()))
        return {label: np.broadcast_to(value, shape) * 1e3 for label, value in watts.items()}

    def total_grid(
        self, cpu_hz: ArrayLike, gpu_hz: ArrayLike, emc_hz: ArrayLike, duty: Duty, temp_c: ArrayLike
    ) -> Array:
        """Tell the mean power of the module, mW; arguments as :meth:`parts_grid`."""
        grid = self.rails_grid(cpu_hz, gpu_hz, emc_hz, duty, temp_c)
        total: Array = np.sum([grid[label] for label in self._disjoint], axis=0)
        return total

    def _cpu(self, hz: ArrayLike, duty: Duty, leak: Array) -> Array:
        c, volts = self._p["cpu"], self.volts("cpu", hz)
        swing = _floats(hz) / 1e9 * volts**2
        active: Array = swing * (c["core_w"] * duty.cpu + c["idle_w"] * len(self.board.cpus))
        leaked: Array = c["leak_w"] * volts * leak
        return active + leaked

    def _gpu(self, hz: ArrayLike, duty: Duty, leak: Array) -> Array:
        g, volts = self._p["gpu"], self.volts("gpu", hz)
        swing = _floats(hz) / 1e9 * volts**2
        active = g["busy_w"] * duty.gpu + g["compute_w"] * duty.compute
        moved = g["nj_per_byte"] * volts**2 * duty.bytes_per_us / 1e3
        power: Array = swing * (active + g["idle_w"]) + moved + g["leak_w"] * volts * leak
        return power

    def _memory(self, emc_hz: ArrayLike, duty: Duty) -> Array:
        m = self._p["memory"]
        idle = np.interp(_floats(emc_hz), self.board.emc_hz, m["idle_w"])
        power: Array = idle + m["nj_per_byte"] * duty.bytes_per_us / 1e3
        return power

    def _soc(self, emc_hz: ArrayLike, duty: Duty) -> Array:
        s = self._p["soc"]
        idle = np.interp(_floats(emc_hz), self.board.emc_hz, s["idle_w"])
        power: Array = idle + s["nj_per_byte"] * duty.bytes_per_us / 1e3
        return power
