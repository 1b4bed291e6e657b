"""Power and heat of the simulated boards."""

import numpy as np
import pytest

from bench.plant.board import load_board
from bench.plant.engine import Engine
from bench.plant.errors import PlantError
from bench.plant.power import PowerModel, duty_of
from bench.plant.thermal import REGIONS, Thermal
from bench.plant.types import Activity, Clocks
from bench.plant.workload import get_workload

AGX, NANO = load_board("agx-orin"), load_board("orin-nano")
TOP = Clocks(AGX.cpu_hz[-1], AGX.gpu_hz[-1], AGX.emc_hz[-1])
LOW = Clocks(AGX.cpu_hz[0], AGX.gpu_hz[0], AGX.emc_hz[0])


def test_a_gpu_pinned_high_costs_power_while_idle():
    model = PowerModel(AGX)
    pinned = model.rails(TOP._replace(cpu_hz=729_600_000)).power_mw["VDD_GPU_SOC"]
    low = TOP._replace(cpu_hz=729_600_000, gpu_hz=AGX.gpu_hz[0])
    assert pinned - model.rails(low).power_mw["VDD_GPU_SOC"] == pytest.approx(2900, abs=400)


def test_the_module_is_the_sum_of_rails_that_do_not_contain_one_another():
    agx, nano = PowerModel(AGX).rails(TOP), PowerModel(NANO).rails(Clocks(*_top(NANO)))
    assert agx.total_mw == pytest.approx(
        sum(agx.power_mw[r] for r in ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"))
    )
    assert nano.total_mw == nano.power_mw["VDD_IN"]
    assert nano.power_mw["VDD_IN"] > nano.power_mw["VDD_CPU_GPU_CV"] + nano.power_mw["VDD_SOC"]


def _top(board):
    return board.cpu_hz[-1], board.gpu_hz[-1], board.emc_hz[-1]


def test_a_grid_of_powers_is_the_powers_of_its_points():
    model, engine = PowerModel(AGX), Engine(AGX, get_workload("resnet50"))
    points = [Clocks(c, g, AGX.emc_hz[-1]) for c in AGX.cpu_hz[::7] for g in AGX.gpu_hz[::3]]
    activities = [engine.activity(point) for point in points]
    columns = Activity(*(np.array(column) for column in zip(*activities, strict=True)))
    clocks = np.array(points).T
    grid = model.total_grid(*clocks, duty_of(columns, 50_000.0), 45.0)
    single = [model.mean_power_mw(p, a, 50_000.0) for p, a in zip(points, activities, strict=True)]
    np.testing.assert_allclose(grid, single, rtol=1e-12)


def test_a_period_dilutes_a_job_and_never_cuts_it_short():
    model, engine = PowerModel(AGX), Engine(AGX, get_workload("resnet50"))
    activity = engine.activity(TOP)
    idle = model.mean_power_mw(TOP)
    busy = model.mean_power_mw(TOP, activity)
    half = model.mean_power_mw(TOP, activity, 2 * activity.latency_us)
    assert half == pytest.approx((idle + busy) / 2, rel=1e-6)
    assert model.mean_power_mw(TOP, activity, 1.0) == busy


def test_power_rises_with_every_clock_with_heat_and_with_traffic():
    model = PowerModel(AGX)
    activity = Activity(1000.0, 1000.0, 800.0, 300.0, 5e7)
    base = model.mean_power_mw(LOW, activity)
    for field in Clocks._fields:
        assert model.mean_power_mw(LOW._replace(**{field: getattr(TOP, field)}), activity) > base
    assert model.mean_power_mw(LOW, activity, temp_c=85.0) > base
    assert model.mean_power_mw(LOW, activity._replace(dram_bytes=9e7)) > base


@pytest.mark.parametrize("name", ["resnet50", "gpt2-large"])
def test_lowest_clocks_have_lowest_power_and_never_lowest_energy(name):
    model, engine = PowerModel(AGX), Engine(AGX, get_workload(name))
    energy, power = {}, {}
    for cpu_hz in AGX.cpu_hz[::4]:
        for gpu_hz in AGX.gpu_hz[::2]:
            clocks = Clocks(cpu_hz, gpu_hz, AGX.emc_hz[-1])
            activity = engine.activity(clocks)
            power[clocks] = model.mean_power_mw(clocks, activity)
            energy[clocks] = power[clocks] * activity.latency_us
    lowest = LOW._replace(emc_hz=AGX.emc_hz[-1])
    assert min(power, key=power.get) == lowest
    best = min(energy, key=energy.get)
    assert energy[lowest] > 3 * energy[best]
    assert AGX.gpu_hz[0] < best.gpu_hz < AGX.gpu_hz[-1]
    assert best.cpu_hz < AGX.cpu_hz[-1]


def test_the_lowest_memory_clock_is_never_the_cheapest_for_memory_bound_work():
    model, engine = PowerModel(NANO), Engine(NANO, get_workload("qwen2-1.5b", "fused"))
    energy = []
    for emc_hz in NANO.emc_hz:
        clocks = Clocks(*_top(NANO))._replace(emc_hz=emc_hz)
        activity = engine.activity(clocks)
        energy.append(model.mean_power_mw(clocks, activity) * activity.latency_us)
    assert energy[0] > energy[1] > min(energy[2:])


@pytest.mark.parametrize("board", [AGX, NANO, load_board("orin-nx")])
def test_heat_settles_where_resistances_say(board):
    watts = {"cpu": 3.0, "gpu": 10.0, "soc": 2.0}
    heat = Thermal(board)
    for _ in range(15):
        heat.step(watts, 100.0)
    for region, temp_c in heat.steady_c(watts).items():
        assert heat.temp_c[region] == pytest.approx(temp_c, abs=0.1)
    assert heat.temp_c["tj"] == max(heat.temp_c[region] for region in REGIONS)


def test_the_die_reacts_at_once_and_the_sink_slowly():
    heat = Thermal(AGX)
    heat.step({"gpu": 40.0}, 1.0)
    assert heat.temp_c["gpu"] > AGX.physics["thermal"]["ambient_c"] + 8
    assert heat.temp_c["sink"] < AGX.physics["thermal"]["ambient_c"] + 1


def test_trip_points_take_clocks_away_and_give_them_back_below_the_hysteresis():
    assert Thermal(AGX, 96.0).trends() == {"cpu": 1, "gpu": 1}
    assert Thermal(AGX, 93.0).trends() == {"cpu": 0, "gpu": 0}
    assert Thermal(AGX, 60.0).trends() == {"cpu": -1, "gpu": -1}


def test_boards_known_by_their_files_only_have_no_power():
    with pytest.raises(PlantError, match="only the files"):
        PowerModel(load_board("agx-thor"))
