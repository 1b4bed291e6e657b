"""Words shared by the rooms of the simulated board."""

from dataclasses import dataclass
from typing import NamedTuple


class Clocks(NamedTuple):
    """One clock per domain of the plant, Hz."""

    cpu_hz: int
    gpu_hz: int
    emc_hz: int


class Activity(NamedTuple):
    """What a job did to the rails; times in us, traffic in bytes.

    Attributes:
        latency_us: Start to end of the job.
        cpu_busy_us: Time the launching core was busy.
        gpu_busy_us: Time the GPU was executing kernels.
        gpu_compute_us: Arithmetic done, as time at the full rate of the arithmetic units.
        dram_bytes: Bytes moved to and from memory.
        helper_us: Core time of threads besides the launching one.
    """

    latency_us: float
    cpu_busy_us: float
    gpu_busy_us: float
    gpu_compute_us: float
    dram_bytes: float
    helper_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Rails:
    """Power per rail, mW (true values, before the sensor).

    Attributes:
        power_mw: Power by rail label.
        disjoint: Labels that add up to the module; empty if all do. Some rails feed others.
    """

    power_mw: dict[str, float]
    disjoint: tuple[str, ...] = ()

    @property
    def total_mw(self) -> float:
        """Module power: the sum of the rails that do not contain one another, mW."""
        return sum(self.power_mw[label] for label in self.disjoint or self.power_mw)
