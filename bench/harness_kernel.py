"""The board when nobody but the kernel governs it: schedutil and the GPU's own governor.

The governors are the plant's emulations; here they are called at the moments at which the kernel
would: schedutil when work comes, goes, and at each scheduler tick, the GPU's governor every 25 ms.
"""

import math
from typing import Literal

from bench.harness_jobs import Subject
from bench.harness_sim import CPU_DELAY_US, GPU_DELAY_US, VirtualBoard
from bench.plant.kgov import POLL_US, RAILGATE_US, GpuGovernor, Schedutil, SimpleOndemand, podgov
from bench.plant.pelt import CpuUtil, UtilEst
from policies.base import Attainable

GpuKind = Literal["nvhost_podgov", "simple_ondemand"]

TICK_US = 4000.0
"""Scheduler tick at HZ=250."""

_KHZ = 1000


class KernelBoard(VirtualBoard):
    """A board under schedutil and a polling GPU governor.

    Args:
        subject: What runs on it.
        attainable: Clocks within the limits in force.
        seed: Seed of the jobs.
        jetpack: JetPack whose governors run.
        gpu: Governor of the GPU.
    """

    def __init__(
        self,
        subject: Subject,
        attainable: Attainable,
        seed: int,
        *,
        jetpack: int = 6,
        gpu: GpuKind = "nvhost_podgov",
    ) -> None:
        super().__init__(subject, attainable, seed)
        board = subject.board
        self._util, self._task = CpuUtil(), UtilEst()
        self._top_khz = board.cpu_hz[-1] // _KHZ
        rate_limit_us = board.layout(jetpack).schedutil_rate_limit_us
        self._cpu = Schedutil([hz // _KHZ for hz in board.cpu_hz], rate_limit_us)
        self._cpu.limits(attainable.cpu_hz[0] // _KHZ, attainable.cpu_hz[-1] // _KHZ)
        self._gpu: GpuGovernor = (
            podgov(board.gpu_hz, jetpack)
            if gpu == "nvhost_podgov"
            else SimpleOndemand(board.gpu_hz)
        )
        self._gpu.limits(attainable.gpu_hz[0], attainable.gpu_hz[-1])
        self._tick_us = math.inf
        self._poll_us, self._polled_us = float(POLL_US), 0.0
        self._gpu_busy_us = self._worked_us = 0.0
        self._working = False
        self._settle_low(attainable)

    def _settle_low(self, attainable: Attainable) -> None:
        """Start where an idle board is: at the lowest clocks."""
        self._gpu.cur_hz = attainable.gpu_hz[0]
        self.clocks = self.subject.clocks(attainable.cpu_hz[0], attainable.gpu_hz[0])
        self._wanted = self._wanted._replace(
            cpu_hz=attainable.cpu_hz[0], gpu_hz=attainable.gpu_hz[0]
        )
        self._cpu.cur_khz = attainable.cpu_hz[0] // _KHZ

    def _kick(self, *, working: bool) -> None:
        if self._working and not working:
            self._task.sleep(self._util.util)
        self._working = working
        self._tick_us = self.now_us + TICK_US if working else math.inf
        self._ask_cpu()

    def _next_us(self) -> float:
        return min(super()._next_us(), self._tick_us, self._poll_us)

    def _event(self) -> None:
        super()._event()
        if self._tick_us <= self.now_us:
            self._tick_us = self.now_us + TICK_US
            self._ask_cpu()
        if self._poll_us <= self.now_us:
            self._poll()

    def _pass(self, span_us: float, context: int | None) -> None:
        busy = 0.0
        if context is not None:
            busy = self.subject.cpu_share(self.clocks, context)
            self._gpu_busy_us += span_us * self.subject.gpu_share(self.clocks, context)
        busy_ns = round(span_us * busy * 1e3)
        if busy_ns:
            self._util.run(busy_ns, self.clocks.cpu_hz // _KHZ, self._top_khz)
        idle_ns = round(span_us * 1e3) - busy_ns
        if idle_ns > 0:
            self._util.idle(idle_ns)
        super()._pass(span_us, context)

    def _ask_cpu(self) -> None:
        util = max(self._util.util, self._task.enqueued if self._working else 0)
        khz = self._cpu.update(round(self.now_us * 1e3), [util])
        if khz * _KHZ != self._wanted.cpu_hz:
            self._move("cpu_hz", khz * _KHZ, CPU_DELAY_US)

    def _poll(self) -> None:
        """Read the load since the last poll; a GPU idle for long is powered off and forgets."""
        span_us = self.now_us - self._polled_us
        load = min(int(1000 * self._gpu_busy_us / span_us), 1000) if span_us else 0
        self._polled_us, self._gpu_busy_us = self.now_us, 0.0
        self._poll_us = self.now_us + POLL_US
        if self._working or load:
            self._worked_us = self.now_us
        if self.now_us - self._worked_us >= RAILGATE_US:
            self._gpu.suspend(int(self.now_us))
        else:
            self._gpu.poll(int(self.now_us), load)
        if self._gpu.cur_hz != self._wanted.gpu_hz:
            self._move("gpu_hz", self._gpu.cur_hz, GPU_DELAY_US)
