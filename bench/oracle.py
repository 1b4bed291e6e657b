"""The least power that keeps the deadlines: what a governor that knows everything would draw.

The oracle knows the simulated board's true latencies, their noise and its true power. For one
segment (one model, one deadline, jobs released at a fixed period) it holds the attainable operating
point of least mean power, idle time included, among those at which

- ``tail``: at most 1 % of a large sample of jobs is late (the bar for a governor that may be late
  on 1 % of its jobs);
- ``mean``: the noise-free latency fits the deadline (looser: about half of the jobs may be late at
  a point that only just fits).

It pays nothing for clock changes. Simulated boards only; nothing here is visible to a policy.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.plant.engine import Engine
from bench.plant.noise import Noise
from bench.plant.power import PowerModel, duty_of
from bench.plant.types import Activity, Clocks
from bench.qos import MISS_BUDGET

Basis = Literal["tail", "mean"]

SAMPLE = 1000
"""Jobs run at a candidate point; a share of 1 % is then known to within 0.6 % at two sigma."""

DEFINITION = (
    "per segment the attainable operating point of least true mean power, idle included, among "
    "those late on at most 1 % of jobs (true latency distribution); clock changes cost nothing"
)


class Best(NamedTuple):
    """What the oracle holds during a segment.

    Attributes:
        cpu_hz: CPU clock.
        gpu_hz: GPU clock.
        power_mw: Mean power over a period.
        feasible: False if no point keeps the deadline; the point is then the fastest one.
    """

    cpu_hz: int
    gpu_hz: int
    power_mw: float
    feasible: bool


class Oracle:
    """Finds the best point of segments of one workload.

    Args:
        engine: The workload on its board; its random stream is replaced.
        power: True power of the board.
        cpu_hz: Attainable CPU clocks, Hz.
        gpu_hz: Attainable GPU clocks, Hz.
        emc_hz: Memory clock in force, Hz.
        temp_c: Temperature of the chip, which leakage follows.
        seed: Seed of the sample; the same one at every point, so that answers do not depend on
            what was asked before.
    """

    def __init__(
        self,
        engine: Engine,
        power: PowerModel,
        *,
        cpu_hz: Sequence[int],
        gpu_hz: Sequence[int],
        emc_hz: int,
        temp_c: float,
        seed: int = 0,
    ) -> None:
        self._engine, self._power, self._seed = engine, power, seed
        self._cpu_hz, self._gpu_hz = tuple(cpu_hz), tuple(gpu_hz)
        self._emc_hz, self._temp_c = emc_hz, temp_c
        self._activities: dict[int, Activity] = {}
        self._late: dict[tuple[int, int, float, int], float] = {}

    def best(
        self,
        deadline_us: float,
        *,
        context: int = 0,
        basis: Basis = "tail",
        period_us: float | None = None,
    ) -> Best:
        """Find the point of least power for jobs that must be done in ``deadline_us``.

        Args:
            deadline_us: Time allowed for each job, us.
            context: Tokens in the context.
            basis: What counts as keeping the deadline.
            period_us: Time from one release to the next, us; the deadline if not given.
        """
        latency_us = np.asarray(self._activity(context).latency_us)
        power_mw = self.power_mw(period_us or deadline_us, context=context)
        for flat in np.argsort(power_mw, axis=None):
            c, g = (int(i) for i in np.unravel_index(flat, power_mw.shape))
            if latency_us[c, g] > deadline_us:
                continue
            if basis == "mean" or self.late_share(c, g, deadline_us, context) <= MISS_BUDGET:
                return self._at(c, g, power_mw, feasible=True)
        c, g = (int(i) for i in np.unravel_index(latency_us.argmin(), latency_us.shape))
        return self._at(c, g, power_mw, feasible=False)

    def power_mw(self, period_us: float, *, context: int = 0) -> NDArray[np.float64]:
        """Tell the mean power at every point, mW, shape [C, G]."""
        cpu = np.array(self._cpu_hz)[:, None]
        gpu = np.array(self._gpu_hz)[None, :]
        duty = duty_of(self._activity(context), period_us)
        return self._power.total_grid(cpu, gpu, self._emc_hz, duty, self._temp_c)

    def late_share(self, c: int, g: int, deadline_us: float, context: int = 0) -> float:
        """Run a sample of jobs at a point, by index, and tell the share that is late."""
        key = c, g, deadline_us, context
        if key not in self._late:
            clocks = Clocks(self._cpu_hz[c], self._gpu_hz[g], self._emc_hz)
            self._engine.noise = Noise(self._seed, self._engine.noise.bursts)
            latency_us = self._engine.run(clocks, context=context, n=SAMPLE)
            self._late[key] = float((latency_us > deadline_us).mean())
        return self._late[key]

    def _at(self, c: int, g: int, power_mw: NDArray[np.float64], *, feasible: bool) -> Best:
        return Best(self._cpu_hz[c], self._gpu_hz[g], float(power_mw[c, g]), feasible)

    def _activity(self, context: int) -> Activity:
        """Noise-free activity at every point; each field an array of shape [C, G]."""
        if context not in self._activities:
            points = [
                self._engine.activity(Clocks(c, g, self._emc_hz), context)
                for c in self._cpu_hz
                for g in self._gpu_hz
            ]
            shape = len(self._cpu_hz), len(self._gpu_hz)
            columns = (np.array(column).reshape(shape) for column in zip(*points, strict=True))
            self._activities[context] = Activity(*columns)  # type: ignore[arg-type]  # arrays
        return self._activities[context]
