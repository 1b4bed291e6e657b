"""Definitions of the simulated boards, read from one TOML file a board.

A definition says what a board has (clock lists, clusters, rails, power modes) and carries the
constants of its physics; it never says how anything behaves. Paths and governors, which differ by
JetPack and not by board, lie in ``layouts.toml``.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.plant.errors import PlantError

# Read by name: which of the two exists depends on the Python version.
_toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_HERE = Path(__file__).parent
_BOARDS = _HERE / "boards"
SHUNT_LSB_UV = 40
"""One step of the INA3221's shunt register, uV (Texas Instruments data sheet)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """CPUs that share one clock: one cpufreq policy.

    Attributes:
        cpus: Numbers of the CPUs, ascending.
    """

    cpus: tuple[int, ...]

    @property
    def policy(self) -> int:
        """Number of the cpufreq policy: its first CPU."""
        return self.cpus[0]


@dataclass(frozen=True, slots=True)
class Rail:
    """One channel of an INA3221 power monitor.

    Attributes:
        label: Name of the rail as the board's device tree gives it.
        i2c_address: Address of the chip on its bus.
        channel: 1, 2 or 3.
        shunt_uohm: Shunt resistor, micro-ohm.
        bus_mv: Voltage of the rail, mV.
        is_total: Whether this rail feeds the whole module, the other rails included.
    """

    label: str
    i2c_address: int
    channel: int
    shunt_uohm: int
    bus_mv: int
    is_total: bool

    @property
    def step_ma(self) -> float:
        """Current of one step of the sensor, mA."""
        return SHUNT_LSB_UV * 1000 / self.shunt_uohm

    @property
    def step_mw(self) -> float:
        """Power of one step of the sensor, mW."""
        return self.step_ma * self.bus_mv / 1000


@dataclass(frozen=True, slots=True)
class PowerMode:
    """One nvpmodel mode. A limit of 0 means none.

    Attributes:
        id: Number of the mode.
        name: Name of the mode, such as ``"MAXN"``.
        online_cpus: CPUs left online.
        cpu_max_hz: Limit of the CPU clock, Hz.
        gpu_max_hz: Limit of the GPU clock, Hz.
        emc_max_hz: Limit of the memory clock, Hz.
        tpc_mask: Texture processing clusters switched off, one bit each.
    """

    id: int
    name: str
    online_cpus: tuple[int, ...]
    cpu_max_hz: int
    gpu_max_hz: int
    emc_max_hz: int
    tpc_mask: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one JetPack puts a board's files; see ``layouts.toml`` for each entry.

    Paths are relative to the root of the tree. An empty path or list means that the board or this
    JetPack has no such thing.
    """

    jetpack: int
    release: str
    kernel: str
    gpu_device: str
    gpu_alias: str
    gpu_devfreq: str
    gpu_of_node: str
    gpu_governors: tuple[str, ...]
    gpu_governor: str
    cpu_governors: tuple[str, ...]
    cpu_driver: str
    schedutil_rate_limit_us: int
    emc_cap: str
    emc_debug: str
    zones: tuple[str, ...]
    cpu_cooling: str
    gpu_cooling: str
    min_max_snap: bool
    offline_reads: bool
    keeps_polling: bool
    load_file: bool

    @property
    def gpu_dir(self) -> str:
        """Folder of the GPU's devfreq files."""
        return f"{self.gpu_device}/devfreq/{self.gpu_devfreq}"


@dataclass(frozen=True, slots=True)
class BoardSpec:
    """One board: what it has, not how it behaves.

    Attributes:
        name: Name of the definition, such as ``"agx-orin"``.
        model: Model line of the device tree.
        soc: Chip, such as ``"tegra234"``.
        compatible: Compatible strings of the device tree, most specific first.
        cpu_hz: CPU clocks, Hz, ascending; empty where the list is not established.
        gpu_hz: GPU clocks, Hz, ascending.
        emc_hz: Lockable memory clocks, Hz, ascending.
        clusters: CPU clusters.
        rails: Channels of the power monitors.
        modes: nvpmodel modes.
        default_mode: Name of the mode a tree starts in.
        cpu_min_hz: Minimum of the CPU clock that every mode sets, Hz; 0 for none.
        sensor_interval_ms: Averaging time of the power monitors, ms.
        layouts: Layout of each JetPack the board runs, by its number.
        physics: Constants of the power, heat and memory models, as the data file has them.
    """

    name: str
    model: str
    soc: str
    compatible: tuple[str, ...]
    cpu_hz: tuple[int, ...]
    gpu_hz: tuple[int, ...]
    emc_hz: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    rails: tuple[Rail, ...]
    modes: tuple[PowerMode, ...]
    default_mode: str
    cpu_min_hz: int
    sensor_interval_ms: int
    layouts: Mapping[int, Layout]
    physics: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs, online or not."""
        return tuple(cpu for cluster in self.clusters for cpu in cluster.cpus)

    def mode(self, name: str = "") -> PowerMode:
        """Find a power mode by name; an empty name means the default one.

        Raises:
            PlantError: The board has no such mode.
        """
        wanted = name or self.default_mode
        for mode in self.modes:
            if mode.name == wanted:
                return mode
        names = ", ".join(mode.name for mode in self.modes)
        raise PlantError(f"no power mode {wanted!r}", where=self.name, hint=f"choose from {names}")

    def layout(self, jetpack: int) -> Layout:
        """Find the layout of a JetPack.

        Raises:
            PlantError: The board does not run this JetPack.
        """
        try:
            return self.layouts[jetpack]
        except KeyError:
            have = ", ".join(str(number) for number in self.layouts)
            raise PlantError(
                f"no layout for JetPack {jetpack}", where=self.name, hint=f"choose from {have}"
            ) from None


def board_names() -> tuple[str, ...]:
    """List the boards that have a definition."""
    return tuple(sorted(path.stem for path in _BOARDS.glob("*.toml")))


def load_board(name: str) -> BoardSpec:
    """Read the definition of a board.

    Args:
        name: ``"agx-orin"``, ``"orin-nx"``, ``"orin-nano"`` or ``"agx-thor"``.

    Raises:
        PlantError: There is no such board, or its file is wrong.
    """
    if name not in board_names():
        raise PlantError(f"unknown board {name!r}", hint=f"choose from {', '.join(board_names())}")
    path = _BOARDS / f"{name}.toml"
    raw = _read(path)
    try:
        return _spec(name, raw)
    except (KeyError, TypeError, ValueError) as error:
        raise PlantError("wrong definition", where=str(path), why=repr(error)) from error


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        content: dict[str, Any] = _toml.load(file)
    return content


def _spec(name: str, raw: dict[str, Any]) -> BoardSpec:
    raw = dict(raw)
    family = raw.pop("layout")
    layouts = {
        int(number): Layout(jetpack=int(number), **_frozen(entries))
        for number, entries in _read(_HERE / "layouts.toml")[family].items()
    }
    parts = {
        "clusters": tuple(Cluster(tuple(cpus)) for cpus in raw.pop("clusters")),
        "rails": tuple(Rail(**entries) for entries in raw.pop("rails")),
        "modes": tuple(PowerMode(**_frozen(entries)) for entries in raw.pop("modes")),
        "physics": raw.pop("physics", {}),
    }
    spec = BoardSpec(name=name, layouts=layouts, **parts, **_frozen(raw))
    for clocks in (spec.cpu_hz, spec.gpu_hz, spec.emc_hz):
        if list(clocks) != sorted(set(clocks)):
            raise ValueError("clocks are not ascending")
    return spec


def _frozen(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in entries.items()
    }
