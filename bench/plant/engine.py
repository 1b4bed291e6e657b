"""Runs workloads on a simulated board and tells how long they take and what they touch."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec
from bench.plant.chip import Array, Chip, KernelTimes
from bench.plant.noise import Noise
from bench.plant.stream import Timeline, drain_times, event_loop, timeline
from bench.plant.types import Activity, Clocks
from bench.plant.workload import Program, Workload, get_workload
from bench.plant.worlds import PLAIN, World


class Switch(NamedTuple):
    """When each clock really changes, us after the start of a job.

    A negative time means that the new clock is in force already; infinity that it never comes.
    """

    cpu_us: float = float("inf")
    gpu_us: float = float("inf")
    emc_us: float = float("inf")


class Nominal(NamedTuple):
    """Noise-free costs at one set of clocks: ``[K]`` arrays and the host's share after the end."""

    host_us: Array
    tail_us: float
    sync_us: float
    kernels: KernelTimes


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
        self.noise = Noise(seed)
        self._syncs = _sync_points(self.program, world.sync_every)
        self._side, self._joins = _branches(self.program, world)
        self._background_us = self._background_busy() if world.background_fps else (lambda _: 0.0)
        self.nominal = lru_cache(maxsize=512)(self._nominal)

    def run(self, clocks: Clocks, *, context: int = 0, n: int = 1) -> Array:
        """Run n jobs one after the other.

        Args:
            clocks: Clocks in force, Hz.
            context: Tokens in the context.
            n: Jobs.

        Returns:
            Latencies, us, ``[n]``.
        """
        return self._jobs(clocks, context, n)[0]

    def job(self, clocks: Clocks, context: int = 0) -> Activity:
        """Run one job and tell what it did."""
        latency, gpu_busy, host_busy = self._jobs(clocks, context, 1)
        return self._activity(clocks, context, latency[0], gpu_busy[0], host_busy[0])

    def activity(self, clocks: Clocks, context: int = 0) -> Activity:
        """Tell what a job does without noise."""
        nominal = self.nominal(clocks, context)
        latency = self.truth_us((clocks.cpu_hz,), (clocks.gpu_hz,), clocks.emc_hz, (context,))
        gpu_busy = float(nominal.kernels.total_us.sum())
        host_busy = float(nominal.host_us.sum()) + nominal.tail_us
        return self._activity(clocks, context, float(latency[0, 0, 0]), gpu_busy, host_busy)

    def job_switching(self, old: Clocks, new: Clocks, switch: Switch, context: int = 0) -> Activity:
        """Run one job that starts under old clocks and ends under new ones.

        Args:
            old: Clocks when it starts.
            new: Clocks asked for.
            switch: When each of them really changes.
            context: Tokens in the context.
        """
        before, after = self.nominal(old, context), self.nominal(new, context)
        host_factor, gpu_factor = self._draw(1)
        host = _switched_host(before.host_us, after.host_us, switch.cpu_us)[None, :] * host_factor
        gpu = before.kernels.total_us[None, :] * gpu_factor
        mixed = Clocks(old.cpu_hz, new.gpu_hz, old.emc_hz)
        steps = [
            (switch.gpu_us, mixed),
            (switch.emc_us, Clocks(old.cpu_hz, old.gpu_hz, new.emc_hz)),
        ]
        if switch.emc_us >= switch.gpu_us:
            steps[1] = (switch.emc_us, Clocks(old.cpu_hz, new.gpu_hz, new.emc_hz))
        else:
            steps = [steps[1], (switch.gpu_us, Clocks(old.cpu_hz, new.gpu_hz, new.emc_hz))]
        for at_us, clocks in steps:
            start = self._timeline(host, gpu).start[0]
            later = start >= at_us
            changed = self.nominal(clocks, context).kernels.total_us * gpu_factor[0]
            gpu = np.where(later, changed, gpu[0])[None, :]
        late_host = switch.cpu_us < host.sum()
        ends = after if late_host else before
        latency = self._latency(self._timeline(host, gpu), ends.tail_us, ends.sync_us)
        busy = float(host.sum()) + ends.tail_us
        return self._activity(new, context, float(latency[0]), float(gpu.sum()), busy)

    def truth_us(
        self,
        cpu_hz: Sequence[int],
        gpu_hz: Sequence[int],
        emc_hz: int,
        context: Sequence[int] = (0,),
    ) -> Array:
        """Tell the noise-free latency over clocks and contexts.

        Returns:
            Latency, us, ``[contexts, CPU clocks, GPU clocks]``.
        """
        host, tail = self.chip.host_us(self.program, np.asarray(cpu_hz), emc_hz)
        sync = self.chip.sync_us(np.asarray(cpu_hz))
        work = np.cumsum(host, axis=1)
        result = np.empty((len(context), len(cpu_hz), len(gpu_hz)))
        for x, tokens in enumerate(context):
            kernels = self._kernels(np.asarray(gpu_hz), emc_hz, tokens).total_us
            for g, durations in enumerate(kernels):
                gpu_end, host_end = self._drain(work, host, durations)
                result[x, :, g] = np.maximum(gpu_end, host_end + tail) + sync
        return result

    def _drain(self, work: Array, host: Array, gpu: Array) -> tuple[Array, Array]:
        """Tell when GPU and host are done, ``[C]`` each."""
        if self._side is None and not self._syncs:
            return drain_times(work, gpu, self.chip.launch_latency_us, self.world.queue)
        full = self._timeline(host, np.broadcast_to(gpu, host.shape))
        return full.end.max(axis=1), full.launch[:, -1]

    def _kernels(self, gpu_hz: Array, emc_hz: int, context: int) -> KernelTimes:
        """Time the kernels at ``[G]`` clocks and one context, background included: ``[G, K]``."""
        emc = self._governed_emc(gpu_hz, emc_hz, context) if self.world.emc_governed else emc_hz
        times = self.chip.kernels(
            self.workload, self.program, gpu_hz, emc, np.array([float(context)])
        )
        load = np.array(
            [self._background_us(int(hz)) * self.world.background_fps / 1e6 for hz in gpu_hz]
        )
        slow = 1.0 / (1.0 - np.minimum(load, 0.9))[:, None]
        return KernelTimes(*(part[0] * (slow if i < 2 else 1.0) for i, part in enumerate(times)))

    def _nominal(self, clocks: Clocks, context: int) -> Nominal:
        cpu = np.asarray(float(clocks.cpu_hz))
        host, tail = self.chip.host_us(self.program, cpu, clocks.emc_hz)
        kernels = self._kernels(np.array([clocks.gpu_hz]), clocks.emc_hz, context)
        return Nominal(
            host,
            float(tail),
            float(self.chip.sync_us(cpu)),
            KernelTimes(*(part[0] for part in kernels)),
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
        host = self.noise.around_one((n, kernels), spec.launch_jitter)
        gpu = self.noise.around_one((n, kernels), spec.kernel_jitter)
        return host * jobs, gpu * jobs

    def _jobs(self, clocks: Clocks, context: int, n: int) -> tuple[Array, Array, Array]:
        """Run n jobs: latency, GPU time and host time, us, ``[n]`` each."""
        nominal = self.nominal(clocks, context)
        parts = []
        for low in range(0, n, 64):
            host_factor, gpu_factor = self._draw(min(64, n - low))
            host, gpu = host_factor * nominal.host_us, gpu_factor * nominal.kernels.total_us
            latency = self._latency(self._timeline(host, gpu), nominal.tail_us, nominal.sync_us)
            parts.append((latency, gpu.sum(axis=1), host.sum(axis=1) + nominal.tail_us))
        latency, gpu_busy, host_busy = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return latency, gpu_busy, host_busy

    @staticmethod
    def _latency(times: Timeline, tail_us: float, sync_us: float) -> Array:
        gpu_end = times.end[:, -1] if times.end.shape[1] else np.zeros(len(times.end))
        gpu_end = np.maximum(gpu_end, times.end.max(axis=1))
        latency: Array = np.maximum(gpu_end, times.launch[:, -1] + tail_us) + sync_us
        return latency

    def _activity(
        self, clocks: Clocks, context: int, latency: float, gpu_busy: float, host_busy: float
    ) -> Activity:
        kernels = self.nominal(clocks, context).kernels
        share = float(kernels.compute_us.sum() / kernels.total_us.sum())
        cpu_busy = latency if self.workload.engine.spins else min(host_busy, latency)
        return Activity(
            latency_us=float(latency),
            cpu_busy_us=float(cpu_busy),
            gpu_busy_us=min(float(gpu_busy), float(latency)),
            gpu_compute_us=min(float(gpu_busy), float(latency)) * share,
            dram_bytes=float(kernels.dram_bytes.sum()),
            helper_us=float(latency) * self.workload.engine.helper_cores,
        )

    def _governed_emc(self, gpu_hz: Array, emc_hz: int, context: int) -> int:
        """Follow traffic: the lowest memory clock that a free-running governor would hold."""
        top = self.chip.kernels(
            self.workload, self.program, gpu_hz[:1], emc_hz, np.array([float(context)])
        )
        rate = top.dram_bytes.sum() / top.total_us.sum()
        for point in self.board.emc_hz:
            full = float(self.chip.bandwidth(gpu_hz[:1], point)[0])
            if point >= emc_hz or (point > self.board.emc_hz[0] and rate < 0.35 * full):
                return point
        return emc_hz

    def _background_busy(self):  # type: ignore[no-untyped-def]
        other = get_workload("mobilenetv2", self.workload.engine.name)
        engine = Engine(self.board, other)

        @lru_cache(maxsize=64)
        def busy(gpu_hz: int) -> float:
            times = engine._kernels(np.array([gpu_hz]), self.board.emc_hz[-1], 0)
            return float(times.total_us.sum())

        return busy


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
    return side, first & ~side


def _switched_host(before: Array, after: Array, at_us: float) -> Array:
    """Host costs when the clock changes ``at_us`` into the host's work."""
    done = np.clip((at_us - (np.cumsum(before) - before)) / before, 0.0, 1.0)
    return before * done + after * (1.0 - done)
