"""Randomness of the plant: jitter of launches, kernels and jobs, and bursts of slow jobs.

On real boards late jobs come in clusters: at a base rate of 0.1 % the chance that a miss follows a
miss is 20 to 190 times the base rate, with runs up to 16 (Orin Nano traces of arXiv 2606.16106). A
two-state chain reproduces that; independent noise cannot.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bursts:
    """Bursts of slow jobs.

    Attributes:
        scale: Mean relative slowdown within a burst (exponential over bursts).
        enter: Chance that a burst begins with a job.
        leave: Chance that a burst ends after a job.
    """

    scale: float
    enter: float = 4e-4
    leave: float = 0.25


class Noise:
    """A reproducible stream of disturbances.

    Args:
        seed: Seed; the same one gives the same stream.
        bursts: How slow jobs cluster.
    """

    def __init__(self, seed: int, bursts: Bursts) -> None:
        self.rng = np.random.default_rng(seed)
        self.bursts = bursts
        self._level = 0.0

    def around_one(self, shape: tuple[int, ...], sigma: float) -> Array:
        """Draw positive factors of mean one and relative deviation ``sigma``."""
        factors: Array = np.exp(
            self.rng.standard_normal(shape) * sigma - 0.5 * sigma * sigma, dtype=np.float64
        )
        return factors

    def jobs(self, n: int, sigma: float) -> Array:
        """Draw the factor common to all of a job, for n jobs in sequence, bursts included."""
        factors = self.around_one((n,), sigma)
        return factors * (1.0 + self._burst_levels(self.rng.random(n)))

    def _burst_levels(self, draws: Array) -> Array:
        """Follow the chain: a level above zero is a burst; it ends or begins by the draw."""
        levels = np.zeros(len(draws))
        if not self._level and draws.min(initial=1.0) >= self.bursts.enter:
            return levels
        for index, draw in enumerate(draws):
            if self._level:
                levels[index] = self._level
                if draw < self.bursts.leave:
                    self._level = 0.0
            elif draw < self.bursts.enter:
                self._level = float(self.rng.exponential(self.bursts.scale))
                levels[index] = self._level
        return levels
