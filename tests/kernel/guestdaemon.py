"""The whole daemon on the guest's ``/sys``, as a program of its own or forked from the tests."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.overhead_rig import dealer, probe_table
from governor.cli import main
from governor.messages import Ping, Status, Trace, decode_answer, encode

CONFIG = """
state_dir = "{folder}/state"
log_level = "warning"
[sockets]
hints = "{hints}"
admin = "{admin}"
group = ""
[tables]
dir = "{folder}/tables"
[board]
poll_ms = 100
{board}
[idle]
after_ms = 600000
"""
START_S = 90


class GuestDaemon:
    """One daemon.

    Args:
        folder: Where its configuration, table, sockets and state live: on a tmpfs, not on 9p.
        board: Further lines of the section ``[board]``.
    """

    def __init__(self, folder: Path, board: str = "") -> None:
        self.hints, self.admin = f"ipc://{folder}/hints.sock", f"ipc://{folder}/admin.sock"
        self.config = folder / "flamegov.toml"
        self.config.write_text(
            CONFIG.format(folder=folder, hints=self.hints, admin=self.admin, board=board)
        )
        (folder / "tables").mkdir()
        probe_table().save(folder / "tables" / "probe.npz")
        self.log = folder / "daemon.log"
        self.pid = 0

    def start(self) -> None:
        """Start it as ``flamegov run`` does, in a process with nothing loaded."""
        command = [sys.executable, "-I", "-m", "governor.cli", "run", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.pid = os.posix_spawn(
                command[0],
                command,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), fd) for fd in (1, 2)],
            )
        self._await_ready()

    def start_forked(self) -> None:
        """Start it in a fork of this process, which has everything loaded already."""
        self.pid = self._fork("run")
        self._await_ready()

    def restore(self) -> int:
        """Run ``flamegov restore``; returns its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self._fork("restore"), 0)[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        os.kill(self.pid, number)
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self) -> None:
        """End it if it still runs."""
        if self.pid:
            self.stop(signal.SIGKILL)

    def counters(self) -> dict[str, int]:
        """Ask for its counters."""
        return dict(self._ask(self.hints, Status(v=1, id=1))["counters"])

    def writes(self) -> list[str]:
        """Ask for the files it wrote, newest last."""
        return [file for _, file in self._ask(self.admin, Trace(v=1, id=1))["writes"]]

    def _fork(self, verb: str) -> int:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                code = main([verb, "--config", str(self.config)])
            finally:
                os._exit(code)
        return pid

    @staticmethod
    def _ask(address: str, message: Any) -> dict[str, Any]:
        with dealer(address) as socket:
            socket.send(encode(message))
            assert socket.poll(20_000), "the daemon does not answer"
            return dict(decode_answer(socket.recv()).body)

    def _await_ready(self) -> None:
        limit = time.monotonic() + START_S
        with dealer(self.hints) as socket:
            while not socket.poll(100):
                assert time.monotonic() < limit, self.log.read_text()
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    self.pid = 0
                    raise AssertionError(f"the daemon ended: {self.log.read_text()}")
                if Path(self.hints.removeprefix("ipc://")).exists():
                    socket.send(encode(Ping(v=1, id=1)))
