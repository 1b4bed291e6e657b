"""Cooling devices: the thermal framework's own requests for lower maxima, as files."""

import errno
from collections.abc import Sequence

from bench.plant.board import Layout
from bench.plant.cpufreq import CpuPolicy
from bench.plant.devfreq import Devfreq
from bench.plant.errors import KernelError
from bench.plant.kfile import Attr, Store, dispatch, ro, rw, scan_unsigned

_ACTOR = "thermal"


class Cooling:
    """One ``cooling_deviceN``: state n takes the n highest clocks of its device away.

    Attributes:
        state: Clocks taken away.
        max_state: Most that can be taken away.
    """

    moving = False

    def __init__(self, index: int, kind: str, target: CpuPolicy | Devfreq) -> None:
        self.where = f"sys/devices/virtual/thermal/cooling_device{index}"
        self.kind, self.target = kind, target
        self.state, self.max_state = 0, len(target.table) - 1

    @classmethod
    def all_of(cls, policies: Sequence[CpuPolicy], gpu: Devfreq, layout: Layout) -> list["Cooling"]:
        """Make the cooling devices of a board: one a policy, one for the GPU."""
        made = [
            cls(index, layout.cpu_cooling.format(index=index, cpu=policy.cpus[0]), policy)
            for index, policy in enumerate(policies)
        ]
        if layout.gpu_cooling:
            made.append(cls(len(made), layout.gpu_cooling, gpu))
        return made

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show type and state."""
        return {
            "type": ro(self.kind),
            "max_state": ro(self.max_state),
            "cur_state": rw(self.state),
        }

    def write(self, name: str, data: bytes) -> None:
        """Take a state."""
        stores: dict[str, Store] = {"cur_state": self._store}
        dispatch(stores, self.files(), name, data)

    def _store(self, data: bytes) -> None:
        state = scan_unsigned(data, 64)
        if state > self.max_state:
            raise KernelError(errno.EINVAL)
        self.set_state(state)

    def set_state(self, state: int) -> None:
        """Take the ``state`` highest clocks away."""
        self.state = state
        self.target.request_max(_ACTOR, self.target.table[self.max_state - state])
