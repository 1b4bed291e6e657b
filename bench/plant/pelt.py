"""Per-entity load tracking: how busy the scheduler thinks a CPU is.

Integer arithmetic as in kernel/sched/pelt.c; time is a virtual nanosecond count of the caller's.
"""

_UNIT_SHIFT = 10  # one unit is 1024 ns
_PERIOD = 1024  # units in a period: 1.048576 ms
_HALF_LIFE = 32  # periods
_LOAD_AVG_MAX = 47_742
_FORGOTTEN = _HALF_LIFE * 63
_DECAY = [0xFFFFFFFF] + [int(2**32 * 0.5 ** (n / _HALF_LIFE)) for n in range(1, _HALF_LIFE)]

CAPACITY = 1024
"""Utilisation of the largest CPU when it never idles."""


def decay(value: int, periods: int) -> int:
    """Let a sum fade: half of it is left after 32 periods."""
    if periods > _FORGOTTEN:
        return 0
    return ((value >> (periods // _HALF_LIFE)) * _DECAY[periods % _HALF_LIFE]) >> 32


class CpuUtil:
    """``util_avg`` of one CPU, invariant to its clock.

    While the CPU runs below its top clock its time passes more slowly; when it idles, its clock
    catches up with the wall, so the same work leaves the same utilisation at any clock.

    Attributes:
        util: Utilisation, 0..1024.
        now_ns: Wall time that has passed.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.util = 0
        self.now_ns = 0
        self._clock_ns = self._lost_ns = self._last_ns = 0
        self._sum = self._part = 0  # of the running period, in units

    def run(self, ns: int, hz: int, max_hz: int) -> None:
        """Be busy for a while at a clock."""
        self.now_ns += ns
        scaled = (ns * self.capacity) >> 10
        self._clock_ns += (scaled * (hz * 1024 // max_hz)) >> 10
        self._accumulate(running=True)

    def idle(self, ns: int) -> None:
        """Be idle for a while."""
        saturated = self._sum >= ((_LOAD_AVG_MAX - _PERIOD) << 10) - _LOAD_AVG_MAX
        if saturated:  # a CPU that never idled has no time to catch up with
            self._lost_ns += self.now_ns - self._clock_ns
        self._clock_ns = self.now_ns
        self._accumulate(running=False)
        self.now_ns += ns
        self._clock_ns = self.now_ns
        self._accumulate(running=False)

    def _accumulate(self, *, running: bool) -> None:
        delta = (self._clock_ns - self._lost_ns - self._last_ns) >> _UNIT_SHIFT
        if delta <= 0:
            return
        self._last_ns += delta << _UNIT_SHIFT
        periods, rest = divmod(delta + self._part, _PERIOD)
        added = delta
        if periods:
            self._sum = decay(self._sum, periods)
            first = decay(_PERIOD - self._part, periods)
            whole = _LOAD_AVG_MAX - decay(_LOAD_AVG_MAX, periods) - _PERIOD
            added = first + whole + rest
        self._part = rest
        if running:
            self._sum += added << 10
        if periods:
            self.util = self._sum // (_LOAD_AVG_MAX - _PERIOD + self._part)


class UtilEst:
    """What the scheduler remembers of a task that sleeps (``util_est`` in kernel/sched/fair.c).

    Attributes:
        enqueued: Utilisation the task stands for while it is runnable, 0..1024.
    """

    _MARGIN = CAPACITY // 100

    def __init__(self) -> None:
        self._average = self._last = 0

    @property
    def enqueued(self) -> int:
        """Larger of the moving average and the last activation."""
        return max(self._average, self._last)

    def sleep(self, util: int) -> None:
        """Take the utilisation at which the task went to sleep: up at once, down by quarters."""
        self._last = util
        change = util - self._average
        if change > 0:
            self._average = util
        elif -change > self._MARGIN:
            self._average += change >> 2
