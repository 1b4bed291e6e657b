"""Power rails, temperatures and loads of a board.

Rails are known by their label, never by a part of it: on Orin NX and Nano one rail,
``VDD_CPU_GPU_CV``, feeds both CPU and GPU, and ``VDD_IN`` already contains all others.
"""

from dataclasses import dataclass

from governor.boards.node import Files, Node
from governor.errors import SysfsError

MAX_RAIL_MW = 200_000
"""More than any Jetson can draw: such a reading is an artefact."""

TEMP_RANGE_MC = (-40_000, 150_000)
"""Temperatures outside are readings of a powered-off zone (-256 C) or of no sensor."""


@dataclass(frozen=True, slots=True)
class RailRole:
    """What a rail feeds, and whether the module total counts it.

    Attributes:
        feeds: Some of ``cpu``, ``gpu``; empty for anything else.
        part: Whether it is one of the parts that add up to the module total.
        total: Whether it *is* the module total.
    """

    feeds: tuple[str, ...] = ()
    part: bool = True
    total: bool = False


# Labels of the INA3221/INA238 channels in NVIDIA's device trees, JetPack 4 to 7.
RAILS = {
    "VDD_IN": RailRole(total=True),
    "POM_5V_IN": RailRole(total=True),
    "VIN": RailRole(total=True),
    "VDD_CPU_GPU_CV": RailRole(("cpu", "gpu")),
    "VDD_GPU_SOC": RailRole(("gpu",)),
    "VDD_CPU_CV": RailRole(("cpu",)),
    "VDD_CPU_SOC_MSS": RailRole(("cpu",)),
    "VIN_SYS_5V0": RailRole(),
    "VDDQ_VDD2_1V8AO": RailRole(part=False),  # fed from VIN_SYS_5V0
    "VDD_SOC": RailRole(),
    "VDD_GPU": RailRole(("gpu",)),
    "VDD_CPU": RailRole(("cpu",)),
    "GPU": RailRole(("gpu",)),
    "CPU": RailRole(("cpu",)),
    "SOC": RailRole(),
    "CV": RailRole(),
    "VDDRQ": RailRole(),
    "SYS5V": RailRole(),
    "POM_5V_GPU": RailRole(("gpu",)),
    "POM_5V_CPU": RailRole(("cpu",)),
    "VDD_SYS_GPU": RailRole(("gpu",)),
    "VDD_SYS_CPU": RailRole(("cpu",)),
    "VDD_SYS_SOC": RailRole(),
    "VDD_5V0_DDR": RailRole(),
    "VDD_3V8_WIFI": RailRole(part=False),
}


class Meter:
    """Reads numbers that may fail, and keeps the score of failures."""

    def __init__(self) -> None:
        self.rejected = 0
        self.missing: dict[str, str] = {}

    def read(self, name: str, node: Node, low: int, high: int, *, per: int = 1) -> int | None:
        """Read one number and divide it; None (and why) when it fails or is implausible.

        Args:
            name: What it is called in ``missing``.
            node: The file.
            low: Least plausible value, after the division.
            high: Largest plausible value.
            per: Counts of the file per unit wanted.
        """
        try:
            value = node.read_int(signed=True) // per
        except SysfsError as exc:
            self.missing[name] = str(exc)
            return None
        return self.plausible(name, value, low, high)

    def plausible(self, name: str, value: int, low: int, high: int) -> int | None:
        """Pass a value within its range; reject and count any other."""
        if low <= value <= high:
            return value
        self.rejected += 1
        self.missing[name] = f"implausible reading {value}"
        return None


@dataclass(frozen=True, slots=True)
class Rail:
    """One rail: millivolts and milliamperes, or (``amps`` None) one file in uW or mW."""

    label: str
    volts: Node
    amps: Node | None
    per_mw: int = 1

    def read(self, meter: Meter) -> int | None:
        """Read the power, mW."""
        if self.amps is None:
            return meter.read(self.label, self.volts, 0, MAX_RAIL_MW, per=self.per_mw)
        millivolt = meter.read(self.label, self.volts, 0, 1_000_000)
        milliamp = meter.read(self.label, self.amps, 0, 1_000_000)
        if millivolt is None or milliamp is None:
            return None
        return meter.plausible(self.label, millivolt * milliamp // 1000, 0, MAX_RAIL_MW)


class Rails:
    """The power rails of a board.

    Attributes:
        rails: Rails found, by label.
        shared: Whether one rail feeds both CPU and GPU.
    """

    def __init__(self, files: Files) -> None:
        found = [*_hwmon_rails(files), *_iio_rails(files)]
        self.rails = {rail.label: rail for rail in reversed(found)}
        self.rails = dict(reversed(self.rails.items()))
        self.shared = any(len(RAILS[label].feeds) > 1 for label in self.rails if label in RAILS)

    def read(self, meter: Meter) -> dict[str, int | None]:
        """Read all rails, mW."""
        return {label: rail.read(meter) for label, rail in self.rails.items()}

    @staticmethod
    def total_mw(readings: dict[str, int | None]) -> int | None:
        """Module power: the input rail where there is one, else the sum of the parts."""
        roles = {label: RAILS[label] for label in readings if label in RAILS}
        for label, role in roles.items():
            if role.total:
                return readings[label]
        parts = [readings[label] for label, role in roles.items() if role.part]
        known = [part for part in parts if part is not None]
        return sum(known) if known and len(known) == len(parts) else None

    @staticmethod
    def feeding(domain: str, readings: dict[str, int | None]) -> int | None:
        """Power of the rail that feeds a domain, mW; None when there is none."""
        for label, reading in readings.items():
            if label in RAILS and domain in RAILS[label].feeds:
                return reading
        return None


def _hwmon_rails(files: Files) -> list[Rail]:
    """Find INA3221 and INA238 channels (JetPack 5 on)."""
    chips = files.glob("sys/class/hwmon/hwmon*") or files.glob(
        "sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*"
    )
    chips = [chip for chip in chips if files.read_once(f"{chip}/name") in ("ina3221", "ina238")]
    rails = []
    for chip in chips:
        for channel in ("1", "2", "3"):
            label = files.read_once(f"{chip}/in{channel}_label")
            if not label or label == "NC":
                continue
            if files.exists(f"{chip}/power{channel}_input"):
                power = files.node(f"{chip}/power{channel}_input")
                rails.append(Rail(label, power, None, per_mw=1000))
            elif files.exists(f"{chip}/curr{channel}_input"):
                volts = files.node(f"{chip}/in{channel}_input")
                rails.append(Rail(label, volts, files.node(f"{chip}/curr{channel}_input")))
    return rails


def _iio_rails(files: Files) -> list[Rail]:
    """Find the channels of JetPack 4's own driver, which tells mW."""
    rails = []
    for label_file in files.glob("sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*"):
        folder, _, channel = label_file.rpartition("/rail_name_")
        label = files.read_once(label_file)
        if label and label != "NC":
            rails.append(Rail(label, files.node(f"{folder}/in_power{channel}_input"), None))
    return rails


class Temperatures:
    """The thermal zones of a board, known by type: their numbers change between boots."""

    def __init__(self, files: Files) -> None:
        self.zones: dict[str, Node] = {}
        for zone in files.glob("sys/class/thermal/thermal_zone*"):
            kind = files.read_once(f"{zone}/type")
            if kind and kind not in self.zones:
                self.zones[kind] = files.node(f"{zone}/temp")

    def read(self, meter: Meter) -> dict[str, int | None]:
        """Read all zones, millidegrees Celsius."""
        return {kind: meter.read(kind, node, *TEMP_RANGE_MC) for kind, node in self.zones.items()}

    @staticmethod
    def hottest(domain: str, readings: dict[str, int | None]) -> int | None:
        """Hottest zone of a domain; ``cpu-thermal`` and ``CPU-therm`` are both of ``cpu``."""
        values = [
            value
            for kind, value in readings.items()
            if kind.lower().startswith(domain) and value is not None
        ]
        return max(values, default=None)


class CpuLoad:
    """Busy share of groups of CPUs between two looks, from ``/proc/stat``."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._last: dict[int, tuple[int, int]] = {}

    def read(self, clusters: dict[str, tuple[int, ...]]) -> dict[str, float]:
        """Tell the busy share of each cluster since the last call; empty on the first.

        Args:
            clusters: CPUs of each cluster by its name.
        """
        now = _cpu_times(self._files.read_once("proc/stat") or "")
        last, self._last = self._last, now
        return {
            name: share
            for name, cpus in clusters.items()
            if (share := _busy_share(last, now, cpus)) is not None
        }


def _cpu_times(text: str) -> dict[int, tuple[int, int]]:
    """Parse ``cpuN user nice system idle iowait ...`` into (busy, all) ticks per CPU."""
    times = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdecimal():
            ticks = [int(tick) for tick in rest.split()[:8] if tick.isdecimal()]
            if len(ticks) >= 5:
                times[int(name[3:])] = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
    return times


def _busy_share(
    last: dict[int, tuple[int, int]], now: dict[int, tuple[int, int]], cpus: tuple[int, ...]
) -> float | None:
    both = [cpu for cpu in cpus if cpu in last and cpu in now]
    elapsed = sum(now[cpu][1] - last[cpu][1] for cpu in both)
    if elapsed <= 0:
        return None
    busy = sum(now[cpu][0] - last[cpu][0] for cpu in both)
    return min(1.0, max(0.0, busy / elapsed))


def thermal_limit_active(files: Files, directory: str) -> bool:
    """Tell whether the kernel's thermal governor holds a clock down now.

    Args:
        files: The board's files.
        directory: Folder of the clock: a cpufreq policy or a devfreq device.
    """
    for cooler in files.glob("sys/class/thermal/cooling_device*"):
        kind = (files.read_once(f"{cooler}/type") or "").lower()
        if _cools(kind, directory) and files.read_once(f"{cooler}/cur_state") not in (
            None,
            "",
            "0",
        ):
            return True
    return False


def _cools(kind: str, directory: str) -> bool:
    """Tell whether a cooling device is that of a clock, as far as its type tells."""
    _, of_cpu, cpu = directory.rpartition("/policy")
    if not of_cpu:
        return "devfreq" in kind or "gpu" in kind
    # cpufreq-cpu4 names its cluster (5.11 and later); thermal-cpufreq-1 may be any.
    return "cpufreq" in kind and (not kind.startswith("cpufreq-cpu") or kind.endswith(f"cpu{cpu}"))
