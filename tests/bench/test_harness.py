"""Running experiments: failures, resuming, workers, a Dask cluster, scores."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bench import harness, harness_unit
from bench.harness import run_all
from bench.harness_load import load_experiment
from bench.harness_plan import PolicyEntry, units
from bench.harness_score import gain_pct, interval, mean, measure
from bench.harness_sim import Records
from bench.harness_store import Store
from bench.harness_unit import run_unit
from estimators.errors import FlamegovError
from policies.constant import MaxPolicy

TEXT = """
title = "t"
board = "agx-orin"
seconds = 1
seeds = 2
models = { vgg16 = [40] }
[[policies]]
name = "max"
[[policies]]
name = "flame"
[[policies]]
name = "ztt"
learn_s = 2
[[policies]]
name = "schedutil"
[[policies]]
name = "oracle"
"""


@pytest.fixture
def some(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, encoding="utf-8")
    return list(units("mine", load_experiment(str(path))))


def plain(results):
    return json.dumps([(r.unit.policy.name, r.runs, r.series, r.error) for r in results])


def test_runs_and_scores(some, tmp_path):
    lines = []
    results = run_all(some, folder=tmp_path / "r", workers=1, progress=lines.append)
    assert [r.unit.policy.name for r in results] == ["max", "flame", "ztt", "schedutil", "oracle"]
    assert all(r.error is None and len(r.runs) == 2 for r in results)
    assert len(lines) == 5
    by_name = {r.unit.policy.name: r.runs[0] for r in results}
    assert by_name["max"]["scored"]["jobs"] == 40
    assert by_name["ztt"]["scored"]["jobs"] == 40
    assert by_name["ztt"]["all"]["jobs"] == 120
    watts = {name: run["scored"]["mean_power_w"] for name, run in by_name.items()}
    assert watts["oracle"] <= watts["flame"] * 1.001
    assert watts["flame"] < watts["max"]


def test_an_interrupted_run_goes_on_to_the_same_result(some, tmp_path, monkeypatch):
    whole = run_all(some, folder=tmp_path / "whole", workers=1)
    calls = []

    def stop_after_two(unit):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(unit)
        return harness_unit.run_unit(unit)

    monkeypatch.setattr(harness, "run_unit", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        run_all(some, folder=tmp_path / "cut", workers=1)
    assert len(calls) == 2
    monkeypatch.setattr(harness, "run_unit", harness_unit.run_unit)
    lines = []
    again = run_all(some, folder=tmp_path / "cut", workers=1, progress=lines.append)
    assert len(lines) == 3  # the other two were there already
    assert plain(again) == plain(whole)


def test_two_processes_give_the_same(some, tmp_path):
    one = run_all(some[:3], folder=tmp_path / "one", workers=1)
    two = run_all(some[:3], folder=tmp_path / "two", workers=2)
    assert plain(one) == plain(two)


class Broken(MaxPolicy):
    """Raises on its 10th job."""

    seen = 0

    def decide(self, job, view):
        if Broken.seen == 10:
            raise RuntimeError("tenth job")
        Broken.seen += 1
        return MaxPolicy.decide(self, job, view)

    def observe(self, outcome):
        return True


def test_a_policy_that_raises_is_marked_and_the_others_go_on(some, tmp_path, monkeypatch):
    real = harness_unit._make
    monkeypatch.setattr(
        harness_unit,
        "_make",
        lambda name, options, seed: Broken() if name == "flame" else real(name, options, seed),
    )
    failed, fine = run_all([some[1], some[0]], folder=tmp_path / "r", workers=1)
    assert fine.error is None
    assert "RuntimeError: tenth job" in failed.error
    assert "Traceback" in failed.error
    assert failed.runs == []
    # Failed runs are tried again.
    monkeypatch.setattr(harness_unit, "_make", real)
    assert run_all([some[1]], folder=tmp_path / "r", workers=1)[0].error is None


def test_unknown_policy_is_marked(some, tmp_path):
    unit = some[0]._replace(policy=harness_unit.PolicyEntry("nobody"))
    (result,) = run_all([unit], folder=tmp_path / "r", workers=1)
    assert "unknown policy 'nobody'" in result.error


def test_no_space_for_results(some, tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FlamegovError, match=r"cannot write results.*No space left"):
        run_all(some[:1], folder=tmp_path / "r", workers=1)
    assert list((tmp_path / "r").rglob("*.*")) == []


def test_results_in_a_place_that_is_a_file(some, tmp_path):
    (tmp_path / "r").write_text("x")
    with pytest.raises(FlamegovError, match="cannot (read|write) results"):
        run_all(some[:1], folder=tmp_path / "r", workers=1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda good: b"",
        lambda good: b"[" * 100_000,
        lambda good: b"{}",
        lambda good: b"[]",
        lambda good: b"\xff",
        lambda good: good[:-9],
        lambda good: good.replace(b'"seed": 1', b'"seed": 0'),
        lambda good: good.replace(b'"ppw"', b'"pww"', 1),
        lambda good: re.sub(rb'"ppw": [^,]+', b'"ppw": "much"', good, count=1),
        lambda good: good.replace(b'"error": null', b'"error": "it failed"'),
    ],
)
def test_a_broken_result_is_computed_again(some, tmp_path, damage):
    store = Store(tmp_path)
    store.put(some[0], run_unit(some[0]))
    (path,) = tmp_path.rglob("*.json")
    good = path.read_bytes()
    assert store.get(some[0]) == json.loads(good)
    path.write_bytes(damage(good))
    assert store.get(some[0]) is None


def test_results_follow_the_files_and_plug_ins_they_depend_on(some, tmp_path, monkeypatch):
    store, weights = Store(tmp_path / "runs"), tmp_path / "w.npz"
    entry = PolicyEntry("ztt", options={"weights": str(weights)})
    unit = some[0]._replace(policy=entry)
    weights.write_bytes(b"one")
    store.put(unit, run_unit(some[0]))
    assert store.get(unit) is not None
    weights.write_bytes(b"two")
    assert store.get(unit) is None

    module = tmp_path / "plug.py"
    unit = some[0]._replace(policy=PolicyEntry("plug"))
    monkeypatch.setattr("bench.harness_store.load_policy_class", lambda name: type)
    monkeypatch.setattr("bench.harness_store.inspect.getfile", lambda cls: str(module))
    module.write_text("A = 1")
    store.put(unit, run_unit(some[0]))
    assert store.get(unit) is not None
    module.write_text("A = 2")
    assert store.get(unit) is None


@pytest.mark.slow
def test_dask_cluster(some, tmp_path):
    distributed = pytest.importorskip("distributed")
    here = run_all(some[:3], folder=tmp_path / "one", workers=1)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as cluster:
        there = run_all(some[:3], folder=tmp_path / "two", scheduler=cluster.scheduler_address)
    assert plain(here) == plain(there)


def test_no_scheduler_there(some, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(harness, "CONNECT_S", 0.5)
    with pytest.raises(FlamegovError, match="cannot reach the Dask scheduler"):
        run_all(some[:1], folder=tmp_path, scheduler="tcp://127.0.0.1:1")


# ---- scores --------------------------------------------------------------------------------------


def records(latency_us, energy_mj, cpu_hz=None):
    n = len(latency_us)
    return Records(
        start_us=np.arange(n) * 100.0,
        latency_us=np.array(latency_us, dtype=np.float32),
        deadline_us=np.full(n, 50.0, dtype=np.float32),
        energy_mj=np.array(energy_mj, dtype=np.float32),
        cpu_hz=np.array(cpu_hz or [1] * n, dtype=np.uint32),
        gpu_hz=np.ones(n, dtype=np.uint32),
        context=np.zeros(n, dtype=np.uint16),
        segment=np.zeros(n, dtype=np.uint16),
        switched=np.zeros(n, dtype=bool),
        span_us=np.full(n, 100.0, dtype=np.float32),
        wait_us=np.arange(n, dtype=np.float32) * 5.0,
    )


def test_measure_by_hand():
    found = measure(records([40, 40, 60, 100], [0.1, 0.1, 0.2, 0.4], [1, 2, 2, 1]))
    assert found["miss_pct"] == 50.0
    assert measure(records([40, 40, 41, 30], [1] * 4))["miss_from_release_pct"] == 25.0
    assert found["qos_run_pct"] == pytest.approx(100 * 200 / 240)
    assert found["mean_power_w"] == pytest.approx(0.8 / 1e3 / 400e-6)
    assert found["ppw"] == pytest.approx(found["qos_run_pct"] / found["mean_power_w"])
    assert found["energy_mj_per_job"] == pytest.approx(0.2)
    assert found["energy_mj_per_on_time_job"] == pytest.approx(0.4)
    assert found["lateness_us"]["p50"] == pytest.approx(0.0)
    assert found["switches_per_s"] == pytest.approx(2 / 400e-6)
    assert measure(records([60], [0.1]))["energy_mj_per_on_time_job"] is None


def test_gain_is_paired_by_seed():
    a = [[10.0, 20.0, 30.0]]
    found = gain_pct([[11.0, 22.0, 33.0]], a)
    assert found["mean"] == pytest.approx(10.0)
    assert found["ci95"] == pytest.approx([10.0, 10.0])  # the same in every draw of seeds
    assert (found["seeds"], found["cells"]) == (3, 1)
    wide = gain_pct([[11.0, 20.0, 35.0, 1.0]], a)
    assert wide["ci95"][0] < wide["mean"] < wide["ci95"][1]
    assert gain_pct([[2.0]], [[1.0]])["ci95"] is None
    assert gain_pct([], [])["mean"] is None


def test_mean_and_interval():
    runs = [{"x": 1.0}, {"x": 3.0}]
    assert mean(runs, "x") == 2.0
    assert interval(runs, "x") == [1.0, 3.0]
    assert interval(runs[:1], "x") is None
    assert mean([{"x": None}], "x") is None


def test_results_do_not_depend_on_the_place(some, tmp_path, monkeypatch):
    first = Store(tmp_path / "a")._path(some[0]).name
    monkeypatch.chdir(tmp_path)
    assert Store(tmp_path / "b")._path(some[0]).name == first
