"""What a hostile tester found, each by its symptom, and what must never happen again."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import zmq

from bench.overhead_rig import DEADLINES_NS, MODEL
from governor.endpoint import UNREAD_ANSWERS
from governor.messages import Begin, Error, Ping, Policy, Reload, Reply, Status

from .daemons import CLI, Running, Wire, wait_for

QUIET = {"stderr": subprocess.DEVNULL}


@pytest.fixture
def running(tmp_path):
    it = Running(tmp_path)
    it.start(**QUIET)
    yield it
    if it.daemon.process is not None:
        assert it.stop() == 0


@pytest.fixture
def many_files():
    """This process holds the other ends of the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8192:
        pytest.skip(f"only {hard} descriptors to be had")
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_do_not_end_the_daemon(tmp_path, many_files):
    it = Running(tmp_path)
    it.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048)), **QUIET)
    with Wire(it.hints) as good:
        assert isinstance(good.open(deadline_ns=10**8), Reply)
        context = zmq.Context()
        context.max_sockets = 3000
        crowd = [context.socket(zmq.DEALER) for _ in range(2500)]
        try:
            for socket in crowd:
                socket.connect(it.hints)
            time.sleep(0.5)
            status = good.ask(Status(v=1, id=1)).body["counters"]
            assert status["connections_opened"] - status["connections_closed"] < 2000
        finally:
            context.destroy(linger=0)

        def let_in() -> bool:
            with Wire(it.hints) as late:
                late.send(Ping(v=1, id=1))
                return bool(late.socket.poll(500))

        wait_for(let_in, timeout_s=10, what="new connections to be let in again")
    assert it.stop() == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.3])
def test_sigterm_during_the_start_is_not_lost(tmp_path, delay_s):
    it = Running(tmp_path)
    process = subprocess.Popen(it.daemon.command, **QUIET)
    state = tmp_path / "state" / "lock"
    wait_for(state.exists, what="the lock")  # the handlers stand before the lock is taken
    time.sleep(delay_s)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


def test_a_storm_of_sighup_does_not_hold_sigterm_back(running):
    for _ in range(3000):
        os.kill(running.daemon.pid, signal.SIGHUP)
    start = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - start < 4


def test_two_daemons_with_different_state_folders_do_not_share_a_board(running, tmp_path):
    text = running.config.read_text()
    for old in ("/state", "/hints.sock", "/admin.sock"):
        text = text.replace(f"{tmp_path}{old}", f"{tmp_path}{old}2")
    other = tmp_path / "other.toml"
    other.write_text(text)
    out = running.cli("run", "--config", str(other))
    assert out.returncode == 5 and "another daemon runs" in out.stderr
    assert "state_dir" not in out.stderr.partition("; ")[2]


def test_clients_that_never_read_cost_little_and_are_counted(running):
    with Wire(running.hints) as good:
        good.open(deadline_ns=10**8)
        before = running.daemon.rss_mib()
        deaf = [Wire(running.hints) for _ in range(12)]
        for wire in deaf:
            wire.socket.setsockopt(zmq.RCVHWM, 1)
            for number in range(400):
                wire.send(Status(v=1, id=number, detail=True))
        wait_for(
            lambda: good.ask(Status(v=1, id=1)).body["counters"]["status"] >= 4_800,
            timeout_s=60,
            what="all requests",
        )
        counters = good.ask(Status(v=1, id=1)).body["counters"]
        assert counters["answers_dropped"] > 0
        assert running.daemon.rss_mib() - before < 20 + 12 * UNREAD_ANSWERS * 0.02
        for wire in deaf:
            wire.socket.close()


ZOMBIE = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-c", '''
import os, sys
from governor.client import connect
session = connect(sys.argv[1], strict=True).session("probe", deadline="14ms", name="zombie")
session.begin(ack=True)
os._exit(1)
''', sys.argv[1]])
sys.stdin.read()
"""


def test_a_killed_client_that_nobody_waits_for_is_dead_too(running):
    parent = subprocess.Popen(
        [sys.executable, "-I", "-c", ZOMBIE, running.hints], stdin=subprocess.PIPE
    )
    with Wire(running.hints) as wire:

        def names() -> list[str]:
            return [s["name"] for s in wire.ask(Status(v=1, id=1, detail=True)).body["sessions"]]

        wait_for(
            lambda: wire.ask(Status(v=1, id=1)).body["counters"].get("begin", 0) > 0,
            timeout_s=10,
            what="the client",
        )
        wait_for(lambda: "zombie" not in names(), timeout_s=3, what="its session to end")
    parent.communicate()


def test_one_process_cannot_take_all_sessions(running):
    wires = [Wire(running.hints) for _ in range(20)]
    answers = [wire.open() for wire in wires]
    assert sum(isinstance(answer, Reply) for answer in answers) == 16
    assert all("per process" in a.reason for a in answers if isinstance(a, Error))
    for wire in wires:
        wire.socket.close()


@pytest.mark.parametrize("name", ["a\nlevel=error all is lost", "\x1b[2J", "tab\there"])
def test_names_cannot_forge_log_lines_or_drive_terminals(running, name):
    with Wire(running.hints) as wire:
        answer = wire.open(name=name)
        assert isinstance(answer, Error) and answer.code == "bad-field"
        assert answer.field == "$.name"


def test_a_fault_of_ours_in_one_request_is_answered_and_the_daemon_lives(tmp_path):
    it = Running(tmp_path)
    code = (
        "import sys; from governor import report; "
        "report.status = lambda *a, **k: 1 / 0; "
        "from governor.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    it.daemon.command = [sys.executable, "-I", "-c", code, *it.daemon.command[4:]]
    it.start(**QUIET)
    with Wire(it.hints) as wire:
        answer = wire.ask(Status(v=1, id=5))
        assert answer.code == "internal" and answer.id == 5
        assert isinstance(wire.open(deadline_ns=10**8), Reply)
    assert it.stop() == 0


def test_a_storm_of_policy_swaps_under_jobs(running):
    with Wire(running.hints) as wire, Wire(running.admin) as root:
        wire.open(deadline_ns=DEADLINES_NS[0])
        for number in range(60):
            now = time.monotonic_ns()
            wire.send(Begin(v=1, session=1, job=number, start_ns=now, deadline_ns=10**8))
            name = ("flame", "max", "powersave", "fixed")[number % 4]
            assert isinstance(root.ask(Policy(v=1, id=1, action="set", name=name)), Reply)
            if number % 10 == 0:
                assert isinstance(root.ask(Reload(v=1, id=1)), Reply)
        assert wire.ask(Status(v=1, id=1)).body["counters"]["policy_errors"] == 0


def test_a_read_only_board_is_refused_with_the_way_out(tmp_path):
    it = Running(tmp_path)
    mount = ["unshare", "-m", "sh", "-c"]
    script = (
        f"mount --bind {it.board} {it.board} && mount -o remount,ro,bind {it.board} && "
        f"exec {' '.join(CLI)} run --config {it.config}"
    )
    out = subprocess.run([*mount, script], capture_output=True, text=True, check=False, timeout=20)
    if "unshare" in out.stderr or "mount:" in out.stderr:
        pytest.skip("no mount namespace here")
    assert out.returncode == 4
    assert "--dry-run" in out.stderr and out.stderr.count("\n") == 1


def test_a_client_of_another_model_is_refused_while_others_go_on(running):
    with Wire(running.hints) as wire:
        assert isinstance(wire.open(model="none"), Error)
        assert isinstance(wire.open(model=MODEL), Reply)


def test_one_read_only_clock_shows_in_status_and_the_others_are_governed(tmp_path):
    it = Running(tmp_path)
    gpu = it.board / "sys/devices/platform/17000000.gpu"
    script = (
        f"mount --bind {gpu} {gpu} && mount -o remount,ro,bind {gpu} && "
        f"exec {' '.join(it.daemon.command)}"
    )
    mount = ["unshare", "-m", "sh", "-c"]
    if subprocess.run([*mount, f"mount --bind {gpu} {gpu}"], check=False, **QUIET).returncode:
        pytest.skip("no mount namespace here")
    before = it.tree()
    it.daemon.command = [*mount, script]
    it.start(**QUIET)
    with Wire(it.hints) as wire:
        wanted = wire.open(deadline_ns=DEADLINES_NS[0]).body

        def status() -> dict:
            return wire.ask(Status(v=1, id=1, detail=True)).body

        wait_for(lambda: status()["point"]["cpu_hz"] == wanted["cpu_hz"], what="the CPU clock")
        wait_for(lambda: any("EROFS" in line for line in status()["errors"]), what="the error")
        failed = [writer["node"] for writer in status()["writers"] if writer["error"]]
        assert failed == ["gpu"]
    assert it.stop() == 0
    assert it.tree() == before
