"""The plain-file tree: layout, units, modes, and what it must not depend on."""

import ast
import os
import stat
from pathlib import Path

import pytest

import bench.plant
from bench.plant.board import board_names, load_board
from bench.plant.sensors import PowerMonitor, Zones
from bench.plant.tree import build_tree, relative_target

ORIN = ["agx-orin", "orin-nx", "orin-nano"]
COUNTS = {"agx-orin": (29, 11, 3), "orin-nx": (26, 7, 2), "orin-nano": (22, 8, 2)}
GPU_DEVICE = {
    5: "sys/devices/17000000.ga10b",
    6: "sys/devices/platform/17000000.gpu",
    7: "sys/devices/platform/bus@0/17000000.gpu",
}


def read(path: Path) -> str:
    return path.read_text().strip().strip("\0")


def test_plant_imports_nothing_from_the_rooms_it_judges():
    folder = Path(bench.plant.__file__).parent
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 15
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in ("estimators", "policies", "governor"), path
                assert name.split(".")[:2] in (["bench", "plant"],) or name.split(".")[0] != "bench"


@pytest.mark.parametrize("name", ORIN)
@pytest.mark.parametrize("jetpack", [5, 6, 7])
def test_clock_files_are_complete(tmp_path, name, jetpack):
    board = load_board(name)
    build_tree(tmp_path, board, jetpack=jetpack)
    cpu_steps, gpu_steps, clusters = COUNTS[name]
    policies = sorted((tmp_path / "sys/devices/system/cpu/cpufreq").glob("policy*"))
    assert len(policies) == clusters
    for policy in policies:
        steps = [int(step) for step in read(policy / "scaling_available_frequencies").split()]
        assert [step * 1000 for step in steps] == list(board.cpu_hz)
        assert len(steps) == cpu_steps
        assert read(policy / "cpuinfo_transition_latency") == "300000"
    gpu = tmp_path / GPU_DEVICE[jetpack]
    devfreq = next((tmp_path / "sys/class/devfreq").iterdir())
    assert devfreq.is_symlink()
    assert (devfreq / "device").resolve() == gpu.resolve()
    steps = [int(step) for step in read(devfreq / "available_frequencies").split()]
    assert steps == list(board.gpu_hz)
    assert len(steps) == gpu_steps
    assert read(devfreq / "device/of_node/name") == ("ga10b" if jetpack == 5 else "gpu")
    assert read(devfreq / "governor") == "nvhost_podgov"
    assert not (devfreq / "userspace").exists()
    assert 0 <= int(read(gpu / "load")) <= 1000
    rates = read(tmp_path / "sys/kernel/debug/bpmp/debug/emc/possible_rates").split()
    assert [int(rate) * 1000 for rate in rates] == list(board.emc_hz)


def test_zone_names_follow_the_jetpack(tmp_path):
    for jetpack, cpu_zone in ((5, "CPU-therm"), (6, "cpu-thermal")):
        root = tmp_path / str(jetpack)
        build_tree(root, load_board("agx-orin"), jetpack=jetpack)
        zones = [read(path) for path in (root / "sys/class/thermal").glob("thermal_zone*/type")]
        assert cpu_zone in zones
        assert len(zones) == 9


def test_links_all_lead_somewhere_inside(tmp_path):
    for name in board_names():
        root = tmp_path / name
        build_tree(root, load_board(name), jetpack=7)
        links = [p for p in root.rglob("*") if p.is_symlink()]
        assert links
        for link in links:
            assert link.exists(), link
            assert not link.readlink().is_absolute()
            assert root in link.resolve().parents


def test_modes_are_those_of_the_kernel(tmp_path):
    tree = build_tree(tmp_path, load_board("agx-orin"))
    modes = {
        "scaling_cur_freq": 0o444,
        "cpuinfo_cur_freq": 0o400,
        "scaling_setspeed": 0o644,
        "scaling_governor": 0o644,
        "affected_cpus": 0o444,
    }
    for name, mode in modes.items():
        path = tree.path(f"sys/devices/system/cpu/cpufreq/policy0/{name}")
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_identity_of_a_board(tmp_path):
    build_tree(tmp_path, load_board("agx-orin"), mode="30W")
    assert (tmp_path / "proc/device-tree/model").read_bytes().endswith(b"Developer Kit\0")
    compatible = (tmp_path / "proc/device-tree/compatible").read_bytes()
    assert compatible.split(b"\0")[-2] == b"nvidia,tegra234"
    assert read(tmp_path / "etc/nv_tegra_release").startswith("# R36 (release)")
    assert read(tmp_path / "var/lib/nvpmodel/status") == "pmode:0002"
    cpu = tmp_path / "sys/devices/system/cpu"
    assert read(cpu / "online") == "0-7"
    assert (cpu / "cpufreq/policy8").is_dir()
    assert read(cpu / "cpufreq/policy8/scaling_governor") == ""  # EBUSY on a real kernel
    assert read(cpu / "cpu3/cpufreq/scaling_max_freq") == "1728000"
    assert read(cpu / "cpu3/online") == "1"
    assert not (cpu / "cpu0/online").exists()


def test_thor_has_sensors_and_paths_only(tmp_path):
    build_tree(tmp_path, load_board("agx-thor"), jetpack=7)
    assert (tmp_path / "sys/class/devfreq/gpu-gpc-0/max_freq").exists()
    assert not list(tmp_path.rglob("load"))
    assert not (tmp_path / "sys/devices/system/cpu/cpufreq/policy0").exists()
    labels = {read(path) for path in tmp_path.glob("sys/class/hwmon/hwmon*/in*_label")}
    assert {"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN"} <= labels


def test_rail_steps():
    steps = {rail.label: rail.step_mw for rail in load_board("agx-orin").rails}
    assert steps["VDD_GPU_SOC"] == steps["VDD_CPU_CV"] == 400.0
    assert steps["VDDQ_VDD2_1V8AO"] == 100.0
    assert {rail.step_ma for rail in load_board("orin-nano").rails} == {8.0}


def test_monitor_quantises_and_labels_unused_channels():
    rails = [rail for rail in load_board("agx-orin").rails if rail.i2c_address == 0x41]
    monitor = PowerMonitor(0x41, 2, rails, 430)
    monitor.show({"VDDQ_VDD2_1V8AO": 1234.0})
    shown = {name: attr.text.strip() for name, attr in monitor.files().items()}
    assert shown["in2_label"] == "VDDQ_VDD2_1V8AO"
    assert shown["in1_label"] == shown["in3_label"] == "NC"
    assert (shown["in2_input"], shown["curr2_input"]) == ("5000", "240")
    assert shown["in7_label"] == "sum of shunt voltages"


def test_zones_keep_what_has_no_power():
    zones = Zones(["cpu-thermal", "cv0-thermal", "soc0-thermal", "tj-thermal"])
    zones.show({"cpu": 41_000, "*": 39_000, "cv0": 12})
    temps = list(zones.temp_mc.values())
    assert temps == [41_000, -256_000, 39_000, 39_000]


def test_rewriting_keeps_inode_and_never_leaves_a_tail(tmp_path):
    tree = build_tree(tmp_path, load_board("agx-orin"), cpu_governor="userspace")
    path = tree.path("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq")
    inode = path.stat().st_ino
    held = os.open(path, os.O_RDONLY)
    for khz in (2201600, 729600, 960000):
        tree.kernel.write("sys/devices/system/cpu/cpufreq/policy0/scaling_setspeed", b"%d" % khz)
        tree.kernel.settle()
        tree.sync()
        assert os.pread(held, 99, 0) == b"%d\n" % khz
    os.close(held)
    assert path.stat().st_ino == inode


def test_sync_is_idempotent_and_removes_what_is_gone(tmp_path):
    tree = build_tree(tmp_path, load_board("agx-orin"), gpu_governor="userspace")
    folder = tree.path(tree.kernel.layout.gpu_dir)
    assert (folder / "userspace/set_freq").read_text() == "undefined\n"
    assert tree.stale() == []
    tree.kernel.gpu.store("governor", "nvhost_podgov")
    tree.sync()
    assert not (folder / "userspace").exists()
    assert (folder / "polling_interval").exists()
    assert (folder / "device/power/control").exists()
    assert tree.stale() == []


def test_foreign_writes_are_told_from_own(tmp_path):
    tree = build_tree(tmp_path, load_board("agx-orin"), cpu_governor="userspace")
    name = "sys/devices/system/cpu/cpufreq/policy0/scaling_setspeed"
    assert tree.foreign(name) is None
    tree.path(name).write_text("1036800\n")
    assert tree.foreign(name) == b"1036800\n"
    assert tree.foreign(name) is None
    tree.path(name).write_text("")
    assert tree.foreign(name) is None


def test_relative_targets():
    assert relative_target("a/b/link", "a/c") == "../c"
    assert relative_target("link", "a/c") == "a/c"
