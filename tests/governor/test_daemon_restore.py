"""However the daemon ends, the board is as it was, except for what others changed meanwhile."""

import itertools
import random
import signal
import subprocess
import time

import pytest

from bench.overhead_rig import DEADLINES_NS
from governor.messages import Begin, End, Reply

from .daemons import Running, Wire, wait_for

KILLS = 50
QUIET = {"stderr": subprocess.DEVNULL}


def drive(it: Running, seconds: float) -> None:
    """Keep the clocks moving for a while."""
    with Wire(it.hints) as wire:
        assert isinstance(wire.open(), Reply)
        stop = time.monotonic() + seconds
        for job in itertools.count():
            if time.monotonic() > stop:
                return
            now = time.monotonic_ns()
            deadline = DEADLINES_NS[job % 2]
            wire.send(Begin(v=1, session=1, job=job, start_ns=now, deadline_ns=deadline))
            time.sleep(0.003)
            wire.send(End(v=1, session=1, job=job, start_ns=now, end_ns=now + 10**6))


def held(it: Running) -> bool:
    path = it.board / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    return path.read_text().strip() == "userspace"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path, number):
    it = Running(tmp_path)
    before = it.tree()
    it.start(**QUIET)
    drive(it, 0.3)
    assert held(it)
    assert it.stop(number) == 0
    assert it.tree() == before
    assert list((tmp_path / "state").glob("*.journal")) == []


def test_restore_on_exit_can_be_turned_off_and_restore_still_works(tmp_path):
    it = Running(tmp_path)
    before = it.tree()
    it.config.write_text("restore_on_exit = false\n" + it.config.read_text())
    it.start(**QUIET)
    drive(it, 0.2)
    assert it.stop() == 0
    assert held(it)
    out = it.cli("restore", "--config", str(it.config))
    assert out.returncode == 0 and "scaling_governor" in out.stdout
    assert it.tree() == before
    assert "nothing to restore" in it.cli("restore", "--config", str(it.config)).stdout


def test_restore_is_refused_while_a_daemon_runs(tmp_path):
    it = Running(tmp_path)
    it.start(**QUIET)
    out = it.cli("restore", "--config", str(it.config))
    assert out.returncode == 5 and "another daemon runs" in out.stderr
    assert it.stop() == 0


def test_restore_verb_after_sigkill(tmp_path):
    it = Running(tmp_path)
    before = it.tree()
    it.start(**QUIET)
    drive(it, 0.2)
    assert it.stop(signal.SIGKILL) == -signal.SIGKILL
    assert held(it)
    assert it.cli("restore", "--config", str(it.config)).returncode == 0
    assert it.tree() == before


def test_restore_after_a_kill_finds_the_board_that_run_was_given_as_root(tmp_path):
    it = Running(tmp_path)
    before = it.tree()
    root = it.config.read_text()
    line = next(line for line in root.splitlines() if line.startswith("root ="))
    it.start(**QUIET)
    drive(it, 0.2)
    assert it.stop(signal.SIGKILL) == -signal.SIGKILL
    it.config.write_text(root.replace(line, f'root = "{tmp_path}/another"'))
    out = it.cli("restore", "--config", str(it.config))
    assert out.returncode == 4
    assert out.stdout.splitlines()[-1].endswith(f"flamegov restore --root {it.board}")
    assert "nothing to restore" not in out.stdout
    assert held(it)
    out = it.cli("restore", "--config", str(it.config), "--root", str(it.board))
    assert out.returncode == 0 and "scaling_governor" in out.stdout
    assert it.tree() == before
    out = it.cli("restore", "--config", str(it.config))
    assert out.returncode == 0 and "nothing to restore" in out.stdout


def test_the_board_is_given_back_when_nobody_asks_any_more(tmp_path):
    it = Running(tmp_path, more="[idle]\nafter_ms = 200\n")
    before = it.tree()
    it.start(**QUIET)
    drive(it, 0.2)
    wait_for(lambda: it.tree() == before, what="the release")
    assert it.stop() == 0


OTHERS = (
    ("sys/devices/system/cpu/cpufreq/policy4/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1497600"),
    ("sys/devices/platform/17000000.gpu/devfreq/17000000.gpu/max_freq", "612000000"),
)
"""What another writer might set while the daemon is down: it stays."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_sigkill_and_sigterm_at_random_moments(tmp_path):
    """Kill, start again, compare the whole tree; in every third round another writer steps in."""
    rng = random.Random(20)
    it = Running(tmp_path)
    before = it.tree()
    seen_held = 0
    it.start(**QUIET)
    for round_number in range(KILLS):
        number = signal.SIGKILL if round_number % 5 else signal.SIGTERM
        drive(it, rng.uniform(0.0, 0.12))
        time.sleep(rng.uniform(0.0, 0.01))
        it.stop(number)
        seen_held += held(it)
        expected = dict(before)
        if round_number % 3 == 2 and number == signal.SIGKILL:
            path, value = OTHERS[round_number % len(OTHERS)]
            (it.board / path).write_text(f"{value}\n")
            expected[path] = f"{value}\n"
        it.start(**QUIET)
        now = it.tree()
        changed = {path for path in now if now[path] != expected[path]}
        assert changed == set(), f"round {round_number}, signal {number}"
        for path, value in expected.items():
            if value != before[path]:
                (it.board / path).write_text(before[path])
    assert it.stop() == 0
    assert it.tree() == before
    # The test would prove nothing if it never met a held board.
    assert seen_held > KILLS // 3
