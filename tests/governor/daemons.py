"""A real daemon in a process of its own on a plain tree, for the end-to-end tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import zmq

from bench.overhead_rig import MODEL, Daemon, prepare
from governor.messages import Close, Open, Reply, decode_answer, encode

READOUTS = {"scaling_setspeed", "scaling_cur_freq", "cur_freq", "target_freq"}
CLI = [sys.executable, "-I", "-m", "governor.cli"]


class Running:
    """A prepared folder and the daemon that runs in it."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        prepare(folder)
        self.daemon = Daemon(folder)
        self.hints, self.admin = self.daemon.hints, self.daemon.admin
        self.config = folder / "flamegov.toml"
        self.config.write_text(self.config.read_text() + more)
        self.board = folder / "board"

    def start(self, **popen) -> None:
        self.daemon.start(**popen)

    def stop(self, number=signal.SIGTERM) -> int:
        process = self.daemon.process
        process.send_signal(number)
        code = process.wait(10)
        self.daemon.process = None
        return code

    def cli(self, *words: str, timeout: float = 20) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*CLI, *words], capture_output=True, text=True, timeout=timeout, check=False
        )

    def tree(self) -> dict[str, str]:
        """Every file of the board with its content, but those that a kernel fills in by itself.

        Nothing stands behind this tree: what ``scaling_setspeed`` shows under another governor,
        and the clocks in force, are the kernel's to change. ``tests/bench`` has the live board.
        """
        found = {}
        for folder, _, names in os.walk(self.board):
            for name in set(names) - READOUTS:
                path = Path(folder, name)
                found[str(path.relative_to(self.board))] = path.read_text(errors="replace")
        return found


class Wire:
    """A raw connection: bytes out, answers in."""

    def __init__(self, address: str) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(address)
        self.sessions = []

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_) -> None:
        """Close what was opened: all tests are one process, and the daemon counts by process."""
        for number in self.sessions:
            self.send(Close(v=1, id=99, session=number, ack=True))
        while self.sessions and self.socket.poll(500):
            if decode_answer(self.socket.recv()).id == 99:
                self.sessions.pop()
        self.socket.close()

    def send(self, message) -> None:
        self.socket.send(message if isinstance(message, bytes) else encode(message))

    def receive(self, timeout_s: float = 5.0):
        if not self.socket.poll(timeout_s * 1000):
            raise AssertionError("no answer")
        return decode_answer(self.socket.recv())

    def ask(self, message, timeout_s: float = 5.0):
        self.send(message)
        return self.receive(timeout_s)

    def open(self, session=1, model=MODEL, **more):
        answer = self.ask(Open(v=1, id=1, session=session, model=model, **more))
        if isinstance(answer, Reply):
            self.sessions.append(session)
        return answer


def first_line(path: Path) -> str:
    """What a reader of a sysfs attribute takes: a file one page long keeps an older tail."""
    return path.read_text().partition("\n")[0]


def wait_for(condition, timeout_s: float = 5.0, what: str = "condition"):
    limit = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > limit:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(0.01)
    return value
