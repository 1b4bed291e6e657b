"""Two factors from a few end-to-end runs: what isolated layers cannot tell of the whole model.

A layer run alone finds colder caches, a profiler adds time to each kernel, and a job has host work
of its own. One factor on all CPU work, one on all GPU work and one serial host cost absorb these;
what is left at the runs is interpolated in log clocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from estimators.errors import ProfileError
from estimators.residual import Array, interpolate

MIN_RUNS = 3
"""Runs below which two factors and a serial cost are not looked for."""

Predict = Callable[[float, float], Array]
"""Timeline at the runs for a CPU and a GPU factor, us, ``[R]``."""

# Priors: factors within 10 % of one; host work outside the layers about 0.5 % of the fastest run,
# within a factor of 4.5; runs repeat to 0.5 %.
_FACTOR_SPREAD, _SERIAL, _SERIAL_SPREAD, _NOISE = 0.1, np.log(0.005), 1.5, 0.005


@dataclass(frozen=True, slots=True)
class Anchor:
    """What end-to-end runs say about the whole model.

    Attributes:
        cpu_factor: Factor on CPU work in layers.
        gpu_factor: Factor on GPU work in layers.
        serial: Host work outside the layers, us Hz (divide by the CPU clock).
        points: Coordinates of the runs, ``[R, d]``.
        errors: Log of measured over predicted at the runs, ``[R]``.
    """

    cpu_factor: float = 1.0
    gpu_factor: float = 1.0
    serial: float = 0.0
    points: Array | None = None
    errors: Array | None = None

    @classmethod
    def fit(cls, predict: Predict, cpu_hz: Array, time_us: Array, points: Array) -> "Anchor":
        """Fit the factors, then keep the residual.

        Args:
            predict: Timeline at the runs.
            cpu_hz: CPU clock of the runs, Hz, ``[R]``.
            time_us: Measured latency, us, ``[R]``.
            points: Coordinates for interpolation, ``[R, d]``.
        """
        unit = float(time_us.min() * cpu_hz.max())
        mean = np.array([0.0, 0.0, _SERIAL])
        spread = np.array([_FACTOR_SPREAD, _FACTOR_SPREAD, _SERIAL_SPREAD])

        def model(theta: Array) -> Array:
            layers = predict(float(np.exp(theta[0])), float(np.exp(theta[1])))
            whole: Array = layers + np.exp(theta[2]) * unit / cpu_hz
            return whole

        def residual(theta: Array) -> Array:
            data = np.log(model(theta) / time_us) / _NOISE
            result: Array = np.concatenate([data, (theta - mean) / spread])
            return result

        theta = least_squares(residual, mean, x_scale=spread).x
        errors = np.log(time_us / model(theta))
        cpu_factor, gpu_factor, serial = (float(value) for value in np.exp(theta))
        return cls(cpu_factor, gpu_factor, serial * unit, points, errors)

    @classmethod
    def transfer(cls, donors: Sequence["Anchor"]) -> "Anchor":
        """Carry what other models' runs said over to a model without any: medians, no residual.

        Raises:
            ProfileError: There are no donors.
        """
        if not donors:
            raise ProfileError("no anchors to carry over", hint="fit models with runs first")
        table = np.array([(d.cpu_factor, d.gpu_factor, d.serial) for d in donors])
        cpu_factor, gpu_factor, serial = (float(value) for value in np.median(table, axis=0))
        return cls(cpu_factor, gpu_factor, serial)

    def correction(self, points: Array) -> Array:
        """Factor that the residual calls for at other points, ``[m, d]`` to ``[m]``."""
        if self.points is None or self.errors is None:
            return np.ones(len(points))
        factor: Array = np.exp(interpolate(self.points, self.errors, points))
        return factor


def coordinates(context: Array, cpu_hz: Array, gpu_hz: Array) -> Array:
    """Coordinates of runs for the residual, ``[R, 3]``: log clocks, and a third of log context.

    Relative errors change little over a factor of 20 in context: it moves work, not the way it is
    done.
    """
    return np.stack([np.log(cpu_hz), np.log(gpu_hz), np.log1p(context) / 3], axis=-1)
