"""A layer as coefficients, at one memory clock and the profiled contexts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ProfileError
from estimators.flame.interaction import Delta, Paths, Threshold
from estimators.flame.processor import ProcessorTime
from estimators.flame.timeline import LayerTimes
from estimators.profiles import Samples
from estimators.residual import Array

_MIN_ROWS = 4  # C and G have two coefficients each


@dataclass(frozen=True, slots=True)
class Knot:
    """Coefficients at one context.

    Attributes:
        cpu: Eq. 2 for the CPU.
        gpu: Eq. 2, or its saturating form, for the GPU.
        delta: Eq. 4.
        paths: The max-plus form of the isolated total.
    """

    cpu: ProcessorTime
    gpu: ProcessorTime
    delta: Delta
    paths: Paths

    @classmethod
    def fit(cls, where: str, samples: Samples, *, saturates: bool, threshold: Threshold) -> "Knot":
        """Fit all coefficients to the rows of one memory clock and context.

        Raises:
            ProfileError: Too few rows, or all at one clock of a domain.
        """
        check_spread(where, samples)
        cpu_hz, gpu_hz = samples.cpu_hz.astype(np.float64), samples.gpu_hz.astype(np.float64)
        cpu_us, gpu_us, total_us = (samples.values[n] for n in ("cpu_us", "gpu_us", "total_us"))
        cpu = ProcessorTime.fit(cpu_hz, cpu_us)
        gpu = ProcessorTime.fit(gpu_hz, gpu_us, saturates=saturates)
        delta = Delta.fit(cpu_hz, gpu_hz, total_us - cpu_us - gpu_us, total_us, threshold)
        paths = Paths.fit(cpu_hz, cpu(cpu_hz), gpu(gpu_hz), total_us)
        return cls(cpu, gpu, delta, paths)

    def total(self, cpu_hz: Array, gpu_hz: Array) -> Array:
        """Isolated total by the max-plus form, us; clocks broadcast."""
        return self.paths(cpu_hz, self.cpu(cpu_hz), self.gpu(gpu_hz))


def check_spread(where: str, samples: Samples) -> None:
    """Refuse rows from which clock dependence cannot be learned.

    Raises:
        ProfileError: Too few rows, or all at one clock of a domain.
    """
    if len(samples) < _MIN_ROWS:
        raise ProfileError(
            "too few measurements",
            where=where,
            why=f"{len(samples)} rows, {_MIN_ROWS} needed",
            hint="profile more clocks; flamegov profile plan lists them",
        )
    for name in ("cpu_hz", "gpu_hz"):
        clocks = getattr(samples, name)
        if np.unique(clocks).size < 2:
            raise ProfileError(
                "measured at one clock only",
                where=f"{where}, column {name}",
                why=f"all {len(samples)} rows at {clocks[0]} Hz",
                hint="profile at two clocks or more; flamegov profile plan lists them",
            )


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer at one memory clock.

    Attributes:
        context: Profiled contexts, ascending, ``[Kn]``; one entry if the layer does not depend on
            it.
        knots: Coefficients at each of them.
    """

    context: NDArray[np.int64]
    knots: tuple[Knot, ...]

    @classmethod
    def fit(cls, where: str, samples: Samples, *, saturates: bool, threshold: Threshold) -> "Layer":
        """Fit every profiled context.

        Raises:
            ProfileError: See :meth:`Knot.fit`.
        """
        contexts = np.unique(samples.context)
        knots = tuple(
            Knot.fit(
                f"{where}, context {context}",
                samples.at(context=int(context)),
                saturates=saturates,
                threshold=threshold,
            )
            for context in contexts
        )
        return cls(contexts, knots)

    def weights(self, context: Array) -> Array:
        """Linear weights of the knots at other contexts, ``[K, Kn]``; clamped outside."""
        return context_weights(self.context, context)

    @property
    def delta(self) -> "DeltaKnots":
        """Eq. 4 at every profiled context."""
        return DeltaKnots(self.context, tuple(knot.delta for knot in self.knots))


@dataclass(frozen=True, slots=True)
class LayerWork:
    """A layer evaluated on a grid or at single runs, before its work is scaled; arrays broadcast.

    Attributes:
        cpu: CPU time, us, ``[K, C, 1]`` or ``[R]``.
        gpu: GPU time, us, ``[K, 1, G]`` or ``[R]``.
        trail: Path coefficients ``u``, ``[3, K, 1, 1]`` or ``[3, R]``.
        lead: Path coefficients ``v``, ``[3, K, 1, 1]`` or ``[3, R]``.
        inverse: ``1/f_c``, 1/Hz, ``[C, 1]`` or ``[R]``.
    """

    cpu: Array
    gpu: Array
    trail: Array
    lead: Array
    inverse: Array

    @classmethod
    def on_grid(cls, layer: Layer, context: Array, cpu_hz: Array, gpu_hz: Array) -> "LayerWork":
        """Evaluate on all combinations, coefficients interpolated over context."""
        weights = layer.weights(context)
        cpu = weights @ np.stack([knot.cpu(cpu_hz) for knot in layer.knots])
        gpu = weights @ np.stack([knot.gpu(gpu_hz) for knot in layer.knots])
        trail, lead = (
            (weights @ side).T[:, :, None, None] for side in _path_coefficients(layer.knots)
        )
        return cls(cpu[:, :, None], gpu[:, None, :], trail, lead, (1 / cpu_hz)[:, None])

    @classmethod
    def at_runs(cls, layer: Layer, context: Array, cpu_hz: Array, gpu_hz: Array) -> "LayerWork":
        """Evaluate at single runs, all arguments ``[R]``."""
        weights = layer.weights(context)
        cpu = (weights.T * np.stack([knot.cpu(cpu_hz) for knot in layer.knots])).sum(0)
        gpu = (weights.T * np.stack([knot.gpu(gpu_hz) for knot in layer.knots])).sum(0)
        trail, lead = ((weights @ side).T for side in _path_coefficients(layer.knots))
        return cls(cpu, gpu, trail, lead, 1 / cpu_hz)

    def scaled(self, cpu_factor: float = 1.0, gpu_factor: float = 1.0) -> LayerTimes:
        """Times with all CPU and GPU work scaled; the third is the isolated total."""
        cpu, gpu = self.cpu * cpu_factor, self.gpu * gpu_factor
        u, v = self.trail, self.lead
        inverse = self.inverse * cpu_factor
        trailing = (cpu + u[1] * inverse + u[2]) + u[0] * gpu
        leading = (v[0] * cpu + v[1] * inverse + v[2]) + gpu
        return LayerTimes(cpu, gpu, np.maximum(trailing, leading))


def _path_coefficients(knots: tuple[Knot, ...]) -> tuple[Array, Array]:
    return np.stack([k.paths.trail for k in knots]), np.stack([k.paths.lead for k in knots])


@dataclass(frozen=True, slots=True)
class DeltaKnots:
    """Eq. 4 at several contexts.

    Attributes:
        context: Contexts, ascending, ``[Kn]``.
        deltas: Eq. 4 at each.
    """

    context: NDArray[np.int64]
    deltas: tuple[Delta, ...]

    def on_grid(self, context: Array, cpu_hz: Array, gpu_hz: Array) -> Array:
        """Timing factor interpolated over context, us, ``[K, C, G]``."""
        at_knots = np.stack([d(cpu_hz[:, None], gpu_hz[None, :]) for d in self.deltas])
        result: Array = np.tensordot(context_weights(self.context, context), at_knots, axes=1)
        return result


def context_weights(knots: NDArray[np.generic] | Array, context: Array) -> Array:
    """Linear weights of knots at other contexts, ``[K, Kn]``; clamped outside."""
    unit = np.eye(len(knots))
    return np.stack([np.interp(context, knots.astype(np.float64), row) for row in unit], axis=1)
