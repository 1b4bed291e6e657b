"""The zTT agent and policy against values worked out by hand."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.errors import PolicyError
from estimators.table import LatencyTable, TableHeader
from policies.base import Attainable, BoardView, Job, OperatingPoint, Outcome
from policies.registry import load_policy
from policies.ztt import Arms, ZttPolicy
from policies.ztt_agent import TRAIN_START, Agent, Goal
from policies.ztt_net import Network
from policies.ztt_replay import Replay, Report
from policies.ztt_weights import load_weights, save_weights

COOL = Report(3, 3, 20, 13, 40.0, 40.0, 30.0)


def tiny() -> Network:
    """1 input, 2 + 1 hidden units, 2 outputs, with weights chosen by hand."""
    net = Network((1, 2, 1, 2), np.random.default_rng(0))
    net.put(
        [
            np.array([[1.0, -1.0]]),
            np.array([0.5, 0.0]),
            np.array([[2.0], [3.0]]),
            np.array([-1.0]),
            np.array([[0.5, -0.25]]),
            np.array([0.1, 0.2]),
        ]
    )
    return net


def test_forward_by_hand():
    # x = 2: hidden (2.5, 0), then 2 * 2.5 - 1 = 4, outputs 0.5 * 4 + 0.1 and -0.25 * 4 + 0.2.
    assert tiny().forward(np.array([2.0])).tolist() == pytest.approx([2.1, -0.8])
    # x = -2: hidden (0, 2), then 3 * 2 - 1 = 5.
    assert tiny().forward(np.array([-2.0])).tolist() == pytest.approx([2.6, -1.05])


def test_loss_and_gradient_by_hand():
    net, x, target = tiny(), np.array([[2.0]]), np.array([[1.1, -0.8]])
    # Only the first output is off, by 1: the mean over both is 0.5.
    assert net.loss(x, target) == pytest.approx(0.5)
    # d loss / d output = 2 * (1, 0) / 2; back through 0.5 to the second layer, 2 to the first.
    w1, b1, w2, b2, w3, b3 = net.gradient(x, target)
    assert b3.tolist() == pytest.approx([1.0, 0.0])
    assert w3.tolist() == [pytest.approx([4.0, 0.0])]
    assert b2.tolist() == pytest.approx([0.5])
    assert w2.ravel().tolist() == pytest.approx([1.25, 0.0])
    assert b1.tolist() == pytest.approx([1.0, 0.0])
    assert w1.tolist() == [pytest.approx([2.0, 0.0])]


def test_gradient_matches_differences():
    rng = np.random.default_rng(3)
    net = Network((7, 6, 6, 9), rng)
    net.put([rng.normal(0.0, 0.7, p.shape) for p in net.parameters])
    x, target = rng.normal(size=(5, 7)), rng.normal(size=(5, 9))
    for p, g in zip(net.parameters, net.gradient(x, target), strict=True):
        index = np.unravel_index(int(np.abs(g).argmax()), g.shape)
        kept, step = p[index], 1e-6
        p[index] = kept + step
        up = net.loss(x, target)
        p[index] = kept - step
        slope = (up - net.loss(x, target)) / (2 * step)
        p[index] = kept
        assert slope == pytest.approx(g[index], rel=1e-5)


def test_two_adam_steps_by_hand():
    net, x = tiny(), np.array([[2.0]])
    net.fit(x, np.array([[1.1, -0.8]]))
    bias = net.parameters[5]
    # The first step moves by the rate against the sign, but for epsilon: 0.05 * 1 / (1 + tiny).
    rate = 0.05 * math.sqrt(0.001) / 0.1
    first = rate * 0.1 / (math.sqrt(0.001) + 1e-7)
    assert bias[0] == pytest.approx(0.1 - first, rel=1e-12)
    assert bias[1] == 0.2  # its gradient is zero
    g = float(net.gradient(x, np.array([[1.1, -0.8]]))[5][0])
    net.fit(x, np.array([[1.1, -0.8]]))
    m = 0.9 * 0.1 + 0.1 * g
    v = 0.999 * 0.001 + 0.001 * g * g
    rate = 0.05 * math.sqrt(1 - 0.999**2) / (1 - 0.9**2)
    assert bias[0] == pytest.approx(0.1 - first - rate * m / (math.sqrt(v) + 1e-7), rel=1e-12)


def test_network_has_the_released_shape():
    agent = Agent(3, 3, Goal(50.0, 2.0))
    assert sum(p.size for p in agent.network.parameters) == 153
    assert all(not b.any() for b in agent.network.parameters[1::2])


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (Report(3, 3, 20, 20, 40, 40, 30), 1 + 0.2 * math.tanh(10) + 2 / 40),
        (Report(3, 3, 20, 20, 49, 40, 15), 0.5 + 0.2 * math.tanh(1) + 2 / 40),
        (Report(3, 3, 20, 20, 50, 40, 60), 1 - 2 + 2 / 40),
        (Report(3, 3, 20, 20, 40, 99, 30), 1 + 0.2 * math.tanh(10) + 2 / 40),  # GPU heat: unseen
        (Report(3, 3, 0, 0, 40, 40, 30), 1 + 0.2 * math.tanh(10) + 2 / 33),  # no reading
    ],
)
def test_reward(report, expected):
    assert Goal(50.0, 2.0).reward(report, 30.0) == pytest.approx(expected)


def test_reward_scaled_to_the_board():
    report = Report(3, 3, 300, 100, 40, 40, 30)
    assert Goal(50.0, 2.0, 6.0).reward(report, 30.0) == pytest.approx(
        1 + 0.2 * math.tanh(10) + 2 * 6 / 400
    )


@pytest.mark.parametrize(("level", "reachable"), [(0, {0}), (1, {0, 1}), (2, {0, 1, 2})])
def test_cool_down_reaches_the_current_level_and_below(level, reachable):
    agent, cpus, gpus = Agent(3, 3, Goal(50.0, 2.0)), set(), set()
    for _ in range(200):
        agent.action = 4 * level
        cpu, gpu = agent.step(COOL._replace(cpu_c=50.0), 30.0)
        cpus.add(cpu)
        gpus.add(gpu)
    assert (cpus, gpus) == (reachable, reachable)


@pytest.mark.parametrize(("level", "reachable"), [(0, {0, 1, 2}), (1, {1, 2}), (2, {2})])
def test_boost_reaches_the_current_level_and_above(level, reachable, monkeypatch):
    monkeypatch.setattr("policies.ztt_agent.BOOST_CHANCE", 1.1)
    agent, cpus = Agent(3, 3, Goal(50.0, 2.0)), set()
    for _ in range(200):
        agent.action = 4 * level
        cpus.add(agent.step(COOL._replace(fps=29.0, cpu_c=45.0), 30.0)[0])
    assert cpus == reachable


def test_boost_chance_and_limits():
    def share(report):
        agent, kept = Agent(3, 3, Goal(50.0, 2.0), epsilon=0.0), 0
        agent.network.put([np.zeros_like(p) for p in agent.network.parameters])
        agent.network.parameters[5][0] = 1.0  # greedy means action 0
        for _ in range(1000):
            agent.action, agent.decisions = 8, 0
            agent._replay.clear()
            kept += agent.step(report, 30.0) == (0, 0)
        return 1 - kept / 1000

    assert share(COOL._replace(fps=29.0)) == pytest.approx(0.3, abs=0.05)
    assert share(COOL._replace(fps=30.0)) == 0.0  # on time
    assert share(COOL._replace(fps=29.0, cpu_c=45.5)) == 0.0  # less than 5 degrees of headroom


@pytest.mark.parametrize(
    ("fps", "copies"), [(30.0, 3), (22.0, 1), (0.0, 1)], ids=["above 1", "between", "low"]
)
def test_highlights_are_stored_three_times(fps, copies):
    agent = Agent(3, 3, Goal(50.0, 2.0))
    agent.step(COOL._replace(fps=fps), 30.0)
    assert len(agent._replay) == copies
    agent.step(COOL._replace(cpu_c=60.0, fps=10.0), 30.0)  # below 0
    assert len(agent._replay) == copies + 3


def test_training_starts_at_200_entries_and_epsilon_decays():
    agent = Agent(3, 3, Goal(50.0, 2.0))
    steps = 0
    while not agent.trained:
        agent.step(COOL, 30.0)
        steps += 1
    assert steps == math.ceil(TRAIN_START / 3)
    agent.step(COOL, 30.0)
    assert agent.trained == 2
    assert agent.epsilon == pytest.approx(0.95**2)


@pytest.mark.parametrize("mode", ["released", "paper"])
def test_targets(mode):
    agent = Agent(3, 3, Goal(50.0, 2.0), mode=mode)
    after = COOL._replace(fps=20.0)
    replay = Replay(4)
    replay.add(COOL, 5, 0.75, after)
    batch = replay.sample(1, np.random.default_rng(0))
    wanted = agent.targets(batch)
    own = agent.network.forward(np.array(COOL, dtype=float))
    value = 0.75
    if mode == "paper":
        value += 0.99 * agent.network.forward(np.array(after, dtype=float)).max()
    assert batch.states.tolist() == [list(COOL)]
    assert wanted[0, 5] == pytest.approx(value)
    assert np.delete(wanted[0], 5).tolist() == pytest.approx(np.delete(own, 5).tolist())


def test_replay_forgets_after_500():
    agent = Agent(3, 3, Goal(50.0, 2.0))
    for _ in range(200):
        agent.step(COOL, 30.0)
    assert len(agent._replay) == 500


# ---- the policy ----------------------------------------------------------------------------------

CPUS = tuple(range(100, 1300, 100))  # 12 clocks as on the TX2
GPUS = tuple(range(100, 1400, 100))  # 13
VIEW = BoardView(
    Attainable(CPUS, GPUS), cpu_power_mw=2050, gpu_power_mw=1399, cpu_temp_mc=40_500,
    gpu_temp_mc=39_000,
)  # fmt: skip


def job(deadline_us=100_000.0):
    table = LatencyTable(
        TableHeader(model="m"), emc_hz=np.array([0]), context=np.array([0]), cpu_hz=np.array([1]),
        gpu_hz=np.array([1]), latency_us=np.ones((1, 1, 1, 1), dtype=np.float32),
    )  # fmt: skip
    return Job(table, deadline_us)


def finish(policy, latency_us, this=None):
    return policy.observe(Outcome(this or job(), OperatingPoint(1, 1), 0, latency_us, mixed=False))


def test_levels_are_those_of_the_tx2():
    arms = Arms.of(VIEW.attainable, full=False)
    assert (arms.cpu, arms.gpu) == ((3, 7, 11), (3, 7, 11))
    full = Arms.of(VIEW.attainable, full=True)
    assert (len(full.cpu), len(full.gpu)) == (12, 13)


def test_holds_the_top_levels_until_the_interval_is_over():
    policy = ZttPolicy(seed=1)
    this = job()
    assert policy.decide(this, VIEW).point == (1200, 1200)
    for _ in range(9):
        assert finish(policy, 50_000.0, this) is False
        assert policy.decide(this, VIEW).reason == "holding"
    assert finish(policy, 50_000.0, this) is True
    decision = policy.decide(this, VIEW)
    # 20 jobs/s for 10 asked: 1, cool: 0.2, and 2 / (20 + 13).
    assert decision.reason == f"reward {1.2 + 2 / 33:.3f}"
    assert policy.stats()["decisions"] == 1
    assert policy.decide(this, VIEW).reason == "holding"
    assert decision.point.cpu_hz in (400, 800, 1200)


def test_six_jobs_of_a_sixth_of_a_second_are_an_interval():
    policy, this = ZttPolicy(), job(1e3 / 6 * 1e3)
    policy.decide(this, VIEW)
    assert [finish(policy, 90_000.0, this) for _ in range(6)] == [False] * 5 + [True]


def test_late_intervals_end_when_their_jobs_do():
    policy = ZttPolicy()
    policy.decide(job(), VIEW)
    assert [finish(policy, 250_000.0) for _ in range(4)] == [False, False, False, True]
    assert policy.decide(job(), VIEW).feasible is False


def test_same_seed_same_decisions():
    def points(seed):
        policy, result = ZttPolicy(seed=seed, interval_ms=1.0), []
        this = job()
        for _ in range(150):
            result.append(policy.decide(this, VIEW).point)
            finish(policy, 90_000.0, this)
        return result

    assert points(4) == points(4)
    assert points(4) != points(5)


def test_power_full_sets_the_term_at_full_power():
    policy = ZttPolicy(power_full_mw=40_000.0, interval_ms=1.0)
    view = BoardView(VIEW.attainable, cpu_power_mw=10_000, gpu_power_mw=30_000, cpu_temp_mc=40_000)
    policy.decide(job(), view)
    finish(policy, 100_000.0)
    policy.decide(job(), view)
    assert policy.stats()["reward"] == pytest.approx(1.2 + 0.03)


def test_one_rail_for_both_is_not_counted_twice():
    policy = ZttPolicy(gpu_rail=False, interval_ms=1.0)
    policy.decide(job(), VIEW)
    finish(policy, 100_000.0)
    policy.decide(job(), VIEW)
    assert policy.stats()["reward"] == pytest.approx(1.2 + 2 / 20)


def test_a_new_cap_moves_the_levels_but_keeps_the_agent():
    policy = ZttPolicy(interval_ms=1.0)
    policy.decide(job(), VIEW)
    finish(policy, 100_000.0)
    policy.decide(job(), VIEW)
    capped = BoardView(Attainable(CPUS[:6], GPUS[:6]))
    point = policy.decide(job(), capped).point
    assert point.cpu_hz <= 600
    assert policy.stats()["decisions"] == 1


def test_a_board_without_gpu():
    policy = ZttPolicy(interval_ms=1.0)
    view = BoardView(Attainable(CPUS, ()))
    for _ in range(5):
        assert policy.decide(job(), view).point.gpu_hz == 0
        finish(policy, 100_000.0)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"interval_ms": 0.0}, "interval_ms"),
        ({"beta": math.nan}, "beta"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"power_full_mw": -1.0}, "power_full_mw"),
        ({"seed": -1}, "seed"),
        ({"mode": "other"}, "mode"),
    ],
)
def test_wrong_options(options, word):
    with pytest.raises(PolicyError, match=word):
        load_policy("ztt", options)


def test_weights_travel(tmp_path: Path):
    policy = ZttPolicy(interval_ms=1.0, seed=3)
    policy.decide(job(), VIEW)
    assert sum(p.size for p in policy.parameters()) == 153
    path = tmp_path / "w.npz"
    save_weights(path, policy.parameters())
    other = ZttPolicy(weights=str(path), seed=9)
    other.decide(job(), VIEW)
    for a, b in zip(policy.parameters(), other.parameters(), strict=True):
        assert np.array_equal(a, b)


def test_weights_of_another_grid_are_left_aside(tmp_path: Path):
    policy = ZttPolicy(grid="full")
    policy.decide(job(), VIEW)
    path = tmp_path / "w.npz"
    save_weights(path, policy.parameters())
    assert "untrained" in ZttPolicy(weights=str(path)).decide(job(), VIEW).reason


def test_bad_weights(tmp_path: Path):
    path = tmp_path / "w.npz"
    with pytest.raises(PolicyError, match="cannot read weights"):
        load_weights(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(PolicyError, match="not a file of weights"):
        load_weights(path)
    save_weights(path, [np.full((7, 2), np.nan), np.zeros(2)])
    with pytest.raises(PolicyError, match="not finite"):
        load_weights(path)
    path.write_bytes(bytes(11_000_000))
    with pytest.raises(PolicyError, match="too large"):
        load_weights(path)
    with pytest.raises(PolicyError, match="cannot write"):
        save_weights(tmp_path / "no" / "w.npz", [])


def test_weights_from_what_is_no_regular_file(tmp_path: Path):
    fifo = tmp_path / "w.npz"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, Path("/dev/zero")):
        with pytest.raises(PolicyError, match="no regular file"):
            ZttPolicy(weights=str(path))


def test_weights_that_inflate(tmp_path: Path):
    path = tmp_path / "w.npz"
    np.savez_compressed(path, np.zeros((7, 1_000_000)), np.zeros(1_000_000))
    assert path.stat().st_size < 100_000
    with pytest.raises(PolicyError, match="64000256 bytes unpacked, not 50000000 at most"):
        load_weights(path)


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ([], "0 arrays are no weights and biases"),
        ([np.float64(3.0)], "1 arrays"),
        ([np.float64(3.0), np.float64(3.0)], r"layer 0 has shapes \(\) and \(\), not \(7, n\)"),
        ([np.zeros((3, 3)), np.zeros(3)], r"layer 0 has shapes \(3, 3\)"),
        ([np.zeros((7, 3)), np.zeros(2)], "layer 0"),
        ([np.zeros((7, 0)), np.zeros(0)], "layer 0"),
        (
            [np.zeros((7, 6)), np.zeros(6), np.zeros((5, 9)), np.zeros(9)],
            r"layer 1 .* not \(6, n\)",
        ),
        ([np.zeros((7, 3), complex), np.zeros(3)], "complex128 and float64, not of real numbers"),
        ([np.zeros((7, 3), "U1"), np.zeros(3)], "not of real numbers"),
        ([np.zeros(1)] * 18, "18 arrays, not 16 at most"),
    ],
)
def test_weights_that_fit_no_network(tmp_path: Path, arrays: list[Any], why: str):
    path = tmp_path / "w.npz"
    save_weights(path, arrays)
    with pytest.raises(PolicyError, match=why) as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


def test_weights_with_a_damaged_byte(tmp_path: Path):
    path, policy = tmp_path / "w.npz", ZttPolicy()
    policy.decide(job(), VIEW)
    save_weights(path, policy.parameters())
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            load_weights(path)
        except PolicyError:
            refused += 1
    assert refused > len(whole) // 6
