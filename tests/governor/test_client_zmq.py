"""The sync client over real ZeroMQ sockets."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from governor.client import Session, UnavailableError, ZmqTransport, connect
from governor.messages import Begin, Close, End, Open
from tests.governor.fakedaemon import FakeDaemon, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hints.sock"


def job_that_arrives(daemon: FakeDaemon, session: Session) -> None:
    """Run jobs until the daemon knows of one from beginning to end."""
    before = len(daemon.of(Begin))

    def told() -> bool:
        with session.job():
            pass
        return bool(daemon.of(Open)) and len(daemon.of(Begin)) > before

    wait_until(told)


def test_the_first_message_after_connecting_arrives(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        with connect(daemon.address, strict=True) as gov, gov.session("m", deadline="20ms") as s:
            assert s.reply == {"op": "Open"}
            with s.job():
                pass
            assert gov.ping()
        assert [type(r).__name__ for r in daemon.received[:3]] == ["Open", "Begin", "End"]
        daemon.wait_for(Close)


def test_the_environment_names_the_address(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDaemon(path) as daemon:
        monkeypatch.setenv("FLAMEGOV_ADDRESS", daemon.address)
        with connect() as gov:
            assert gov.ping()


def test_without_a_daemon_nothing_waits(path: Path) -> None:
    start_s = time.monotonic()
    with connect(f"ipc://{path}") as gov, gov.session("m") as s:
        for _ in range(100):
            with s.job():
                pass
        assert not gov.ping()
    assert gov.stats.dropped >= 200
    assert time.monotonic() - start_s < 0.2


def test_a_stale_socket_file_costs_one_timeout(path: Path) -> None:
    with FakeDaemon(path):
        pass
    start_s = time.monotonic()
    with connect(f"ipc://{path}", timeout="30ms") as gov:
        assert not gov.ping()
    assert time.monotonic() - start_s < 1


def test_a_daemon_that_starts_later_is_found(path: Path) -> None:
    with connect(f"ipc://{path}") as gov, gov.session("m") as s, FakeDaemon(path) as daemon:
        job_that_arrives(daemon, s)
        assert daemon.received[0] == Open(v=1, id=daemon.received[0].id, session=1, model="m")


def test_a_restarted_daemon_gets_the_session_again(path: Path) -> None:
    with connect(f"ipc://{path}") as gov, gov.session("m", deadline="20ms") as s:
        with FakeDaemon(path) as first:
            job_that_arrives(first, s)
        with FakeDaemon(path) as second:
            wait_until(lambda: s.end(aborted=True) or second.of(Open))
            assert second.of(Open)[0].deadline_ns == 20_000_000
            wait_until(gov.ping)
            before = gov.stats.reopened
            s.begin(ack=True)
            assert s.reply == {"op": "Begin"}
            s.end(ack=True)
            assert s.reply == {"op": "End"}
            assert gov.stats.reopened == before
        assert gov.stats.errors == 0


def test_a_silent_daemon_holds_nobody_up(path: Path) -> None:
    with FakeDaemon(path, silent=True) as daemon:
        start_s = time.monotonic()
        with connect(daemon.address, timeout="20ms") as gov, gov.session("m") as s:
            assert s.reply is None
            with s.job():
                pass
            assert not gov.ping()
            assert gov.stats.timeouts == 2
        assert time.monotonic() - start_s < 1
        daemon.wait_for(End)
    with (
        FakeDaemon(path, silent=True) as daemon,
        connect(daemon.address, timeout="20ms", strict=True) as gov,
        pytest.raises(UnavailableError, match="did not answer"),
    ):
        gov.session("m")


def test_a_full_queue_drops_and_counts(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        with connect(daemon.address) as gov, gov.session("m") as s:
            for _ in range(20_000):
                s.begin()
            sent, dropped = gov.stats.sent, gov.stats.dropped
            assert sent + dropped == 20_001
            assert gov.ping() or gov.stats.dropped > dropped
        daemon.wait_for(Begin, sent - 1)


def test_a_closed_client_counts_and_does_not_raise(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        with connect(daemon.address) as gov:
            s = gov.session("m")
        s.begin()
        s.end()
        assert not gov.ping()
        gov.close()
        assert gov.stats.dropped == 3


def test_an_address_that_is_none() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        connect("nonsense")
    with pytest.raises(ValueError, match="ipc://"):
        connect("ipc://" + "x" * 200)


def test_two_threads_may_share_a_client(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        with connect(daemon.address) as gov, gov.session("m") as s:

            def work() -> None:
                for _ in range(200):
                    s.begin()
                    s.end()

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                gov.ping()
            for thread in threads:
                thread.join()
            total = gov.stats.sent + gov.stats.dropped
            assert total >= 3 * 400
        daemon.wait_for(Begin, 1)


def test_connecting_a_hundred_times_leaves_nothing_open(path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - its entries are no paths to keep

    with FakeDaemon(path) as daemon:
        with connect(daemon.address) as gov:
            assert gov.ping()
        before, start_s = open_files(), time.monotonic()
        for _ in range(100):
            with connect(daemon.address) as gov, gov.session("m"):
                pass
        assert time.monotonic() - start_s < 10
        wait_until(lambda: open_files() <= before + 4)


FORKING = """
    import os, sys
    from governor.client import connect
    with connect(sys.argv[1]) as gov, gov.session("m", deadline="20ms") as s:
        s.begin(ack=True)
        child = os.fork()
        if child == 0:
            while not gov.ping():
                pass
            s.begin(ack=True)
            code = 0 if s.reply == {"op": "Begin"} and gov.stats.reopened == 1 else 3
            s.close()
            gov.close()
            sys.exit(code)
        _, status = os.waitpid(child, 0)
        s.end(ack=True)
        assert s.reply == {"op": "End"}, s.reply
        assert gov.stats.reopened == 0
        sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_connects_anew_and_leaves_the_parent_alone(path: Path) -> None:
    with FakeDaemon(path) as daemon:
        run_python(textwrap.dedent(FORKING), daemon.address)
        assert len(daemon.of(Open)) == 2


ALONE = """
    import sys
    import governor.client, governor.aio, governor.testing
    mock = governor.testing.MockTransport()
    with governor.client.connect(transport=mock) as gov, gov.session("m", deadline="20ms") as s:
        with s.job():
            pass
    assert len(mock.sent) == 4
    loaded = {name.partition(".")[0] for name in sys.modules}
    bad = loaded & {"numpy", "policies", "estimators", "bench"}
    assert not bad, bad
    assert "governor.errors" not in sys.modules
"""


def test_the_client_lives_beside_an_applications_own_policies(tmp_path: Path) -> None:
    for name in ("policies", "estimators", "bench", "numpy"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"raise RuntimeError('{name} was imported')")
    run_python(textwrap.dedent(ALONE), cwd=tmp_path)


def run_python(code: str, *arguments: str, cwd: Path = ROOT) -> None:
    """Run a program whose own folder comes first on the import path, as an application's does."""
    env = {**os.environ, "PYTHONPATH": f"{cwd}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_transport_may_be_made_by_hand(path: Path) -> None:
    with FakeDaemon(path) as daemon, connect(transport=ZmqTransport(daemon.address, 0.25)) as gov:
        assert gov.ping()
