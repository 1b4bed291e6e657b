"""Policies that leave the clocks to the board, and the named references."""

import math

import numpy as np
import pytest

from estimators.table import LatencyTable, TableHeader
from policies.base import Attainable, BoardView, Job
from policies.registry import load_policy

TABLE = LatencyTable(
    TableHeader(model="m"), emc_hz=np.array([0]), context=np.array([0]),
    cpu_hz=np.array([1, 2]), gpu_hz=np.array([3, 4]),
    latency_us=np.full((1, 1, 2, 2), 10.0, dtype=np.float32),
)  # fmt: skip
VIEW = BoardView(Attainable((1, 2), (3, 4)))


@pytest.mark.parametrize("name", ["schedutil", "simple_ondemand"])
def test_leaves_the_clocks_to_the_board(name):
    policy = load_policy(name)()
    decision = policy.decide(Job(TABLE, 20.0), VIEW)
    assert decision.point is None
    assert math.isnan(decision.predicted_us)
    assert not decision.feasible


def test_jetson_clocks_is_the_highest_clocks():
    decision = load_policy("jetson_clocks")().decide(Job(TABLE, 20.0), VIEW)
    assert decision.point == (2, 4)
    assert decision.feasible
