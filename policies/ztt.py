"""zTT, the learning baseline (MobiSys 2021): holds a target rate by trial and reward.

It knows no deadline of a single job and no table: it sees the rate, power and heat of an interval
and then chooses clocks for the next one. See ``ztt_agent.py`` for the agent itself.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from estimators.errors import PolicyError
from policies.base import (
    Attainable,
    BasePolicy,
    BoardView,
    Decision,
    Job,
    OperatingPoint,
    Outcome,
    option,
)
from policies.ztt_agent import Agent, Goal, Mode
from policies.ztt_net import Array
from policies.ztt_replay import Report
from policies.ztt_weights import load_weights

RELEASED_CPU = (3 / 11, 7 / 11, 11 / 11)
RELEASED_GPU = (3 / 12, 7 / 12, 11 / 12)
"""Levels of the released agent, as positions in the TX2's lists of 12 CPU and 13 GPU clocks."""

LEAST_POWER_TERM = 0.03
"""What the power term of the reward comes to at the full power of a TX2."""

ROUNDING_US = 1.0
"""Slack for intervals that are a whole number of jobs long: six times 166.7 ms is a second."""

_UNIT_MW = 100.0


@dataclass(frozen=True, slots=True)
class Arms:
    """Levels that the agent chooses among.

    Attributes:
        attainable: Clocks of the board that they were chosen from.
        cpu: Position of each CPU level in the board's list.
        gpu: Position of each GPU level in the board's list.
    """

    attainable: Attainable
    cpu: tuple[int, ...]
    gpu: tuple[int, ...]

    @classmethod
    def of(cls, attainable: Attainable, *, full: bool) -> "Arms":
        """Choose all clocks, or three of each list where the released agent has them."""
        sizes = max(len(attainable.cpu_hz), 1), max(len(attainable.gpu_hz), 1)
        if full:
            return cls(attainable, tuple(range(sizes[0])), tuple(range(sizes[1])))
        cpu, gpu = (
            tuple(round(share * (size - 1)) for share in shares)
            for shares, size in zip((RELEASED_CPU, RELEASED_GPU), sizes, strict=True)
        )
        return cls(attainable, cpu, gpu)

    def point(self, levels: tuple[int, int]) -> OperatingPoint:
        """Tell the clocks of a pair of levels; 0 for a domain that the board does not have."""
        cpu_hz, gpu_hz = self.attainable.cpu_hz, self.attainable.gpu_hz
        return OperatingPoint(
            cpu_hz[self.cpu[levels[0]]] if cpu_hz else 0,
            gpu_hz[self.gpu[levels[1]]] if gpu_hz else 0,
        )


@dataclass(slots=True)
class ZttPolicy(BasePolicy):
    """A reinforcement-learning agent that scales CPU and GPU together, once per interval."""

    name: ClassVar[str] = "ztt"

    mode: Mode = option(
        "released", "released: learns immediate rewards, as the code does; paper: discounts"
    )
    grid: Literal["released", "full"] = option(
        "released", "released: 3 CPU x 3 GPU levels; full: every pair of clocks"
    )
    interval_ms: float = option(1000.0, "Time between two decisions", "ms")
    target_c: float = option(50.0, "CPU temperature that counts as too hot", "degC")
    beta: float = option(2.0, "Weight of power in the reward")
    power_full_mw: float = option(
        0.0, "CPU + GPU power at full load, to scale the reward to this board; 0: as released", "mW"
    )
    gpu_rail: bool = option(True, "Whether the GPU has a power rail of its own")
    epsilon: float = option(1.0, "Chance of a random choice at the start", "ratio")
    weights: str = option("", "File of trained weights (.npz); empty: untrained")
    seed: int = option(0, "Seed of all its randomness")

    _arms: Arms | None = field(init=False, repr=False, default=None)
    _agent: Agent | None = field(init=False, repr=False, default=None)
    _levels: tuple[int, int] = field(init=False, repr=False, default=(0, 0))
    _trained: list[Array] = field(init=False, repr=False)
    _note: str = field(init=False, repr=False, default="")
    _jobs: int = field(init=False, repr=False, default=0)
    _busy_us: float = field(init=False, repr=False, default=0.0)
    _due_us: float = field(init=False, repr=False, default=0.0)
    _elapsed_us: float = field(init=False, repr=False, default=0.0)
    _on_time: bool = field(init=False, repr=False, default=True)

    def __post_init__(self) -> None:
        """Check the options and read the weights.

        Raises:
            PolicyError: An option is out of its range, or the weights cannot be read.
        """
        for name, value in (("interval_ms", self.interval_ms), ("beta", self.beta)):
            if not 0 < value < math.inf:
                raise PolicyError(f"option {name} must be above 0", why=f"it is {value}")
        if not 0 <= self.power_full_mw < math.inf:
            why = f"it is {self.power_full_mw}"
            raise PolicyError("option power_full_mw must be 0 or more", why=why)
        if not 0 <= self.epsilon <= 1:
            raise PolicyError("option epsilon must be in 0..1", why=f"it is {self.epsilon}")
        if self.seed < 0:
            raise PolicyError("option seed must be 0 or more", why=f"it is {self.seed}")
        self._trained = load_weights(Path(self.weights)) if self.weights else []

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Hold the levels until the interval is over; then learn from it and choose again."""
        arms, agent = self._bind(view.attainable)
        reason = "holding"
        if self._jobs and self._elapsed_us >= self.interval_ms * 1e3 - ROUNDING_US:
            fps = self._jobs / self._busy_us * 1e6
            target_fps = self._jobs / self._due_us * 1e6
            self._levels = agent.step(self._report(arms, view, fps), target_fps)
            self._on_time = fps >= target_fps
            self._jobs, self._busy_us, self._due_us, self._elapsed_us = 0, 0.0, 0.0, 0.0
            reason = f"reward {agent.last_reward:.3f}"
        return Decision(arms.point(self._levels), math.nan, self._on_time, reason + self._note)

    def observe(self, outcome: Outcome) -> bool:
        """Count the job; tell when the interval is over."""
        self._jobs += 1
        self._busy_us += outcome.latency_us
        self._due_us += outcome.job.deadline_us
        self._elapsed_us += max(outcome.latency_us, outcome.job.deadline_us)
        return self._elapsed_us >= self.interval_ms * 1e3 - ROUNDING_US

    def predict_us(self, job: Job, point: OperatingPoint, emc_hz: int) -> float:
        """Know nothing: the agent has no model of latency."""
        return math.nan

    def stats(self) -> dict[str, float]:
        """Tell decisions, training steps, the chance of a random choice and the last reward."""
        if self._agent is None:
            return {}
        return {
            "decisions": float(self._agent.decisions),
            "trained": float(self._agent.trained),
            "epsilon": self._agent.epsilon,
            "reward": self._agent.last_reward,
        }

    def parameters(self) -> list[Array]:
        """Copy the network's weights and biases; empty before the first decision."""
        return [p.copy() for p in self._agent.network.parameters] if self._agent else []

    def _bind(self, attainable: Attainable) -> tuple[Arms, Agent]:
        """Fit the levels to what is attainable; another number of them needs another agent."""
        arms, agent = self._arms, self._agent
        if arms is not None and agent is not None and arms.attainable is attainable:
            return arms, agent
        new = Arms.of(attainable, full=self.grid == "full")
        kept = arms is not None and (len(arms.cpu), len(arms.gpu)) == (len(new.cpu), len(new.gpu))
        if agent is None or not kept:
            agent = self._make_agent(new)
            self._levels = len(new.cpu) - 1, len(new.gpu) - 1
        self._arms, self._agent = new, agent
        return new, agent

    def _make_agent(self, arms: Arms) -> Agent:
        unit = LEAST_POWER_TERM * self.power_full_mw / (_UNIT_MW * self.beta)
        goal = Goal(self.target_c, self.beta, unit or 1.0)
        agent = Agent(
            len(arms.cpu), len(arms.gpu), goal,
            mode=self.mode, seed=self.seed, epsilon=self.epsilon,
        )  # fmt: skip
        if self._trained:
            try:
                agent.network.put(self._trained)
            except PolicyError:
                self._note = ", untrained: the weights are for another number of clocks"
        return agent

    def _report(self, arms: Arms, view: BoardView, fps: float) -> Report:
        cpu, gpu = self._levels
        return Report(
            arms.cpu[cpu],
            arms.gpu[gpu],
            (view.cpu_power_mw or 0.0) // _UNIT_MW,
            (view.gpu_power_mw or 0.0) // _UNIT_MW if self.gpu_rail else 0.0,
            (view.cpu_temp_mc or 0) / 1e3,
            (view.gpu_temp_mc or 0) / 1e3,
            fps,
        )
