"""Runs workloads on a simulated board and tells how long they take and what they touch."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec
from bench.plant.chip import Array, Chip, KernelTimes
from bench.plant.noise import Bursts, Noise
from bench.plant.stream import Drain, Timeline, event_loop, timeline
from bench.plant.types import Activity, Clocks
from bench.plant.workload import Program, Workload, get_workload
from bench.plant.worlds import PLAIN, World

_CHUNK = 64
"""Jobs evaluated together: large enough to spread overheads, small enough for the caches."""
_NEVER = float("inf")
_EMC_BUSY = 0.6
"""Share of its bandwidth at which the free-running memory governor steps up (assumption)."""


class Switch(NamedTuple):
    """When each clock really changes, us after the start of a job.

    A negative time means that the new clock is in force already; infinity that it never comes.
    """

    cpu_us: float = _NEVER
    gpu_us: float = _NEVER
    emc_us: float = _NEVER


class Nominal(NamedTuple):
    """Costs of one job without noise.

    Attributes:
        host_us: Host time before each launch, ``[K]``.
        tail_us: Host time after the last launch.
        sync_us: From the end of the last kernel until the host goes on.
        kernels: Durations and traffic of the kernels, ``[K]`` each.
        gpu_us: Sum of the durations.
        compute_us: Sum of the arithmetic at full rate.
        dram_bytes: Sum of the traffic.
    """

    host_us: Array
    tail_us: float
    sync_us: float
    kernels: KernelTimes
    gpu_us: float
    compute_us: float
    dram_bytes: float


class Trace(NamedTuple):
    """n jobs in detail.

    Attributes:
        latency_us: ``[n]``.
        host_us: Host time before each launch, ``[n, K]``.
        gpu_us: Durations of the kernels, ``[n, K]``.
        times: When they were launched, started, ended.
    """

    latency_us: Array
    host_us: Array
    gpu_us: Array
    times: Timeline


class Engine:
    """One workload on one board.

    The same seed and the same sequence of calls give the same results, bit for bit.

    Args:
        board: The board.
        workload: What runs.
        world: How the board departs from the plain model.
        seed: Seed of all randomness.
    """

    def __init__(
        self, board: BoardSpec, workload: Workload, *, world: World = PLAIN, seed: int = 0
    ) -> None:
        self.board, self.workload, self.world = board, workload, world
        self.program: Program = workload.program
        self.chip = Chip(
            board,
            traffic_share=world.traffic_share,
            inversion=world.inversion,
            host_slowdown=world.host_slowdown,
        )
        self.noise = Noise(seed, Bursts(scale=workload.engine.burst_ratio))
        self._syncs = _sync_points(self.program, world.sync_every)
        self._side, self._joins = _branches(self.program, world)
        self._other = _background(board, workload) if world.background_fps else None
        self._disturbed = (1.0, 1.0, 0.0)
        self.nominal = lru_cache(maxsize=512)(self._nominal)

    def disturb(self, host: float, gpu: float, per_launch_us: float) -> None:
        """Run from now on as under a profiler.

        Args:
            host: Factor on host times.
            gpu: Factor on GPU times.
            per_launch_us: Host time added to each launch, us.
        """
        self._disturbed = (host, gpu, per_launch_us)
        self.nominal.cache_clear()

    def run(self, clocks: Clocks, *, context: int = 0, n: int = 1) -> Array:
        """Run n jobs one after the other.

        Args:
            clocks: Clocks in force, Hz.
            context: Tokens in the context.
            n: Jobs.

        Returns:
            Latencies, us, ``[n]``.
        """
        return self.sample(clocks, context, n)[0]

    def job(self, clocks: Clocks, context: int = 0) -> Activity:
        """Run one job and tell what it did."""
        latency, gpu_busy, host_busy = self.sample(clocks, context, 1)
        nominal = self.nominal(clocks, context)
        return self._activity(nominal, float(latency[0]), float(gpu_busy[0]), float(host_busy[0]))

    def sample(self, clocks: Clocks, context: int, n: int) -> tuple[Array, Array, Array]:
        """Run n jobs.

        Args:
            clocks: Clocks in force, Hz.
            context: Tokens in the context.
            n: Jobs.

        Returns:
            Latency, GPU busy time and host time, us, ``[n]`` each.
        """
        result = np.empty((3, n))
        tail_us = self.nominal(clocks, context).tail_us
        for low in range(0, n, _CHUNK):
            part = slice(low, min(low + _CHUNK, n))
            trace = self.trace(clocks, context, part.stop - low)
            result[0, part] = trace.latency_us
            result[1, part] = trace.gpu_us.sum(axis=1)
            result[2, part] = trace.host_us.sum(axis=1) + tail_us
        return result[0], result[1], result[2]

    def trace(self, clocks: Clocks, context: int, n: int) -> Trace:
        """Run n jobs and keep all their events; arguments as :meth:`sample`."""
        nominal = self.nominal(clocks, context)
        host, gpu = self._draw(n)
        host *= nominal.host_us
        gpu *= nominal.kernels.total_us
        if self._other is not None:
            self._interrupt(clocks.gpu_hz, host, gpu)
        times = self._timeline(host, gpu)
        return Trace(self._latency(times, nominal), host, gpu, times)

    def activity(self, clocks: Clocks, context: int = 0) -> Activity:
        """Tell what a job does without noise."""
        nominal = self.nominal(clocks, context)
        truth = self.truth_us((clocks.cpu_hz,), (clocks.gpu_hz,), clocks.emc_hz, (context,))
        host_busy = float(nominal.host_us.sum()) + nominal.tail_us
        return self._activity(nominal, float(truth[0, 0, 0]), nominal.gpu_us, host_busy)

    def job_switching(self, old: Clocks, new: Clocks, switch: Switch, context: int = 0) -> Activity:
        """Run one job that starts under old clocks while new ones are on their way.

        A launch in progress changes speed at once; a kernel in progress ends at its old speed.

        Args:
            old: Clocks when it starts.
            new: Clocks asked for.
            switch: When each of them really changes.
            context: Tokens in the context.
        """
        before, after = self.nominal(old, context), self.nominal(new, context)
        host_factor, gpu_factor = self._draw(1)
        host = host_factor * _switched_host(before.host_us, after.host_us, switch.cpu_us)
        gpu = gpu_factor * before.kernels.total_us
        clocks = old
        for at_us, field in sorted(((switch.gpu_us, "gpu_hz"), (switch.emc_us, "emc_hz"))):
            clocks = clocks._replace(**{field: getattr(new, field)})
            late = self._timeline(host, gpu).start >= at_us
            gpu = np.where(late, gpu_factor * self.nominal(clocks, context).kernels.total_us, gpu)
        last = after if switch.cpu_us < host.sum() else before
        latency = self._latency(self._timeline(host, gpu), last)
        work = after if switch.gpu_us < latency[0] else before
        busy = float(host.sum()) + last.tail_us
        return self._activity(work, float(latency[0]), float(gpu.sum()), busy)

    def truth_us(
        self,
        cpu_hz: Sequence[int],
        gpu_hz: Sequence[int],
        emc_hz: int,
        context: Sequence[int] = (0,),
    ) -> Array:
        """Tell the latency without noise over clocks and contexts.

        Returns:
            Latency, us, ``[contexts, CPU clocks, GPU clocks]``.
        """
        cpu = np.asarray(cpu_hz, dtype=np.float64)
        gpu = np.asarray(gpu_hz, dtype=np.float64)
        host, tail = self.chip.host_us(self.program, cpu, emc_hz)
        sync = self.chip.sync_us(cpu)
        drain = self._drain(host)
        result = np.empty((len(context), len(cpu), len(gpu)))
        slowdowns = self._fluid_background(gpu)
        for x, durations in enumerate(self._durations(gpu, emc_hz, context)):
            for g, slowdown in enumerate(slowdowns):
                gpu_end, host_end = drain(durations[g] * slowdown)
                result[x, :, g] = np.maximum(gpu_end, host_end + tail) + sync
        return result

    def layers(self) -> "tuple[UniqueLayer, ...]":
        """List the layers that differ, in order of first appearance, and where each stands."""
        places: dict[tuple[str, tuple[tuple[str, int], ...]], list[int]] = {}
        for index, layer in enumerate(self.workload.network.layers):
            places.setdefault((layer.kind, layer.config), []).append(index)
        return tuple(
            UniqueLayer(kind, dict(config), tuple(found))
            for (kind, config), found in places.items()
        )

    def _drain(self, host: Array) -> Callable[[Array], tuple[Array, Array]]:
        """Make what tells when GPU and host are done for kernels of ``[K]`` durations."""
        if self._side is None and not self._syncs:
            work = np.cumsum(host, axis=1)
            return Drain(work, self.chip.launch_latency_us, self.world.queue)

        def replay(gpu: Array) -> tuple[Array, Array]:
            full = self._timeline(host, np.broadcast_to(gpu, host.shape))
            return full.end.max(axis=1), full.launch[:, -1]

        return replay

    def _durations(self, gpu_hz: Array, emc_hz: int, context: Sequence[int]) -> Iterator[Array]:
        """Give the durations of all kernels at each context, ``[G, K]``; one array for all."""
        durations = np.empty((len(gpu_hz), self.program.kernels))
        grows = self.program.follows_context
        part = self.program.only(grows)
        for index, tokens in enumerate(context):
            if index == 0 or self.world.emc_governed:
                durations[:] = self._kernels(gpu_hz, emc_hz, tokens).total_us
            elif part.kernels:
                point = np.array([float(tokens)])
                times = self.chip.kernels(self.workload, part, gpu_hz, emc_hz, point)
                durations[:, grows] = times.total_us[0]
            yield durations

    def _kernels(self, gpu_hz: Array, emc_hz: int, context: int) -> KernelTimes:
        """Time the kernels at ``[G]`` clocks and one context, ``[G, K]``."""
        point = np.array([float(context)])
        if self.world.emc_governed:
            parts = []
            for hz in gpu_hz:
                one = np.array([hz])
                emc = self._governed_emc(one, emc_hz, point)
                parts.append(self.chip.kernels(self.workload, self.program, one, emc, point))
            times = KernelTimes(
                *(np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
            )
        else:
            times = self.chip.kernels(self.workload, self.program, gpu_hz, emc_hz, point)
        return KernelTimes(times.total_us[0], times.compute_us[0], times.dram_bytes[0])

    def _nominal(self, clocks: Clocks, context: int) -> Nominal:
        cpu = np.asarray(float(clocks.cpu_hz))
        host, tail = self.chip.host_us(self.program, cpu, clocks.emc_hz)
        times = self._kernels(np.array([float(clocks.gpu_hz)]), clocks.emc_hz, context)
        host_factor, gpu_factor, per_launch_us = self._disturbed
        kernels = KernelTimes(
            times.total_us[0] * gpu_factor, times.compute_us[0], times.dram_bytes[0]
        )
        return Nominal(
            host_us=host * host_factor + per_launch_us,
            tail_us=float(tail) * host_factor,
            sync_us=float(self.chip.sync_us(cpu)),
            kernels=kernels,
            gpu_us=float(kernels.total_us.sum()),
            compute_us=float(kernels.compute_us.sum()),
            dram_bytes=float(kernels.dram_bytes.sum()),
        )

    def _timeline(self, host: Array, gpu: Array) -> Timeline:
        latency, queue = self.chip.launch_latency_us, self.world.queue
        if self._side is None:
            return timeline(host, gpu, latency, queue, self._syncs)
        return event_loop(
            host, gpu, latency, queue, syncs=self._syncs, side=self._side, joins=self._joins
        )

    def _draw(self, n: int) -> tuple[Array, Array]:
        """Draw the factors on host and GPU times of n jobs, ``[n, K]`` each."""
        spec, kernels = self.workload.engine, self.program.kernels
        jobs = self.noise.jobs(n, spec.run_jitter)[:, None]
        launch = max(spec.launch_jitter, self.world.host_jitter)
        host = self.noise.around_one((n, kernels), launch)
        gpu = self.noise.around_one((n, kernels), spec.kernel_jitter)
        return host * jobs, gpu * jobs

    def _interrupt(self, gpu_hz: int, host: Array, gpu: Array) -> None:
        """Let the background's jobs take the stream when they come due; changes ``gpu``."""
        period_us = 1e6 / self.world.background_fps
        phases = self.noise.rng.random(len(gpu)) * period_us
        times = self._timeline(host, gpu)
        for row, phase in enumerate(phases):
            due = np.arange(phase, times.end[row, -1], period_us)
            struck = np.minimum(np.searchsorted(times.start[row], due), gpu.shape[1] - 1)
            np.add.at(gpu[row], struck, self._background_us(gpu_hz))

    def _background_us(self, gpu_hz: int) -> float:
        """GPU time of one job of the background, us."""
        if self._other is None:
            return 0.0
        clocks = Clocks(self.board.cpu_hz[-1], int(gpu_hz), self.board.emc_hz[-1])
        return self._other.nominal(clocks, 0).gpu_us

    def _fluid_background(self, gpu_hz: Array) -> list[float]:
        """Mean slowdown of the stream by the background at each GPU clock."""
        fps = self.world.background_fps
        return [1.0 / (1.0 - min(self._background_us(hz) * fps / 1e6, 0.9)) for hz in gpu_hz]

    @staticmethod
    def _latency(times: Timeline, nominal: Nominal) -> Array:
        gpu_end = times.end[:, -1:].max(axis=1)
        if times.end.shape[1] > 1:  # with a second stream the last kernel need not end last
            gpu_end = np.maximum(gpu_end, times.end[:, -2])
        latency: Array = np.maximum(gpu_end, times.launch[:, -1] + nominal.tail_us)
        return latency + nominal.sync_us

    def _activity(
        self, nominal: Nominal, latency_us: float, gpu_us: float, host_us: float
    ) -> Activity:
        spec = self.workload.engine
        return Activity(
            latency_us=latency_us,
            cpu_busy_us=latency_us if spec.spins else min(host_us, latency_us),
            gpu_busy_us=min(gpu_us, latency_us),
            gpu_compute_us=min(nominal.compute_us, latency_us),
            dram_bytes=nominal.dram_bytes,
            helper_us=latency_us * spec.helper_cores,
        )

    def _governed_emc(self, gpu_hz: Array, emc_hz: int, context: Array) -> int:
        """Follow traffic: the memory clock that a free-running governor settles on."""
        times = self.chip.kernels(self.workload, self.program, gpu_hz, emc_hz, context)
        rate = times.dram_bytes.sum() / times.total_us.sum()
        for point in self.board.emc_hz[1:]:
            if point < emc_hz and rate < _EMC_BUSY * float(self.chip.bandwidth(gpu_hz, point)[0]):
                return point
        return emc_hz


class UniqueLayer(NamedTuple):
    """A layer as users write it, and where the network has it.

    Attributes:
        kind: Kind of layer.
        config: Static configuration by name.
        places: Indices into the network's layers.
    """

    kind: str
    config: dict[str, int]
    places: tuple[int, ...]


def _background(board: BoardSpec, workload: Workload) -> Engine:
    """Make the camera model that shares the GPU."""
    return Engine(board, get_workload("mobilenetv2", workload.engine.name))


def _sync_points(program: Program, every: int) -> tuple[int, ...]:
    """First kernels of every n-th layer."""
    if not every:
        return ()
    firsts = np.flatnonzero(np.diff(program.layer, prepend=-1))
    return tuple(int(first) for first in firsts[every::every])


def _branches(
    program: Program, world: World
) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Put every fourth layer on a second stream; the layer after it waits for both."""
    if not world.second_stream:
        return None, None
    side = program.layer % 4 == 3
    first = np.diff(program.layer, prepend=-1) != 0
    return side, first & (program.layer % 4 == 1)


def _switched_host(before: Array, after: Array, at_us: float) -> Array:
    """Host costs when the clock changes ``at_us`` into the host's work."""
    done = np.clip((at_us - (np.cumsum(before) - before)) / before, 0.0, 1.0)
    mixed: Array = before * done + after * (1.0 - done)
    return mixed
