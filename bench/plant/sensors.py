"""Power monitors and thermal zones as files: averaged, quantised, a reading per interval."""

from collections.abc import Mapping, Sequence

from bench.plant.board import BoardSpec, Rail
from bench.plant.kfile import Attr, dispatch, ro, rw, scan_unsigned

_I2C = "sys/devices/platform/bus@0/c240000.i2c/i2c-1"
_BUS_LSB_MV = 8
_CHANNELS = (1, 2, 3)
_ZONE_OFF_MC = -256_000
"""What a zone without power reads."""
AMBIENT_MC = 25_000


class PowerMonitor:
    """One INA3221 chip: ``hwmonN`` below its i2c device.

    Attributes:
        shown_ma: Current of each channel as shown, mA.
    """

    moving = False

    def __init__(self, address: int, hwmon: int, rails: Sequence[Rail], interval_ms: int) -> None:
        self.device = f"{_I2C}/1-{address:04x}"
        self.where = f"{self.device}/hwmon/hwmon{hwmon}"
        self.rails = {rail.channel: rail for rail in rails}
        self.interval_ms = interval_ms
        self.shown_ma = dict.fromkeys(_CHANNELS, 0)

    def settle(self) -> None:
        """Nothing here takes time."""

    def show(self, power_mw: Mapping[str, float]) -> None:
        """Take the mean power of each rail over the last interval, mW, by label."""
        for channel, rail in self.rails.items():
            current_ma = power_mw.get(rail.label, 0.0) * 1000 / rail.bus_mv
            self.shown_ma[channel] = round(round(current_ma / rail.step_ma) * rail.step_ma)

    def files(self) -> dict[str, Attr]:
        """Show labels, voltages and currents; an unused channel is labelled NC."""
        shown = {"name": ro("ina3221"), "update_interval": rw(self.interval_ms)}
        for channel in _CHANNELS:
            rail = self.rails.get(channel)
            bus_mv = rail.bus_mv // _BUS_LSB_MV * _BUS_LSB_MV if rail else 0
            shown[f"in{channel}_label"] = ro(rail.label if rail else "NC")
            shown[f"in{channel}_input"] = ro(bus_mv)
            shown[f"curr{channel}_input"] = ro(self.shown_ma[channel])
        shown["in7_label"] = ro("sum of shunt voltages")
        shown["in7_input"] = ro(0)
        shown["curr4_input"] = ro(sum(self.shown_ma.values()))
        return shown

    def write(self, name: str, data: bytes) -> None:
        """Take an averaging interval, ms."""
        dispatch({"update_interval": self._store_interval}, self.files(), name, data)

    def _store_interval(self, data: bytes) -> None:
        self.interval_ms = max(scan_unsigned(data, 32), 1)


class OverCurrent:
    """Event counters of the over-current alarms (``soctherm_oc``).

    Attributes:
        events: Events counted so far, by alarm 1..3.
    """

    moving = False

    def __init__(self, hwmon: int) -> None:
        self.device = "sys/devices/platform/soctherm-oc-event"
        self.where = f"{self.device}/hwmon/hwmon{hwmon}"
        self.events = dict.fromkeys(_CHANNELS, 0)

    def settle(self) -> None:
        """Nothing here takes time."""

    def files(self) -> dict[str, Attr]:
        """Show the counters."""
        shown = {"name": ro("soctherm_oc")}
        for alarm, count in self.events.items():
            shown[f"oc{alarm}_event_cnt"] = ro(count)
            shown[f"oc{alarm}_throt_en"] = ro(1)
        return shown

    def write(self, name: str, data: bytes) -> None:
        """Refuse: nothing here can be written."""
        dispatch({}, self.files(), name, data)


class Zones:
    """All thermal zones; the zones of the vision accelerators have no power and read -256 C.

    Attributes:
        temp_mc: Temperature of each zone, millidegrees Celsius, by its type.
    """

    where = "sys/devices/virtual/thermal"
    moving = False

    def __init__(self, types: Sequence[str]) -> None:
        self.temp_mc = {
            kind: _ZONE_OFF_MC if kind.lower().startswith("cv") else AMBIENT_MC for kind in types
        }

    def settle(self) -> None:
        """Nothing here takes time."""

    def show(self, temp_mc: Mapping[str, int]) -> None:
        """Take temperatures by the first part of a zone's type, such as ``"cpu"`` or ``"tj"``.

        A ``"*"`` entry is for the zones that have none of their own.
        """
        for kind, old in self.temp_mc.items():
            if old != _ZONE_OFF_MC:
                part = kind.lower().split("-")[0]
                self.temp_mc[kind] = temp_mc.get(part, temp_mc.get("*", old))

    def files(self) -> dict[str, Attr]:
        """Show type and temperature of every zone."""
        shown = {}
        for index, (kind, temp_mc) in enumerate(self.temp_mc.items()):
            shown[f"thermal_zone{index}/type"] = ro(kind)
            shown[f"thermal_zone{index}/temp"] = ro(temp_mc)
        return shown

    def write(self, name: str, data: bytes) -> None:
        """Refuse: nothing here can be written."""
        dispatch({}, self.files(), name, data)


def power_monitors(board: BoardSpec) -> list[PowerMonitor]:
    """Make the chips of a board, numbered as hwmon devices after the thermal ones."""
    addresses = sorted({rail.i2c_address for rail in board.rails})
    return [
        PowerMonitor(
            address,
            index + 1,
            [rail for rail in board.rails if rail.i2c_address == address],
            board.sensor_interval_ms,
        )
        for index, address in enumerate(addresses)
    ]
