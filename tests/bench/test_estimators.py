"""The estimator bench: what it reads, scores and reports; the bars of the measured data."""

import argparse
import json

import numpy as np
import pytest

from bench import estimators
from bench.estimators_measured import (
    Slice,
    data_root,
    deadline_misses,
    orin_slices,
    read_slices,
    run_grid,
    score,
)
from bench.estimators_plant import MODELS, Task, paired_interval, run_task, run_tasks
from bench.estimators_profile import (
    Subject,
    anchor_conditions,
    full_profile,
    geometric_points,
    interval_points,
    per_op,
)
from estimators.errors import ProfileError
from estimators.maketable import make_table
from estimators.profilefile import load_profile, save_profile

HEADER = "model,cores,cpu_khz,gpu_hz,mem_hz,latency_ms"


def grid_file(tmp_path, change=None):
    rows = [HEADER]
    for model, work in (("a", 1.0), ("b", 3.0)):
        for cpu in (500_000, 1_000_000, 2_000_000):
            for gpu in (3e8, 6e8, 9e8, 12e8):
                rows.append(f"{model},1,{cpu},{gpu:.0f},1e9,{work * (1e7 / cpu + 1e10 / gpu)}")
    if change:
        change(rows)
    path = tmp_path / "grid.csv"
    path.write_text("\n".join(rows))
    return path


def test_any_grid_is_scored_slice_by_slice(tmp_path):
    result = run_grid(grid_file(tmp_path), ["model"], 8)
    assert result["slices"] == 2
    assert result["measured"]["mean_mape"] < 1
    assert result["measured"]["mean_mape"] < result["measured"]["analytic_mean_mape"]
    assert set(result["deadline_miss_pct"]) == {"margin_0", "margin_3", "margin_5"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.__setitem__(2, "a,1,500000,6e8,1e9,nan"), "row 3, column latency_ms"),
        (lambda r: r.__setitem__(2, "a,1,-5,6e8,1e9,3"), "row 3, column cpu_khz"),
        (lambda r: r.append("a,1,500000,300000000,1e9,77"), "two latencies for one cell"),
    ],
)
def test_bad_grids_are_refused_by_row_and_column(tmp_path, change, message):
    with pytest.raises(ProfileError, match=message):
        run_grid(grid_file(tmp_path, change), ["model"], 8)


def test_unknown_columns_and_impossible_numbers_of_points_are_refused(tmp_path):
    path = grid_file(tmp_path)
    with pytest.raises(ProfileError, match="no column 'colour'"):
        read_slices(path, ["colour"])
    for points in (4, 12):
        with pytest.raises(ProfileError, match=f"cannot fit {points} of 12 cells"):
            run_grid(path, ["model"], points)


def test_a_perfect_table_misses_nothing_and_an_optimistic_one_does():
    clocks = [(c, g, 1.0) for c in (1e9, 2e9) for g in (3e8, 6e8, 9e8)]
    x = np.array(clocks)
    part = Slice("x", x, 1e12 / x[:, 0] + 1e12 / x[:, 1])
    assert deadline_misses(part, part.time_us, 0.0) == (0, 60)
    assert deadline_misses(part, part.time_us * 0.9, 0.0)[0] > 5
    assert deadline_misses(part, part.time_us * 0.9, 0.2)[0] == 0


def test_orin_bars_hold():
    path = data_root() / "orin_lab/traces/cells_estimator_break_dev.npz"
    if not path.exists():
        pytest.skip("measured data is not here")
    results = [score(part, fitted) for part, fitted in orin_slices(path)]
    assert np.mean([r["mean_mape"] for r in results]) <= 0.6
    assert max(r["worst_mape"] for r in results) <= 2.0
    for margin, bar in ((0, 3.0), (1, 0.5)):
        late = sum(r["misses"][margin][0] for r in results)
        assert 100 * late / sum(r["misses"][margin][1] for r in results) <= bar


def test_tx2_bar_holds_on_every_eighth_slice():
    path = data_root() / "tx2_cnn_grid.csv"
    if not path.exists():
        pytest.skip("measured data is not here")
    slices = read_slices(path, ("model", "cores", "mem_hz"))
    assert len(slices) == 80
    assert np.mean([score(p, p.design(8))["mean_mape"] for p in slices[::8]]) <= 3.7


def test_anchored_timeline_beats_its_bars_on_the_simulated_board():
    found = run_task(Task(Subject("resnet50"), ("maxplus", "bilinear", "no_module", "fixed")))
    assert found["maxplus"].mape <= 1.0
    assert found["maxplus"].worst <= 5.0
    assert found["maxplus"].mape < found["bilinear"].mape < found["no_module"].mape
    assert 30 < found["fixed"].mape < 60


def test_tasks_run_in_processes_as_in_this_one():
    task = Task(Subject("vgg16"), ("bilinear",))
    assert run_tasks([task], workers=2) == run_tasks([task], workers=1)


def test_a_win_needs_an_interval_that_excludes_zero():
    ours = np.full((10, 6), 1.0)
    assert paired_interval(ours, ours + 0.5)["win"]
    rng = np.random.default_rng(0)
    assert not paired_interval(ours, ours + rng.normal(0, 1, (10, 1)))["win"]


def test_profiles_of_the_plant_are_sound_files_that_tables_are_made_of(tmp_path):
    subject = Subject("vgg16")
    profile = full_profile(subject)
    save_profile(profile, tmp_path / "p.json.gz")
    table = make_table(load_profile(tmp_path / "p.json.gz"), "vgg16")
    truth = subject.truth_us()
    assert np.abs(table.latency_us[0] / truth - 1).mean() < 0.01
    assert table.header.fit["heldout_runs"] == 9


def test_designs_of_the_paper_and_ours():
    spec = Subject("resnet50").spec
    assert len(interval_points(spec)) == 24
    assert len(geometric_points(spec, 4, 6)) == 24
    assert len(anchor_conditions(Subject("gpt2-large"))) == 9
    assert {k for *_, k in anchor_conditions(Subject("gpt2-large"))} == {1, 1024}
    assert len(MODELS) == 6


def test_ops_can_be_layers_of_their_own():
    profile = per_op(Subject("vgg16"), geometric_points(Subject("vgg16").spec, 2, 2))
    kinds = {record.kind for record in profile.layers.values()}
    assert {"conv", "relu"} <= kinds


def test_the_command_prints_json_and_text(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    estimators.add_arguments(parser)
    words = ["--grid", str(grid_file(tmp_path)), "--by", "model", "--points", "8"]
    assert estimators.run(parser.parse_args([*words, "--json"])) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 8
    assert estimators.run(parser.parse_args(words)) == 0
    assert "8 cells fitted in each of 2 slices" in capsys.readouterr().out


def test_memory_stays_within_its_bar():
    assert 10 < estimators.peak_mib() < 1024
