"""The demo: its application against fakes, its arithmetic by hand, and once for real."""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench import demo, demo_app
from bench.demo_plan import (
    Farewell,
    JobRecord,
    PowerSample,
    Record,
    RunRecord,
    Step,
    StepRecord,
    paper_steps,
)
from bench.demo_score import Bars, figures, mean_power_w, sections, summary_rows
from bench.demo_table import CPU_LEVELS, GPU_LEVELS, measure_table
from bench.oracle import Best, Oracle
from bench.plant.board import load_board
from bench.plant.engine import Engine
from bench.plant.livewire import Energy, Ran, State
from bench.plant.power import PowerModel
from bench.plant.types import Clocks
from bench.plant.workload import get_workload
from bench.pretty import live_line, table_text
from bench.qos import MISS_BUDGET
from estimators.errors import FlamegovError, PolicyError
from governor.client import connect
from governor.errors import UsageError
from governor.messages import Begin, End, Open, Status, Update
from governor.testing import MockTransport

BOARD = load_board("agx-orin")
TOP = Clocks(BOARD.cpu_hz[-1], BOARD.gpu_hz[-1], BOARD.emc_hz[-1])


# ---- plan and table ---------------------------------------------------------------------------


def test_plan_is_that_of_the_paper() -> None:
    images = [s for s in paper_steps() if s.model == "resnet50"]
    tokens = [s for s in paper_steps() if s.model == "gpt2-large"]
    assert [s.deadline_us for s in images] == [20_000, 18_000, 16_000, 14_000, 12_000]
    assert all(s.jobs == 100 for s in images)
    assert [s.deadline_us for s in tokens] == [200_000, 180_000, 160_000, 140_000, 120_000]
    for before, after in zip(tokens, tokens[1:], strict=False):
        assert before.context_of(before.jobs) == after.context_of(0)


def test_table_is_measured_at_few_points_and_near_the_truth() -> None:
    engine = Engine(BOARD, get_workload("resnet50"), seed=3)
    asked: set[Clocks] = set()
    run = engine.run

    def counting(clocks: Clocks, *, context: int = 0, n: int = 1) -> np.ndarray:
        asked.add(clocks)
        return run(clocks, context=context, n=n)

    engine.run = counting  # type: ignore[method-assign]  # to see what is measured
    engine.truth_us = None  # type: ignore[assignment,method-assign]  # must not be asked
    table = measure_table(engine, emc_hz=TOP.emc_hz)
    assert len(asked) == CPU_LEVELS * GPU_LEVELS == 24
    truth = Engine(BOARD, get_workload("resnet50")).truth_us(BOARD.cpu_hz, BOARD.gpu_hz, TOP.emc_hz)
    error = np.abs(table.slice_us(TOP.emc_hz) / truth[0] - 1)
    assert error.mean() < 0.04
    assert table.header.model == "resnet50" and table.shape == (1, 1, 29, 11)


# ---- oracle -----------------------------------------------------------------------------------


def _oracle() -> Oracle:
    engine = Engine(BOARD, get_workload("resnet50"))
    clocks = {"cpu_hz": BOARD.cpu_hz[::4], "gpu_hz": BOARD.gpu_hz[::2]}
    return Oracle(engine, PowerModel(BOARD), **clocks, emc_hz=TOP.emc_hz, temp_c=45.0, seed=5)


def test_oracle_is_the_cheapest_of_those_that_keep_the_budget() -> None:
    oracle = _oracle()
    deadline_us = 16_000.0
    best = oracle.best(deadline_us)
    power = oracle.power_mw(deadline_us)
    assert best.feasible
    cheaper = np.argwhere(power < best.power_mw)
    assert len(cheaper)
    # Far from the boundary a second sample must agree; 0.6 % is two sigma of the sample.
    assert all(oracle.late_share(c, g, deadline_us) > MISS_BUDGET - 0.006 for c, g in cheaper)


def test_oracle_answers_do_not_depend_on_what_was_asked_before() -> None:
    fresh, used = _oracle(), _oracle()
    for deadline_us in (30_000.0, 12_000.0, 22_000.0):
        used.best(deadline_us)
    assert used.best(16_000.0) == fresh.best(16_000.0)
    assert [used.late_share(c, 3, 16_000.0) for c in range(8)] == [
        fresh.late_share(c, 3, 16_000.0) for c in range(8)
    ]


def test_oracle_by_mean_latency_is_never_dearer() -> None:
    oracle = _oracle()
    for deadline_us in (9_000.0, 12_000.0, 20_000.0):
        assert oracle.best(deadline_us, basis="mean").power_mw <= oracle.best(deadline_us).power_mw


def test_oracle_without_a_point_takes_the_fastest() -> None:
    best = _oracle().best(10.0)
    assert not best.feasible
    assert (best.cpu_hz, best.gpu_hz) == (BOARD.cpu_hz[::4][-1], BOARD.gpu_hz[::2][-1])


def test_power_of_a_period_includes_idle_time() -> None:
    oracle = _oracle()
    short, long = oracle.power_mw(20_000.0), oracle.power_mw(200_000.0)
    assert (long < short).all()
    idle = PowerModel(BOARD).mean_power_mw(Clocks(BOARD.cpu_hz[0], BOARD.gpu_hz[0], TOP.emc_hz))
    assert long[0, 0] > idle


# ---- figures ----------------------------------------------------------------------------------

STEPS = [Step("net", "inference", 10_000, 2), Step("net", "inference", 5_000, 2)]
BARS = Bars(
    [Best(1, 2, 4_000.0, True), Best(1, 2, 10_000.0, True)],
    [Best(1, 1, 3_000.0, True), Best(1, 1, 9_000.0, True)],
)


def _run(policy: str = "flame") -> RunRecord:
    latencies = [(0, 8_000.0), (0, 12_000.0), (1, 5_000.0), (1, 4_000.0)]
    jobs = [
        JobRecord(step, int(i * 1e7), us, 10**9, 5 * 10**8)
        for i, (step, us) in enumerate(latencies)
    ]
    steps = [StepRecord(0, 0, 20_000_000, 120.0, 50.0), StepRecord(1, 0, 10_000_000, 120.0, 50.0)]
    return RunRecord(policy, jobs, steps, [PowerSample(0, 5_000_000, 6.0)])


def test_figures_by_hand() -> None:
    got = figures(_run(), STEPS, BARS)
    assert got["miss_pct"] == 25.0 and got["late_jobs"] == 1 and got["jobs"] == 4
    assert got["qos_run_pct"] == pytest.approx(100.0)  # 29 ms of work in 30 ms
    assert got["qos_job_pct"] == pytest.approx(100 * (3 + 10 / 12) / 4)
    assert got["mean_power_w"] == pytest.approx(0.24 / 0.03)
    # 20 ms at 4 W and 10 ms at 10 W
    assert mean_power_w(_run(), BARS.tail) == pytest.approx(6.0)
    assert got["power_vs_oracle"] == pytest.approx(8 / 6)
    assert got["power_vs_mean_latency_oracle"] == pytest.approx(8 / 5)
    assert got["ppw"] == pytest.approx(100 / 8)
    assert got["seconds"] == pytest.approx(got["required_seconds"]) == pytest.approx(0.03)


def test_report_holds_both_policies_and_every_step() -> None:
    runs = [_run("flame"), _run("max")]
    results = {run.policy: figures(run, STEPS, BARS) for run in runs}
    summary, net = sections(runs, STEPS, [BARS, BARS], results)
    assert [row[0] for row in summary_rows(results)] == ["flame", "max"]
    figure, table = net.parts
    assert "<svg" in figure[0] and "required" in figure[0] and "oracle" in figure[0]
    assert len(table.rows) == 4  # type: ignore[union-attr]  # it is the table
    assert "late %" in summary.parts[1].headings  # type: ignore[union-attr]


def test_table_for_people_writes_a_missing_figure_as_a_dash() -> None:
    text = table_text(["policy", "W"], [["flame", 1.234], ["max", None]])
    assert text.splitlines() == ["policy     W", "------  ----", "flame   1.23", "max        -"]


def test_live_line_is_plain_and_rare_in_a_log(tmp_path: Path) -> None:
    now = [0.0]
    with (tmp_path / "log").open("w") as stream, live_line(lambda: now[0], stream) as show:
        for i in range(50):
            now[0] = i / 10
            show(f"line {i}")
    assert (tmp_path / "log").read_text().splitlines() == ["line 0", "line 20", "line 40"]


# ---- application ------------------------------------------------------------------------------


class _FakeBoard:
    """A board whose jobs take a fixed time and that draws 2 W."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self.asked: list[tuple[str, int]] = []

    def run(self, workload: str, *, context: int = 0) -> Ran:
        self.asked.append((workload, context))
        start_ns = time.monotonic_ns()
        time.sleep(self._latency_s)
        end_ns = time.monotonic_ns()
        return Ran(start_ns, end_ns, (end_ns - start_ns) / 1e3, (1, 2, 3), (4, 5, 6), False)

    def energy(self) -> Energy:
        now_ns = time.monotonic_ns()
        return Energy(now_ns, {}, now_ns * 2e-6, 0, {}, 0.0)

    def state(self) -> State:
        return State(0, 1, 2, 3, {}, "", "", {}, 0.0, {"cpu": 40_000, "gpu": 55_500}, 0)


def _play(steps: list[Step], latency_s: float = 0.0005) -> tuple[list[Record], MockTransport]:
    records: list[Record] = []
    mock = MockTransport()
    with connect(transport=mock) as gov:
        demo_app.play(steps, gov, _FakeBoard(latency_s), records.append)
    return records, mock


def test_application_announces_the_next_deadline_after_the_last_job_of_a_step() -> None:
    steps = [Step("a", "inference", 4_000, 3), Step("a", "inference", 3_000, 2)]
    _, mock = _play(steps)
    kinds = [type(r).__name__ for r in mock.sent if isinstance(r, Begin | End | Update | Open)]
    assert kinds == ["Open", *["Begin", "End"] * 3, "Update", *["Begin", "End"] * 2]
    (update,) = mock.of(Update)
    assert update.deadline_ns == 3_000_000


def test_jobs_are_released_once_per_deadline_and_energy_is_that_of_the_time() -> None:
    records, _ = _play([Step("a", "inference", 5_000, 4)])
    jobs = [r for r in records if isinstance(r, JobRecord)]
    (step,) = [r for r in records if isinstance(r, StepRecord)]
    gaps_us = np.diff([job.start_ns for job in jobs]) / 1e3
    assert np.median(gaps_us) == pytest.approx(5_000, rel=0.3)
    seconds = (step.end_ns - step.start_ns) / 1e9
    assert seconds >= 0.0199
    assert step.energy_mj == pytest.approx(2_000 * seconds)
    assert step.temp_c == 55.5
    assert (jobs[0].cpu_hz, jobs[0].gpu_hz) == (4, 5)


def test_after_a_job_that_overran_the_next_starts_at_once() -> None:
    records, _ = _play([Step("a", "inference", 2_000, 4)], latency_s=0.006)
    jobs = [r for r in records if isinstance(r, JobRecord)]
    assert all(job.latency_us > 2_000 for job in jobs)
    idle_us = [
        (b.start_ns - a.start_ns) / 1e3 - a.latency_us for a, b in zip(jobs, jobs[1:], strict=False)
    ]
    assert min(idle_us) >= 0 and np.median(idle_us) < 1_500


def test_demo_waits_until_the_daemon_is_in_control(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [(1, 2), (1, 2), (3, 4)]

    def answer(request: object) -> dict[str, object] | None:
        if not isinstance(request, Status):
            return {}
        cpu, gpu = points.pop(0)
        wanted = {"wanted_cpu_hz": 3, "wanted_gpu_hz": 4}
        return {"point": {**wanted, "cpu_hz": cpu, "gpu_hz": gpu}}

    with connect(transport=MockTransport(answer)) as gov:
        demo_app.settle(gov)
        assert points == []
        points += [(1, 2)] * 100
        monkeypatch.setattr(demo_app, "SETTLE_S", 0.05)
        with pytest.raises(TimeoutError, match="did not reach"):
            demo_app.settle(gov)


def test_context_grows_by_a_token_and_each_model_has_its_session() -> None:
    steps = [Step("a", "inference", 2_000, 1), Step("b", "decode", 2_000, 3, context=10)]
    _, mock = _play(steps)
    assert [(r.model, r.phase) for r in mock.of(Open)] == [("a", "inference"), ("b", "decode")]
    assert [r.context for r in mock.of(Begin)][1:] == [10, 11, 12]


# ---- the whole --------------------------------------------------------------------------------


def _main(*words: str) -> int:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return demo.run(parser.parse_args(words))


def test_demo_for_real_in_three_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        Step("resnet50", "inference", 25_000, 12),
        Step("resnet50", "inference", 15_000, 12),
        Step("gpt2-large", "decode", 200_000, 2, context=64),
    ]
    monkeypatch.setattr(demo, "paper_steps", lambda: steps)
    report = tmp_path / "report.html"
    assert _main("--json", "--report", str(report)) == 0
    got = json.loads(capsys.readouterr().out)
    flame, top = got["policies"]["flame"], got["policies"]["max"]
    for figures_ in (flame, top):
        assert figures_["jobs"] == 26 and figures_["messages_dropped"] == 0
        assert figures_["qos_run_pct"] == 100.0
        # No job is released early; on a busy machine some come later.
        assert figures_["seconds"] > 0.99 * figures_["required_seconds"]
    assert flame["mean_power_w"] < 0.8 * top["mean_power_w"]
    assert top["miss_pct"] == 0.0
    # Nobody who keeps the deadlines draws less than the oracle, but for noise and a late job.
    assert 0.95 < flame["power_vs_oracle"] < top["power_vs_oracle"]
    assert "resnet50" in report.read_text() and got["report"] == str(report)


def test_demo_that_is_terminated_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-m", "governor.cli", "demo"]
    command += ["--report", str(tmp_path / "report.html")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"TMPDIR": str(tmp_path)}
    ) as process:
        assert process.stderr is not None
        assert b"resnet50" in process.stderr.readline()  # board, daemon and application run
        listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        children = listing.read_text().split()
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert len(children) == 3
    assert not any(Path("/proc", child).exists() for child in children)
    assert list(tmp_path.iterdir()) == []


def test_daemon_that_cannot_start_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    with (
        pytest.raises(FlamegovError, match="does not start") as caught,
        demo.daemon(tmp_path, tmp_path / "no-board", tmp_path / "tables", "flame"),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_farewell_carries_the_count_of_lost_messages() -> None:
    import msgspec

    raw = msgspec.json.encode(Farewell(3))
    assert msgspec.json.decode(raw, type=Record) == Farewell(3)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--policies", ","], UsageError),
        (["--policies", "flame,nonsense"], PolicyError),
        (["--seed", "-1"], UsageError),
        (["--report", "/dev/null/report.html"], FlamegovError),
    ],
)
def test_bad_options_are_told_before_anything_starts(
    words: list[str], kind: type[FlamegovError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "play", lambda *_: pytest.fail("started"))
    with pytest.raises(kind) as caught:
        _main(*words)
    assert "\n" not in str(caught.value)
