"""The discrete-event core: a launcher that runs ahead, a bounded queue, an in-order GPU stream.

Kernel j is launched when the host has done its work for it and the queue has room (kernel j - Q
has left it), and starts when it has been launched and kernel j - 1 has ended. Both rules are
recursions of "later of two, plus a duration"; they are evaluated for whole vectors with running
sums and running maxima instead of a loop over events. The event loop itself is kept as
:func:`event_loop`: the reference for tests, and the way to run a second stream.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Timeline(NamedTuple):
    """Times of the kernels of n jobs, us from the start of each job, ``[n, K]``."""

    launch: Array
    start: Array
    end: Array


def _segments(kernels: int, queue: int, syncs: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Cut the kernels at host synchronisations and every ``queue`` launches."""
    edges = [0, *(s for s in syncs if 0 < s < kernels), kernels]
    for first, last in zip(edges[:-1], edges[1:], strict=True):
        for low in range(first, last, queue):
            yield low, min(low + queue, last), low == first and first > 0


def timeline(
    host: Array, gpu: Array, latency_us: float, queue: int, syncs: Sequence[int] = ()
) -> Timeline:
    """Run n jobs of K kernels.

    Args:
        host: Host time before each launch, us, ``[n, K]``.
        gpu: Duration of each kernel, us, ``[n, K]``.
        latency_us: From a launch to the earliest start of its kernel, us.
        queue: Launches that may wait.
        syncs: Kernels before whose launch the host waits for the GPU to drain, ascending.
    """
    n, kernels = host.shape
    launch, start, end = (np.empty((n, kernels)) for _ in range(3))
    free = np.zeros((n, 1))
    drained = np.zeros((n, 1))
    for low, high, sync in _segments(kernels, queue, syncs):
        if sync:
            free = np.maximum(free, drained)
        work = np.cumsum(host[:, low:high], axis=1)
        gate = np.broadcast_to(free, work.shape)
        held = max(queue, low)
        if held < high:
            gate = gate.copy()
            room = start[:, held - queue : high - queue] - work[:, held - low :]
            gate[:, held - low :] = np.maximum(gate[:, held - low :], room)
            gate = np.maximum.accumulate(gate, axis=1)
        launch[:, low:high] = work + gate
        busy = np.cumsum(gpu[:, low:high], axis=1)
        before = busy - gpu[:, low:high]
        ready = np.maximum(launch[:, low:high] + latency_us - before, drained)
        begin = np.maximum.accumulate(ready, axis=1, out=ready)
        start[:, low:high] = begin + before
        end[:, low:high] = begin + busy
        free, drained = launch[:, high - 1 : high], end[:, high - 1 : high]
    return Timeline(launch, start, end)


class Drain:
    """Tells when a stream is drained, for one set of kernels after another.

    It keeps no timeline, and its scratch memory from call to call: fresh memory for each set of
    kernels would cost more than the arithmetic.

    Args:
        work: Running sum of host times for each of C host speeds, us, ``[C, K]``.
        latency_us: As in :func:`timeline`.
        queue: As in :func:`timeline`.
    """

    def __init__(self, work: Array, latency_us: float, queue: int) -> None:
        self._work, self._latency_us, self._queue = work, latency_us, queue
        kernels = work.shape[1]
        self._held = max(kernels - queue, 0)
        self._first = np.ascontiguousarray(work[:, : kernels - self._held])
        self._last = np.ascontiguousarray(work[:, kernels - self._held :])
        self._ends, self._start, self._room = (
            np.empty_like(part) for part in (self._first, self._last, self._last)
        )
        self._host = np.diff(work, axis=1, prepend=0.0) if self._held > queue else None

    def __call__(self, gpu: Array) -> tuple[Array, Array]:
        """Run one set of kernels at every host speed.

        Args:
            gpu: Durations, us, ``[K]``.

        Returns:
            End of the last kernel and time of the last launch, us, ``[C]`` each.
        """
        if self._host is not None:  # more than two queues long: no short cut
            durations = np.broadcast_to(gpu, self._host.shape)
            full = timeline(self._host, durations, self._latency_us, self._queue)
            return full.end[:, -1], full.launch[:, -1]
        before = np.cumsum(gpu) - gpu
        after = before[-1] + gpu[-1] - before + self._latency_us
        split = len(gpu) - self._held
        np.add(self._first, after[:split], out=self._ends)
        ends = self._ends.max(axis=1)
        if not self._held:
            return ends, self._work[:, -1]
        launch = self._held_launches(before[: self._held])
        last: Array = launch[:, -1].copy()
        launch += after[split:]
        return np.maximum(ends, launch.max(axis=1)), last

    def _held_launches(self, before: Array) -> Array:
        """Launches that had to wait for room in the queue, ``[C, held]``."""
        start, room = self._start, self._room
        np.add(self._work[:, : self._held], self._latency_us - before, out=start)
        np.maximum.accumulate(start, axis=1, out=start)
        start += before
        np.subtract(start, self._last, out=room)
        if room.max() <= 0.0:  # the queue never fills
            room[:] = self._last
            return room
        np.maximum(room, 0.0, out=room)
        np.maximum.accumulate(room, axis=1, out=room)
        room += self._last
        return room


def event_loop(
    host: Array,
    gpu: Array,
    latency_us: float,
    queue: int,
    *,
    syncs: Sequence[int] = (),
    side: NDArray[np.bool_] | None = None,
    joins: NDArray[np.bool_] | None = None,
) -> Timeline:
    """Run n jobs one event at a time.

    Args:
        host: As in :func:`timeline`.
        gpu: As in :func:`timeline`.
        latency_us: As in :func:`timeline`.
        queue: As in :func:`timeline`.
        syncs: As in :func:`timeline`.
        side: Kernels of the second stream, ``[K]``.
        joins: Kernels that wait for both streams, ``[K]``.
    """
    n, kernels = host.shape
    launch, start, end = (np.empty((n, kernels)) for _ in range(3))
    free = np.zeros(n)
    drained = [np.zeros(n), np.zeros(n)]
    waits = set(syncs)
    for j in range(kernels):
        if j in waits:
            free = np.maximum(free, np.maximum(*drained))
        free = free + host[:, j]
        if j >= queue:
            free = np.maximum(free, start[:, j - queue])
        stream = int(side is not None and side[j])
        begin = np.maximum(free + latency_us, drained[stream])
        if joins is not None and joins[j]:
            begin = np.maximum(begin, drained[1 - stream])
        launch[:, j], start[:, j], end[:, j] = free, begin, begin + gpu[:, j]
        drained[stream] = end[:, j]
    return Timeline(launch, start, end)
