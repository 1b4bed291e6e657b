"""Runs the kernel's governors on a live board: feeds them its load, hands their answers on."""

from bench.plant.cpufreq import CpuPolicy
from bench.plant.kgov import (
    RAILGATE_US,
    GpuGovernor,
    Ondemand,
    Schedutil,
    SimpleOndemand,
    podgov,
)
from bench.plant.pelt import CpuUtil, UtilEst
from bench.plant.semantics import Kernel

_TICK_NS = 4_000_000  # scheduler tick at HZ=250
_ONDEMAND_NS = 10_000_000
_IDLE_TICK_NS = 100_000_000
_LOAD_NS = 100_000_000
_HOUSEKEEPING_UTIL = 16
"""Utilisation of a cluster on which nothing of ours runs, out of 1024 (assumption)."""
_MS = 1_000_000


class CpuGoverning:
    """schedutil and ondemand on every policy. Jobs launch from the first one.

    Attributes:
        due_ns: When a governor must be asked next; None while nothing can change.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._util, self._task = CpuUtil(), UtilEst()
        self._working = False
        self._schedutil: dict[int, Schedutil] = {}
        self._busy_ns = self._spent_ns = 0
        self._sampled_ns = 0
        self.due_ns: int | None = None

    def spend(self, ns: int, busy: float) -> None:
        """Let time pass on the launching core, busy for a share of it."""
        lead = self._kernel.policies[0]
        busy_ns = int(ns * busy)
        if busy_ns:
            self._util.run(busy_ns, lead.cur_khz, lead.table[-1])
        if ns > busy_ns:
            self._util.idle(ns - busy_ns)
        self._busy_ns += busy_ns
        self._spent_ns += ns

    def update(self, now_ns: int, *, working: bool) -> None:
        """Ask every governor, as an enqueue, a dequeue or a tick does."""
        if self._working and not working:
            self._task.sleep(self._util.util)
        self._working = working
        lead_util = max(self._util.util, self._task.enqueued if working else 0)
        governed = awake = False
        for index, policy in enumerate(self._kernel.policies):
            if policy.governor == "schedutil" and policy.online:
                util = lead_util if index == 0 else _HOUSEKEEPING_UTIL
                awake |= self._ask_schedutil(index, policy, now_ns, util)
                governed = True
            else:
                self._schedutil.pop(index, None)
            if policy.governor == "ondemand":
                awake |= self._sample(index, policy, now_ns)
                governed = True
        self.due_ns = None
        if governed and (working or awake):
            self.due_ns = now_ns + (_TICK_NS if working else _IDLE_TICK_NS)

    def _ask_schedutil(self, index: int, policy: CpuPolicy, now_ns: int, util: int) -> bool:
        governor = self._schedutil.get(index)
        if governor is None:
            governor = self._schedutil[index] = Schedutil(policy.table, 0)
        governor.rate_limit_us = self._kernel.schedutil.rate_limit_us
        governor.limits(*policy.range_khz())
        policy.govern(governor.update(now_ns, [util]))
        return policy.goal_khz > policy.range_khz()[0]

    def _sample(self, index: int, policy: CpuPolicy, now_ns: int) -> bool:
        if now_ns - self._sampled_ns >= _ONDEMAND_NS and self._spent_ns:
            load = 100 * self._busy_ns // self._spent_ns if index == 0 else 1
            policy.govern(Ondemand(policy.table).update(load, *policy.range_khz()))
            if index == 0:
                self._busy_ns = self._spent_ns = 0
                self._sampled_ns = now_ns
        return policy.goal_khz > policy.range_khz()[0]


class GpuGoverning:
    """The polling governor of the GPU, its power gating and its load file.

    Attributes:
        due_ns: When to poll next; None while the GPU is powered off.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._epoch = -1
        self._governor: GpuGovernor | None = None
        self._busy_ns = 0.0
        self._polled_ns = 0
        self._worked_ns = 0
        self.due_ns: int | None = None

    def spend(self, ns: int, busy: float) -> None:
        """Let time pass, with kernels running for a share of it."""
        self._busy_ns += ns * busy

    def wake(self, now_ns: int) -> None:
        """Power the GPU on for a job, or look at a governor that has just been chosen."""
        self._worked_ns = now_ns
        if self.due_ns is None:
            self._polled_ns, self._busy_ns = now_ns, 0.0
            self.due_ns = now_ns + self._period_ns()

    def poll(self, now_ns: int, *, working: bool) -> None:
        """Read the load since the last poll and ask the governor."""
        gpu = self._kernel.gpu
        span = now_ns - self._polled_ns
        gpu.load_permille = min(int(1000 * self._busy_ns / span), 1000) if span else 0
        self._polled_ns, self._busy_ns = now_ns, 0.0
        if working:
            self._worked_ns = now_ns
        governor = self._chosen()
        asleep = now_ns - self._worked_ns >= RAILGATE_US * 1000
        if governor:
            governor.cur_hz = gpu.goal_hz
            governor.limits(*gpu.range_hz())
            if asleep:
                governor.suspend(now_ns // 1000)
                gpu.govern(governor.cur_hz)
            else:
                gpu.govern(governor.poll(now_ns // 1000, gpu.load_permille))
        self.due_ns = None if asleep else now_ns + self._period_ns()

    def _period_ns(self) -> int:
        polling_ms = self._kernel.gpu.polling_ms
        return polling_ms * _MS if polling_ms else _LOAD_NS

    def _chosen(self) -> GpuGovernor | None:
        gpu = self._kernel.gpu
        if gpu.epoch != self._epoch:
            self._epoch = gpu.epoch
            self._governor = None
            if gpu.governor == "nvhost_podgov":
                jetpack = self._kernel.layout.jetpack
                self._governor = podgov(gpu.table, jetpack, gpu.tunables)
            elif gpu.governor == "simple_ondemand":
                self._governor = SimpleOndemand(gpu.table)
        return self._governor
