"""A board as a plain-file sysfs tree below a root.

The tree only shows: every content comes from :class:`~.semantics.Kernel`, the sensors and the few
files that never change. A plain file cannot refuse a write; ``fusetree.py`` can.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bench.plant.board import BoardSpec
from bench.plant.kfile import Attr, Device, rw
from bench.plant.semantics import Kernel
from bench.plant.sensors import OverCurrent, PowerMonitor, Zones, power_monitors

_CLASS_HWMON = "sys/class/hwmon"
_MAX_BYTES = 4096
GOVERNOR_FOLDERS = ("/userspace", "/nvhost_podgov", "/schedutil")
"""Folders that come and go with a governor."""


@dataclass(slots=True, eq=False)
class Fixed:
    """Files that never change and take any write.

    Attributes:
        where: Folder of the files; empty for the root.
        attrs: The files by path below it.
    """

    where: str
    attrs: dict[str, Attr]
    moving: bool = False

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show the files."""
        return self.attrs

    def write(self, name: str, data: bytes) -> None:
        """Keep what was written, as a switch without effect does."""
        self.attrs[name] = self.attrs[name]._replace(text=data.decode("latin-1").strip() + "\n")


class BoardFiles:
    """Everything there is below the root of a board: devices and links.

    Attributes:
        kernel: The clock files.
        monitors: The power monitors.
        over_current: The over-current counters.
        zones: The thermal zones.
        devices: All of these, and the files that never change.
        links: Symbolic links: path to target, both relative to the root.
    """

    def __init__(self, kernel: Kernel) -> None:
        board, layout = kernel.board, kernel.layout
        self.kernel = kernel
        self.monitors: list[PowerMonitor] = power_monitors(board)
        self.over_current = OverCurrent(len(self.monitors) + 1)
        self.zones = Zones(layout.zones)
        self.devices: list[Device] = [
            *kernel.devices,
            *self.monitors,
            self.over_current,
            self.zones,
            Fixed("", _identity(kernel)),
            Fixed(layout.gpu_device, _gpu_switches(kernel)),
        ]
        self.links = _links(self, board)


def _identity(kernel: Kernel) -> dict[str, Attr]:
    board = kernel.board
    compatible = "".join(f"{name}\0" for name in board.compatible)
    return {
        "proc/device-tree/model": Attr(0o444, f"{board.model}\0"),
        "proc/device-tree/compatible": Attr(0o444, compatible),
        "etc/nv_tegra_release": rw(kernel.layout.release),
        "etc/nvpmodel.conf": rw(_nvpmodel_conf(board)),
        "var/lib/nvpmodel/status": rw(f"pmode:{kernel.mode.id:04d}"),
    }


def _nvpmodel_conf(board: BoardSpec) -> str:
    lines = [f"< POWER_MODEL ID={mode.id} NAME={mode.name} >" for mode in board.modes]
    return "\n".join([*lines, f"< PM_CONFIG DEFAULT={board.mode().id} >"])


def _gpu_switches(kernel: Kernel) -> dict[str, Attr]:
    switches = {"power/control": rw("auto"), "railgate_enable": rw(1)}
    if kernel.layout.gpu_of_node:
        switches["of_node/name"] = Attr(0o444, f"{kernel.layout.gpu_of_node}\0")
    return switches


def _links(files: BoardFiles, board: BoardSpec) -> dict[str, str]:
    layout, kernel = files.kernel.layout, files.kernel
    links = {
        f"sys/class/devfreq/{layout.gpu_devfreq}": layout.gpu_dir,
        f"{layout.gpu_dir}/device": layout.gpu_device,
        f"{layout.gpu_device}/devfreq_dev": layout.gpu_dir,
    }
    if layout.gpu_alias:
        links[layout.gpu_alias] = layout.gpu_device
    for policy in kernel.policies:
        for cpu in policy.cpus:
            links[f"sys/devices/system/cpu/cpu{cpu}/cpufreq"] = policy.where
    for monitor in files.monitors:
        name = PurePosixPath(monitor.device).name
        links[f"sys/bus/i2c/devices/{name}"] = monitor.device
        links[f"sys/bus/i2c/drivers/ina3221/{name}"] = monitor.device
    chips: list[PowerMonitor | OverCurrent] = [*files.monitors, files.over_current]
    for chip in chips:
        links[f"{_CLASS_HWMON}/{PurePosixPath(chip.where).name}"] = chip.where
        links[f"{chip.where}/device"] = chip.device
    for index in range(len(layout.zones)):
        links[f"sys/class/thermal/thermal_zone{index}"] = f"{Zones.where}/thermal_zone{index}"
    for cooling in kernel.cooling:
        links[f"sys/class/thermal/{PurePosixPath(cooling.where).name}"] = cooling.where
    return links


def relative_target(link: str, target: str) -> str:
    """Write the target of a link as sysfs does: relative to the link's folder."""
    here, there = PurePosixPath(link).parent.parts, PurePosixPath(target).parts
    common = 0
    while common < min(len(here), len(there)) and here[common] == there[common]:
        common += 1
    return "/".join([".."] * (len(here) - common) + list(there[common:]))


@dataclass(slots=True)
class SimTree:
    """A plain-file tree.

    Attributes:
        root: The folder that stands for ``/``.
        files: What it shows.
    """

    root: Path
    files: BoardFiles
    _shown: dict[str, Attr] = field(default_factory=dict)
    _device_of: dict[str, Device] = field(default_factory=dict)
    _paths_of: dict[Device, set[str]] = field(default_factory=dict)

    @property
    def kernel(self) -> Kernel:
        """The clock files behind the tree."""
        return self.files.kernel

    @property
    def board(self) -> BoardSpec:
        """The board the tree shows."""
        return self.files.kernel.board

    def path(self, relative: str) -> Path:
        """Locate a file of the tree."""
        return self.root / relative

    def device_of(self, relative: str) -> Device | None:
        """Find the device behind a file; None for a file that the tree does not show."""
        return self._device_of.get(relative)

    def foreign(self, relative: str) -> bytes | None:
        """Read what somebody else wrote to a file since the tree last showed it; None if nothing.

        A file that was emptied counts as untouched: the kernel never sees a write of no bytes.
        """
        attr = self._shown.get(relative)
        if attr is None or not attr.mode & 0o200:
            return None
        content = _read(f"{self.root}/{relative}")
        if not content.strip() or content.strip() == attr.text.encode("latin-1").strip():
            return None
        self._shown[relative] = attr._replace(text=content.decode("latin-1"))
        # A writer pads a shorter value with newlines before it cuts the file to length.
        return content.rstrip(b"\n") + b"\n"

    def stale(self, devices: Iterable[Device] | None = None) -> list[str]:
        """Find the files whose content on disk is not what it ought to be."""
        found = []
        for device in self.files.devices if devices is None else devices:
            now = _paths(device)
            known = self._paths_of.get(device, set())
            found += [path for path, attr in now.items() if not _same(self._shown.get(path), attr)]
            if now.keys() != known:
                self._paths_of[device] = set(now)
                self._device_of.update(dict.fromkeys(now, device))
                found += known - now.keys()
        return found

    def show(self, relative: str) -> bool:
        """Bring one file up to date without a moment in which a reader finds half a value.

        Returns:
            Whether there is such a file now.
        """
        device = self._device_of[relative]
        attr = device.files().get(relative[len(device.where) + 1 :] if device.where else relative)
        if attr is None:
            path = self.root / relative
            del self._shown[relative], self._device_of[relative]
            path.unlink(missing_ok=True)
            _drop_if_empty(path.parent)
            return False
        _write_in_place(f"{self.root}/{relative}", attr)
        self._shown[relative] = attr
        return True

    def sync(self, devices: Iterable[Device] | None = None) -> None:
        """Bring all files of some devices, or of all, up to date."""
        for relative in self.stale(devices):
            self.show(relative)


def _paths(device: Device) -> dict[str, Attr]:
    prefix = f"{device.where}/" if device.where else ""
    return {prefix + name: attr for name, attr in device.files().items()}


def _same(shown: Attr | None, attr: Attr) -> bool:
    return shown is not None and shown.text.strip() == attr.text.strip()


def _drop_if_empty(folder: Path) -> None:
    if str(folder).endswith(GOVERNOR_FOLDERS) and not any(folder.iterdir()):
        folder.rmdir()


def _write_in_place(path: str, attr: Attr) -> None:
    """Replace the content in one write, padded with newlines to the old length, then cut it.

    The file keeps its inode because readers hold descriptors of it, as they do in sysfs.
    """
    content = attr.text.encode("latin-1")
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)
        Path(path).chmod(attr.mode)
        return
    try:
        size = os.fstat(descriptor).st_size
        os.write(descriptor, content.ljust(size, b"\n"))
        if size > len(content):
            os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
    """Read a small file, empty if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)


def build_tree(
    root: Path,
    board: BoardSpec,
    *,
    jetpack: int = 6,
    mode: str = "",
    cpu_governor: str = "schedutil",
    gpu_governor: str = "",
) -> SimTree:
    """Write a board's tree below a folder.

    Args:
        root: The folder that stands for ``/``; made if missing.
        board: The board.
        jetpack: 5, 6 or 7: paths, zone names and governors differ.
        mode: nvpmodel mode; empty for the board's default.
        cpu_governor: cpufreq governor the tree starts under.
        gpu_governor: devfreq governor the tree starts under; empty for the JetPack's own.

    Raises:
        PlantError: The board has no such mode or JetPack.
    """
    kernel = Kernel(
        board, jetpack=jetpack, mode=mode, cpu_governor=cpu_governor, gpu_governor=gpu_governor
    )
    tree = SimTree(root, BoardFiles(kernel))
    root.mkdir(parents=True, exist_ok=True)
    tree.sync()
    for link, target in tree.files.links.items():
        path = root / link
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(relative_target(link, target))
    return tree
