"""The kernel's own governors in virtual time: schedutil, nvhost_podgov and two simple ones.

Each is a small integer state machine that its owner calls when the kernel would: the live board in
real time, a bench in virtual time. Sources: kernel/sched/cpufreq_schedutil.c, NVIDIA's
drivers/devfreq/governor_pod_scaling.c (4.9, out-of-tree 36.x and 2025), governor_simpleondemand.c,
cpufreq_ondemand.c.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Protocol

from bench.plant.pelt import CAPACITY

POLL_US = 25_000
"""Polling period of the GPU governor, us (nvgpu, os/linux/scale.c)."""
RAILGATE_US = 500_000
"""Idle time after which the GPU is powered off and its governor forgets, us."""
_MHZ = 1_000_000
_NEVER_NS = -(1 << 62)
PODGOV_TUNABLES = {
    "load_target": (700, 1000),
    "load_margin": (100, 1000),
    "load_max": (900, 1000),
    "up_freq_margin": (4, 10),
    "down_freq_margin": (1, 10),
    "k": (3, 10),
}
"""Files of the JetPack 7 governor's folder: value at the start and largest value."""
_ARGUMENT = {"up_freq_margin": "up_margin", "down_freq_margin": "down_margin"}


class Schedutil:
    """schedutil of a shared policy without fast switch.

    Args:
        table_khz: Steps, kHz.
        rate_limit_us: Least time between two changes, us.
        margin: Headroom as a fraction: (5, 4) on 5.10 and later; 4.9 of NVIDIA has (2, 1).
    """

    def __init__(
        self, table_khz: Sequence[int], rate_limit_us: int, margin: tuple[int, int] = (5, 4)
    ) -> None:
        self.table = sorted(table_khz)
        self.rate_limit_us = rate_limit_us
        self.margin = margin
        self.low_khz, self.high_khz = self.table[0], self.table[-1]
        self.cur_khz = 0
        self._last_ns = _NEVER_NS
        self._raw_khz = -1
        self._limits_changed = False

    def limits(self, low_khz: int, high_khz: int) -> None:
        """Take new limits; a change of them lets the next update pass the rate limit."""
        if (low_khz, high_khz) != (self.low_khz, self.high_khz):
            self.low_khz, self.high_khz = low_khz, high_khz
            self._limits_changed = True

    def update(self, now_ns: int, utils: Sequence[int]) -> int:
        """Choose a step from the utilisation of each online CPU (0..1024), kHz."""
        forced = self._limits_changed
        if not forced and now_ns - self._last_ns < self.rate_limit_us * 1000:
            return self.cur_khz
        util = min(max(utils), CAPACITY)
        numerator, denominator = self.margin
        with_room = util + (util >> 2) if self.margin == (5, 4) else util * numerator // denominator
        raw = self.table[-1] * with_room // CAPACITY
        self._limits_changed = False
        if raw == self._raw_khz and not forced:
            return self.cur_khz
        self._raw_khz = raw
        step = self._step(raw)
        if step != self.cur_khz:
            self.cur_khz, self._last_ns = step, now_ns
        return step

    def _step(self, khz: int) -> int:
        wanted = min(max(khz, self.low_khz), self.high_khz)
        step = self.table[min(bisect_left(self.table, wanted), len(self.table) - 1)]
        if step > self.high_khz:
            return self.table[max(bisect_right(self.table, self.high_khz) - 1, 0)]
        return step


class GpuGovernor(Protocol):
    """A polling devfreq governor.

    Attributes:
        cur_hz: Clock it believes to be set; follow it up when the limits say otherwise.
    """

    cur_hz: int

    def limits(self, low_hz: int, high_hz: int) -> None:
        """Take the user's and the thermal framework's limits, Hz."""

    def poll(self, now_us: int, load_permille: int) -> int:
        """Choose a clock from the load since the last poll, Hz."""

    def suspend(self, now_us: int) -> None:
        """Forget what the driver forgets when the GPU is powered off."""


class PodgovV2:
    """nvhost_podgov of JetPack 5 and 6 (pod scaling, second version).

    Args:
        table_hz: Clocks, Hz.
        boost_from_limits: Whether the largest boost follows the limits (the variant built into
            5.10) instead of the table (the out-of-tree module).
        load_max: Load above which the boost is largest, per mille.
        load_target: Load aimed at, per mille.
        bias: Slope of the boost.
        smooth: Weight of the past in the averages.
        damp: Weight of the new clock against the average, tenths.
        block_window_us: Time after a change in which nothing is done, us.
    """

    def __init__(
        self,
        table_hz: Sequence[int],
        *,
        boost_from_limits: bool = False,
        load_max: int = 900,
        load_target: int = 700,
        bias: int = 80,
        smooth: int = 10,
        damp: int = 7,
        block_window_us: int = 50_000,
    ) -> None:
        self.table = sorted(table_hz)
        self.boost_from_limits = boost_from_limits
        self.load_max, self.load_target = load_max, load_target
        self.bias, self.smooth, self.damp = bias, smooth, damp
        self.block_window_us = block_window_us
        self.cur_hz = self.table[0]
        self.low_hz, self.high_hz = self.table[0], self.table[-1]
        self._cycles_hz = 0
        self._average_mhz = 0
        self._last_us = -(1 << 60)

    def limits(self, low_hz: int, high_hz: int) -> None:
        """Take the limits, Hz."""
        self.low_hz, self.high_hz = low_hz, high_hz

    def suspend(self, now_us: int) -> None:
        """Drop to the lowest clock and clear the clock average; the cycle average stays."""
        self._average_mhz = 0
        self._last_us = now_us
        self.cur_hz = self._clamp(self.table[0])

    def poll(self, now_us: int, load_permille: int) -> int:
        """Choose a clock from the load since the last poll, Hz."""
        self._remember(load_permille)
        if now_us - self._last_us < self.block_window_us:
            return self.cur_hz
        mhz = self.cur_hz // _MHZ
        low, high = self._governed_range()
        boost_max = high // 3 // _MHZ
        boost, damp = boost_max, 10
        if load_permille <= self.load_max:
            over = self._busyness() - self.load_target
            boost = _divide(over * self.bias * mhz, 100 * self.load_target)
            boost, damp = min(boost, boost_max), self.damp
        wanted = mhz + boost
        self._average_mhz = (self._average_mhz * self.smooth + wanted) // (self.smooth + 1)
        wanted = (damp * wanted + (10 - damp) * self._average_mhz) // 10
        step = _round_up(self.table, min(max(wanted * _MHZ, low), high))
        if step != self.cur_hz:
            self._last_us = now_us
            self.cur_hz = self._clamp(step)
        return self.cur_hz

    def _remember(self, load_permille: int) -> None:
        cycles = self.cur_hz * load_permille // 1000
        self._cycles_hz = (self._cycles_hz * self.smooth + cycles) // (self.smooth + 1)

    def _busyness(self) -> int:
        return 1000 * self._cycles_hz // self.cur_hz

    def _governed_range(self) -> tuple[int, int]:
        if self.boost_from_limits:
            return self.low_hz, self.high_hz
        return self.table[0], self.table[-1]

    def _clamp(self, hz: int) -> int:
        return _round_up(self.table, min(max(hz, self.low_hz), self.high_hz))


class PodgovV1(PodgovV2):
    """nvhost_podgov of JetPack 4: it averages the idle share instead of the cycles."""

    _idle_average = 0

    def _remember(self, load_permille: int) -> None:
        idle = 1000 - load_permille
        self._idle_average = (self.smooth * self._idle_average + idle) // (self.smooth + 1)

    def _busyness(self) -> int:
        return 1000 - self._idle_average


class PodgovV3:
    """nvhost_podgov of JetPack 7: steps through the table, four up and one down.

    Args:
        table_hz: Clocks, Hz.
        load_target: Average load above which it steps up, per mille.
        load_margin: It steps down below target less this, per mille.
        load_max: Load at which it jumps to the top, per mille.
        up_margin: Steps up at a time.
        down_margin: Steps down at a time.
        k: The average keeps ``(2**k - 1) / 2**k`` of the past.
    """

    def __init__(
        self,
        table_hz: Sequence[int],
        *,
        load_target: int = 700,
        load_margin: int = 100,
        load_max: int = 900,
        up_margin: int = 4,
        down_margin: int = 1,
        k: int = 3,
    ) -> None:
        self.table = sorted(table_hz)
        self.load_target, self.load_margin, self.load_max = load_target, load_margin, load_max
        self.up_margin, self.down_margin, self.k = up_margin, down_margin, k
        self.cur_hz = self.table[0]
        self.low_hz, self.high_hz = self.table[0], self.table[-1]
        self._average = 0

    def limits(self, low_hz: int, high_hz: int) -> None:
        """Take the limits, Hz."""
        self.low_hz, self.high_hz = low_hz, high_hz

    def suspend(self, now_us: int) -> None:
        """Clear the average."""
        self._average = 0
        self.cur_hz = _round_up(self.table, self.low_hz)

    def poll(self, now_us: int, load_permille: int) -> int:
        """Choose a clock from the load since the last poll, Hz."""
        weight = 1 << self.k
        self._average = (self._average * (weight - 1) + load_permille) // weight
        index, last = self.table.index(self.cur_hz), len(self.table) - 1
        if load_permille >= self.load_max:
            index = last
        elif self._average > self.load_target:
            index = min(index + self.up_margin, last)
        elif self._average < self.load_target - self.load_margin:
            index = max(index - self.down_margin, 0)
        wanted = min(max(self.table[index], self.low_hz), self.high_hz)
        self.cur_hz = _round_up(self.table, wanted)
        return self.cur_hz


class SimpleOndemand:
    """devfreq's simple_ondemand: full speed above 90 % load, else just above the need."""

    UP_PERCENT, DOWN_PERCENT = 90, 5

    def __init__(self, table_hz: Sequence[int]) -> None:
        self.table = sorted(table_hz)
        self.cur_hz = self.table[0]
        self.low_hz, self.high_hz = self.table[0], self.table[-1]

    def limits(self, low_hz: int, high_hz: int) -> None:
        """Take the limits, Hz."""
        self.low_hz, self.high_hz = low_hz, high_hz

    def suspend(self, now_us: int) -> None:
        """Drop to the lowest clock."""
        self.cur_hz = _round_up(self.table, self.low_hz)

    def poll(self, now_us: int, load_permille: int) -> int:
        """Choose a clock from the load since the last poll, Hz."""
        wanted = self.cur_hz
        if load_permille > 10 * self.UP_PERCENT:
            wanted = self.table[-1]
        elif load_permille <= 10 * (self.UP_PERCENT - self.DOWN_PERCENT):
            need = self.cur_hz * load_permille // 1000
            wanted = need * 100 // (self.UP_PERCENT - self.DOWN_PERCENT // 2)
        self.cur_hz = _round_up(self.table, min(max(wanted, self.low_hz), self.high_hz))
        return self.cur_hz


class Ondemand:
    """cpufreq's ondemand: full speed above 80 % load, else in proportion between the limits."""

    UP_PERCENT = 80

    def __init__(self, table_khz: Sequence[int]) -> None:
        self.table = sorted(table_khz)

    def update(self, load_percent: int, low_khz: int, high_khz: int) -> int:
        """Choose a step from the load of the busiest CPU since the last sample, kHz."""
        if load_percent > self.UP_PERCENT:
            return high_khz
        wanted = self.table[0] + load_percent * (self.table[-1] - self.table[0]) // 100
        return _round_up(self.table, min(max(wanted, low_khz), high_khz))


def podgov(
    table_hz: Sequence[int], jetpack: int, tunables: Mapping[str, int] | None = None
) -> GpuGovernor:
    """Make the nvhost_podgov of a JetPack.

    Args:
        table_hz: Clocks, Hz.
        jetpack: 4 to 7.
        tunables: What its folder of tunables says (JetPack 7), by file name.
    """
    if jetpack <= 4:
        return PodgovV1(table_hz)
    if jetpack >= 7:
        known = tunables or {}
        return PodgovV3(table_hz, **{_ARGUMENT.get(key, key): known[key] for key in known})
    return PodgovV2(table_hz, boost_from_limits=jetpack == 5)


def _round_up(table: Sequence[int], value: int) -> int:
    return table[min(bisect_left(table, value), len(table) - 1)]


def _divide(a: int, b: int) -> int:
    """Divide towards zero, as C does."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient
