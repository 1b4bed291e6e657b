"""The simulated board in closed form: how long job j takes, and what it draws, at any clocks.

A run of the event model gives the *luck* of a job: its latency over the latency without noise. Job
j of seed s has the same random numbers under all policies, so that policies are compared on the
same jobs. Luck is drawn at the nearest of 3 x 3 clocks, because it follows from the balance of CPU
and GPU and changes little in between; the latency without noise is that of the very clocks. A seed
has a pool of jobs that long runs go through again and again.

Power follows from the plant's power model, which is linear in how long a job is busy.
"""

import math
from array import array
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec, load_board
from bench.plant.engine import Engine
from bench.plant.noise import Noise
from bench.plant.power import PowerModel, duty_of
from bench.plant.types import Clocks
from bench.plant.workload import get_workload
from bench.plant.worlds import get_world
from governor.boards.sensors import Rails
from policies.base import Attainable

BLOCK, BLOCKS, TOKEN_BLOCKS = 64, 16, 4
"""Jobs drawn together, and blocks in the pool of a seed: 1024 jobs, or 256 tokens, which take ten
times as long to draw."""

KNOT = 64
"""Tokens between contexts at which latency is evaluated; linear in between."""

Array = NDArray[np.float64]


class Draw(NamedTuple):
    """Power of one state of the board, mW, at one operating point.

    Attributes:
        total: Whole module.
        sensed: Rails that the sensors of CPU and GPU read, then CPU, GPU and SoC on the die.
    """

    total: float
    sensed: tuple[float, float, float, float, float]

    @property
    def rails(self) -> tuple[float, float]:
        """Rails of CPU and GPU."""
        return self.sensed[0], self.sensed[1]

    @property
    def regions(self) -> tuple[float, float, float]:
        """CPU, GPU and SoC."""
        return self.sensed[2], self.sensed[3], self.sensed[4]


class Cost(NamedTuple):
    """Power while a job runs and while none does."""

    busy: Draw
    idle: Draw


class Subject:
    """One model on one board in one world.

    Args:
        board: Name of the board.
        model: Name of the model.
        world: Name of the world.
    """

    def __init__(self, board: str, model: str, world: str = "plain") -> None:
        self.board: BoardSpec = load_board(board)
        self.engine = Engine(self.board, get_workload(model), world=get_world(world))
        self.emc_hz = self.board.emc_hz[-1]
        self._power = PowerModel(self.board)
        self._luck: dict[tuple[int, int, Clocks], array[float]] = {}
        self._labels = tuple(rail.label for rail in self.board.rails)
        self._step_mw = {rail.label: rail.step_mw for rail in self.board.rails}
        self.activity = lru_cache(maxsize=1 << 15)(self.engine.activity)
        self.cost = lru_cache(maxsize=1 << 15)(self._cost)
        self._anchor = lru_cache(maxsize=1 << 10)(self._nearest_anchor)
        self._sensed = self._sensed_labels()
        self._blocks = TOKEN_BLOCKS if self.engine.workload.network.max_context else BLOCKS

    def clocks(self, cpu_hz: int, gpu_hz: int) -> Clocks:
        """Complete an operating point by the memory clock in force."""
        return Clocks(cpu_hz, gpu_hz, self.emc_hz)

    def attainable(self, mode: str = "") -> Attainable:
        """Tell the clocks that a power mode allows."""
        caps = self.board.mode(mode)
        cpu_max = caps.cpu_max_hz or math.inf
        gpu_max = caps.gpu_max_hz or math.inf
        cpu = (hz for hz in self.board.cpu_hz if self.board.cpu_min_hz <= hz <= cpu_max)
        return Attainable(tuple(cpu), tuple(hz for hz in self.board.gpu_hz if hz <= gpu_max))

    def luck(self, seed: int, job: int, clocks: Clocks) -> float:
        """Tell a job's latency over the latency without noise."""
        number, index = divmod(job, BLOCK)
        number %= self._blocks
        anchor = self._anchor(clocks)
        key = (seed, number, anchor)
        block = self._luck.get(key)
        if block is None:
            self.engine.noise = Noise(seed * BLOCKS + number, self.engine.noise.bursts)
            latency_us: Array = self.engine.run(anchor, n=BLOCK)
            block = array("f", latency_us / self.activity(anchor, 0).latency_us)
            self._luck[key] = block
        return block[index]

    def _nearest_anchor(self, clocks: Clocks) -> Clocks:
        """Find the nearest of the lowest, a middle and the highest clock of each list."""
        cpu_hz, gpu_hz = (
            min((hz[0], hz[len(hz) // 2], hz[-1]), key=lambda at: abs(math.log(at / wanted)))
            for hz, wanted in ((self.attainable().cpu_hz, clocks.cpu_hz),
                               (self.board.gpu_hz, clocks.gpu_hz))
        )  # fmt: skip
        return clocks._replace(cpu_hz=cpu_hz, gpu_hz=gpu_hz)

    def nominal_us(self, clocks: Clocks, context: int) -> float:
        """Tell the latency without noise, us."""
        low, rest = divmod(context, KNOT)
        first = self.activity(clocks, low * KNOT).latency_us
        if not rest:
            return first
        second = self.activity(clocks, (low + 1) * KNOT).latency_us
        return first + (second - first) * rest / KNOT

    def gpu_share(self, clocks: Clocks, context: int) -> float:
        """Tell the share of a job's time that kernels run."""
        activity = self.activity(clocks, context // KNOT * KNOT)
        return min(activity.gpu_busy_us / activity.latency_us, 1.0)

    def cpu_share(self, clocks: Clocks, context: int) -> float:
        """Tell the share of a job's time that its core is busy."""
        activity = self.activity(clocks, context // KNOT * KNOT)
        return min(activity.cpu_busy_us / activity.latency_us, 1.0)

    def quantised(self, rails: tuple[float, float]) -> tuple[float, float]:
        """Round rail powers as the sensors do, mW."""
        steps = [self._step_mw[label] for label in self._sensed]
        cpu, gpu = (round(mw / step) * step for mw, step in zip(rails, steps, strict=True))
        return cpu, gpu

    def _sensed_labels(self) -> tuple[str, str]:
        """Labels of the rails of CPU and GPU, as the governor knows them."""
        found = {label: index for index, label in enumerate(self._labels)}
        readings: dict[str, Any] = dict(found)
        cpu, gpu = (Rails.feeding(domain, readings) for domain in ("cpu", "gpu"))
        return self._labels[cpu or 0], self._labels[gpu or 0]

    def _cost(self, clocks: Clocks, knot: int, temp_c: int) -> Cost:
        busy = self.activity(clocks, knot * KNOT)
        return Cost(self._draw(clocks, busy, temp_c), self._draw(clocks, None, temp_c))

    def _draw(self, clocks: Clocks, activity: Any, temp_c: int) -> Draw:
        duty = duty_of(activity, 0.0)
        rails = self._power.rails(clocks, activity, 0.0, temp_c)
        parts = self._power.parts_grid(*clocks, duty, temp_c)
        cpu_mw, gpu_mw = (rails.power_mw[label] for label in self._sensed)
        cpu_w, gpu_w, soc_w = (float(parts[name]) for name in ("cpu", "gpu", "soc"))
        sensed = (cpu_mw, gpu_mw, cpu_w * 1e3, gpu_w * 1e3, soc_w * 1e3)
        return Draw(rails.total_mw, sensed)


class Warmth:
    """Temperatures, the sink's as one exponential and the die's at once (it settles in 0.3 s).

    Args:
        board: The board.
        idle: What it draws before the run; it has settled at that.

    Attributes:
        cpu_c: Temperature of the CPU, degrees Celsius.
        gpu_c: Temperature of the GPU.
        chip_c: Temperature of the hottest region.
    """

    def __init__(self, board: BoardSpec, idle: Draw) -> None:
        t = board.physics["thermal"]
        self._ambient_c = float(t["ambient_c"])
        self._die_k, self._sink_k = float(t["die_k_per_w"]), float(t["sink_k_per_w"])
        self._tau_s = float(t["sink_j_per_k"]) * self._sink_k
        self._sink_c = self._ambient_c + self._sink_k * sum(idle.regions) / 1e3
        self._show(idle.regions)

    def step(self, regions_mw: tuple[float, float, float], seconds: float) -> None:
        """Let the mean power of a while warm the chip."""
        end_c = self._ambient_c + self._sink_k * sum(regions_mw) / 1e3
        self._sink_c += (end_c - self._sink_c) * -math.expm1(-seconds / self._tau_s)
        self._show(regions_mw)

    def _show(self, regions_mw: tuple[float, float, float]) -> None:
        temps = [self._sink_c + self._die_k * mw / 1e3 for mw in regions_mw]
        self.cpu_c, self.gpu_c, self.chip_c = temps[0], temps[1], max(temps)


@lru_cache(maxsize=64)
def subject(board: str, model: str, world: str = "plain") -> Subject:
    """Make a subject, or take the one of this process with all that it has computed."""
    return Subject(board, model, world)
