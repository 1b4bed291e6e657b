"""The NeuralPower bench: measured files, the simulated meter, layers and tables from the plant."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.estimators_profile import Subject
from bench.neuralpower import epr_rows, measure, text
from bench.neuralpower_layers import (
    measure_layers,
    modelled,
    random_cifar,
    random_layers,
    shape_of,
    top_clocks,
    true_network,
)
from bench.neuralpower_measured import (
    CONV_FILE,
    GEMM_FILE,
    data_folder,
    load_convs,
    load_gemms,
    score,
)
from bench.neuralpower_plant import bottlenecks, period_energy, train
from bench.neuralpower_rig import (
    PowerMeter,
    idle_samples,
    powered_layers,
    powered_runs,
    spread_grid,
    true_power_mw,
)
from bench.plant.engine import Engine
from bench.plant.networks import get_network
from estimators.errors import ProfileError
from estimators.neuralpower.idlefile import save_idle
from estimators.neuralpower.lasso import FlopModel
from estimators.neuralpower.process import DefaultModel
from estimators.neuralpower.score import groups_of, held_out, rmspe
from estimators.profilefile import save_profile
from estimators.tablestore import TableStore
from governor.cli import main

HEADER = (
    "device,mode,precision,batch,in_c,in_h,in_w,out_c,k_h,k_w,pad_h,pad_w,stride_h,stride_w,"
    "fwd_ms,bwd_in_ms,bwd_par_ms,algo,out_h,out_w,gflop"
)


def _write_convs(path: Path, device: str = "NV_TitanX", rows: int = 14) -> Path:
    lines = [HEADER]
    for i in range(rows):
        size, out_c = 8 + 4 * (i % 5), 16 << (i % 4)
        flop = 2 * 4 * size**2 * 32 * out_c * 9
        sizes = f"4,32,{size},{size},{out_c},3,3,1,1,1,1"
        lines.append(f"{device},train,fp32,{sizes},{0.01 + flop / 4e9},0,0,X,{size},{size},0")
    path.write_text("\n".join(lines) + "\n")
    return path


# ---- measured -----------------------------------------------------------------------------------


def test_own_file_of_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write_convs(tmp_path / "layers.csv")
    assert main(["bench", "neuralpower", "--json", "--layers", str(path)]) == 0
    result = json.loads(capsys.readouterr().out)
    row = result["measured"]["NV_TitanX-fp32"]
    assert row["n"] == 14
    keys = "paper_in_sample paper_kfold log_kfold default_grouped log_flop paleo_062 paleo_100"
    assert all(isinstance(row[key], float) for key in keys.split())
    assert result["published"]["energy_rmspe_pct"] == pytest.approx(2.79, abs=0.01)
    assert result["plant"] == {} and "NV_TitanX-fp32" in text(result)


def test_paleo_is_left_out_where_it_does_not_apply(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"Abacus,fp32,{64 << i % 4},{8 << i % 3},{32 * i},{0.01 * i}" for i in range(1, 13)]
    path.write_text("\n".join(["device,precision,m,n,k,time_ms", *rows]) + "\n")
    (unknown,) = load_gemms(path)
    assert score(unknown)["paleo_062"] is None
    (few,) = load_convs(_write_convs(tmp_path / "b.csv", rows=3))
    assert score(few) == {"n": 3}


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with pytest.raises(ProfileError, match="cannot read"):
        load_convs(path)
    path.write_text("device,precision,batch\na,fp32,1\n")
    with pytest.raises(ProfileError, match="no column"):
        load_convs(path)
    text_ = _write_convs(path).read_text().replace(",4,32,8,8,16", ",0,32,8,8,16")
    path.write_text(text_)
    with pytest.raises(ProfileError, match="row 2.*batch"):
        load_convs(path)
    path.write_text("device,precision,m,n,k,time_ms\na,fp32,x,1,1,1\n")
    with pytest.raises(ProfileError, match="not a number"):
        load_gemms(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "bar_pct"),
    [("NV_1080Ti-fp32", 20), ("NV_P100-fp32", 20), ("NV_M40-fp32", 33), ("NV_TitanX-fp32", 33)],
)
def test_default_model_on_measured_layers(key: str, bar_pct: float) -> None:
    path = data_folder() / CONV_FILE
    if not path.is_file():
        pytest.skip("no measured data; set FLAMEGOV_DATA")
    measured = next(m for m in load_convs(path) if m.key == key)
    layers, time_ms = measured.layers, measured.time_ms
    groups = groups_of(layers.shapes)
    ours = rmspe(held_out(DefaultModel, layers, time_ms, groups=groups), time_ms)
    one = rmspe(held_out(FlopModel, layers, time_ms, groups=groups), time_ms)
    assert ours <= bar_pct
    assert ours <= 0.9 * one


def test_measured_gemms_are_fully_connected_layers() -> None:
    path = data_folder() / GEMM_FILE
    if not path.is_file():
        pytest.skip("no measured data; set FLAMEGOV_DATA")
    sets = {measured.key: measured for measured in load_gemms(path)}
    assert sets["NV_T4-mixed"].layers.kind == "fc"
    assert len(sets["NV_Jetson_TX1-fp32"].layers) == 78


# ---- the simulated board ------------------------------------------------------------------------


def test_meter_shows_whole_sensor_steps_near_the_truth() -> None:
    subject = Subject("alexnet")
    meter = PowerMeter(subject.spec, intervals=1)
    clocks = top_clocks(subject)
    true = meter.model.mean_power_mw(
        clocks, Engine(subject.spec, subject.workload).activity(clocks)
    )
    _, shown = meter.load(Engine(subject.spec, subject.workload), clocks)
    assert shown == pytest.approx(true, abs=500)
    assert meter.idle(clocks) % 100 == pytest.approx(0, abs=1e-6)
    assert meter.busy_s == pytest.approx(4 * subject.spec.sensor_interval_ms / 1e3)


@pytest.mark.parametrize("name", ["vgg16", "alexnet", "nin", "mobilenetv2"])
def test_layers_of_the_plant_as_the_models_see_them(name: str) -> None:
    network = get_network(name)
    shapes = [shape_of(layer) for layer in network.layers]
    known = [shape for shape in shapes if shape is not None]
    assert len(known) == len(shapes)
    macs = sum(shape.flop for shape in known if shape.kind != "pool") / 2
    assert macs == pytest.approx(network.macs, rel=1e-6)


def test_layers_without_a_model_are_left_out() -> None:
    truth = true_network(Subject("densenet121"), get_network("densenet121"), 1)
    assert len(modelled(truth)) < len(truth.shapes)
    assert truth.network_mj == pytest.approx(truth.network_ms * truth.network_w)


def test_random_layers_and_networks_are_reproducible() -> None:
    for kind in ("conv", "fc", "pool"):
        first, again = random_layers(kind, 3), random_layers(kind, 3)
        made = [next(first) for _ in range(5)]
        assert made == [next(again) for _ in range(5)]
        assert all((shape := shape_of(*one)) and shape.kind == kind for one in made)
    assert random_cifar(1) == random_cifar(1) != random_cifar(2)


def test_models_learned_on_the_plant_name_bottlenecks() -> None:
    trained = train(Subject("vgg16"), scale=0.06)
    measured = trained.sets["conv"]
    again = measure_layers(Subject("vgg16"), PowerMeter(Subject("vgg16").spec), "conv", 3)
    assert again.layers.shapes == measured.layers.shapes[:3]
    found = bottlenecks(trained, cifar_networks=4)
    assert found["networks"] == 14
    assert found["runtime_pct"] >= 70 and found["energy_pct"] >= 70
    assert found["cases"]["vgg16 batch 1"]["true"] == "linear 1"


def test_table_with_power_by_one_command(tmp_path: Path) -> None:
    subject = Subject("alexnet")
    meter, points = PowerMeter(subject.spec), spread_grid(subject, 9)
    profile = powered_layers(subject, meter, points)
    profile = replace(profile, runs={"alexnet": powered_runs(subject, meter, points)})
    save_profile(profile, tmp_path / "alexnet.json")
    save_idle(tmp_path / "idle.csv", idle_samples(subject, meter))
    call = ["estimate", str(tmp_path / "alexnet.json"), "-o", str(tmp_path / "alexnet.npz")]
    assert main([*call, "--idle", str(tmp_path / "idle.csv")]) == 0
    table = TableStore.load(tmp_path).get("alexnet")
    power = table.slice_mw(subject.memory_hz)
    assert power is not None and power.shape == (29, 11)
    assert 100 * float(np.abs(power / true_power_mw(subject) - 1).mean()) < 3.0
    assert table.header.fit["power"][str(subject.memory_hz)]["from"] == "layers and runs"


def test_energy_of_a_period() -> None:
    energy = period_energy(
        np.array([2000.0, 9000.0]), np.array([1000.0, 1000.0]), np.array([500.0, 1500.0]), 1000.0
    )
    assert energy.tolist() == [pytest.approx(1.5), np.inf]


def test_published_part_alone() -> None:
    result = measure([], layers=None, say=lambda line: None)
    assert result["measured"] == {} and result["epr"] == epr_rows()
    assert [row["best_at_alpha"] for row in result["epr"]] == [[4], [1, 2, 3], []]
