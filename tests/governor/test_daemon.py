"""The daemon as applications and operators meet it: a process, two sockets, a tree of files."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bench.overhead_rig import DEADLINES_NS, MODEL
from governor.client import connect
from governor.messages import (
    Begin,
    Close,
    End,
    Error,
    Open,
    Pause,
    Ping,
    Policy,
    Query,
    Reload,
    Reply,
    Resume,
    Status,
    Update,
)

from .daemons import CLI, Running, Wire, first_line, wait_for

NOW = time.monotonic_ns
QUIET = {"stderr": subprocess.DEVNULL}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    # Connections of earlier tests leave their sessions behind; the lease clears them away.
    it = Running(tmp_path_factory.mktemp("daemon"), more="lease_ms = 3000\n")
    it.start(**QUIET)
    yield it
    assert it.stop() == 0


@pytest.fixture
def wire(running):
    with Wire(running.hints) as it:
        yield it


@pytest.fixture(autouse=True)
def serves_the_others(request):
    """After every test on the shared daemon, it must still serve a well-behaved client."""
    yield
    if "running" in request.fixturenames:
        with Wire(request.getfixturevalue("running").hints) as other:
            assert isinstance(other.open(), Reply)
            now = NOW()
            begin = Begin(v=1, id=7, session=1, job=1, start_ns=now, deadline_ns=10**8, ack=True)
            assert isinstance(other.ask(begin), Reply)


def code(answer) -> str:
    assert isinstance(answer, Error), answer
    assert "\n" not in answer.reason and answer.reason
    return answer.code


def begin(job=1, session=1, **more):
    more.setdefault("start_ns", NOW())
    return Begin(v=1, id=9, session=session, job=job, ack=True, **more)


# ---- what it is for ------------------------------------------------------------------------


def test_a_job_sets_the_clocks_of_the_board(running, wire):
    wire.open(deadline_ns=DEADLINES_NS[1])
    low = wire.ask(begin(1)).body
    wire.ask(End(v=1, id=1, session=1, job=1, start_ns=1, end_ns=2, ack=True))
    high = wire.ask(begin(2, deadline_ns=DEADLINES_NS[0])).body
    assert high["cpu_hz"] > low["cpu_hz"] or high["gpu_hz"] > low["gpu_hz"]
    policy = running.board / "sys/devices/system/cpu/cpufreq"
    for cluster in ("policy0", "policy4", "policy8"):
        path = policy / cluster / "scaling_setspeed"
        khz = str(high["cpu_hz"] // 1000)
        wait_for(lambda p=path, khz=khz: first_line(p) == khz, what="CPU clock")
    gpu = running.board / "sys/class/devfreq/17000000.gpu/min_freq"
    wait_for(lambda: int(first_line(gpu)) == high["gpu_hz"], what="GPU clock")


def test_status_tells_what_is_wanted_and_in_force(running, wire):
    wire.open(deadline_ns=10**8, name="camera")
    body = wire.ask(Status(v=1, id=3, detail=True)).body
    assert body["policy"] == "flame"
    mine = next(s for s in body["sessions"] if s["name"] == "camera")
    assert mine["peer"].endswith(f":{os.getpid()}")
    assert mine["peer"].split(":")[0] == str(os.getuid())
    out = running.cli("status", "--address", running.hints)
    assert out.returncode == 0 and "camera" in out.stdout


def test_query_tells_latency_and_slack_and_changes_nothing(wire):
    wire.open(deadline_ns=10**8)
    before = wire.ask(Status(v=1, id=1)).body
    body = wire.ask(Query(v=1, id=2, model=MODEL, deadline_ns=20_000_000, context=100)).body
    points = body["points"]
    assert points["fastest"]["slack_us"] >= points["chosen"]["slack_us"] >= 0
    assert points["fastest"]["latency_us"] <= points["chosen"]["latency_us"]
    after = wire.ask(Status(v=1, id=3)).body
    assert before["point"] == after["point"]
    assert before["counters"]["changes"] == after["counters"]["changes"]


def test_the_client_library_works_against_it(running):
    with connect(running.hints, strict=True) as gov, gov.session(MODEL, deadline="40ms") as s:
        for _ in range(5):
            with s.job():
                pass
        assert gov.ping()
        names = gov.status(detail=True)["sessions"]
    assert any(entry["jobs"] == 5 for entry in names)


# ---- bad input -----------------------------------------------------------------------------


def test_unknown_model(wire):
    answer = wire.open(model="prob")
    assert code(answer) == "unknown-model" and "did you mean 'probe'?" in answer.reason
    answer = wire.open(model="probe", phase="decode")
    assert "known: probe (inference); a table that was added later" in answer.reason


@pytest.mark.parametrize("deadline", [0, -5, float("nan"), 2**62, "20ms", None])
def test_wrong_deadlines(wire, deadline):
    import msgpack

    wire.open()
    message = {
        "v": 1,
        "op": "begin",
        "id": 4,
        "session": 1,
        "job": 1,
        "start_ns": NOW(),
        "ack": True,
    }
    wire.send(msgpack.packb(message | {"deadline_ns": deadline}))
    answer = wire.receive()
    assert code(answer) == "bad-field" and "deadline_ns" in answer.field


def test_a_deadline_in_the_past(wire):
    wire.open()
    now = NOW()
    assert code(wire.ask(begin(start_ns=now - 10**9, deadline_at_ns=now - 1))) == "late"


def test_end_without_begin(wire):
    wire.open(deadline_ns=10**8)
    answer = wire.ask(End(v=1, id=1, session=1, job=3, start_ns=1, end_ns=2, ack=True))
    assert code(answer) == "order"


def test_end_before_its_start(wire):
    import msgpack

    wire.open(deadline_ns=10**8)
    wire.send(
        msgpack.packb(
            {"v": 1, "op": "end", "id": 1, "session": 1, "job": 3, "start_ns": 9, "end_ns": 2}
        )
    )
    assert code(wire.receive()) == "bad-field"


def test_duplicate_session(wire):
    wire.open()
    assert code(wire.open()) == "duplicate-session"


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\xc1" * 50, b"\xff" * 4000, b"{}", os.urandom(300), b"\x81" * 2000]
)
def test_garbage_bytes(wire, raw):
    wire.send(raw)
    assert code(wire.receive()) in {"malformed", "bad-field"}


def test_a_newer_protocol_version(wire):
    import msgpack

    wire.send(msgpack.packb({"v": 2, "op": "ping", "id": 5}))
    answer = wire.receive()
    assert code(answer) == "version" and answer.id == 5


def test_many_frames_are_counted_and_dropped(running, wire):
    wire.socket.send_multipart([b"a", b"b", b"c"])
    assert isinstance(wire.ask(Ping(v=1, id=1)), Reply)
    assert wire.ask(Status(v=1, id=1)).body["counters"]["bad_frames"] >= 1


def test_a_10_mb_message_ends_its_connection_only(running):
    with Wire(running.hints) as bad, Wire(running.hints) as good:
        good.open(deadline_ns=10**8)
        before = good.ask(Status(v=1, id=1)).body["counters"].get("connections_closed", 0)
        bad.open()
        bad.send(b"x" * 10_000_000)
        wait_for(
            lambda: (
                good.ask(Status(v=1, id=1)).body["counters"].get("connections_closed", 0) > before
            ),
            what="the connection to be closed",
        )
        assert isinstance(good.ask(begin()), Reply)


def test_sessions_beyond_the_limits(running, wire):
    answers = [wire.open(session=n) for n in range(17)]
    assert [isinstance(a, Reply) for a in answers] == [True] * 16 + [False]
    assert code(answers[-1]) == "limit"


def test_10000_sessions(running):
    refused, opened = 0, []
    wires = [Wire(running.hints) for _ in range(100)]
    try:
        for n in range(100):
            for wire in wires:
                wire.send(Open(v=1, id=1, session=n, model=MODEL))
            for wire in wires:
                answer = wire.receive()
                if isinstance(answer, Reply):
                    opened.append((wire, n))
                else:
                    refused += code(answer) == "limit"
        assert len(opened) + refused == 10_000
        assert len(opened) <= 64
        for wire, n in opened:
            assert isinstance(wire.ask(Close(v=1, id=1, session=n, ack=True)), Reply)
    finally:
        for wire in wires:
            wire.socket.close()


def test_admin_operations_are_denied_on_the_hints_socket(wire):
    for message in (
        Pause(v=1, id=1),
        Policy(v=1, id=1, action="set", name="max"),
        Reload(v=1, id=1),
    ):
        assert code(wire.ask(message)) == "denied"


def test_an_unknown_session_is_told_to_reopen(wire):
    assert code(wire.ask(begin(session=77))) == "reopen"


DYING = """
import os, sys, time
from governor.client import connect
session = connect(sys.argv[1], strict=True).session("probe", deadline="14ms")
session.begin(ack=True)
os._exit(1)
"""


def test_a_client_that_dies_in_the_middle_of_a_job_is_noticed_at_once(running, wire):
    out = subprocess.run([sys.executable, "-I", "-c", DYING, running.hints], check=False, **QUIET)
    assert out.returncode == 1

    def ended() -> bool:
        sessions = wire.ask(Status(v=1, id=1, detail=True)).body["sessions"]
        return not any(s["deadline_us"] == 14_000 and s["active"] for s in sessions)

    wait_for(ended, timeout_s=2.5, what="the session of the dead client to end")


def test_a_connection_that_falls_silent_in_the_middle_of_a_job_ends_with_its_lease(tmp_path):
    it = Running(tmp_path, more="lease_ms = 500\n")
    it.start(**QUIET)
    with Wire(it.hints) as dying:
        dying.open(deadline_ns=DEADLINES_NS[0])
        dying.ask(begin())
    with Wire(it.hints) as other:
        wait_for(
            lambda: other.ask(Status(v=1, id=1, detail=True)).body["sessions"] == [],
            what="the lease to end",
        )
        assert isinstance(other.open(deadline_ns=10**8), Reply)
    assert it.stop() == 0


# ---- admin ---------------------------------------------------------------------------------


def test_the_policy_is_swapped_on_the_running_daemon(running, wire):
    wire.open(deadline_ns=10**8)
    low = wire.ask(begin(1)).body
    with Wire(running.admin) as root:
        shown = root.ask(Policy(v=1, id=1, action="set", name="max")).body
        assert shown["name"] == "max" and shown["in_force"]
        high = wire.ask(begin(2)).body
        assert high["cpu_hz"] > low["cpu_hz"]
        answer = root.ask(Policy(v=1, id=1, action="set", name="maxx"))
        assert code(answer) == "policy" and "max" in answer.reason
        answer = root.ask(Policy(v=1, id=1, action="set", name="flame", options={"margin": -1.0}))
        assert code(answer) == "policy"
        assert root.ask(Status(v=1, id=1)).body["policy"] == "max"
    out = running.cli(
        "policy", "set", "flame", "--option", "margin=0.1", "--address", running.admin
    )
    assert out.returncode == 0 and "margin = 0.1" in out.stdout
    out = running.cli("policy", "list", "--json", "--address", running.admin)
    assert json.loads(out.stdout)["in_force"] == "flame"


def test_a_policy_set_anew_forgets_the_options_of_earlier_commands(tmp_path):
    it = Running(tmp_path, more="[policies.flame]\nwindow = 7\n")
    it.start(**QUIET)
    with Wire(it.admin) as root:

        def ask(action, name, **options) -> dict:
            body = root.ask(Policy(v=1, id=1, action=action, name=name, options=options)).body
            return {option["name"]: option["value"] for option in body["options"]}

        found = ask("set", "flame", margin=0.1)
        assert (found["margin"], found["window"]) == (0.1, 7)
        root.ask(Policy(v=1, id=1, action="set", name="max"))
        assert ask("show", "flame")["margin"] == 0.05
        found = ask("set", "flame")
        assert (found["margin"], found["window"]) == (0.05, 7)
        ask("set", "flame", margin=0.1)
        assert ask("set", "flame", window=3) == {**found, "window": 3}
        assert isinstance(root.ask(Reload(v=1, id=1)), Reply)
        assert ask("show", "flame")["window"] == 3
    assert it.stop() == 0


def test_pause_gives_the_board_back_and_resume_takes_it_again(running, wire):
    governor = running.board / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    wire.open(deadline_ns=10**8)
    wire.ask(begin(1))
    wait_for(lambda: governor.read_text().strip() == "userspace")
    with Wire(running.admin) as root:
        root.ask(Pause(v=1, id=1))
        wait_for(lambda: governor.read_text().strip() == "schedutil")
        root.ask(Resume(v=1, id=1))
        wait_for(lambda: governor.read_text().strip() == "userspace")


def test_reload_keeps_the_old_configuration_on_an_error(running):
    good = running.config.read_text()
    with Wire(running.admin) as root:

        def digest() -> str:
            return root.ask(Status(v=1, id=1, detail=True)).body["config"]["digest"]

        before = digest()
        running.config.write_text(good + "\n[idle]\nafter_mss = 3\n")
        answer = root.ask(Reload(v=1, id=1))
        assert "old configuration kept" in answer.reason and "after_ms" in answer.reason
        running.config.write_text(good + "\n[idle]\nafter_ms = 3000\n")
        os.kill(running.daemon.pid, signal.SIGHUP)
        wait_for(lambda: digest() != before, what="the reload after SIGHUP")
        running.config.write_text(good)
        assert root.ask(Reload(v=1, id=1)).body["digest"] == before


def test_a_reload_keeps_a_policy_set_at_run_time_until_that_part_changes(tmp_path):
    it, log = Running(tmp_path), tmp_path / "log"
    good = it.config.read_text()
    with log.open("w") as file:
        it.start(stderr=file)
    with Wire(it.admin) as root:

        def shown() -> tuple[str, dict]:
            body = root.ask(Policy(v=1, id=1, action="show")).body
            return body["name"], {option["name"]: option["value"] for option in body["options"]}

        root.ask(Policy(v=1, id=1, action="set", name="flame", options={"margin": 0.25}))
        os.kill(it.daemon.pid, signal.SIGHUP)
        wait_for(lambda: "policy flame (as set at run time)" in log.read_text(), what="the log")
        assert shown()[1]["margin"] == 0.25
        root.ask(Policy(v=1, id=1, action="set", name="max"))
        it.config.write_text(good + "\n[idle]\nafter_ms = 3000\n")
        assert root.ask(Reload(v=1, id=1)).body["policy"] == "max"
        assert shown()[0] == "max"
        it.config.write_text(good + "\n[policies.flame]\nmargin = 0.125\n")
        assert root.ask(Reload(v=1, id=1)).body["policy"] == "flame"
        assert (shown()[0], shown()[1]["margin"]) == ("flame", 0.125)
        assert "policy flame (the configuration of policies changed)" in log.read_text()
        assert isinstance(root.ask(Reload(v=1, id=1)), Reply)
        assert "policy flame (as configured), 1 tables" in log.read_text()
    assert it.stop() == 0


def test_the_verbs_find_a_daemon_through_its_configuration(running, wire, monkeypatch):
    # What applications follow must not lead an operator who named a configuration astray.
    monkeypatch.setenv("FLAMEGOV_ADDRESS", "ipc:///nowhere")
    config = ["--config", str(running.config)]
    governor = running.board / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    wire.open(deadline_ns=10**8)
    wait_for(lambda: first_line(governor) == "userspace")
    for words, said in (
        (["status"], "in control"),
        (["policy", "list"], "flame"),
        (["policy", "show"], "flame"),
        (["pause"], "paused"),
    ):
        out = running.cli(*words, *config)
        assert (out.returncode, out.stderr) == (0, "") and said in out.stdout, words
    wait_for(lambda: first_line(governor) == "schedutil", what="the release")
    wire.ask(begin(1))
    out = running.cli("status", *config)
    assert "  paused\n" in out.stdout and first_line(governor) == "schedutil"
    out = running.cli("reload", *config, "--json")
    assert (out.returncode, json.loads(out.stdout)["needs_restart"]) == (0, [])
    assert first_line(governor) == "schedutil", "a reload does not end a pause"
    out = running.cli("resume", *config)
    assert (out.returncode, out.stdout) == (0, "resumed\n")
    wait_for(lambda: first_line(governor) == "userspace", what="the board to be taken")


def test_a_reload_that_is_refused_is_one_line(running):
    good = running.config.read_text()
    running.config.write_text(good + "\nnonsense = 1\n")
    out = running.cli("reload", "--address", running.admin)
    running.config.write_text(good)
    assert out.returncode == 1 and out.stderr.count("\n") == 1
    assert "old configuration kept" in out.stderr and "nonsense" in out.stderr
    out = running.cli("reload", "--address", running.admin)
    assert out.returncode == 0 and "is in force, policy flame, 1 tables" in out.stdout


def test_socket_files_are_open_to_whom_they_are_meant_for(running):
    mode = {p.name: oct(p.stat().st_mode & 0o777) for p in running.folder.glob("*.sock")}
    assert mode == {"hints.sock": "0o660", "admin.sock": "0o600"}


# ---- start and stop ------------------------------------------------------------------------


def test_a_second_daemon_is_refused_and_the_first_lives_on(running):
    out = running.cli("run", "--config", str(running.config))
    assert out.returncode == 5
    assert out.stderr.count("\n") == 1
    assert "another daemon runs" in out.stderr and str(running.daemon.pid) in out.stderr


@pytest.mark.parametrize(
    ("change", "exit_code", "words"),
    [
        (('policy = "flam"\n', ""), 2, ["flam", "did you mean flame?", "flamegov.toml: "]),
        (("", 'root = "/nowhere"'), 4, ["/nowhere"]),
        (("nonsense = 1\n", ""), 2, ["nonsense", "unknown key"]),
    ],
)
def test_what_it_cannot_start_with(tmp_path, change, exit_code, words):
    it = Running(tmp_path)
    text = it.config.read_text()
    if change[1]:
        text = text.replace(f'root = "{it.board}"', change[1])
    it.config.write_text(change[0] + text)
    out = it.cli("run", "--config", str(it.config))
    assert out.returncode == exit_code
    assert out.stderr.count("\n") == 1
    for word in words:
        assert word in out.stderr


def test_no_config_file(tmp_path):
    it = Running(tmp_path)
    out = it.cli("run", "--config", str(tmp_path / "none.toml"))
    assert out.returncode == 2 and "no such configuration file" in out.stderr


def test_corrupt_tables_are_told_and_the_sound_ones_serve(tmp_path):
    it = Running(tmp_path)
    (tmp_path / "tables" / "corrupt.npz").write_bytes(b"PK\x03\x04 not really")
    it.start(**QUIET)
    with Wire(it.hints) as wire:
        assert isinstance(wire.open(), Reply)
        errors = wire.ask(Status(v=1, id=1)).body["errors"]
        assert any("corrupt.npz" in line for line in errors)
    assert it.stop() == 0


def test_no_tables_at_all(tmp_path):
    it = Running(tmp_path)
    (tmp_path / "tables" / "probe.npz").unlink()
    it.start(**QUIET)
    with Wire(it.hints) as wire:
        assert code(wire.open()) == "unknown-model"
    assert it.stop() == 0


def test_a_board_without_a_gpu(tmp_path):
    it = Running(tmp_path)
    (it.board / "sys/class/devfreq/17000000.gpu").unlink()
    it.start(**QUIET)
    with Wire(it.hints) as wire:
        answer = wire.open(deadline_ns=DEADLINES_NS[1])
        assert answer.body["gpu_hz"] == 0 and answer.body["cpu_hz"] > 0
        assert any("GPU" in line for line in wire.ask(Status(v=1, id=1)).body["errors"])
    assert it.stop() == 0


def test_dry_run_does_everything_but_write(tmp_path):
    it = Running(tmp_path)
    before = it.tree()
    it.daemon.command.append("--dry-run")
    log = tmp_path / "log"
    with log.open("w") as file:
        it.start(stderr=file)
        with Wire(it.hints) as wire:
            wire.open(deadline_ns=DEADLINES_NS[0])
            answer = wire.ask(begin()).body
            wait_for(
                lambda: wire.ask(Status(v=1, id=1)).body["point"]["cpu_hz"] == answer["cpu_hz"],
                what="the dry point",
            )
            assert wire.ask(Status(v=1, id=1)).body["mode"] == "dry run"
        assert it.stop() == 0
    assert it.tree() == before
    assert "would write" in log.read_text()


def test_a_daemon_restarted_under_a_running_client(tmp_path):
    it = Running(tmp_path)
    it.start(**QUIET)
    with connect(it.hints) as gov, gov.session(MODEL, deadline="40ms") as session:
        with session.job():
            pass
        it.stop(signal.SIGKILL)
        for _ in range(10):
            with session.job():
                time.sleep(0.001)
        it.start(**QUIET)

        def served() -> bool:
            with session.job():
                pass
            status = gov.status(detail=True)
            return bool(status and any(s["jobs"] for s in status["sessions"]))

        wait_for(served, what="the session to be opened again")
    assert it.stop() == 0


def test_the_units_commands_exist():
    for verb in ("run", "restore"):
        out = subprocess.run([*CLI, verb, "--help"], capture_output=True, text=True, check=False)
        assert out.returncode == 0


@pytest.mark.parametrize("verb", [["status"], ["policy", "show"]])
def test_no_daemon_is_told_in_one_line(running, verb, tmp_path):
    out = running.cli(*verb, "--address", f"ipc://{tmp_path}/none.sock")
    assert out.returncode == 6
    assert out.stderr.count("\n") == 1 and "no daemon answers" in out.stderr


def test_update_changes_the_deadline_between_jobs(wire):
    wire.open(deadline_ns=DEADLINES_NS[1])
    low = wire.ask(begin(1)).body
    high = wire.ask(Update(v=1, id=3, session=1, deadline_ns=DEADLINES_NS[0], ack=True)).body
    assert high["cpu_hz"] > low["cpu_hz"] or high["gpu_hz"] > low["gpu_hz"]
