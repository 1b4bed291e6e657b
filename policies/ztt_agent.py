"""The learning agent of zTT: what it sees, what it is rewarded for, and how it chooses.

Re-stated from the released TX2 agent (ztt-21/zTT, ``Jetson_tx2/agent.py``), its constants and the
order of its steps included. Levels are positions in a list of clocks; an action is
``cpu * gpu_levels + gpu``. Powers are in units of 100 mW and temperatures in degrees Celsius, raw
as the agent's network gets them.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from policies.ztt_net import Array, Network
from policies.ztt_replay import Batch, Replay, Report

Mode = Literal["released", "paper"]

HIDDEN = (6, 6)
REPLAY, BATCH, TRAIN_START = 500, 64, 200
EXTRA_COPIES = 2
EPSILON_DECAY = 0.95
GAMMA = 0.99
BOOST_CHANCE, BOOST_HEADROOM_C = 0.3, 5.0
HEADROOM_WEIGHT, HEAT_PENALTY = 0.2, -2.0
NO_READING = (20.0, 13.0)
"""CPU and GPU power assumed while the sensors read nothing, 100 mW."""


class Goal(NamedTuple):
    """What the agent is rewarded for.

    Attributes:
        target_c: CPU temperature that counts as too hot.
        beta: Weight of the power term.
        power_unit: Power that counts as one unit in the reward, in 100 mW; 1 as released.
    """

    target_c: float
    beta: float
    power_unit: float = 1.0

    def reward(self, report: Report, target_fps: float) -> float:
        """Sum the terms of rate, heat and power."""
        quality = min(report.fps / target_fps, 1.0)
        headroom_c = self.target_c - report.cpu_c
        heat = HEADROOM_WEIGHT * math.tanh(headroom_c) if headroom_c > 0 else HEAT_PENALTY
        power = report.cpu_power + report.gpu_power
        if power <= 0:
            power = sum(NO_READING)
        return quality + heat + self.beta * self.power_unit / power


class Agent:
    """Learns which pair of levels to hold.

    Args:
        cpu_levels: Number of CPU levels.
        gpu_levels: Number of GPU levels.
        goal: What it is rewarded for.
        mode: ``released`` stores every transition as a last one, so that it learns immediate
            rewards only (what the released code does); ``paper`` discounts the future.
        seed: Seed of all its randomness.
        epsilon: Chance of a random action at the start.

    Attributes:
        network: Predicts a value for each action.
        action: Action in force.
        epsilon: Chance of a random action now.
        decisions: Steps made.
        trained: Training steps made.
        last_reward: Reward of the last step.
    """

    def __init__(
        self,
        cpu_levels: int,
        gpu_levels: int,
        goal: Goal,
        *,
        mode: Mode = "released",
        seed: int = 0,
        epsilon: float = 1.0,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._cpus, self._gpus = cpu_levels, gpu_levels
        self._goal, self._mode = goal, mode
        sizes = (len(Report._fields), *HIDDEN, cpu_levels * gpu_levels)
        self.network = Network(sizes, self._rng)
        self._target = Network(sizes, self._rng)
        self._target.copy_from(self.network)
        self._replay = Replay(REPLAY)
        self._state: Report | None = None
        self.action = 0
        self.epsilon = epsilon
        self.decisions = self.trained = 0
        self.last_reward = 0.0

    def step(self, report: Report, target_fps: float) -> tuple[int, int]:
        """Learn from an interval and choose the levels of the next one.

        The first transition pairs a made-up state and action 0 with the first report, as in the
        released agent.

        Returns:
            CPU and GPU level.
        """
        reward = self.last_reward = self._goal.reward(report, target_fps)
        before = self._state or Report(0, 0, *NO_READING, report.cpu_c, report.gpu_c, target_fps)
        for _ in range(1 + EXTRA_COPIES * (reward < 0.0 or reward > 1.0)):
            self._replay.add(before, self.action, reward, report)
        if len(self._replay) >= TRAIN_START:
            self._train()
        self._state = report
        self.action = self._choose(report, target_fps)
        self._target.copy_from(self.network)
        self.decisions += 1
        return divmod(self.action, self._gpus)

    def targets(self, batch: Batch) -> Array:
        """Make wanted outputs: the network's own, but for the action that was taken."""
        wanted, value = self.network.forward(batch.states), batch.rewards
        if self._mode == "paper":
            value = value + GAMMA * self._target.forward(batch.after).max(axis=1)
        wanted[np.arange(len(value)), batch.actions] = value
        return wanted

    def _train(self) -> None:
        self.epsilon *= EPSILON_DECAY
        batch = self._replay.sample(BATCH, self._rng)
        self.network.fit(batch.states, self.targets(batch))
        self.trained += 1

    def _choose(self, report: Report, target_fps: float) -> int:
        """Cool down, or else explore upwards, or else act epsilon-greedily."""
        headroom_c = self._goal.target_c - report.cpu_c
        cpu, gpu = divmod(self.action, self._gpus)
        if headroom_c <= 0:
            return self._draw((0, cpu), (0, gpu))
        slow = report.fps < target_fps and headroom_c >= BOOST_HEADROOM_C
        if slow and self._rng.random() < BOOST_CHANCE:
            return self._draw((cpu, self._cpus - 1), (gpu, self._gpus - 1))
        if self._rng.random() <= self.epsilon:
            return int(self._rng.integers(self._cpus * self._gpus))
        return int(self.network.forward(np.array(report, dtype=np.float64)).argmax())

    def _draw(self, cpu: tuple[int, int], gpu: tuple[int, int]) -> int:
        """Draw CPU and GPU levels uniformly and independently from ranges, both ends included."""
        cpu_level, gpu_level = (int(self._rng.integers(a, b, endpoint=True)) for a, b in (cpu, gpu))
        return cpu_level * self._gpus + gpu_level
