"""Rails, temperatures, loads, identity: missing is None with a reason, implausible is counted."""

from pathlib import Path

import pytest

from governor.boards import discover
from governor.boards.identity import parse_cpus
from governor.boards.sensors import Rails
from tests.boards import plain

HWMON = "sys/class/hwmon/hwmon{}"


def add_ina(root: Path, index: int, rails: dict[str, tuple[int, int]]) -> None:
    chip = HWMON.format(index)
    plain.put(root, f"{chip}/name", "ina3221")
    for channel, (label, (millivolt, milliamp)) in enumerate(rails.items(), 1):
        plain.put(root, f"{chip}/in{channel}_label", label)
        plain.put(root, f"{chip}/in{channel}_input", millivolt)
        plain.put(root, f"{chip}/curr{channel}_input", milliamp)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return plain.orin(tmp_path)


def test_agx_orin_total_is_the_sum_of_its_parts(root: Path) -> None:
    parts = {"VDD_GPU_SOC": (20000, 200), "VDD_CPU_CV": (20000, 100), "VIN_SYS_5V0": (5000, 400)}
    add_ina(root, 3, parts)
    add_ina(root, 4, {"NC": (0, 0), "VDDQ_VDD2_1V8AO": (5000, 100)})
    state = discover(root).poll()
    assert state.rails_mw["VDDQ_VDD2_1V8AO"] == 500
    assert "NC" not in state.rails_mw
    assert state.total_mw == 4000 + 2000 + 2000
    assert (state.cpu_power_mw, state.gpu_power_mw, state.shared_rail) == (2000, 4000, False)


def test_orin_nx_total_is_its_input_and_one_rail_feeds_both(root: Path) -> None:
    add_ina(
        root,
        0,
        {"VDD_IN": (5000, 2000), "VDD_CPU_GPU_CV": (5000, 800), "VDD_SOC": (5000, 300)},
    )
    state = discover(root).poll()
    assert state.total_mw == 10_000, "the input already contains the others"
    assert (state.cpu_power_mw, state.gpu_power_mw, state.shared_rail) == (4000, 4000, True)


def test_thor_total_is_in_microwatts_and_usb_supplies_are_no_rails(root: Path) -> None:
    chip = HWMON.format(1)
    plain.put(root, f"{chip}/name", "ina238")
    plain.put(root, f"{chip}/in1_label", "VIN")
    plain.put(root, f"{chip}/power1_input", 25_300_000)
    plain.put(root, f"{HWMON.format(2)}/name", "ucsi_source_psy_1")
    plain.put(root, f"{HWMON.format(2)}/in1_label", "VIN")
    plain.put(root, f"{HWMON.format(2)}/in1_input", 5000)
    state = discover(root).poll()
    assert state.rails_mw == {"VIN": 25_300}
    assert state.total_mw == 25_300


def test_jetpack_4_rails_tell_milliwatts(root: Path) -> None:
    folder = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    plain.put(root, f"{folder}/rail_name_0", "POM_5V_IN")
    plain.put(root, f"{folder}/in_power0_input", 2345)
    assert discover(root).poll().total_mw == 2345


def test_implausible_power_is_rejected_and_counted(root: Path) -> None:
    add_ina(root, 0, {"VDD_GPU_SOC": (20000, -40), "VDD_CPU_CV": (20000, 100)})
    board = discover(root)
    state = board.poll()
    assert state.gpu_power_mw is None
    assert state.total_mw is None, "a sum without one of its parts is not the total"
    assert state.rejected == 1
    assert "implausible" in state.missing["VDD_GPU_SOC"]
    assert board.poll().rejected == 2


def test_a_rail_that_vanishes_is_missing_and_not_zero(root: Path) -> None:
    add_ina(root, 0, {"VDD_CPU_CV": (20000, 100)})
    board = discover(root)
    assert board.poll().cpu_power_mw == 2000
    (root / HWMON.format(0) / "curr1_input").unlink()
    # The descriptor stays good on a plain file, so the board is found anew.
    state = discover(root).poll()
    assert state.cpu_power_mw is None


def test_no_rails_at_all_is_none(root: Path) -> None:
    state = discover(root).poll()
    assert (state.total_mw, state.cpu_power_mw, state.rails_mw) == (None, None, {})
    assert Rails.total_mw({"UNKNOWN": 5}) is None


def test_zones_are_known_by_type_and_minus_256_is_rejected(root: Path) -> None:
    zones = [("cpu-thermal", 45_500), ("GPU-therm", 51_000), ("cv0-thermal", -256_000)]
    for index, (kind, temp) in enumerate(zones):
        plain.put(root, f"sys/class/thermal/thermal_zone{index}/type", kind)
        plain.put(root, f"sys/class/thermal/thermal_zone{index}/temp", temp)
    state = discover(root).poll()
    assert (state.cpu_temp_mc, state.gpu_temp_mc) == (45_500, 51_000)
    assert state.temps_mc["cv0-thermal"] is None
    assert state.rejected == 1


def test_gpu_load_is_a_share_and_more_than_all_is_rejected(root: Path) -> None:
    assert discover(root).poll().gpu_load == 0.5
    plain.put(root, f"{plain.GPU}/device/load", 1001)
    assert discover(root).poll().gpu_load is None


def test_cpu_load_is_of_each_cluster_between_two_looks(root: Path) -> None:
    def stat(busy: int, idle: int) -> None:
        lines = [f"cpu{n} {busy * (n < 4)} 0 0 {idle} 0 0 0 0 0 0" for n in range(12)]
        plain.put(root, "proc/stat", "\n".join(["cpu 1 2 3", *lines, "intr 1"]))

    stat(0, 0)
    board = discover(root)
    assert board.poll().cpu_load == {}
    stat(30, 70)
    assert board.poll().cpu_load == {"policy0": 0.3, "policy4": 0.0, "policy8": 0.0}


def test_emc_is_read_where_the_board_shows_it(root: Path) -> None:
    state = discover(root).poll()
    assert state.emc_hz is None
    assert "memory clock" in state.missing["emc"]
    plain.put(root, "sys/kernel/debug/bpmp/debug/clk/emc/rate", 2_133_000_000)
    assert discover(root).poll().emc_hz == 2_133_000_000


def test_identity_of_a_real_looking_board(root: Path) -> None:
    plain.put(root, "proc/device-tree/model", "NVIDIA Jetson AGX Orin\0")
    compatible = "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0"
    plain.put(root, "proc/device-tree/compatible", compatible)
    plain.put(root, "etc/nv_tegra_release", "# R99 (release), REVISION: 9.9, GCID: 1")
    plain.put(root, "var/lib/nvpmodel/status", "pmode:0002 fmode:quiet")
    plain.put(root, f"{plain.GPU}/device/tpc_pg_mask", "0xf0")
    identity = discover(root).identity
    assert identity.model == "NVIDIA Jetson AGX Orin"
    assert (identity.soc, identity.module) == ("tegra234", "p3701-0005")
    assert (identity.l4t, identity.power_mode, identity.tpc_mask) == ("99.9.9", 2, 0xF0)


def test_identity_of_an_unknown_board_is_empty_and_not_fatal(root: Path) -> None:
    plain.put(root, "var/lib/nvpmodel/status", "garbage")
    plain.put(root, "etc/nv_tegra_release", "custom image")
    plain.put(root, f"{plain.GPU}/device/tpc_pg_mask", "none")
    identity = discover(root).identity
    assert (identity.model, identity.soc, identity.l4t) == ("", "", "")
    assert (identity.power_mode, identity.tpc_mask) == (None, None)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,6", (0, 1, 2, 3, 6)), ("0 1 2", (0, 1, 2)), ("", ()), ("x,1-y,5", (5,))],
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus
