"""The command line against wrong arguments, odd surroundings and strangers at the address."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from governor.cli import link, main
from governor.messages import encode_reply
from governor.words import printable
from tests.governor.daemons import CLI

SCRIPT = "import sys; from governor.cli import main; sys.argv[0] = 'flamegov'; sys.exit(main())"
ROOT = Path(__file__).parents[2]

_STATUS = {
    "version": "1",
    "uptime_s": 1.0,
    "policy": "max",
    "mode": "in control",
    "board": {"model": "caf\u00e9", "l4t": "36"},
    "point": dict.fromkeys(("wanted_cpu_hz", "wanted_gpu_hz", "cpu_hz", "gpu_hz", "emc_hz"), 0),
    "power_mw": None,
    "errors": [],
    "sessions": [
        {
            "model": "m",
            "phase": "inference",
            "name": "caf\u00e9 \x1b[31m\nerror     forged",
            "deadline_us": 1.0,
            "jobs": 0,
            "late": 0,
            "active": True,
        }
    ],
}


@contextmanager
def stranger(folder: Path, answer: bytes) -> Iterator[str]:
    """A server that gives the same answer to every request."""
    address, end = f"ipc://{folder}/s", threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(address)

        def serve() -> None:
            while not end.is_set():
                if socket.poll(50):
                    socket.send_multipart([socket.recv_multipart()[0], answer])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield address
        finally:
            end.set()
            thread.join()


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.startswith("flamegov: ") and text.count("\n") == 1
    return text


@pytest.mark.parametrize(
    "words",
    [
        ["--option", "margin=NaN"],
        ["--option", "margin=1e999"],
        ["--option", "margin=18446744073709551616"],
        ["--option", "margin=" + "1" * 5000],
        ["--option", "margin=" + "[" * 100_000],
        ["--option", "margin=null"],
        ["--option", "alpha=" + "x" * 5000],
        ["--option", "=1"],
        [word for i in range(40) for word in ("--option", f"o{i}=1")],
    ],
    ids=lambda words: words[1][:20],
)
def test_an_option_that_no_daemon_would_read_is_wrong_usage(capsys, tmp_path, words) -> None:
    # No daemon is there: the answer must not be that none answers.
    address = ["--address", f"ipc://{tmp_path}/none"]
    assert main(["policy", "set", "flame", *words, *address]) == 2
    one_line(capsys)


@pytest.mark.parametrize("name", ["", "x" * 65, "\udcff\udcfe"])
def test_a_name_that_no_daemon_would_read_is_wrong_usage(capsys, tmp_path, name) -> None:
    assert main(["policy", "set", name, "--address", f"ipc://{tmp_path}/none"]) == 2
    one_line(capsys)


@pytest.mark.parametrize("address", ["nonsense", "", "ipc:///" + "x" * 200, "ipc://\udcff"])
def test_an_address_that_cannot_be_is_wrong_usage(capsys, address) -> None:
    assert main(["status", "--address", address]) == 2
    assert "no address" in one_line(capsys)


def test_nobody_at_the_address_is_no_daemon(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(link, "TIMEOUT_MS", 100)
    assert main(["status", "--address", f"ipc://{tmp_path}/none"]) == 6
    assert "no daemon answers" in one_line(capsys)


@pytest.mark.parametrize("stale", [False, True])
def test_policies_are_listed_without_a_daemon(capsys, tmp_path, monkeypatch, stale) -> None:
    path = tmp_path / "s"
    if stale:  # as a killed daemon leaves it
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        monkeypatch.setattr(link, "TIMEOUT_MS", 100)
    began = time.monotonic()
    assert main(["policy", "list", "--address", f"ipc://{path}"]) == 0
    assert time.monotonic() - began < 2.5
    out, err = capsys.readouterr()
    assert "  flame        flamegov " in out and "*" not in out
    assert "no daemon answers" in err and err.count("\n") == 1
    assert main(["policy", "list", "--json", "--address", f"ipc://{path}"]) == 0
    assert json.loads(capsys.readouterr().out)["in_force"] is None


@pytest.mark.parametrize(
    ("verb", "hint", "other"),
    [
        (["status"], "usermod -aG flamegov", "use sudo"),
        (["policy", "list"], "use sudo", "usermod"),
        (["pause"], "use sudo", "usermod"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_socket_that_refuses_is_told_at_once_with_the_way_in(
    capsys, tmp_path, monkeypatch, verb, hint, other
) -> None:
    (tmp_path / "s").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK)
    monkeypatch.setattr(link, "TIMEOUT_MS", 60_000)
    assert main([*verb, "--address", f"ipc://{tmp_path}/s"]) == 6
    text = one_line(capsys)
    assert "no permission" in text and hint in text and other not in text


@pytest.mark.parametrize("verb", [["status"], ["policy", "list"], ["reload"], ["resume"]])
def test_a_configuration_that_is_not_there_is_told_by_the_verbs_that_ask(
    capsys, tmp_path, verb
) -> None:
    assert main([*verb, "--config", str(tmp_path / "none.toml")]) == 2
    assert "no such configuration file" in one_line(capsys)


def test_an_address_needs_no_configuration(capsys, tmp_path, monkeypatch) -> None:
    (tmp_path / "broken.toml").write_text("nonsense = 1")
    monkeypatch.setattr("governor.config.DEFAULT_PATH", tmp_path / "broken.toml")
    with stranger(tmp_path, encode_reply(1, _STATUS)) as address:
        assert main(["status", "--address", address]) == 0


@pytest.mark.parametrize("json_too", [[], ["--json"]])
@pytest.mark.parametrize(
    "answer",
    [b"", b"junk", b"\xc1", b"\x91" * 5000, encode_reply(1, {"point": 5, "x": b"\xff"})],
    ids=["empty", "junk", "reserved", "nested", "another body"],
)
def test_a_server_that_speaks_junk_is_no_daemon(capsys, tmp_path, answer, json_too) -> None:
    with stranger(tmp_path, answer) as address:
        assert main(["status", "--address", address, *json_too]) == 6
    assert "the answer is no daemon's" in one_line(capsys)


@pytest.mark.parametrize(("code", "exit_code"), [("policy", 2), ("bad-field", 2), ("denied", 1)])
def test_what_the_daemon_refuses_of_a_policy_is_wrong_usage(
    capsys, tmp_path, code, exit_code
) -> None:
    refusal = {"v": 1, "op": "error", "id": 1, "code": code, "field": "", "reason": "no \x1b[2J"}
    with stranger(tmp_path, msgspec.msgpack.encode(refusal)) as address:
        assert main(["policy", "set", "nope", "--address", address]) == exit_code
    text = one_line(capsys)
    assert "\x1b" not in text and text.endswith(": no \\x1b[2J\n")


def test_a_name_with_escape_and_newline_is_escaped(capsys, tmp_path) -> None:
    with stranger(tmp_path, encode_reply(1, _STATUS)) as address:
        assert main(["status", "--address", address]) == 0
    text = capsys.readouterr().out
    assert r"café \x1b[31m\nerror     forged" in text
    assert not any(line.startswith("error") for line in text.splitlines())


def test_printable_keeps_letters_and_escapes_the_rest() -> None:
    assert printable("caf\u00e9 ok") == "caf\u00e9 ok"
    assert printable("a\x00\x9b\u2028\udcff") == r"a\x00\x9b\u2028\udcff"


def test_status_of_a_foreign_name_in_an_ascii_terminal(tmp_path) -> None:
    with stranger(tmp_path, encode_reply(1, _STATUS)) as address:
        done = subprocess.run(
            [sys.executable, "-m", "governor.cli", "status", "--address", address],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            cwd=ROOT,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert rb"caf\xe9" in done.stdout


@pytest.mark.parametrize("verb", ["--help", "config schema", "config show --defaults"])
@pytest.mark.parametrize("target", [">/dev/full", ">&-"])
def test_output_that_cannot_be_written_is_one_line(verb, target) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {verb} {target}', "sh", *CLI],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("flamegov: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("package", ["estimators", "policies", "bench", "json", "argparse"])
def test_a_package_of_the_same_name_on_pythonpath_is_not_run(tmp_path, package) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise SystemExit('owned')")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("flamegov ")


def test_the_entry_imports_nothing_of_ours_before_it_is_isolated() -> None:
    code = (
        "import sys; before = set(sys.modules); import governor.cli;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "['governor', 'governor.cli']"
