import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.sampling import (
    context_levels,
    geometric_levels,
    interval_levels,
    make_plan,
    spread_points,
)

CPU = [115_200_000 + 76_800_000 * i for i in range(28)] + [2_201_600_000]
GPU = [306_000_000 + 102_000_000 * i for i in range(11)]


def test_geometric_levels_have_both_ends_and_equal_ratios():
    levels = geometric_levels(CPU, 6)
    assert levels[0] == CPU[0]
    assert levels[-1] == CPU[-1]
    assert np.ptp(np.diff(np.log(levels))) < 0.35
    assert geometric_levels(CPU, 1) == [CPU[-1]]
    assert geometric_levels([5], 4) == [5]
    assert geometric_levels([10, 11], 5) == [10, 11]


def test_interval_levels_are_the_papers():
    assert len(interval_levels(CPU, 4)) == 8
    assert interval_levels(GPU, 4) == [GPU[0], GPU[4], GPU[8]]


def test_contexts_have_both_ends():
    assert context_levels(0) == [0]
    assert context_levels(200, 90) == [1, 90, 180, 200]
    assert context_levels(1) == [1]


def test_spread_points_have_the_corners_and_beat_the_interval_design():
    grid = np.log(np.array([(c, g) for c in CPU for g in GPU], dtype=float))
    at = spread_points(grid, 24).tolist()
    assert len(set(at)) == 24
    assert {0, 10, 28 * 11, 29 * 11 - 1} <= set(at)
    assert spread_points(grid, 24).tolist() == at
    assert len(spread_points(grid[:5], 9)) == 5


def test_plans_count_their_points_and_their_time():
    plan = make_plan(CPU, GPU, points=24)
    assert len(plan.points) == 24
    assert plan.total == 319
    assert len(make_plan(CPU, GPU, design="interval").points) == 24
    assert len(make_plan(CPU, GPU, design="spread", points=9).points) == 9
    one = make_plan([1000], [500], points=1, iterations=10, context=[1, 2])
    assert one.points == ((1000, 500),)
    assert one.expected_s(1e6) == 20


def test_plans_without_clocks_are_refused():
    with pytest.raises(ProfileError, match="no plan possible: 0 CPU and 11 GPU clocks"):
        make_plan([], GPU)
