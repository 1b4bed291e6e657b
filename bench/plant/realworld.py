"""One world that is no simulation: two threads and a bounded queue on this machine's own CPU.

A launcher thread works, hands a kernel over, and works on; a worker thread takes kernels in order
and works on each. "Clocks" multiply the work: at half the clock there is twice as much of it. All
times are wall time, so the coupling of a launcher with a stream is real here, noise of the machine
included; of several runs the half from which other programs took the least time counts. The work
hashes bytes, because Python lets threads hash at the same time.
"""

import hashlib
import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from bench.plant.workload import Workload

_PROBE_BYTES = 1 << 20
_PROBES = 7
_DONE = -1


class RealLayer(NamedTuple):
    """Work of one layer at full clocks.

    Attributes:
        host_us: Work of the launcher before it hands the kernel over, us.
        gpu_us: Work of the worker, us.
    """

    host_us: float
    gpu_us: float


class LayerTime(NamedTuple):
    """A layer run alone, medians, us: launcher's work, worker's work, start to end."""

    host_us: float
    gpu_us: float
    total_us: float


class Run(NamedTuple):
    """One run: wall time, and the part of it in which a thread had work but no core, us."""

    wall_us: float
    stolen_us: float


class Point(NamedTuple):
    """One point of a grid.

    Attributes:
        cpu: CPU clock relative to its highest.
        gpu: GPU clock relative to its highest.
        latency_us: Median wall time of the whole sequence.
        stolen_us: Time in it, over both threads, in which one had work but no core: where this is
            not small the machine is too busy to measure on.
    """

    cpu: float
    gpu: float
    latency_us: float
    stolen_us: float


def layers_like(
    workload: Workload, *, layers: int = 24, total_us: float = 12_000.0
) -> list[RealLayer]:
    """Make real work in the proportions of a network.

    Args:
        workload: The network; its launches stand for the host, its arithmetic for the GPU.
        layers: Layers to make; consecutive kernels are put together.
        total_us: Time of launcher and worker together at full clocks.
    """
    program = workload.program
    flops = program.flops[0] + 1e6
    share = [range(*bounds) for bounds in _cuts(program.kernels, layers)]
    host = [float(program.host_kcycles[part.start : part.stop].sum()) for part in share]
    gpu = [float(flops[part.start : part.stop].sum()) for part in share]
    return [
        RealLayer(total_us / 2 * h / sum(host), total_us / 2 * g / sum(gpu))
        for h, g in zip(host, gpu, strict=True)
    ]


class RealWorld:
    """Runs layers of real work.

    Args:
        layers: The layers, in order.
        depth: Kernels that may wait in the queue.
    """

    def __init__(self, layers: Sequence[RealLayer], *, depth: int = 16) -> None:
        self.layers = tuple(layers)
        self._depth = depth
        self._cpus = sorted(os.sched_getaffinity(0))
        self._bytes_per_us = _hash_rate()
        self._ground = bytes(int(self._bytes_per_us * 1e5))

    def whole(self, cpu: float, gpu: float, *, n: int = 9) -> Run:
        """Run all layers, and then again.

        Args:
            cpu: CPU clock relative to its highest, 0..1.
            gpu: GPU clock relative to its highest, 0..1.
            n: Repetitions.

        Returns:
            Medians of the calmer half of the runs.
        """
        return _calm(self._run(range(len(self.layers)), cpu, gpu) for _ in range(n))

    def alone(self, place: int, cpu: float, gpu: float, *, n: int = 9) -> LayerTime:
        """Run one layer by itself; arguments as :meth:`whole`."""
        layer = self.layers[place]
        host = _calm(self._work(layer.host_us / cpu) for _ in range(n))
        worker = _calm(self._work(layer.gpu_us / gpu) for _ in range(n))
        total = _calm(self._run([place], cpu, gpu) for _ in range(n))
        return LayerTime(host.wall_us, worker.wall_us, total.wall_us)

    def thin_grid(self, steps: Sequence[float] = (0.25, 0.5, 0.75, 1.0)) -> list[Point]:
        """Measure a grid of relative clocks."""
        return [Point(cpu, gpu, *self.whole(cpu, gpu)) for cpu in steps for gpu in steps]

    def _run(self, places: Sequence[int], cpu: float, gpu: float) -> Run:
        waiting: queue.Queue[int] = queue.Queue(self._depth)
        stolen_us: list[float] = []

        def serve() -> None:
            _stay_on(self._cpus[-1:])
            while (place := waiting.get()) != _DONE:
                stolen_us.append(self._work(self.layers[place].gpu_us / gpu).stolen_us)

        worker = threading.Thread(target=serve, name="stream")
        worker.start()
        _stay_on(self._cpus[:1])
        began_ns = time.monotonic_ns()
        for place in places:
            stolen_us.append(self._work(self.layers[place].host_us / cpu).stolen_us)
            waiting.put(place)
        waiting.put(_DONE)
        worker.join()
        _stay_on(self._cpus)
        return Run((time.monotonic_ns() - began_ns) / 1e3, sum(stolen_us))

    def _work(self, us: float) -> Run:
        began_ns, spent_ns = time.monotonic_ns(), time.thread_time_ns()
        left = int(us * self._bytes_per_us)
        while left > 0:
            part = min(left, len(self._ground))
            hashlib.sha256(memoryview(self._ground)[:part]).digest()
            left -= part
        wall_ns = time.monotonic_ns() - began_ns
        return Run(wall_ns / 1e3, (wall_ns - (time.thread_time_ns() - spent_ns)) / 1e3)


def _stay_on(cpus: Sequence[int]) -> None:
    """Keep the calling thread on some CPUs: launcher and stream are two processors, not one."""
    os.sched_setaffinity(0, cpus)


def _calm(runs: Iterable[Run]) -> Run:
    """Take the medians of the runs that were disturbed least."""
    by_theft = sorted(runs, key=lambda run: run.stolen_us)
    calm = by_theft[: (len(by_theft) + 1) // 2]
    return Run(median(run.wall_us for run in calm), median(run.stolen_us for run in calm))


def _cuts(total: int, parts: int) -> list[tuple[int, int]]:
    edges = [round(index * total / parts) for index in range(parts + 1)]
    return [(low, high) for low, high in zip(edges[:-1], edges[1:], strict=True) if high > low]


def _hash_rate() -> float:
    """Bytes that this CPU hashes in a microsecond: the best of some tries."""
    ground = bytes(_PROBE_BYTES)
    fastest_ns = min(_hash_ns(ground) for _ in range(_PROBES))
    return _PROBE_BYTES / (fastest_ns / 1e3)


def _hash_ns(ground: bytes) -> int:
    began_ns = time.thread_time_ns()
    hashlib.sha256(ground).digest()
    return time.thread_time_ns() - began_ns
