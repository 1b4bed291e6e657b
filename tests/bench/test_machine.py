"""The board in motion, in virtual time."""

from collections import Counter

import pytest

from bench.plant.board import load_board
from bench.plant.errors import KernelError, PlantError
from bench.plant.machine import Machine
from bench.plant.progress import JobRequest
from bench.plant.semantics import Kernel
from bench.plant.tree import BoardFiles
from bench.plant.types import Clocks

MS = 1_000_000
CPU = "sys/devices/system/cpu/cpufreq/policy0/"
GPU = "sys/devices/platform/17000000.gpu/devfreq/17000000.gpu/"
SLOW = Clocks(729_600_000, 306_000_000, 3_199_000_000)
RESNET = JobRequest("resnet50")


class Sim:
    """A machine and its own time."""

    def __init__(self, *, board="agx-orin", seed=1, pinned=True, **kernel):
        governors = {"cpu_governor": "userspace", "gpu_governor": "userspace"} if pinned else {}
        self.kernel = Kernel(load_board(board), **{**governors, **kernel})
        self.machine = Machine(BoardFiles(self.kernel), seed=seed)
        self.now = 0

    def write(self, path, value):
        self.machine.write_path(path, str(value).encode(), self.now)

    def wait(self, ns):
        self.now += ns
        self.machine.catch_up(self.now)

    def submit(self, request=RESNET):
        results = []
        self.machine.submit(request, self.now, results.append)
        return results

    def run(self, request=RESNET):
        results = self.submit(request)
        while not results:
            self.now = self.machine.next_ns
            self.machine.advance(self.now)
        return results[0]


def test_each_clock_follows_after_its_own_delay():
    sim = Sim()
    lead = sim.kernel.policies[0]
    sim.write(CPU + "scaling_setspeed", 2201600)
    sim.write(GPU + "userspace/set_freq", 1300500000)
    sim.write("sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked", 1)
    sim.write("sys/kernel/debug/bpmp/debug/clk/emc/rate", 2133000000)
    seen = {}
    for tenth_ms in range(1, 120):
        sim.wait(MS // 10)
        for name, reached in zip(("cpu", "gpu", "emc"), sim.machine.clocks, strict=True):
            if reached != getattr(SLOW, name + "_hz"):
                seen.setdefault(name, tenth_ms / 10)
    assert 1.0 <= seen["cpu"] <= 1.8
    assert 4.6 <= seen["gpu"] <= 6.3
    assert 7.4 <= seen["emc"] <= 9.8
    assert lead.cur_khz == 2201600


def test_newer_request_waits_for_the_older_one():
    sim = Sim()
    sim.write(CPU + "scaling_setspeed", 2201600)
    sim.wait(MS // 2)
    sim.write(CPU + "scaling_setspeed", 960000)
    sim.wait(int(1.25 * MS))
    assert sim.machine.clocks.cpu_hz == 2_201_600_000
    sim.wait(2 * MS)
    assert sim.machine.clocks.cpu_hz == 960_000_000


def test_job_runs_on_over_a_clock_change():
    slow = Sim().run().latency_us
    fast = Sim()
    fast.write(CPU + "scaling_setspeed", 2201600)
    fast.write(GPU + "userspace/set_freq", 1300500000)
    fast.wait(20 * MS)
    quick = fast.run()
    assert not quick.switched
    mixed = Sim()
    results = mixed.submit()
    mixed.wait(MS)
    mixed.write(CPU + "scaling_setspeed", 2201600)
    mixed.write(GPU + "userspace/set_freq", 1300500000)
    mixed.wait(100 * MS)
    (result,) = results
    assert result.switched
    assert result.start == SLOW
    assert result.end == (2_201_600_000, 1_300_500_000, 3_199_000_000)
    assert quick.latency_us < result.latency_us < slow


def test_change_in_the_middle_is_a_fluid_mix():
    sim = Sim()
    results = sim.submit()
    whole_ns = sim.machine.next_ns
    full = Sim().run().latency_us
    sim.wait(int(full * 500))  # half way
    sim.write(CPU + "scaling_setspeed", 2201600)
    while not results:
        sim.now = sim.machine.next_ns
        sim.machine.advance(sim.now)
    assert whole_ns > 0
    fast = Sim()
    fast.write(CPU + "scaling_setspeed", 2201600)
    fast.wait(5 * MS)
    rest = fast.run().latency_us
    assert results[0].latency_us == pytest.approx((full + rest) / 2, rel=0.08)


def test_jobs_of_two_clients_take_turns():
    alone = Sim().run().latency_us
    sim = Sim()
    first, second = sim.submit(), sim.submit(JobRequest("mobilenetv2"))
    sim.wait(200 * MS)
    assert first[0].latency_us == pytest.approx(alone, rel=0.05)
    assert second[0].start_ns == 0
    assert second[0].end_ns > first[0].end_ns


def test_same_seed_same_trace():
    def trace(seed):
        sim = Sim(seed=seed, pinned=False)
        results = []
        for period in range(1, 40):
            results.append(sim.run())
            sim.wait(max(period * 20 * MS - sim.now, 0))
        return results, sim.machine.meter.total_mj

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_idle_tax_appears_by_itself():
    """MobileNetV2 at 100 Hz on an Orin Nano: the stock governors park the GPU below its top."""
    stock = Sim(board="orin-nano", pinned=False)
    pinned = Sim(board="orin-nano")
    for policy in ("policy0", "policy4"):
        pinned.write(f"sys/devices/system/cpu/cpufreq/{policy}/scaling_setspeed", 1728000)
    pinned.write(GPU + "userspace/set_freq", 1020000000)
    job = JobRequest("mobilenetv2", engine="ort-cuda")
    median, parked = {}, Counter()
    for name, sim in (("stock", stock), ("pinned", pinned)):
        latencies = []
        for period in range(1, 400):
            latencies.append(sim.run(job).latency_us)
            sim.wait(max(period * 10 * MS - sim.now, 0))
            if name == "stock":
                parked[sim.machine.clocks.gpu_hz] += 1
        median[name] = sorted(latencies[200:])[100]
    assert 1.3 * median["pinned"] < median["stock"] < 2.0 * median["pinned"]
    assert parked.most_common(1)[0][0] == 510_000_000


def test_schedutil_climbs_under_load_and_comes_back():
    sim = Sim(pinned=False)
    for _ in range(30):
        sim.run()
    assert sim.machine.clocks.cpu_hz > 1_800_000_000
    sim.wait(3_000 * MS)
    assert sim.machine.clocks.cpu_hz == SLOW.cpu_hz
    assert sim.machine.clocks.gpu_hz == SLOW.gpu_hz


def test_nothing_stirs_on_an_idle_board_but_the_sensors():
    sim = Sim(pinned=False)
    sim.wait(3_000 * MS)
    wakes = 0
    end = sim.now + 4_300 * MS
    while sim.machine.next_ns < end:
        sim.machine.advance(sim.machine.next_ns)
        wakes += 1
    assert wakes <= 10


def test_energy_is_power_times_time():
    sim = Sim()
    sim.machine.set_heat(40.0, 0)
    power_mw = sim.machine.rails.total_mw
    before = sim.machine.meter.total_mj
    sim.wait(400 * MS)
    assert sim.machine.meter.total_mj - before == pytest.approx(power_mw * 0.4, rel=0.01)


def test_sensor_shows_the_mean_in_steps():
    sim = Sim()
    sim.wait(431 * MS)
    monitor = sim.machine.files.monitors[0]
    shown_ma = monitor.shown_ma[1]
    true_mw = sim.machine.meter.energy_mj["VDD_GPU_SOC"] / 0.431
    assert shown_ma % 20 == 0
    assert abs(shown_ma * 20 - true_mw) <= 200 + 0.05 * true_mw


def test_heat_lowers_the_maxima_and_gives_them_back():
    sim = Sim()
    sim.write(GPU + "userspace/set_freq", 1300500000)
    sim.wait(20 * MS)
    sim.machine.set_heat(99.0, sim.now)
    sim.wait(2_000 * MS)
    assert sim.kernel.gpu.range_hz()[1] < 1_300_500_000
    assert sim.machine.clocks.gpu_hz < 1_300_500_000
    assert sim.kernel.policies[0].range_khz()[1] < 2201600
    sim.machine.set_heat(40.0, sim.now)
    sim.wait(10_000 * MS)
    assert sim.machine.clocks.gpu_hz == 1_300_500_000
    assert sim.kernel.policies[0].range_khz()[1] == 2201600


def test_cap_of_another_requester_is_lifted_whole():
    sim = Sim()
    sim.write(CPU + "scaling_setspeed", 2201600)
    sim.wait(5 * MS)
    sim.machine.cap(960_000_000, 408_000_000, sim.now)
    sim.wait(10 * MS)
    assert sim.machine.clocks.cpu_hz == 960_000_000
    assert sim.kernel.gpu.range_hz()[1] == 408_000_000
    sim.machine.cap(0, 0, sim.now)
    sim.wait(10 * MS)
    assert sim.machine.clocks.cpu_hz == 2_201_600_000


def test_hardware_throttle_slows_jobs_behind_the_kernels_back():
    sim = Sim()
    sim.write(CPU + "scaling_setspeed", 2201600)
    sim.wait(5 * MS)
    quick = sim.run().latency_us
    sim.machine.break_hardware("cpu", 0, 576_000_000, sim.now)
    assert sim.run().latency_us > 1.3 * quick
    assert sim.kernel.read(CPU + "scaling_cur_freq") == "2201600\n"
    with pytest.raises(PlantError, match="choose cpu or gpu"):
        sim.machine.break_hardware("npu", 0, 0, sim.now)


def test_refused_write_changes_nothing():
    sim = Sim()
    with pytest.raises(KernelError):
        sim.write(CPU + "scaling_setspeed", "fast")
    sim.wait(5 * MS)
    assert sim.machine.clocks == SLOW


def test_jobs_of_somebody_who_left_are_forgotten():
    sim = Sim()
    results = []
    first = sim.submit()
    sim.machine.submit(RESNET, sim.now, results.append)
    sim.machine.withdraw(results.append)
    sim.wait(200 * MS)
    assert first
    assert not results
    assert sim.machine.jobs == 0


def test_what_cannot_be_run_is_refused():
    for request in (JobRequest("resnet5000"), JobRequest("resnet50", "warp-drive")):
        with pytest.raises(PlantError, match="unknown"):
            Sim().submit(request)
    with pytest.raises(PlantError, match="impossible job"):
        Sim().submit(JobRequest("resnet50", batch=0))
    with pytest.raises(PlantError, match="no known clocks"):
        Sim(board="agx-thor", jetpack=7)


def test_tunables_of_jetpack_7_are_obeyed():
    sim = Sim(jetpack=7, pinned=False)
    folder = sim.kernel.layout.gpu_dir + "/nvhost_podgov/"
    sim.write(folder + "load_max", 1000)
    sim.write(folder + "load_target", 1000)
    for text in ("1001", "many"):
        with pytest.raises(KernelError):
            sim.write(folder + "load_max", text)
    for _ in range(40):
        sim.run()
    assert sim.machine.clocks.gpu_hz == SLOW.gpu_hz
    sim.write(folder + "load_target", 100)
    for _ in range(40):
        sim.run()
    assert sim.machine.clocks.gpu_hz == 1_300_500_000


def test_ondemand_and_simple_ondemand_govern():
    sim = Sim(cpu_governor="ondemand", gpu_governor="simple_ondemand")
    for _ in range(40):
        sim.run()
    assert sim.machine.clocks.cpu_hz == 2_201_600_000
    assert sim.machine.clocks.gpu_hz > SLOW.gpu_hz
    sim.wait(3_000 * MS)
    assert sim.machine.clocks.cpu_hz == SLOW.cpu_hz
