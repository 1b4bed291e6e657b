"""The kernel governors against a second implementation and against numbers seen on boards."""

import importlib.util
import os
import random
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from bench.plant.board import load_board
from bench.plant.kgov import (
    Ondemand,
    PodgovV1,
    PodgovV2,
    PodgovV3,
    Schedutil,
    SimpleOndemand,
    podgov,
)
from bench.plant.pelt import CpuUtil, UtilEst

AGX = load_board("agx-orin")
NANO = load_board("orin-nano")
CPU_KHZ = [hz // 1000 for hz in AGX.cpu_hz]


@pytest.fixture(scope="module")
def other() -> ModuleType:
    """Load the second implementation, which lies outside of the project."""
    data = Path(os.environ.get("FLAMEGOV_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = data.parent / "facts" / "platform_emul.py"
    if not path.exists():
        pytest.skip(f"second implementation not found: {path}")
    spec = importlib.util.spec_from_file_location("platform_emul", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pelt_step_response():
    """Published: 495 after 32 ms, 751 after 64 ms, 1023 after 345 ms of never idling."""
    cpu, seen = CpuUtil(), {}
    for ms in range(1, 346):
        cpu.run(1_000_000, 1, 1)
        seen[ms] = cpu.util
    assert (seen[32], seen[64], seen[345]) == (495, 751, 1023)


def test_pelt_same_work_same_util_at_half_speed():
    ends = []
    for hz in (2, 1):
        cpu = CpuUtil()
        for _ in range(200):
            busy = 3_000_000 * 2 // hz
            cpu.run(busy, hz, 2)
            at_end = cpu.util
            cpu.idle(10_000_000 - busy)
        ends.append((at_end, cpu.util))
    assert ends[0] == ends[1]


def test_pelt_equals_second_implementation(other):
    rng = random.Random(3)
    ours, theirs = CpuUtil(), other.RqUtil()
    for _ in range(3000):
        ns = rng.randrange(1, 9_000_000)
        if rng.random() < 0.6:
            khz = rng.choice(CPU_KHZ)
            ours.run(ns, khz, CPU_KHZ[-1])
            theirs.run(ns, khz, CPU_KHZ[-1])
        else:
            ours.idle(ns)
            theirs.idle(ns)
        assert ours.util == theirs.avg


@pytest.mark.parametrize(
    ("rate_limit_us", "margin"), [(10_000, (5, 4)), (2_000, (5, 4)), (0, (2, 1))]
)
def test_schedutil_equals_second_implementation(other, rate_limit_us, margin):
    rng = random.Random(rate_limit_us)
    ours = Schedutil(CPU_KHZ, rate_limit_us, margin)
    theirs = other.Schedutil(CPU_KHZ, rate_limit_us, *margin)
    now = 0
    for _ in range(4000):
        now += rng.randrange(100_000, 6_000_000)
        if rng.random() < 0.02:
            low, high = sorted(rng.sample(CPU_KHZ, 2))
            if (low, high) != (theirs.fmin, theirs.fmax):
                ours.limits(low, high)
                theirs.limits(low, high)
        utils = [rng.randrange(0, 1025) for _ in range(4)]
        assert ours.update(now, utils) == theirs.update(now, utils)


def test_schedutil_needs_over_200_ms_to_reach_the_top():
    """A CPU-bound thread from 115.2 MHz on JetPack 6: about 210 to 225 ms."""
    cpu, governor, khz = CpuUtil(), Schedutil(CPU_KHZ, 10_000), CPU_KHZ[0]
    while khz < CPU_KHZ[-1]:
        cpu.run(4_000_000, khz, CPU_KHZ[-1])
        khz = governor.update(cpu.now_ns, [cpu.util])
    assert 205 <= cpu.now_ns / 1e6 <= 230


def test_schedutil_limit_change_passes_the_rate_limit():
    governor = Schedutil(CPU_KHZ, 10_000)
    governor.update(0, [1024])
    assert governor.update(1_000_000, [100]) == CPU_KHZ[-1]
    governor.limits(CPU_KHZ[0], 1_036_800)
    assert governor.update(2_000_000, [1024]) == 1_036_800


GENERATIONS = {"PodgovV1": PodgovV1, "PodgovV2": PodgovV2, "PodgovJP7": PodgovV3}


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize("board", [AGX, NANO], ids=lambda board: board.name)
def test_podgov_equals_second_implementation(other, name, board):
    ours, theirs = GENERATIONS[name](board.gpu_hz), getattr(other, name)(board.gpu_hz)
    rng = random.Random(7)
    busy = 0.5
    for n in range(6000):
        busy = rng.random() if rng.random() < 0.1 else min(1.0, max(0.0, rng.gauss(busy, 0.05)))
        # JetPack 4 counts idle time and rounds that down, the others round busy time down.
        load = 1000 - int(1000 * (1 - busy)) if name == "PodgovV1" else int(busy * 1000)
        assert ours.poll(n * 25_000, load) == theirs.poll(n * 25_000, busy)
        if name == "PodgovV2" and rng.random() < 0.01:
            ours.suspend(n * 25_000)
            theirs.suspend(n * 25_000)


def test_podgov_under_limits_equals_second_implementation(other):
    ours, theirs = PodgovV2(AGX.gpu_hz), other.PodgovV2(AGX.gpu_hz)
    ours.limits(510_000_000, 918_000_000)
    theirs.ulo, theirs.uhi = 510_000_000, 918_000_000
    rng = random.Random(11)
    seen = set()
    for n in range(3000):
        busy = rng.random()
        seen.add(ours.poll(n * 25_000, int(busy * 1000)))
        assert ours.cur_hz == theirs.poll(n * 25_000, busy)
    assert 918_000_000 in seen
    assert max(seen) == 918_000_000


def _busy_permille(gpu_hz: int) -> int:
    """Load of MobileNetV2 every 10 ms: 3.9 ms at 1020 MHz, 6.4 ms at 510 MHz, as measured."""
    per_hz = (6.4 - 3.9) / (1 / 510e6 - 1 / 1020e6)
    constant = 3.9 - per_hz / 1020e6
    return min(1000, int((constant + per_hz / gpu_hz) * 100))


def test_idle_tax_parks_the_gpu_at_half_clock():
    """On a real Orin Nano Super the GPU sat at 510 MHz for 98.7 % of the time."""
    governor = PodgovV2(NANO.gpu_hz)
    governor.cur_hz = NANO.gpu_hz[-1]
    polls = Counter(governor.poll(n * 25_000, _busy_permille(governor.cur_hz)) for n in range(4000))
    assert polls[510_000_000] / 4000 >= 0.95
    assert governor.cur_hz == 510_000_000


def test_podgov_agx_full_load_and_back():
    """Full load from 306 MHz: 816, then 1300.5 within 75 ms; back at 306 after 100 ms idle."""
    governor, clocks = PodgovV2(AGX.gpu_hz), []
    for n in range(4):
        clocks.append(governor.poll(n * 25_000, 1000) // 1_000_000)
    assert clocks[0] == 816
    assert clocks[2] == 1300
    down = 0
    while governor.poll((4 + down) * 25_000, 0) > AGX.gpu_hz[0]:
        down += 1
    assert down * 25 <= 100


def test_podgov_v3_jumps_up_and_creeps_down():
    governor = PodgovV3(AGX.gpu_hz)
    assert governor.poll(0, 1000) == AGX.gpu_hz[-1]
    steps = [AGX.gpu_hz.index(governor.poll(n * 25_000, 0)) for n in range(1, 12)]
    assert steps == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]


def test_suspend_makes_the_next_move_start_low():
    kept, cleared = PodgovV2(AGX.gpu_hz), PodgovV2(AGX.gpu_hz)
    for n in range(40):
        kept.poll(n * 25_000, 800)
        cleared.poll(n * 25_000, 800)
    cleared.suspend(1_000_000)
    assert cleared.cur_hz == AGX.gpu_hz[0] < kept.cur_hz


def test_simple_ondemand_thresholds():
    governor = SimpleOndemand(AGX.gpu_hz)
    assert governor.poll(0, 901) == AGX.gpu_hz[-1]
    assert governor.poll(1, 880) == AGX.gpu_hz[-1]
    assert governor.poll(2, 300) == 510_000_000
    governor.limits(AGX.gpu_hz[0], 408_000_000)
    assert governor.poll(3, 1000) == 408_000_000


def test_ondemand_thresholds():
    governor = Ondemand(CPU_KHZ)
    assert governor.update(81, CPU_KHZ[0], CPU_KHZ[-1]) == CPU_KHZ[-1]
    assert governor.update(50, CPU_KHZ[0], CPU_KHZ[-1]) == 1_190_400
    assert governor.update(0, 729_600, CPU_KHZ[-1]) == 729_600


def test_util_est_rises_at_once_and_falls_by_quarters():
    task, seen = UtilEst(), []
    for util in (400, 800, 795, 400, 400, 400):
        task.sleep(util)
        seen.append(task.enqueued)
    assert seen == [400, 800, 800, 700, 625, 568]


def test_util_est_stands_for_the_last_activation_when_that_is_more():
    task = UtilEst()
    for util in (100, 600):
        task.sleep(util)
    assert task.enqueued == 600


def test_podgov_of_each_jetpack():
    assert type(podgov(AGX.gpu_hz, 4)) is PodgovV1
    assert podgov(AGX.gpu_hz, 5).boost_from_limits
    assert not podgov(AGX.gpu_hz, 6).boost_from_limits
    seventh = podgov(AGX.gpu_hz, 7, {"load_target": 200, "up_freq_margin": 2})
    assert (seventh.load_target, seventh.up_margin, seventh.load_max) == (200, 2, 900)


def test_boost_from_limits_shrinks_with_the_cap():
    free, capped = (PodgovV2(AGX.gpu_hz, boost_from_limits=True) for _ in range(2))
    capped.limits(AGX.gpu_hz[0], 612_000_000)
    assert free.poll(0, 1000) == 816_000_000
    assert capped.poll(0, 1000) == 510_000_000
