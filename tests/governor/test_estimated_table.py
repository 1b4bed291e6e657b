"""From a profile of the simulated board to a daemon that decides on the estimated table."""

import subprocess

import numpy as np

from bench.plant.board import load_board
from bench.plant.engine import Engine
from bench.plant.workload import get_workload
from estimators.table import LatencyTable
from governor.messages import Begin, Reply

from .daemons import Running, Wire


def test_the_daemon_runs_on_a_table_estimated_from_a_profile(tmp_path):
    it = Running(tmp_path)
    profile, table = tmp_path / "resnet50.json.gz", tmp_path / "tables" / "resnet50.npz"
    out = it.cli("bench", "profile", "resnet50", "-o", str(profile), timeout=120)
    assert out.returncode == 0, out.stderr
    out = it.cli("estimate", str(profile), "-o", str(table), timeout=120)
    assert out.returncode == 0, out.stderr
    board = load_board("agx-orin")
    truth = Engine(board, get_workload("resnet50")).truth_us(
        board.cpu_hz, board.gpu_hz, board.emc_hz[-1], [0]
    )
    estimated = LatencyTable.load(table)
    error = np.abs(estimated.slice_us(board.emc_hz[-1], 0) / truth[0] - 1)
    assert error.mean() < 0.01
    it.start(stderr=subprocess.DEVNULL)
    with Wire(it.hints) as wire:
        assert isinstance(wire.open(model="resnet50", deadline_ns=20_000_000), Reply)
        begin = Begin(v=1, id=3, session=1, job=1, start_ns=1, deadline_ns=14_000_000, ack=True)
        answer = wire.ask(begin).body
    assert it.stop() == 0
    assert answer["feasible"] and answer["predicted_us"] * 1.05 <= 14_000
    cpu, gpu = board.cpu_hz.index(answer["cpu_hz"]), board.gpu_hz.index(answer["gpu_hz"])
    assert truth[0, cpu, gpu] <= 14_000


def test_a_session_finds_the_table_of_a_prefill(tmp_path):
    it = Running(tmp_path)
    profile, table = tmp_path / "p.json.gz", tmp_path / "tables" / "prefill.npz"
    out = it.cli("bench", "profile", "gpt2-large:prefill", "-o", str(profile), timeout=120)
    assert out.returncode == 0, out.stderr
    out = it.cli("estimate", str(profile), "-o", str(table), timeout=120)
    assert out.returncode == 0, out.stderr
    it.start(stderr=subprocess.DEVNULL)
    with Wire(it.hints) as wire:
        answer = wire.open(
            model="gpt2-large", phase="prefill", context=512, deadline_ns=1_000_000_000
        )
    assert it.stop() == 0
    assert isinstance(answer, Reply) and answer.body["feasible"]
