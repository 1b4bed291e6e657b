"""cpufreq as the kernel shows it: policies, their governors and limits, CPU hotplug. kHz inside."""

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial

from bench.plant.board import Cluster, Layout
from bench.plant.errors import KernelError
from bench.plant.kfile import Attr, Store, as_s32, dispatch, first_word, ro, rw, scan_unsigned

_ROOT = "sys/devices/system/cpu"
_NAME_MAX = 15
_TRANSITION_LATENCY_NS = 300_000
_DEFAULT_REQUEST = -1  # PM_QOS_DEFAULT_VALUE: back to no limit
_NO_MAX = (1 << 31) - 1


class CpuPolicy:
    """One ``policyN`` folder (drivers/cpufreq/cpufreq.c and cpufreq_userspace.c).

    Attributes:
        governor: Name of the governor.
        goal_khz: Step that was asked of the driver last.
        cur_khz: Step in force.
        online: CPUs of the policy that are online.
        driver_errno: What the driver answers to every change; 0 is success.
        hardware_cap_khz: Clock that the hardware does not exceed whatever is asked; 0 for none.
    """

    def __init__(
        self, cluster: Cluster, table_hz: Sequence[int], layout: Layout, governor: str
    ) -> None:
        self.where = f"{_ROOT}/cpufreq/policy{cluster.policy}"
        self.cpus, self.online = cluster.cpus, set(cluster.cpus)
        self.table = [hz // 1000 for hz in table_hz]
        self.governor = governor
        self.driver_errno, self.hardware_cap_khz = 0, 0
        self.goal_khz = self.cur_khz = self.wish_khz = self.table[0]
        self._layout = layout
        self._min: dict[str, int] = {"user": 0}
        self._max: dict[str, int] = {"user": _NO_MAX}
        self._constant = {
            "related_cpus": ro(" ".join(map(str, self.cpus))),
            "cpuinfo_min_freq": ro(self.table[0]),
            "cpuinfo_max_freq": ro(self.table[-1]),
            "cpuinfo_transition_latency": ro(_TRANSITION_LATENCY_NS),
            "scaling_available_frequencies": ro(" ".join(map(str, self.table)) + " "),
            "scaling_available_governors": ro(" ".join(layout.cpu_governors) + " "),
            "scaling_driver": ro(layout.cpu_driver),
        }
        self._stores: dict[str, Store] = {
            "scaling_governor": self._store_governor,
            "scaling_min_freq": self._store_min,
            "scaling_max_freq": self._store_max,
            "scaling_setspeed": self._store_speed,
        }
        self.request_max("user", _NO_MAX)

    def files(self) -> dict[str, Attr]:
        """Show the folder; with no CPU online every file answers EBUSY (5.10: old values)."""
        shown = self._shown()
        if self.online or self._layout.offline_reads:
            return shown
        return {name: Attr(attr.mode, "", errno.EBUSY) for name, attr in shown.items()}

    def _shown(self) -> dict[str, Attr]:
        low, high = self.range_khz()
        real = min(self.cur_khz, self.hardware_cap_khz or self.cur_khz)
        speed = self.goal_khz if self.governor == "userspace" else "<unsupported>"
        return {
            **self._constant,
            "affected_cpus": ro(" ".join(map(str, sorted(self.online)))),
            "cpuinfo_cur_freq": Attr(0o400, f"{real}\n"),
            "scaling_cur_freq": ro(self.cur_khz),
            "scaling_governor": rw(self.governor),
            "scaling_min_freq": rw(low),
            "scaling_max_freq": rw(high),
            "scaling_setspeed": rw(speed),
        }

    def write(self, name: str, data: bytes) -> None:
        """Take a write; with no CPU online EBUSY (5.10: EINVAL)."""
        if name in self._stores and not self.online:
            raise KernelError(errno.EINVAL if self._layout.offline_reads else errno.EBUSY)
        dispatch(self._stores, self._shown(), name, data)

    @property
    def moving(self) -> bool:
        """Whether the step in force is not the one asked for."""
        return self.goal_khz != self.cur_khz

    @property
    def asked(self) -> int:
        """What was asked for last, kHz."""
        return self.goal_khz

    def settle(self, at: int | None = None) -> None:
        """Put what was asked for in force, or an earlier request when one is given."""
        self.cur_khz = self.goal_khz if at is None else at

    def range_khz(self) -> tuple[int, int]:
        """Tell the effective limits: largest minimum, smallest maximum, the maximum wins."""
        first, last = self.table[0], self.table[-1]
        low, high = max(self._min.values()), min(self._max.values())
        low, high = min(max(low, first), last), min(max(high, first), last)
        low = min(low, high)
        above = self.table[bisect_left(self.table, low)]
        if not self._layout.min_max_snap:
            return low, high
        if above > high:  # no step in the window: the next larger one
            return above, above
        return above, self.table[bisect_right(self.table, high) - 1]

    def request_min(self, actor: str, khz: int) -> None:
        """Set an actor's minimum (a frequency QoS request)."""
        self._min[actor] = khz
        self._apply_limits()

    def request_max(self, actor: str, khz: int) -> None:
        """Set an actor's maximum (a frequency QoS request)."""
        self._max[actor] = khz
        self._apply_limits()

    def govern(self, khz: int) -> None:
        """Take the answer of a kernel governor."""
        self._target(khz)

    def set_online(self, cpu: int, online: bool) -> None:
        """Take a CPU away or bring it back; the governor restarts and forgets the speed."""
        if online == (cpu in self.online):
            return
        if online:
            self.online.add(cpu)
        else:
            self.online.discard(cpu)
        self._start_governor()

    def _start_governor(self) -> None:
        self.wish_khz = self.goal_khz
        if self.online:
            self._apply_limits()

    def _apply_limits(self) -> None:
        low, high = self.range_khz()
        fixed = {"userspace": self.wish_khz, "performance": high, "powersave": low}
        self._target(fixed.get(self.governor, self.goal_khz))

    def _target(self, khz: int) -> None:
        """Ask the driver for the lowest step at or above; its failure is lost, as in the core."""
        low, high = self.range_khz()
        wanted = min(max(khz, low), high)
        step = self.table[bisect_left(self.table, wanted)]
        if step > high:
            step = self.table[max(bisect_right(self.table, high) - 1, 0)]
        if not self.driver_errno:
            self.goal_khz = step

    def _store_governor(self, data: bytes) -> None:
        name = first_word(data, _NAME_MAX).lower()
        if name not in self._layout.cpu_governors:
            raise KernelError(errno.EINVAL)
        if name != self.governor:
            self.governor = name
            self._start_governor()

    def _store_min(self, data: bytes) -> None:
        self.request_min("user", self._request(data, 0))

    def _store_max(self, data: bytes) -> None:
        self.request_max("user", self._request(data, _NO_MAX))

    def _request(self, data: bytes, default: int) -> int:
        value = as_s32(scan_unsigned(data, 32))
        if value == _DEFAULT_REQUEST:
            return default
        if value < 0:
            if self._layout.offline_reads:  # 5.10 accepts what does not fit
                return default
            raise KernelError(errno.EINVAL)
        return value

    def _store_speed(self, data: bytes) -> None:
        if self.governor != "userspace":
            raise KernelError(errno.EINVAL)
        self.wish_khz = scan_unsigned(data, 32)
        self._target(self.wish_khz)


class CpuHotplug:
    """``cpuN/online`` and the CPU lists. CPU 0 has no such file and stays."""

    where = _ROOT

    def __init__(self, cpus: Sequence[int], policies: Sequence[CpuPolicy]) -> None:
        self.cpus, self.online = tuple(cpus), set(cpus)
        self._policy_of = {cpu: policy for policy in policies for cpu in policy.cpus}

    moving = False

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show the state of each CPU and the lists."""
        shown = {f"cpu{cpu}/online": rw(int(cpu in self.online)) for cpu in self.cpus[1:]}
        offline = sorted(set(self.cpus) - self.online)
        shown["online"] = ro(cpu_list(sorted(self.online)))
        shown["offline"] = ro(cpu_list(offline))
        shown["possible"] = shown["present"] = ro(cpu_list(self.cpus))
        return shown

    def write(self, name: str, data: bytes) -> None:
        """Take ``0`` or ``1`` for a CPU."""
        stores: dict[str, Store] = {
            f"cpu{cpu}/online": partial(self._store, cpu) for cpu in self.cpus[1:]
        }
        dispatch(stores, self.files(), name, data)

    def _store(self, cpu: int, data: bytes) -> None:
        first = data[:1].lower()
        if first not in (b"0", b"1", b"y", b"n"):
            raise KernelError(errno.EINVAL)
        self.set_online(cpu, first in (b"1", b"y"))

    def set_online(self, cpu: int, online: bool) -> None:
        """Take a CPU away or bring it back."""
        if online:
            self.online.add(cpu)
        else:
            self.online.discard(cpu)
        if cpu in self._policy_of:
            self._policy_of[cpu].set_online(cpu, online)


class SchedutilKnobs:
    """The folder of global schedutil tunables; there only while a policy uses schedutil."""

    where = f"{_ROOT}/cpufreq/schedutil"
    moving = False

    def __init__(self, policies: Sequence[CpuPolicy], rate_limit_us: int) -> None:
        self._policies = policies
        self.rate_limit_us = rate_limit_us

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show the rate limit."""
        if all(policy.governor != "schedutil" for policy in self._policies):
            return {}
        return {"rate_limit_us": rw(self.rate_limit_us)}

    def write(self, name: str, data: bytes) -> None:
        """Take a rate limit, us."""
        dispatch({"rate_limit_us": self._store}, self.files(), name, data)

    def _store(self, data: bytes) -> None:
        self.rate_limit_us = scan_unsigned(data, 32)


def cpu_list(cpus: Sequence[int]) -> str:
    """Write CPU numbers as the kernel does: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
