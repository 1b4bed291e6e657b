"""What the kernel answers on its clock files: the pure state of one board, without any I/O.

:class:`Kernel` is the whole of it; the plain-file tree and the FUSE tree are two ways to show it.
It knows no time: a clock that was asked for becomes the clock in force when
:meth:`~.kfile.Device.settle` is called, and whoever owns a clock (``live.py``, a bench, a test)
decides when that is.

The answers follow the cpufreq and devfreq cores of Linux 6.1 as probed on a running kernel, with
the differences of 5.10 that :class:`~.board.Layout` names. Linux 5.15 and 6.8 are taken to be like
6.1.
"""

from collections.abc import Iterator

from bench.plant.board import BoardSpec, Layout, PowerMode
from bench.plant.bpmp import Emc, EmcCap
from bench.plant.cooling import Cooling
from bench.plant.cpufreq import CpuHotplug, CpuPolicy, SchedutilKnobs
from bench.plant.devfreq import Devfreq
from bench.plant.kfile import Attr, Device, locate, read


class Kernel:
    """All clock files of one board, in one state.

    Args:
        board: The board.
        jetpack: 5, 6 or 7.
        mode: nvpmodel mode it starts in; empty for the board's default.
        cpu_governor: cpufreq governor it starts under.
        gpu_governor: devfreq governor it starts under; empty for the layout's own.
    """

    def __init__(
        self,
        board: BoardSpec,
        *,
        jetpack: int = 6,
        mode: str = "",
        cpu_governor: str = "schedutil",
        gpu_governor: str = "",
    ) -> None:
        self.board = board
        self.layout: Layout = board.layout(jetpack)
        self.policies: tuple[CpuPolicy, ...] = ()
        if board.cpu_hz:
            self.policies = tuple(
                CpuPolicy(cluster, board.cpu_hz, self.layout, cpu_governor)
                for cluster in board.clusters
            )
        self.gpu = Devfreq(board.gpu_hz, self.layout, gpu_governor or self.layout.gpu_governor)
        self.emc: Emc | None = Emc(board.emc_hz, self.layout) if self.layout.emc_debug else None
        self.hotplug = CpuHotplug(board.cpus, self.policies)
        self.devices: list[Device] = [*self.policies, self.gpu, self.hotplug]
        self.schedutil = SchedutilKnobs(self.policies, self.layout.schedutil_rate_limit_us)
        self.devices.append(self.schedutil)
        if self.emc:
            self.devices += [self.emc, self.emc.tables, EmcCap(self.emc, self.layout)]
        self.cooling = Cooling.all_of(self.policies, self.gpu, self.layout)
        self.devices += self.cooling
        self.mode = board.mode(mode)
        self.set_mode(self.mode)
        self.settle()

    def set_mode(self, mode: PowerMode) -> None:
        """Write what ``nvpmodel -m`` writes: online CPUs and the limits of every clock."""
        self.mode = mode
        for cpu in self.board.cpus[1:]:
            self.hotplug.set_online(cpu, cpu in mode.online_cpus)
        cpu_max_hz = mode.cpu_max_hz or max(self.board.cpu_hz, default=0)
        for policy in self.policies:
            policy.request_min("user", self.board.cpu_min_hz // 1000)
            policy.request_max("user", cpu_max_hz // 1000)
        self.gpu.store("max_freq", str(mode.gpu_max_hz or max(self.board.gpu_hz)))
        if self.emc:
            self.emc.set_cap(mode.emc_max_hz)

    def read(self, path: str) -> str:
        """Read a file by its path relative to the root.

        Raises:
            KernelError: There is no such file, or it cannot be read now.
        """
        return read(self.devices, path)

    def write(self, path: str, data: bytes) -> None:
        """Write a file.

        Raises:
            KernelError: The kernel refuses.
        """
        device, name = locate(self.devices, path)
        device.write(name, data)

    def files(self) -> Iterator[tuple[str, Attr]]:
        """Show every file there is now, with its path."""
        for device in self.devices:
            for name, attr in device.files().items():
                yield f"{device.where}/{name}", attr

    def settle(self) -> None:
        """Put every clock that was asked for in force."""
        for device in self.devices:
            device.settle()
