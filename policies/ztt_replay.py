"""The replay memory of the zTT agent: the last transitions, as arrays ready to train on."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.ztt_net import Array


class Report(NamedTuple):
    """What the agent is told at the end of an interval; also its network's input, in this order.

    Attributes:
        cpu_index: Position of the CPU clock in the board's list.
        gpu_index: Position of the GPU clock in the board's list.
        cpu_power: CPU power, 100 mW.
        gpu_power: GPU power, 100 mW.
        cpu_c: CPU temperature, degrees Celsius.
        gpu_c: GPU temperature, degrees Celsius.
        fps: Jobs per second over the interval.
    """

    cpu_index: float
    gpu_index: float
    cpu_power: float
    gpu_power: float
    cpu_c: float
    gpu_c: float
    fps: float


class Batch(NamedTuple):
    """Transitions to train on.

    Attributes:
        states: Reports before, ``[n, 7]``.
        actions: What was done, ``[n]``.
        rewards: What it earned, ``[n]``.
        after: Reports after, ``[n, 7]``.
    """

    states: Array
    actions: NDArray[np.int64]
    rewards: Array
    after: Array


class Replay:
    """Keeps the last transitions.

    Args:
        size: How many.
    """

    def __init__(self, size: int) -> None:
        width = len(Report._fields)
        self._memory = Batch(
            np.zeros((size, width)),
            np.zeros(size, dtype=np.int64),
            np.zeros(size),
            np.zeros((size, width)),
        )
        self._size, self._added = size, 0

    def __len__(self) -> int:
        """Tell how many transitions there are."""
        return min(self._added, self._size)

    def add(self, before: Report, action: int, reward: float, after: Report) -> None:
        """Put a transition in, in place of the oldest if the memory is full."""
        row = self._added % self._size
        memory = self._memory
        memory.states[row], memory.actions[row] = before, action
        memory.rewards[row], memory.after[row] = reward, after
        self._added += 1

    def sample(self, count: int, rng: np.random.Generator) -> Batch:
        """Draw transitions without replacement.

        Raises:
            ValueError: There are not as many.
        """
        rows = rng.choice(len(self), count, replace=False)
        states, actions, rewards, after = self._memory
        return Batch(states[rows], actions[rows], rewards[rows], after[rows])

    def clear(self) -> None:
        """Forget everything."""
        self._added = 0
