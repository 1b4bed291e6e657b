"""The memory clock as the power-management firmware shows it in debugfs. Hz inside."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from bench.plant.board import Layout
from bench.plant.kfile import Attr, Store, dispatch, ro, rw, scan_unsigned

_PTO_NUM, _PTO_DEN = 3_191_887_872, 3_199_000_000
"""What the hardware counter of a real board read for a nominal clock."""


class Emc:
    """``clk/emc`` in the firmware's debugfs: root may lock the rate; unlocked it is at its top.

    A memory clock that follows traffic is a world of the engine's (``worlds.py``).

    Attributes:
        locked: Whether the rate is taken away from the firmware's other clients.
        goal_hz: Clock asked for last.
        cur_hz: Clock in force.
    """

    def __init__(self, points_hz: Sequence[int], layout: Layout) -> None:
        self.where = f"{layout.emc_debug}/clk/emc"
        self.points = list(points_hz)
        self.tables = EmcTables(points_hz, layout)
        self.locked = False
        self.goal_hz = self.cur_hz = self._pinned_hz = self.points[-1]
        self.cap_hz = 0
        self._stores: dict[str, Store] = {
            "rate": self._store_rate,
            "mrq_rate_locked": self._store_lock,
        }

    def files(self) -> dict[str, Attr]:
        """Show the clock."""
        return {
            "rate": rw(self.cur_hz),
            "min_rate": ro(self.points[0]),
            "max_rate": ro(self._top_hz()),
            "mrq_rate_locked": rw(int(self.locked)),
            "state": ro(1),
            "pto_counter": ro(self.cur_hz * _PTO_NUM // _PTO_DEN),
        }

    def write(self, name: str, data: bytes) -> None:
        """Take a rate or the lock."""
        dispatch(self._stores, self.files(), name, data)

    @property
    def moving(self) -> bool:
        """Whether the clock in force is not the one asked for."""
        return self.goal_hz != self.cur_hz

    @property
    def asked(self) -> int:
        """What was asked for last, Hz."""
        return self.goal_hz

    def settle(self, at: int | None = None) -> None:
        """Put what was asked for in force, or an earlier request when one is given."""
        self.cur_hz = self.goal_hz if at is None else at

    def set_cap(self, hz: int) -> None:
        """Set the power mode's limit, Hz; 0 for none."""
        self.cap_hz = hz
        self._update()

    def _top_hz(self) -> int:
        cap = self.cap_hz or self.points[-1]
        return self.points[max(bisect_right(self.points, cap) - 1, 0)]

    def _update(self) -> None:
        wanted = self._pinned_hz if self.locked else self.points[-1]
        index = min(bisect_left(self.points, wanted), len(self.points) - 1)
        self.goal_hz = min(self.points[index], self._top_hz())

    def _store_rate(self, data: bytes) -> None:
        value = scan_unsigned(data, 64)
        if self.points[0] <= value <= self.points[-1]:  # anything else is silently ignored
            self._pinned_hz = value
            self._update()

    def _store_lock(self, data: bytes) -> None:
        self.locked = bool(scan_unsigned(data, 32))
        self._pinned_hz = self.goal_hz
        self._update()


class EmcTables:
    """``emc/possible_rates``: the lockable points, kHz."""

    moving = False

    def __init__(self, points_hz: Sequence[int], layout: Layout) -> None:
        self.where = f"{layout.emc_debug}/emc"
        self._rates = " ".join(str(hz // 1000) for hz in points_hz)

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show the points."""
        return {"possible_rates": ro(self._rates)}

    def write(self, name: str, data: bytes) -> None:
        """Refuse: nothing here can be written."""
        dispatch({}, self.files(), name, data)


class EmcCap:
    """The file through which nvpmodel limits the memory clock, Hz; 0 for none."""

    moving = False

    def __init__(self, emc: Emc, layout: Layout) -> None:
        self.where, self._name = layout.emc_cap.rsplit("/", 1)
        self._emc = emc

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show the limit."""
        return {self._name: rw(self._emc.cap_hz)}

    def write(self, name: str, data: bytes) -> None:
        """Take a limit."""
        stores: dict[str, Store] = {self._name: self._store}
        dispatch(stores, self.files(), name, data)

    def _store(self, data: bytes) -> None:
        self._emc.set_cap(scan_unsigned(data, 64))
