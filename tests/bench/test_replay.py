"""Replays of grids whose right answers can be told by hand."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import replay, replay_run
from bench.grids import Grid, load_grid
from bench.recorded import Recording, find_traces, record
from bench.sparse import fill, levels
from estimators.errors import FlamegovError, PolicyError, ProfileError
from governor.errors import UsageError
from policies.base import BasePolicy, BoardView, Decision, Job, OperatingPoint, Outcome

CPU_MHZ, GPU_MHZ = (500, 700, 1000, 1400, 2000), (100, 200, 300, 400, 600)
DATA = Path(os.environ.get("FLAMEGOV_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no measured data")


def _latency_ms(cpu_mhz: int, gpu_mhz: int) -> float:
    return 4000 / cpu_mhz + 1500 / gpu_mhz + 1


def _csv(tmp_path: Path, *, power: bool = True) -> Path:
    """A grid additive in 1/f, whose jobs vary by +-10 % around the median."""
    rows = [
        "model,cpu_mhz,gpu_mhz,latency_min_ms,latency_p50_ms,latency_p90_ms,latency_max_ms,power_w"
    ]
    for c in CPU_MHZ:
        for g in GPU_MHZ:
            t = _latency_ms(c, g)
            watts = f"{1 + c / 1000 + g / 100}" if power else ""
            rows.append(f"net,{c},{g},{0.9 * t},{t},{1.08 * t},{1.1 * t},{watts}")
    path = tmp_path / "grid.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def _recording(tmp_path: Path, **options: Any) -> Recording:
    grid = load_grid(_csv(tmp_path))
    return record(grid, points=(3, 3), jobs=500, seed=1, **options)


def _main(*words: str) -> int:
    parser = argparse.ArgumentParser()
    replay.add_arguments(parser)
    return replay.run(parser.parse_args(words))


def test_levels_have_both_ends_and_geometric_steps() -> None:
    clocks = np.array([100, 200, 300, 400, 500, 600, 700, 800])
    assert clocks[levels(clocks, 4)].tolist() == [100, 200, 400, 800]
    assert levels(clocks, 99).tolist() == list(range(8))
    assert levels(clocks, 1).tolist() == [0, 7]


def test_fill_is_exact_where_time_is_work_over_speed() -> None:
    cpu, gpu = np.array([500, 900, 2000]), np.array([100, 250, 600])

    def truth(c: Any, g: Any) -> Any:
        return 3e6 / c[:, None] + 1e6 / g + 40

    at = np.ix_([0, 2], [0, 2])
    got = fill(truth(cpu, gpu)[at], (cpu[[0, 2]], gpu[[0, 2]]), (cpu, gpu))
    np.testing.assert_allclose(got, truth(cpu, gpu), rtol=1e-12)


def test_table_is_interpolated_and_held_out_error_is_told(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    table = recording.table
    assert table.shape == (1, 1, 5, 5)
    assert table.latency_at(700_000_000, 300_000_000) == pytest.approx(
        1e3 * _latency_ms(700, 300), rel=1e-6
    )
    assert recording.seen.sum() == 9
    assert recording.table_error_pct is not None and recording.table_error_pct < 1.0
    assert table.tail_ratio is not None
    assert table.tail_ratio[0].tolist() == pytest.approx([1.0, 1.08, 1.09, 1.098])


def test_jobs_follow_the_recorded_quantiles_and_the_seed(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    jobs = recording.jobs_us[2, 2] / (1e3 * _latency_ms(1000, 300))
    assert jobs.min() >= 0.9 and jobs.max() <= 1.1
    assert np.median(jobs) == pytest.approx(1.0, abs=0.02)
    assert np.array_equal(recording.jobs_us, _recording(tmp_path).jobs_us)


class _Chooser(BasePolicy):
    """Takes the lowest GPU clock that is fast enough, and keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Outcome] = []
        self.views: list[BoardView] = []

    def decide(self, job: Job, view: BoardView) -> Decision:
        self.views.append(view)
        top = view.attainable.cpu_hz[-1]
        for gpu_hz in view.attainable.gpu_hz:
            predicted_us = job.table.latency_at(top, gpu_hz)
            if predicted_us <= job.deadline_us:
                return Decision(OperatingPoint(top, gpu_hz), predicted_us, True, "first fit")
        return Decision(OperatingPoint(top, view.attainable.gpu_hz[-1]), predicted_us, False, "top")

    def observe(self, outcome: Outcome) -> bool:
        self.seen.append(outcome)
        return False


def test_policy_is_driven_as_the_daemon_does(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    policy = _Chooser()
    run = replay_run.drive(policy, recording, 1.01e3 * _latency_ms(2000, 300))
    assert set(run.gpu.tolist()) == {2} and set(run.cpu.tolist()) == {4}
    assert len(policy.seen) == 500 and not any(outcome.mixed for outcome in policy.seen)
    assert policy.seen[7].latency_us == recording.jobs_us[4, 2, 7]
    assert policy.views[1].point == policy.seen[0].point
    assert len({id(view.attainable) for view in policy.views}) == 1


def test_policy_off_the_grid_is_refused(tmp_path: Path) -> None:
    class Off(_Chooser):
        def decide(self, job: Job, view: BoardView) -> Decision:
            return Decision(OperatingPoint(1, 2), 1.0, True, "")

    class Silent(_Chooser):
        def decide(self, job: Job, view: BoardView) -> Decision:
            return Decision(None, 1.0, True, "")

    recording = _recording(tmp_path)
    with pytest.raises(PolicyError, match="not measured"):
        replay_run.drive(Off(), recording, 5e3)
    with pytest.raises(PolicyError, match="leaves the clocks to the board"):
        replay_run.drive(Silent(), recording, 5e3)


def test_oracle_is_the_cheapest_point_that_is_late_on_one_percent(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    deadline_us = 9_000.0
    run = replay_run.oracle(recording, deadline_us)
    chosen = recording.grid.power_w[run.cpu[0], run.gpu[0]]  # type: ignore[index]  # has power
    for c in range(5):
        for g in range(5):
            late = (recording.jobs_us[c, g] > deadline_us).mean()
            assert late > 0.01 or recording.grid.power_w[c, g] >= chosen  # type: ignore[index]


def test_oracle_without_power_takes_gpu_then_cpu_and_else_the_fewest_misses(tmp_path: Path) -> None:
    grid = load_grid(_csv(tmp_path, power=False))
    recording = record(grid, points=(3, 3), jobs=200, seed=0)
    run = replay_run.oracle(recording, 1.2e3 * _latency_ms(2000, 300))
    assert run.gpu[0] == 2
    assert (recording.jobs_us[run.cpu[0] - 1, 2] > 1.2e3 * _latency_ms(2000, 300)).mean() > 0.01
    hopeless = replay_run.oracle(recording, 1.0)
    assert (hopeless.cpu[0], hopeless.gpu[0]) == (4, 4)


def test_figures_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _csv(tmp_path)
    words = ["--grid", str(path), "--policy", "max", "powersave", "--deadlines", "9", "20ms"]
    assert _main(*words, "--json") == 0
    got = json.loads(capsys.readouterr().out)
    assert list(got["policies"]) == ["max", "powersave", "oracle"]
    top = got["policies"]["max"][0]
    assert top["deadline_ms"] == 9.0 and top["miss_pct"] == 0.0 and top["qos_run_pct"] == 100.0
    assert top["mean_cpu_hz"] == 2e9 and top["mean_gpu_hz"] == 6e8
    assert top["mean_power_w"] == pytest.approx(9.0)
    low = got["policies"]["powersave"][1]  # 24 ms against 20 ms
    assert low["miss_pct"] == 100.0
    assert low["qos_run_pct"] == pytest.approx(100 * 20 / 24, rel=0.01)
    assert got["table"]["points"] == 9 and not got["jobs"]["noise_free"]
    assert _main(*words) == 0
    text = capsys.readouterr().out
    assert "late %" in text and "held out" in text


def test_all_points_is_labelled_in_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _main("--grid", str(_csv(tmp_path)), "--policy", "max", "--points", "all", "--json")
    got = json.loads(capsys.readouterr().out)
    assert got["table"]["in_sample"] is True
    assert got["jobs"]["held_out"].startswith("none")
    assert got["policies"]["max"][0]["held_out_jobs_pct"] == 0.0


def test_jobs_of_other_rows_are_all_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["campaign,cpu_mhz,gpu_mhz,latency_ms"]
    lines += [f"{k},1000,{g},{s * 600 / g}" for k, s in (("a", 1), ("b", 1.2)) for g in (100, 200)]
    (tmp_path / "g.csv").write_text("\n".join(lines) + "\n")
    words = ["--grid", str(tmp_path / "g.csv"), "--by", "campaign=a", "--policy", "max"]
    _main(*words, "--jobs-by", "campaign=b", "--deadlines", "3.3", "--json")
    got = json.loads(capsys.readouterr().out)
    assert got["jobs"]["held_out"] == "all" and got["jobs"]["noise_free"]
    assert got["policies"]["max"][0]["miss_pct"] == 100.0  # 3.6 ms, where the table says 3.0
    assert got["policies"]["max"][0]["mean_power_w"] is None


def test_options_of_a_policy_are_read() -> None:
    assert replay.parse_policy("flame") == ("flame", {})
    assert replay.parse_policy("flame:margin=0.1,corrector=raw") == (
        "flame",
        {"margin": 0.1, "corrector": "raw"},
    )
    with pytest.raises(UsageError):
        replay.parse_policy("flame:margin")


def test_deadlines_and_points_are_read(tmp_path: Path) -> None:
    assert replay.parse_deadlines(["12,20ms", "900us"]) == [12e3, 20e3, 900.0]
    grid = load_grid(_csv(tmp_path))
    assert replay.parse_points(None, grid) == (3, 3)
    assert replay.parse_points("4x2", grid) == (4, 2)
    assert replay.parse_points("all", grid) == (5, 5)


@pytest.mark.parametrize(
    "words",
    [
        ["--deadlines", "nan"],
        ["--deadlines", "-3"],
        ["--deadlines", "0"],
        ["--deadlines", "soon"],
        ["--points", "0x3"],
        ["--points", "many"],
        ["--by", "cores"],
        ["--by", "colour=red"],
        ["--jobs", "0"],
        ["--policy", "no-such-policy"],
        ["--traces", "no-such-file.npz"],
        ["--column", "no_such_column"],
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(FlamegovError) as caught:
        _main("--grid", str(_csv(tmp_path)), *words)
    assert "\n" not in str(caught.value)


def _with_traces(tmp_path: Path, cycles: int = 150) -> Grid:
    lines = ["campaign,workload,cpu_mhz,gpu_mhz,emc_mhz,latency_p50_us"]
    lines += [f"one,net,1000,{g},2133,{1e6 / g}" for g in GPU_MHZ]
    (tmp_path / "grid.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "traces").mkdir()
    cells = {
        f"emc2133_gpu{g}_net__latency_us": np.r_[
            np.full(100, 1e6 / g), np.full(cycles - 100, 2e6 / g)
        ]
        for g in GPU_MHZ
    }
    np.savez(tmp_path / "traces" / "cells_one_dev.npz", **cells)
    return load_grid(tmp_path / "grid.csv")


def test_traces_make_the_table_and_later_cycles_the_jobs(tmp_path: Path) -> None:
    grid = _with_traces(tmp_path)
    path = find_traces(grid)
    assert path is not None
    recording = record(grid, points=(1, 5), jobs=1000, seed=0, traces=path)
    assert recording.source == "traces" and not recording.seen.any()
    assert recording.jobs_us.shape == (1, 5, 50)
    assert recording.table.slice_us()[0, 0] == pytest.approx(1e4)
    assert recording.jobs_us[0, 0, 0] == pytest.approx(2e4)
    assert recording.table_error_pct == pytest.approx(50.0)


def test_traces_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    grid = _with_traces(tmp_path, cycles=101)
    path = tmp_path / "traces" / "cells_one_dev.npz"
    np.savez(path, emc2133_gpu100_net__latency_us=np.ones(200))
    assert find_traces(grid) is None
    with pytest.raises(ProfileError, match="every point"):
        record(grid, points=(1, 5), jobs=10, seed=0, traces=path)


@needs_data
@pytest.mark.parametrize(
    ("name", "noise_free", "power"),
    [("tx2_cnn_grid.csv", True, False), ("orin_lab/grid.csv", False, False)],
)
def test_measured_grids(
    name: str, noise_free: bool, power: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main("--grid", str(DATA / name), "--jobs", "100", "--json") == 0
    got = json.loads(capsys.readouterr().out)
    assert got["jobs"]["noise_free"] is noise_free
    assert got["choices"]
    for rows in got["policies"].values():
        assert len(rows) == 6
        assert all((row["mean_power_w"] is not None) is power for row in rows)
    # With every deadline above the fastest point's tail, full speed is never late.
    assert all(row["miss_pct"] <= 1.0 for row in got["policies"]["oracle"])
    flame, top = got["policies"]["flame"], got["policies"]["max"]
    assert np.mean([row["mean_gpu_hz"] for row in flame]) < 0.8 * top[0]["mean_gpu_hz"]
