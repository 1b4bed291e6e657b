"""The board in virtual time against the plant it stands for."""

import numpy as np
import pytest

from bench.harness_jobs import BLOCK, BLOCKS, Subject, Warmth, subject
from bench.harness_kernel import KernelBoard
from bench.harness_plan import Cell, PolicyEntry, Segment
from bench.harness_sim import CPU_DELAY_US, Stretch, VirtualBoard, jobs_of, run_policy
from bench.harness_unit import learned_table, run_seed
from bench.plant.machine import Machine
from bench.plant.progress import JobRequest
from bench.plant.semantics import Kernel
from bench.plant.thermal import Thermal
from bench.plant.tree import BoardFiles
from estimators.errors import PolicyError
from policies.base import Decision, OperatingPoint
from policies.constant import MaxPolicy
from policies.schedutil import SchedutilPolicy

RESNET = subject("agx-orin", "resnet50")
TOP = OperatingPoint(2_201_600_000, 1_300_500_000)


def cell(rate_hz=40.0, seconds=4.0, release="periodic", model="resnet50", mode=""):
    return Cell("agx-orin", model, (Segment(1e3 / rate_hz),), release, seconds, mode, 64, 20)


def on_machine(cpu_governor, jobs, period_ms, point=None, model="resnet50"):
    """Run the same on the plant's live board in virtual time; latency and energy of each job."""
    kernel = Kernel(RESNET.board, cpu_governor=cpu_governor)
    machine = Machine(BoardFiles(kernel))
    if point is not None:
        for policy in kernel.policies:
            machine.write(policy, "scaling_setspeed", str(point.cpu_hz // 1000).encode(), 0)
        name = f"devfreq/{kernel.layout.gpu_devfreq}/min_freq"
        machine.write(kernel.gpu, name, str(point.gpu_hz).encode(), 0)
        machine.advance(50_000_000)
    machine.catch_up(50_000_000)
    done, now_ns, energies_mj = [], 50_000_000, [machine.meter.total_mj]
    for index in range(jobs):
        machine.submit(JobRequest(model), now_ns, done.append)
        now_ns += round(period_ms * 1e6)
        while len(done) <= index:
            machine.advance(machine.next_ns)
        machine.catch_up(max(now_ns, done[-1].end_ns))
        energies_mj.append(machine.meter.total_mj)
    return np.array([job.latency_us for job in done]), np.diff(energies_mj)


def test_highest_clocks_as_on_the_live_board():
    records = run_seed(cell(), PolicyEntry("max"), 0)
    latency_us, energy_mj = on_machine("userspace", 80, 25.0, TOP)
    assert len(records.start_us) == 160
    assert records.latency_us.mean() == pytest.approx(latency_us.mean(), rel=0.01)
    assert records.energy_mj.mean() == pytest.approx(energy_mj.mean(), rel=0.02)


@pytest.mark.parametrize(("model", "rate_hz"), [("resnet50", 50.0), ("vgg16", 40.0)])
def test_kernel_governors_as_on_the_live_board(model, rate_hz):
    records = run_seed(cell(rate_hz, 4.0, model=model), PolicyEntry("schedutil"), 0)
    latency_us, energy_mj = on_machine("schedutil", round(3 * rate_hz), 1e3 / rate_hz, model=model)
    late = slice(round(rate_hz), None)  # once the governors have settled
    assert records.latency_us[late].mean() == pytest.approx(latency_us[late].mean(), rel=0.07)
    assert records.energy_mj[late].mean() == pytest.approx(energy_mj[late].mean(), rel=0.05)


def test_luck_is_the_same_under_all_policies_and_differs_by_seed():
    clocks = RESNET.clocks(*TOP)
    lucks = [RESNET.luck(3, job, clocks) for job in range(200)]
    other = Subject("agx-orin", "resnet50")
    other.luck(7, 5, clocks)  # what was asked for before does not matter
    assert [other.luck(3, job, clocks) for job in range(200)] == lucks
    assert np.mean(lucks) == pytest.approx(1.0, abs=0.01)
    assert RESNET.luck(4, 0, clocks) != lucks[0]
    assert RESNET.luck(3, BLOCK * BLOCKS, clocks) == lucks[0]


def test_latency_between_contexts():
    gpt2 = subject("agx-orin", "gpt2-large")
    clocks = gpt2.clocks(2_201_600_000, 306_000_000)
    for context in (64, 100, 127):
        exact_us = gpt2.engine.activity(clocks, context).latency_us
        assert gpt2.nominal_us(clocks, context) == pytest.approx(exact_us, rel=1e-3)


def test_a_clock_that_moves_in_the_middle_of_a_job():
    attainable = RESNET.attainable()
    board = VirtualBoard(RESNET, attainable, 0)
    low = OperatingPoint(attainable.cpu_hz[0], TOP.gpu_hz)
    fast_us, slow_us = (
        RESNET.luck(0, 0, RESNET.clocks(*p)) * RESNET.nominal_us(RESNET.clocks(*p), 0)
        for p in (TOP, low)
    )
    board.request(low)
    latency_us = board.work(0, 0)
    done = CPU_DELAY_US / fast_us
    assert latency_us == pytest.approx(CPU_DELAY_US + (1 - done) * slow_us, rel=1e-9)
    assert board.switched
    board.work(1, 0)
    assert not board.switched


def test_energy_adds_up_and_time_has_no_gap():
    for release in ("periodic", "closed"):
        records = run_seed(cell(release=release), PolicyEntry("ztt", options={}, learn_s=2.0), 1)
        assert np.diff(records.start_us) == pytest.approx(records.span_us[:-1], rel=1e-4)
        assert (records.span_us >= records.latency_us * 0.9999).all()
        idle = records.span_us - records.latency_us
        assert (idle.max() > 1000) == (release == "periodic")
        assert (records.energy_mj > 0).all()


def test_a_late_job_delays_the_next_but_not_the_grid():
    records = run_seed(cell(rate_hz=200.0, seconds=1.0), PolicyEntry("max"), 0)
    assert (records.latency_us > records.deadline_us).all()
    assert np.diff(records.start_us) == pytest.approx(records.latency_us[:-1], rel=1e-4)


def test_warmth_follows_the_thermal_network():
    watts = {"cpu": 3.0, "gpu": 20.0, "soc": 2.0}
    idle = RESNET.cost(RESNET.clocks(*TOP), 0, 25).idle
    warmth, thermal = Warmth(RESNET.board, idle), None
    settled = {"cpu": idle.regions[0], "gpu": idle.regions[1], "soc": idle.regions[2]}
    start = Thermal(RESNET.board).steady_c({k: v / 1e3 for k, v in settled.items()})
    thermal = Thermal(RESNET.board, start["sink"])
    for _ in range(200):
        warmth.step((3000.0, 20_000.0, 2000.0), 0.43)
        thermal.step(watts, 0.43)
    assert warmth.cpu_c == pytest.approx(thermal.temp_c["cpu"], abs=0.3)
    assert warmth.chip_c == pytest.approx(thermal.temp_c["tj"], abs=0.3)


def test_power_modes_cut_the_clocks():
    capped = RESNET.attainable("30W")
    assert (capped.cpu_hz[-1], capped.gpu_hz[-1]) == (1_728_000_000, 612_000_000)
    assert RESNET.attainable().cpu_hz[0] == 729_600_000
    records = run_seed(cell(mode="30W"), PolicyEntry("max"), 0)
    assert int(records.gpu_hz.max()) == 612_000_000
    kernel = run_seed(cell(mode="30W", model="vgg16"), PolicyEntry("schedutil"), 0)
    assert int(kernel.gpu_hz.max()) <= 612_000_000
    assert int(kernel.cpu_hz.max()) <= 1_728_000_000


@pytest.mark.parametrize("jetpack", [5, 6, 7])
def test_jetpacks_differ(jetpack):
    entry = PolicyEntry("schedutil", jetpack=jetpack)
    records = run_seed(cell(30.0, 3.0, model="vgg16"), entry, 0)
    assert records.latency_us.max() < 200_000


def test_a_gpu_idle_for_long_is_powered_off():
    attainable = RESNET.attainable()
    board = KernelBoard(RESNET, attainable, 0)
    for job in range(40):
        board.work(job, 0)
    assert board.clocks.gpu_hz > attainable.gpu_hz[0]
    board.rest(board.now_us + 2e6)
    assert board.clocks.gpu_hz == attainable.gpu_hz[0]


def test_a_policy_that_leaves_the_clocks_is_refused_where_nobody_governs():
    board = VirtualBoard(RESNET, RESNET.attainable(), 0)
    this = cell()
    stretches = [Stretch(segment, RESNET) for segment in jobs_of(this, 0.0)]
    table = learned_table("agx-orin", "resnet50", "interpolated", 64, 20)
    with pytest.raises(PolicyError, match="leaves the clocks"):
        run_policy(board, lambda segment: SchedutilPolicy(), stretches, this, table)


@pytest.mark.parametrize("point", [(3_000_000_000, 1_300_500_000), (2_201_600_000, 456)])
def test_clocks_that_the_power_mode_does_not_have_are_refused(point):
    class Greedy(MaxPolicy):
        def decide(self, job, view):
            return Decision(OperatingPoint(*point), 1.0, True, "")

    board = VirtualBoard(RESNET, RESNET.attainable("30W"), 0)
    this = cell(mode="30W")
    stretches = [Stretch(segment, RESNET) for segment in jobs_of(this, 0.0)]
    table = learned_table("agx-orin", "resnet50", "interpolated", 64, 20)
    with pytest.raises(PolicyError, match="not attainable"):
        run_policy(board, lambda segment: Greedy(), stretches, this, table)


def test_a_learning_part_has_as_many_decisions_at_all_rates():
    assert cell(rate_hz=1.2).learning_jobs(150) == 300
    assert cell(rate_hz=6.0).learning_jobs(150) == 900
    assert cell(rate_hz=50.0).learning_jobs(150) == 7500
    assert cell(rate_hz=50.0).learning_jobs(0) == 0


def test_who_does_not_learn_is_scored_on_the_jobs_of_who_does():
    this = cell(rate_hz=5.0, model="gpt2-large")
    learner = run_seed(this, PolicyEntry("max", learn_s=3.0), 0)
    other = run_seed(this, PolicyEntry("max"), 0, skip=this.learning_jobs(3.0))
    assert len(learner.context) - len(other.context) == 15
    assert learner.context[15:].tolist() == other.context.tolist()
    assert learner.latency_us[15:] == pytest.approx(other.latency_us)


def test_lateness_from_release_counts_the_wait():
    records = run_seed(cell(rate_hz=250.0, seconds=0.2), PolicyEntry("max"), 0)
    assert records.wait_us[0] == 0.0
    assert records.wait_us == pytest.approx(
        records.start_us - np.arange(len(records.start_us)) * 4000.0, abs=0.5
    )
    assert not run_seed(cell(release="closed"), PolicyEntry("max"), 0).wait_us.any()


def test_records_of_a_million_jobs_are_small():
    board = VirtualBoard(RESNET, RESNET.attainable(), 0)
    this = cell(seconds=10.0)
    stretches = [Stretch(segment, RESNET) for segment in jobs_of(this, 0.0)]
    table = learned_table("agx-orin", "resnet50", "interpolated", 64, 20)
    records = run_policy(board, lambda segment: MaxPolicy(), stretches, this, table)
    per_job = sum(column.nbytes for column in records) / len(records.start_us)
    assert per_job * 1e6 < 500 * 2**20
