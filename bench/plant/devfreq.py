"""devfreq as the kernel shows it: the GPU's governor, limits and clock. Hz inside.

Sources: drivers/devfreq/devfreq.c and governor_userspace.c.
"""

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial

from bench.plant.board import Layout
from bench.plant.errors import KernelError
from bench.plant.kfile import (
    Attr,
    Store,
    as_s32,
    dispatch,
    first_word,
    parse_unsigned,
    ro,
    rw,
    scan_unsigned,
)
from bench.plant.kgov import PODGOV_TUNABLES

_NAME_MAX = 16
_U64 = 1 << 64
_NO_MAX_KHZ = (1 << 31) - 1
_POLLING_MS = 25
_UNUSABLE = ("tegra_wmark", "wmark_active")
"""Governors that are registered in the kernel and refuse the GPU."""
_PODGOV = "nvhost_podgov"
_NOT_POLLING = ("userspace", "performance", "powersave")


class Devfreq:
    """The GPU's devfreq folder.

    Attributes:
        governor: Name of the governor.
        goal_hz: Clock asked of the driver last (``target_freq``).
        cur_hz: Clock in force.
        epoch: Counts the starts of a governor; a file of an older one is gone for good.
        tunables: Values of the governor's own folder (JetPack 7), by file name.
        load_permille: What the device's ``load`` file shows.
        driver_errno: What the driver answers to every change; 0 is success.
        hardware_cap_hz: Clock that the hardware does not exceed whatever is asked; 0 for none.
    """

    def __init__(self, table_hz: Sequence[int], layout: Layout, governor: str) -> None:
        self.where = layout.gpu_device
        self.table = list(table_hz)
        self.governor = governor
        self.goal_hz = self.cur_hz = self.governed_hz = self.table[0]
        self.wish_hz: int | None = None
        self.load_permille = self.epoch = 0
        self.driver_errno, self.hardware_cap_hz = 0, 0
        self._layout = layout
        self._folder = f"devfreq/{layout.gpu_devfreq}/"
        self._min_khz: dict[str, int] = {"user": 0}
        self._max_khz: dict[str, int] = {"user": _NO_MAX_KHZ}
        self._polling_ms, self._timer = _POLLING_MS, "deferrable"
        self._stores: dict[str, Store] = {
            "governor": self._store_governor,
            "min_freq": self._store_min,
            "max_freq": self._store_max,
            "polling_interval": self._store_polling,
            "timer": self._store_timer,
            "userspace/set_freq": self._store_freq,
        }
        self.tunables: dict[str, int] = {}
        if layout.jetpack >= 7:
            self.tunables = {name: start for name, (start, _) in PODGOV_TUNABLES.items()}
        for name in self.tunables:
            self._stores[f"{_PODGOV}/{name}"] = partial(self._store_tunable, name)

    def files(self) -> dict[str, Attr]:
        """Show the device: its load and its devfreq folder."""
        shown = {self._folder + name: attr for name, attr in self._shown().items()}
        if self._layout.load_file:
            shown["load"] = ro(self.load_permille)
        return shown

    def _shown(self) -> dict[str, Attr]:
        low, high = self.range_hz()
        real = min(self.cur_hz, self.hardware_cap_hz or self.cur_hz)
        shown = {
            "name": ro(self._layout.gpu_devfreq),
            "available_frequencies": ro(" ".join(map(str, self.table))),
            "available_governors": ro(" ".join(self._layout.gpu_governors)),
            "cur_freq": ro(real),
            "target_freq": ro(self.goal_hz),
            "governor": rw(self.governor),
            "min_freq": rw(low),
            "max_freq": rw(high),
        }
        if self.governor == "userspace":
            wish = "undefined" if self.wish_hz is None else self.wish_hz
            shown["userspace/set_freq"] = rw(wish)
        if self.governor == _PODGOV:
            shown.update({f"{_PODGOV}/{name}": rw(value) for name, value in self.tunables.items()})
        if self._layout.keeps_polling or self.governor not in _NOT_POLLING:
            shown["polling_interval"] = rw(self._polling_ms)
            shown["timer"] = rw(self._timer)
        return shown

    def write(self, name: str, data: bytes) -> None:
        """Take a write below the device."""
        stores = {self._folder + key: store for key, store in self._stores.items()}
        dispatch(stores, self.files(), name, data)

    def store(self, name: str, text: str) -> None:
        """Write one file of the devfreq folder by its bare name."""
        self.write(self._folder + name, text.encode())

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

    @property
    def polling_ms(self) -> int:
        """Period of a polling governor, ms; 0 while polling is off."""
        return 0 if self.governor in _NOT_POLLING else self._polling_ms

    def range_hz(self) -> tuple[int, int]:
        """Tell the effective limits: table and requests; the maximum wins."""
        low, high = self.table[0], self.table[-1]
        low = max(low, max(self._min_khz.values()) * 1000 % _U64)
        top_khz = min(self._max_khz.values())
        if top_khz != _NO_MAX_KHZ:
            high = min(high, top_khz * 1000 % _U64)
        return min(low, high), high

    def request_max(self, actor: str, hz: int) -> None:
        """Set an actor's maximum (a device PM QoS request), Hz; 0 for none."""
        self._max_khz[actor] = -(-hz // 1000) if hz else _NO_MAX_KHZ
        self._update()

    def govern(self, hz: int) -> None:
        """Take the answer of a kernel governor."""
        self.governed_hz = hz
        self._update()

    def _wanted(self) -> int:
        if self.governor == "performance":
            return self.table[-1]
        if self.governor == "powersave":
            return self.table[0]
        if self.governor == "userspace":
            return self.goal_hz if self.wish_hz is None else self.wish_hz
        return self.governed_hz

    def _update(self) -> int:
        """Ask the driver for the governor's clock within the limits; returns its errno."""
        low, high = self.range_hz()
        wanted = max(self._wanted(), low)
        if wanted > high:
            index = max(bisect_right(self.table, high) - 1, 0)
        else:
            index = min(bisect_left(self.table, wanted), len(self.table) - 1)
        if self.driver_errno:
            return self.driver_errno
        self.goal_hz = self.table[index]
        return 0

    def _store_governor(self, data: bytes) -> None:
        name = first_word(data, _NAME_MAX)
        if name not in self._layout.gpu_governors or name in _UNUSABLE:
            raise KernelError(errno.EINVAL)
        if name == self.governor:
            return
        old = self.governor
        self.epoch += 1
        self.governor, self.wish_hz, self.governed_hz = name, None, self.goal_hz
        if self._update() and name != "userspace":
            self.governor = old  # the core puts the old one back, and the write still succeeds

    def _store_min(self, data: bytes) -> None:
        self._min_khz["user"] = as_s32(scan_unsigned(data, 64) // 1000)
        self._update()

    def _store_max(self, data: bytes) -> None:
        value = scan_unsigned(data, 64)
        khz = as_s32((value + 999) % _U64 // 1000) if value else _NO_MAX_KHZ
        self._max_khz["user"] = khz
        self._update()

    def _store_polling(self, data: bytes) -> None:
        self._polling_ms = scan_unsigned(data, 32)

    def _store_timer(self, data: bytes) -> None:
        name = first_word(data, _NAME_MAX)
        if name not in ("deferrable", "delayed"):
            raise KernelError(errno.EINVAL)
        self._timer = name

    def _store_tunable(self, name: str, data: bytes) -> None:
        value = parse_unsigned(data)
        if value > PODGOV_TUNABLES[name][1]:
            raise KernelError(errno.EINVAL)
        self.tunables[name] = value
        self.epoch += 1  # the governor is made anew with it

    def _store_freq(self, data: bytes) -> None:
        self.wish_hz = parse_unsigned(data)
        code = self._update()
        if code:
            raise KernelError(code)
