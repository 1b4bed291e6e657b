"""Profiling on the plant: layers run alone, and the network run whole, as a profiler sees them.

Times carry noise and, in some worlds, the profiler's own cost and the difference between a layer
run alone and the same layer in the stream of its network.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.plant.chip import Array
from bench.plant.counters import LayerFacts, read_counters
from bench.plant.engine import Engine
from bench.plant.types import Clocks


@dataclass(frozen=True, slots=True)
class LayerRun:
    """A layer run alone, means over some repetitions.

    Attributes:
        place: Index into the network's layers.
        kind: Kind of the layer.
        config: Its static configuration.
        clocks: Clocks in force, Hz.
        context: Tokens in the context.
        kernels: Kernels it launches; 0 if the engine folds it away.
        cpu_us: Host time of its launches.
        gpu_us: GPU busy time.
        total_us: From the first host work until the host has seen the end.
        counters: Hardware counters by name.
    """

    place: int
    kind: str
    config: dict[str, int]
    clocks: Clocks
    context: int
    kernels: int
    cpu_us: float
    gpu_us: float
    total_us: float
    counters: dict[str, float]


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """The whole network, means over some repetitions; arrays over its L layers.

    Attributes:
        clocks: Clocks in force, Hz.
        context: Tokens in the context.
        total_us: Latencies of the repetitions, ``[n]``.
        cpu_us: Host time of the layer's launches, ``[L]``.
        gpu_us: GPU busy time, ``[L]``.
        launch_us: First launch of the layer since the start of the job, ``[L]``; nan where the
            layer has no kernels, as in the next two.
        start_us: Start of its first kernel, ``[L]``.
        end_us: End of its last kernel, ``[L]``.
    """

    clocks: Clocks
    context: int
    total_us: Array
    cpu_us: Array
    gpu_us: Array
    launch_us: Array
    start_us: Array
    end_us: Array


class Profiler:
    """Profiles one engine.

    Args:
        engine: What to profile; its world says what the profiler disturbs.
        seed: Seed of the noise of the profile.
    """

    def __init__(self, engine: Engine, *, seed: int = 0) -> None:
        self.engine = engine
        self._seed = seed
        self._rng = np.random.default_rng([seed, 1])
        self._alone = lru_cache(maxsize=None)(self._make_alone)

    def isolated(self, place: int, clocks: Clocks, *, context: int = 0, n: int = 20) -> LayerRun:
        """Run one layer alone, n times.

        Args:
            place: Index into the network's layers.
            clocks: Clocks in force, Hz.
            context: Tokens in the context.
            n: Repetitions to average.
        """
        layer = self.engine.workload.network.layers[place]
        alone = self._alone(place)
        if not alone.program.kernels:
            return LayerRun(
                place, layer.kind, dict(layer.config), clocks, context, 0, 0.0, 0.0, 0.0, {}
            )
        latency, gpu, host = alone.sample(clocks, context, n)
        facts = self._facts(alone, clocks, context, (host.mean(), gpu.mean(), latency.mean()))
        return LayerRun(
            place=place,
            kind=layer.kind,
            config=dict(layer.config),
            clocks=clocks,
            context=context,
            kernels=facts.kernels,
            cpu_us=facts.host_us,
            gpu_us=facts.gpu_us,
            total_us=facts.total_us,
            counters=read_counters(facts, self._rng),
        )

    def whole(self, clocks: Clocks, *, context: int = 0, n: int = 20) -> NetworkRun:
        """Run the whole network, n times, with marks at the layers.

        Args:
            clocks: Clocks in force, Hz.
            context: Tokens in the context.
            n: Repetitions to average.
        """
        trace = self.engine.trace(clocks, context, n)
        layer, layers = self.engine.program.layer, len(self.engine.workload.network.layers)
        host, gpu = trace.host_us.mean(axis=0), trace.gpu_us.mean(axis=0)
        first = np.flatnonzero(np.diff(layer, prepend=-1))
        last = np.append(first[1:], len(layer)) - 1
        marks = np.full((3, layers), np.nan)
        for row, (times, at) in enumerate(
            ((trace.times.launch, first), (trace.times.start, first), (trace.times.end, last))
        ):
            marks[row, layer[at]] = times.mean(axis=0)[at]
        return NetworkRun(
            clocks=clocks,
            context=context,
            total_us=trace.latency_us,
            cpu_us=_sums(layer, host, layers),
            gpu_us=_sums(layer, gpu, layers),
            launch_us=marks[0],
            start_us=marks[1],
            end_us=marks[2],
        )

    def _make_alone(self, place: int) -> Engine:
        """Make the engine of one layer, disturbed as the world says."""
        engine = self.engine
        world = replace(engine.world, second_stream=False, sync_every=0, background_fps=0.0)
        workload = engine.workload.alone(engine.workload.network.layers[place])
        alone = Engine(engine.board, workload, world=world, seed=self._seed * 65_537 + place)
        alone.disturb(world.isolated_cpu, world.isolated_gpu, world.profiler_us)
        return alone

    def _facts(
        self, alone: Engine, clocks: Clocks, context: int, times: tuple[float, float, float]
    ) -> LayerFacts:
        program, powers = alone.program, np.array([1.0, context, float(context) ** 2])
        flops, acts = powers @ program.flops, powers @ program.act_bytes
        host, gpu, total = times
        return LayerFacts(
            clocks=clocks,
            kernels=program.kernels,
            host_us=float(host),
            host_kcycles=float(program.host_kcycles.sum()) + program.tail_kcycles,
            gpu_us=float(gpu),
            total_us=float(total),
            tensor_flops=float(flops[program.tensor].sum()),
            cuda_flops=float(flops[~program.tensor].sum()),
            moved_bytes=float((acts + program.weight_bytes).sum()),
            dram_bytes=alone.nominal(clocks, context).dram_bytes,
            weight_bytes=float(program.weight_bytes.sum()),
            out_elements=float((powers[:2] @ program.out).sum()),
            cores=int(alone.chip.gpu["cores"]),
        )


def _sums(layer: NDArray[np.int64], values: Array, layers: int) -> Array:
    """Add up values by layer, ``[L]``."""
    sums = np.zeros(layers)
    np.add.at(sums, layer, values)
    return sums
