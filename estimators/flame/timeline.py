"""From layers to the whole model: Eqs. 5-9 of the FLAME paper, and the max-plus recursion.

The CPU runs ahead without waiting (Eq. 5); the GPU takes layers in order. What the text leaves open
is whether an early start (Eq. 6) may overtake the layer before. It may not on an in-order stream:
``paper-literal`` forgets all earlier GPU work where the GPU is the bottleneck, ``paper`` does not,
and ``maxplus`` needs no timing factor at all. Arrays broadcast: the last axes are contexts, CPU and
GPU clocks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from estimators.residual import Array


class LayerTimes(NamedTuple):
    """One layer at every context and clock pair, us; all broadcast to ``[K, C, G]``.

    Attributes:
        cpu: CPU time, ``[K, C, 1]``.
        gpu: GPU busy time, ``[K, 1, G]``.
        extra: Timing factor (``paper`` modes), or isolated total (``maxplus``), ``[K, C, G]``.
    """

    cpu: Array
    gpu: Array
    extra: Array


def maxplus(layers: Iterable[LayerTimes]) -> Array:
    """Latency by ``E_l = max(E_{l-1} + G_l, t_{l-1} + T_l)`` with T_l the isolated total.

    Exact for an in-order stream: a layer ends when the GPU has worked through it after the one
    before, or when it would have ended alone, whichever is later. The CPU may end last.
    """
    cpu_end, gpu_end = _zero(), _zero()
    for cpu, gpu, total in layers:
        gpu_end = np.maximum(gpu_end + gpu, cpu_end + total)
        cpu_end = cpu_end + cpu
    return np.maximum(gpu_end, cpu_end)


def paper(layers: Iterable[LayerTimes]) -> Array:
    """Latency by Eqs. 5-9 with the maximum of Eq. 7 in both cases."""
    cpu_end, gpu_end = _zero(), _zero()
    for cpu, gpu, delta in layers:
        cpu_end = cpu_end + cpu
        gpu_end = np.maximum(cpu_end + delta, gpu_end) + gpu
    return gpu_end


def paper_literal(layers: Iterable[LayerTimes]) -> Array:
    """Latency by Eqs. 5-9 to the letter: an early start (Eq. 6) ignores the layer before."""
    cpu_end, gpu_end = _zero(), _zero()
    for cpu, gpu, delta in layers:
        cpu_end = cpu_end + cpu
        ready = cpu_end + delta
        gpu_end = np.where(delta < 0, ready, np.maximum(ready, gpu_end)) + gpu
    return gpu_end


def sum_of_layers(layers: Iterable[LayerTimes]) -> Array:
    """Latency as the sum of isolated layers (the ablation without aggregation)."""
    total = _zero()
    for cpu, gpu, delta in layers:
        total = total + (cpu + gpu + delta)
    return total


def sum_of_processors(layers: Sequence[LayerTimes]) -> Array:
    """Latency as the sum of all CPU and GPU times (the ablation without the layer module)."""
    cpu, gpu = _zero(), _zero()
    for layer in layers:
        cpu, gpu = cpu + layer.cpu, gpu + layer.gpu
    result: Array = cpu + gpu
    return result


def longer_processor(layers: Sequence[LayerTimes]) -> Array:
    """Latency as the larger of all CPU time and all GPU time: perfect overlap."""
    cpu, gpu = _zero(), _zero()
    for layer in layers:
        cpu, gpu = cpu + layer.cpu, gpu + layer.gpu
    return np.maximum(cpu, gpu)


def _zero() -> Array:
    return np.zeros(())
