"""Two real threads and a queue; bounds only, because other programs share the cores."""

import pytest

from bench.plant.realworld import RealLayer, RealWorld, layers_like
from bench.plant.workload import get_workload


def test_work_follows_the_clocks_and_nothing_is_done_twice_at_once():
    world = RealWorld([RealLayer(300.0, 300.0)] * 8, depth=4)
    assert world.whole(1.0, 1.0, n=5).wall_us > 8 * 300 * 0.8
    assert world.whole(0.25, 1.0, n=3).wall_us > 8 * 1200 * 0.8
    assert world.whole(1.0, 0.25, n=3).wall_us > 8 * 1200 * 0.8


def test_a_layer_alone_takes_its_two_parts_one_after_the_other():
    world = RealWorld([RealLayer(500.0, 500.0)])
    alone = world.alone(0, 0.5, 0.5, n=5)
    assert alone.total_us > 0.8 * (alone.host_us + alone.gpu_us)
    assert alone.host_us > 800


def test_a_thin_grid_has_all_its_points():
    world = RealWorld([RealLayer(50.0, 50.0)] * 2)
    assert [(p.cpu, p.gpu) for p in world.thin_grid((0.5, 1.0))] == [
        (0.5, 0.5), (0.5, 1.0), (1.0, 0.5), (1.0, 1.0),
    ]  # fmt: skip


def test_layers_keep_the_proportions_of_a_network():
    layers = layers_like(get_workload("vgg16"), layers=10, total_us=5000.0)
    assert len(layers) == 10
    assert sum(x.host_us for x in layers) == pytest.approx(2500.0)
    assert sum(x.gpu_us for x in layers) == pytest.approx(2500.0)
    assert max(x.gpu_us for x in layers) > 3 * min(x.gpu_us for x in layers)
