"""The live board end to end: its process, its plain files, its FUSE tree, its socket."""

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.plant import livewire as wire
from bench.plant.errors import KernelError, PlantError
from bench.plant.fusetree import fuse_missing
from bench.plant.liveclient import LiveClient, spawn_board

CPU = "sys/devices/system/cpu/cpufreq/policy0"
GPU = "sys/class/devfreq/17000000.gpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
PATIENCE_S = 5.0

needs_fuse = pytest.mark.skipif(bool(fuse_missing()), reason=fuse_missing() or "FUSE is here")


@pytest.fixture
def board(tmp_path):
    with spawn_board(tmp_path / "board", seed=3) as live:
        yield live


@pytest.fixture
def fuse_board(tmp_path):
    with spawn_board(tmp_path / "board", seed=3, fuse=True) as live:
        yield live


def put(board, path, text):
    """Write as the daemon does: one pwrite of a line on an open descriptor; returns seconds."""
    descriptor = os.open(board.root / path, os.O_WRONLY)
    try:
        start = time.perf_counter()
        os.pwrite(descriptor, f"{text}\n".encode(), 0)
        return time.perf_counter() - start
    finally:
        os.close(descriptor)


def get(board, path):
    return (board.root / path).read_text().strip()


def wait_for(board, path, text, since=None):
    """Wait until a file reads as wanted; returns seconds, counted from ``since`` if it is given."""
    start = time.perf_counter() if since is None else since
    while time.perf_counter() - start < PATIENCE_S:
        if (board.root / path).exists() and get(board, path) == str(text):
            return time.perf_counter() - start
        time.sleep(0.0002)
    raise AssertionError(f"{path} reads {get(board, path)!r}, not {text!r}")


def snapshot(root):
    """Read all that a governor may touch."""
    folders = [root / "sys/devices/system/cpu", (root / GPU).resolve()]
    return {
        str(path.relative_to(root)): path.read_text()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def test_start_is_quick(tmp_path):
    start = time.perf_counter()
    with spawn_board(tmp_path / "board") as board:
        took = time.perf_counter() - start
        assert board.state().cpu_governor == "schedutil"
    assert took < 4.0  # 0.4 s on an idle machine; the machine may be busy
    assert not (tmp_path / "board.sock").exists()


def test_setspeed_takes_effect_after_its_delay(board):
    put(board, f"{CPU}/scaling_governor", "userspace")
    took = []
    for khz in (2201600, 1036800) * 5:
        before = time.perf_counter()
        put(board, f"{CPU}/scaling_setspeed", khz)
        took.append(wait_for(board, f"{CPU}/scaling_cur_freq", khz, before))
    assert min(took) >= 0.0004
    assert min(took) <= 0.01


def test_answers_are_the_kernels(board):
    put(board, f"{CPU}/scaling_governor", "userspace")
    put(board, f"{CPU}/scaling_setspeed", 1100000)
    wait_for(board, f"{CPU}/scaling_setspeed", 1113600)
    put(board, f"{CPU}/scaling_setspeed", "nonsense")
    wait_for(board, f"{CPU}/scaling_setspeed", 1113600)
    put(board, f"{CPU}/scaling_governor", "schedutil")
    wait_for(board, f"{CPU}/scaling_setspeed", "<unsupported>")


def test_a_write_right_after_the_governor_is_not_lost(board):
    for _ in range(10):
        put(board, f"{CPU}/scaling_governor", "userspace")
        put(board, f"{CPU}/scaling_setspeed", 1344000)
        wait_for(board, f"{CPU}/scaling_cur_freq", 1344000)
        put(board, f"{CPU}/scaling_governor", "powersave")
        wait_for(board, f"{CPU}/scaling_cur_freq", 729600)


def test_gpu_userspace_folder_appears_and_is_obeyed(board):
    assert not (board.root / GPU / "userspace").exists()
    put(board, f"{GPU}/governor", "userspace")
    wait_for(board, f"{GPU}/userspace/set_freq", "undefined")
    for hz in (816000000, 306000000, 1300500000):
        put(board, f"{GPU}/userspace/set_freq", hz)
        wait_for(board, f"{GPU}/cur_freq", hz)
    put(board, f"{GPU}/governor", "nvhost_podgov")
    wait_for(board, f"{GPU}/polling_interval", 25)
    folder = board.root / GPU / "userspace"
    limit = time.perf_counter() + PATIENCE_S
    while folder.exists() and time.perf_counter() < limit:
        time.sleep(0.001)
    assert not folder.exists()


def test_a_folder_that_comes_back_is_watched_again(board):
    policies = [f"sys/devices/system/cpu/cpufreq/policy{n}" for n in (0, 4, 8)]
    knob = "sys/devices/system/cpu/cpufreq/schedutil/rate_limit_us"
    for policy in policies:
        put(board, f"{policy}/scaling_governor", "userspace")
    start = time.perf_counter()
    while (board.root / knob).exists() and time.perf_counter() - start < PATIENCE_S:
        time.sleep(0.001)
    assert not (board.root / knob).exists()
    put(board, f"{policies[0]}/scaling_governor", "schedutil")
    wait_for(board, knob, 10000)
    put(board, knob, "5000abc")
    wait_for(board, knob, 5000)


def test_two_policies_at_once(board):
    for policy in ("policy0", "policy4", "policy8"):
        put(board, f"sys/devices/system/cpu/cpufreq/{policy}/scaling_governor", "userspace")
    for policy, khz in (("policy0", 960000), ("policy4", 1190400), ("policy8", 1344000)):
        put(board, f"sys/devices/system/cpu/cpufreq/{policy}/scaling_setspeed", khz)
    for policy, khz in (("policy0", 960000), ("policy4", 1190400), ("policy8", 1344000)):
        wait_for(board, f"sys/devices/system/cpu/cpufreq/{policy}/scaling_cur_freq", khz)


def test_restored_tree_is_the_same(board):
    before = snapshot(board.root)
    put(board, f"{CPU}/scaling_governor", "userspace")
    put(board, f"{CPU}/scaling_setspeed", 2201600)
    put(board, f"{GPU}/governor", "userspace")
    wait_for(board, f"{GPU}/userspace/set_freq", "undefined")
    put(board, f"{GPU}/userspace/set_freq", 1020000000)
    wait_for(board, f"{GPU}/cur_freq", 1020000000)
    assert snapshot(board.root) != before
    put(board, f"{CPU}/scaling_governor", "schedutil")
    put(board, f"{GPU}/governor", "nvhost_podgov")
    wait_for(board, f"{GPU}/cur_freq", 306000000)
    wait_for(board, f"{CPU}/scaling_cur_freq", 729600)
    wait_for(board, "sys/devices/system/cpu/cpufreq/schedutil/rate_limit_us", 10000)
    assert snapshot(board.root) == before


def test_cap_by_another_actor(board):
    put(board, f"{CPU}/scaling_governor", "userspace")
    put(board, f"{CPU}/scaling_setspeed", 2201600)
    wait_for(board, f"{CPU}/scaling_cur_freq", 2201600)
    board.cap(cpu_hz=960_000_000, gpu_hz=510_000_000)
    wait_for(board, f"{CPU}/scaling_cur_freq", 960000)
    assert get(board, f"{CPU}/scaling_max_freq") == "960000"
    assert get(board, f"{GPU}/max_freq") == "510000000"
    board.cap()
    wait_for(board, f"{CPU}/scaling_cur_freq", 2201600)
    assert get(board, f"{GPU}/max_freq") == "1300500000"


def test_other_actors_hotplug_mode_and_governor(board):
    for cpu in (8, 9, 10, 11):
        board.set_online(cpu, False)
    wait_for(board, "sys/devices/system/cpu/online", "0-7")
    wait_for(board, "sys/devices/system/cpu/cpufreq/policy8/affected_cpus", "")
    with pytest.raises(KernelError) as caught:
        board.write("sys/devices/system/cpu/cpufreq/policy8/scaling_governor", "userspace")
    assert caught.value.errno == errno.EBUSY
    board.set_mode("30W")
    wait_for(board, f"{CPU}/scaling_max_freq", 1728000)
    board.write(f"{CPU}/scaling_governor", "performance")
    wait_for(board, f"{CPU}/scaling_cur_freq", 1728000)
    with pytest.raises(PlantError, match="no power mode"):
        board.set_mode("45W")


def test_jobs_report_simulated_time(board):
    slow = board.run("resnet50")
    assert slow.latency_us == pytest.approx((slow.end_ns - slow.start_ns) / 1000)
    assert not slow.switched
    assert abs(time.monotonic_ns() - slow.end_ns) < PATIENCE_S * 1e9
    put(board, f"{CPU}/scaling_governor", "userspace")
    put(board, f"{CPU}/scaling_setspeed", 2201600)
    put(board, f"{GPU}/governor", "performance")
    wait_for(board, f"{GPU}/cur_freq", 1300500000)
    wait_for(board, f"{CPU}/scaling_cur_freq", 2201600)
    fast = board.run("resnet50")
    assert fast.latency_us < 0.7 * slow.latency_us
    assert fast.start == (2_201_600_000, 1_300_500_000, 3_199_000_000)


def test_a_clock_that_moves_in_a_job_is_told(board):
    put(board, f"{CPU}/scaling_governor", "userspace")
    put(board, f"{CPU}/scaling_setspeed", 729600)
    results = []
    with board.client() as other:
        thread = threading.Thread(target=lambda: results.append(other.run("qwen2-1.5b")))
        thread.start()
        time.sleep(0.03)
        put(board, f"{CPU}/scaling_setspeed", 2201600)
        thread.join()
    assert results[0].switched
    assert results[0].start[0] == 729_600_000
    assert results[0].end[0] == 2_201_600_000


def test_energy_grows_and_is_counted_per_client(board):
    first = board.energy()
    board.run("resnet50")
    second = board.energy()
    assert second.total_mj > first.total_mj
    assert second.since_total_mj == pytest.approx(second.total_mj - first.total_mj)
    assert second.since_ns == first.now_ns
    seconds = (second.now_ns - first.now_ns) / 1e9
    assert 5_000 < second.since_total_mj / seconds < 60_000  # mW
    with board.client() as other:
        assert other.energy().since_total_mj >= second.total_mj


def test_sensors_show_the_power(board):
    labels = {
        get(board, f"sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in{k}_label")
        for k in (1, 2, 3)
    }
    assert labels == {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"}
    current = board.root / "sys/class/hwmon/hwmon1/curr3_input"
    start = time.perf_counter()
    while int(current.read_text()) == 0 and time.perf_counter() - start < PATIENCE_S:
        time.sleep(0.02)
    assert int(current.read_text()) % 20 == 0
    assert int(current.read_text()) > 0


def test_idle_costs_next_to_nothing(board):
    time.sleep(0.7)  # the governors come to rest
    before = cpu_seconds(board.pid)
    time.sleep(1.5)
    assert cpu_seconds(board.pid) - before <= 0.05


def test_bad_requests_do_not_stop_it(board):
    with pytest.raises(PlantError, match="unknown workload"):
        board.run("resnet5000")
    with pytest.raises(KernelError):
        board.write("sys/nosuch", "1")
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with raw:
        raw.connect(str(board.path))
        raw.send(b"\xff\x00 not json")
        reply = wire.decode_reply(raw.recv(wire.MAX_BYTES))
        assert isinstance(reply, wire.Refused)
        raw.send(wire.encode(wire.Run("resnet50")))
    assert board.run("resnet50").latency_us > 0  # the other one left with a job running


def test_stop_ends_it(tmp_path):
    with spawn_board(tmp_path / "board") as board:
        board.stop()
        with pytest.raises(PlantError, match="gone"):
            board.state()


def test_refuses_what_does_not_exist(tmp_path):
    with pytest.raises(PlantError, match="unknown board"), spawn_board(tmp_path / "b", board="x"):
        pass
    with pytest.raises(PlantError, match="no live board"):
        LiveClient(tmp_path / "nowhere.sock")


def test_command_line_serves_without_a_parent(tmp_path):
    command = [sys.executable, "-m", "bench.plant.live", "--root", str(tmp_path / "b")]
    command += ["--socket", str(tmp_path / "s"), "--board", "orin-nano", "--mode", "15W"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        with LiveClient(tmp_path / "s") as client:
            assert client.state().gpu_hz == 306_000_000
        process.terminate()
        assert process.wait(10) == 0
    assert not (tmp_path / "s").exists()


@needs_fuse
def test_fuse_refuses_with_the_kernels_errno(fuse_board):
    board = fuse_board
    refused = [
        (f"{CPU}/scaling_setspeed", "1036800", errno.EINVAL),
        (f"{CPU}/scaling_cur_freq", "1", errno.EACCES),
        (f"{CPU}/scaling_governor", "nosuch", errno.EINVAL),
        (f"{GPU}/userspace/set_freq", "816000000", errno.ENOENT),
    ]
    for path, text, code in refused:
        with pytest.raises(OSError) as caught:
            put(board, path, text)
        assert caught.value.errno == code, path


@needs_fuse
def test_fuse_writes_block_until_the_clock_follows(fuse_board):
    board = fuse_board
    put(board, f"{CPU}/scaling_governor", "userspace")
    put(board, f"{GPU}/governor", "userspace")
    put(board, f"{EMC}/mrq_rate_locked", 1)
    cases = [
        (f"{CPU}/scaling_setspeed", f"{CPU}/scaling_cur_freq", 2201600, 0.0007),
        (f"{GPU}/userspace/set_freq", f"{GPU}/cur_freq", 1020000000, 0.0042),
        (f"{EMC}/rate", f"{EMC}/rate", 2133000000, 0.007),
    ]
    for path, shown, value, least_s in cases:
        assert put(board, path, value) >= least_s
        assert get(board, shown) == str(value)


@needs_fuse
def test_fuse_held_descriptors_and_offline_clusters(fuse_board):
    board = fuse_board
    put(board, f"{GPU}/governor", "userspace")
    held = os.open(board.root / GPU / "userspace/set_freq", os.O_RDWR)
    assert os.pread(held, 99, 0) == b"undefined\n"
    put(board, f"{GPU}/governor", "performance")
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            os.pread(held, 99, 0)
        assert caught.value.errno == errno.ENODEV
        put(board, f"{GPU}/governor", "userspace")
    os.close(held)
    policy4 = board.root / "sys/devices/system/cpu/cpufreq/policy4/affected_cpus"
    held = os.open(policy4, os.O_RDONLY)
    for cpu in (4, 5, 6, 7):
        put(board, f"sys/devices/system/cpu/cpu{cpu}/online", 0)
    with pytest.raises(OSError) as caught:
        os.pread(held, 99, 0)
    assert caught.value.errno == errno.EBUSY
    put(board, "sys/devices/system/cpu/cpu4/online", 1)
    assert os.pread(held, 99, 0) == b"4\n"
    os.close(held)


@needs_fuse
def test_fuse_tree_is_the_plain_tree(tmp_path):
    with (
        spawn_board(tmp_path / "plain") as plain,
        spawn_board(tmp_path / "fuse", fuse=True) as fuse,
    ):
        assert snapshot(plain.root) == snapshot(fuse.root)
        assert os.path.ismount(fuse.root / "sys")
        assert fuse.run("mobilenetv2").latency_us > 0
    assert not os.path.ismount(tmp_path / "fuse/sys")
