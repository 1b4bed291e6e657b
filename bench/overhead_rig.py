"""The rig of the overhead bench: a daemon on a plain tree, two bare echo servers, and clients.

The same file runs as the child processes: ``python -m bench.overhead_rig echo|flood ...``.
"""

import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import zmq

from bench.plant.board import load_board
from bench.plant.tree import build_tree
from estimators.table import LatencyTable, TableHeader
from governor.client import connect
from governor.messages import (
    Begin,
    Close,
    End,
    Error,
    Open,
    Ping,
    Status,
    Trace,
    decode_answer,
    encode,
)

MODEL = "probe"
QUIET = b"-"
"""First byte of what an echo server takes without answering."""

PAGE = 4096

DEADLINES_NS = (14_000_000, 40_000_000)
"""Two deadlines that ask for different CPU and GPU clocks."""


def probe_table() -> LatencyTable:
    """Make a table of 29 x 11 clocks x 64 contexts to search in."""
    board = load_board("agx-orin")
    cpu, gpu = np.array(board.cpu_hz), np.array(board.gpu_hz)
    context = np.arange(64) * 16
    launch_us = 9e12 / cpu[None, :, None]
    kernels_us = 6e12 / gpu[None, None, :] * (1 + context[:, None, None] / 4000)
    latency = np.hypot(launch_us, kernels_us)[None].astype(np.float32)
    header = TableHeader(model=MODEL, phase="inference", engine="synthetic")
    return LatencyTable(header, np.array([0]), context, cpu, gpu, latency)


def _cpu_seconds(pid: int) -> float:
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total_ns += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
    return total_ns / 1e9


class Daemon:
    """A flamegov daemon in a process of its own.

    Args:
        folder: Where its tree, tables, sockets and state live.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hints = f"ipc://{folder}/hints.sock"
        self.admin = f"ipc://{folder}/admin.sock"
        config = folder / "flamegov.toml"
        config.write_text(
            f"""
state_dir = "{folder}/state"
[sockets]
hints = "{self.hints}"
admin = "{self.admin}"
group = ""
[tables]
dir = "{folder}/tables"
[board]
root = "{folder}/board"
gpu_mode = "pin"
[limits]
lower_min = true
""",
            encoding="utf-8",
        )
        self.command = [sys.executable, "-I", "-m", "governor.cli", "run", "--config", str(config)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **popen: Any) -> float:
        """Start it and tell how long it took until it answered, s."""
        began = time.monotonic()
        self.process = subprocess.Popen(self.command, **popen)
        with dealer(self.hints) as socket:
            while True:
                socket.send(encode(Ping(v=1, id=1)))
                if socket.poll(20):
                    return time.monotonic() - began
                if self.process.poll() is not None or time.monotonic() - began > 10:
                    raise RuntimeError("the daemon did not start; its message is above")

    def stop(self) -> None:
        """End it and wait."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process is not None
        return self.process.pid

    def rss_mib(self) -> float:
        """Tell the resident memory, MiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS in /proc")

    def cpu_seconds(self) -> float:
        """Tell the CPU time used so far by all its threads, s, to the nanosecond."""
        return _cpu_seconds(self.pid)

    def ask(self, message: Any, *, admin: bool = False) -> dict[str, Any]:
        """Send a request and return the body of the reply."""
        with dealer(self.admin if admin else self.hints) as socket:
            socket.send(encode(message))
            if not socket.poll(5000):
                raise RuntimeError("the daemon does not answer")
            return _body(socket.recv())


@contextlib.contextmanager
def dealer(address: str) -> "Iterator[zmq.Socket[bytes]]":
    """Connect a DEALER socket that waits for nothing when it closes."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)
    try:
        yield socket
    finally:
        socket.close()


def _body(raw: bytes) -> dict[str, Any]:
    answer = decode_answer(raw)
    if isinstance(answer, Error):
        raise RuntimeError(f"the daemon refused: {answer.code}: {answer.reason}")
    return answer.body


class RawSession:
    """A session spoken by hand, so that only the daemon's side is measured."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self._jobs = itertools.count()
        self._deadlines = itertools.cycle(DEADLINES_NS)
        self.expected_ns = dict.fromkeys(DEADLINES_NS, 10_000_000)
        """What jobs are said to take: as predicted, so that there is nothing to correct."""
        self.sent = 0
        """Messages of jobs sent by :meth:`open`."""

    def open(self) -> None:
        """Open it and wait for the answer."""
        self.socket.send(encode(Open(v=1, id=1, session=1, model=MODEL, name="bench")))
        _body(self.socket.recv())
        for deadline_ns in DEADLINES_NS * 2:
            begin, end = self.begin_end()
            self.socket.send(begin)
            predicted_us = _body(self.socket.recv())["predicted_us"]
            self.expected_ns[deadline_ns] = int(predicted_us * 1000)
            self.socket.send(end)
            self.sent += 2

    def begin_end(self) -> tuple[bytes, bytes]:
        """Encode the two messages of a job, before any clock runs."""
        job, now, deadline_ns = next(self._jobs), time.monotonic_ns(), next(self._deadlines)
        begin = Begin(
            v=1, id=2, session=1, job=job, start_ns=now, deadline_ns=deadline_ns, ack=True
        )
        end = End(v=1, session=1, job=job, start_ns=now, end_ns=now + self.expected_ns[deadline_ns])
        return encode(begin), encode(end)


class Rig:
    """Everything that the paths are measured with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        prepare(folder)
        self.daemon = Daemon(folder)
        self.hints = self.daemon.hints
        self._children: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Rig":
        """Start the servers and connect."""
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: contextlib.ExitStack) -> None:
        self.daemon.start()
        stack.callback(self.daemon.stop)
        addresses = {"daemon": self.hints}
        for kind in ("control", "echo"):
            addresses[kind] = f"ipc://{self.folder}/{kind}.sock"
            child = subprocess.Popen(
                [sys.executable, "-I", "-m", "bench.overhead_rig", "echo", addresses[kind]]
            )
            stack.callback(_end, child)
            self._echo_pid = child.pid
        self.sockets = {
            kind: stack.enter_context(dealer(address)) for kind, address in addresses.items()
        }
        self.session = RawSession(self.sockets["daemon"])
        client = stack.enter_context(connect(self.hints, strict=True, timeout="30s"))
        self._jobs = stack.enter_context(client.session(MODEL, deadline="20ms"))
        for kind in ("echo", "control"):
            self.sockets[kind].send(b"ready?")
            self.sockets[kind].recv()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything."""
        self._stack.close()

    def block(self, kind: str, count: int, period_s: float) -> tuple[list[float], list[int]]:
        """Do paced round trips; return their times in us and the moments of sending in ns."""
        socket = self.sockets[kind]
        times, sent = [], []
        for _ in _paced(count, period_s):
            begin, end = self.session.begin_end()
            after = end if kind == "daemon" else QUIET + end
            start = time.monotonic_ns()
            socket.send(begin)
            socket.recv()
            times.append((time.monotonic_ns() - start) / 1e3)
            sent.append(start)
            socket.send(after)
        return times, sent

    def oneway_block(self, kind: str, count: int, period_s: float) -> list[float]:
        """Time paced one-way sends, us."""
        socket, times = self.sockets["echo"], []
        deadlines = itertools.cycle(DEADLINES_NS)
        for job in _paced(count, period_s):
            if kind == "client":
                deadline_ns = next(deadlines)
                start = time.perf_counter_ns()
                self._jobs.begin(deadline=deadline_ns)
                times.append((time.perf_counter_ns() - start) / 1e3)
                self._end(deadline_ns)
            else:
                raw = QUIET + encode(
                    Begin(v=1, session=1, job=job, start_ns=time.monotonic_ns(),
                          deadline_ns=next(deadlines))
                )  # fmt: skip
                start = time.perf_counter_ns()
                socket.send(raw, zmq.NOBLOCK)
                times.append((time.perf_counter_ns() - start) / 1e3)
                socket.send(raw, zmq.NOBLOCK)
        return times

    def jobs(self, count: int, period_s: float) -> list[int]:
        """Do paced jobs through the client, two one-way messages each; return when each began."""
        deadlines, sent = itertools.cycle(DEADLINES_NS), []
        for _ in _paced(count, period_s):
            deadline_ns = next(deadlines)
            sent.append(time.monotonic_ns())
            self._jobs.begin(deadline=deadline_ns)
            self._end(deadline_ns)
        return sent

    def _end(self, deadline_ns: int) -> None:
        now = time.monotonic_ns()
        self._jobs.end(start_ns=now - self.session.expected_ns[deadline_ns], end_ns=now)

    def hint_to_write_us(self, sent_ns: list[int]) -> tuple[int, dict[str, Any]]:
        """Match sends with the entry of the first write after them, per domain.

        Returns:
            How many sends moved the operating point, and quantiles in us per domain and over all.
        """
        entries = self.daemon.ask(Trace(v=1, id=1), admin=True)["writes"]
        first: dict[str, dict[int, int]] = {"cpu": {}, "gpu": {}}
        moments = np.array(sent_ns)
        for moment_ns, file in entries:
            index = int(np.searchsorted(moments, moment_ns)) - 1
            if index >= 0 and moment_ns - sent_ns[index] < 9_000_000:
                first["cpu" if file.startswith("policy") else "gpu"].setdefault(
                    index, (moment_ns - sent_ns[index]) // 1000
                )
        moved = first["cpu"].keys() | first["gpu"].keys()
        soonest = [min(d[i] for d in first.values() if i in d) for i in moved]
        levels: dict[str, Any] = _levels(soonest)
        for domain, values in first.items():
            levels[domain] = _levels(list(values.values()))
        return len(moved), levels

    def echo_cpu_seconds(self) -> float:
        """Tell the CPU time used so far by the echo server, s."""
        return _cpu_seconds(self._echo_pid)

    def served(self) -> int:
        """Tell how many begin and end messages the daemon has handled."""
        counters = self.daemon.ask(Status(v=1, id=1))["counters"]
        return int(counters.get("begin", 0) + counters.get("end", 0))

    def wait_served(self, count: int, timeout_s: float) -> None:
        """Wait until so many messages were handled, or the time is up."""
        limit = time.monotonic() + timeout_s
        while self.served() < count and time.monotonic() < limit:
            time.sleep(0.02)


def _levels(values: list[int]) -> dict[str, float]:
    if not values:
        return {"p50": float("nan"), "p99": float("nan")}
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1)}


def prepare(folder: Path) -> None:
    """Lay out a tree without a process behind it, and a table.

    The files that set a clock are one page long, as sysfs attributes are, and those that show it
    are links to them: they answer as a kernel without switching delays would, and nothing else
    runs on the two cores that are being measured.
    """
    root = folder / "board"
    build_tree(root, load_board("agx-orin"))
    for policy in root.glob("sys/devices/system/cpu/cpufreq/policy*"):
        _pad(policy / "scaling_setspeed")
        _link(policy, "scaling_cur_freq", "scaling_setspeed")
    gpu = next(root.glob("sys/class/devfreq/*.gpu"))
    for name in ("min_freq", "max_freq"):
        _pad(gpu / name)
    for name in ("cur_freq", "target_freq"):
        _link(gpu, name, "min_freq")
    (folder / "tables").mkdir()
    probe_table().save(folder / "tables" / "probe.npz")


def _pad(file: Path) -> None:
    file.write_bytes(file.read_bytes().ljust(PAGE, b"\n"))


def _link(folder: Path, name: str, target: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(target)


def _paced(count: int, period_s: float) -> Iterator[int]:
    due = time.monotonic()
    for number in range(count):
        due += period_s
        time.sleep(max(0.0, due - time.monotonic()))
        yield number


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    child.wait(10)


def start_seconds(folder: Path, times: int = 3) -> list[float]:
    """Start and stop a daemon some times; return the seconds until it answered."""
    result = []
    for _ in range(times):
        daemon = Daemon(folder)
        result.append(daemon.start())
        daemon.stop()
    return result


def flood(folder: Path, address: str, clients: int, seconds: float) -> int:
    """Run clients that send as fast as they can; return the begin and end messages sent."""
    command = [sys.executable, "-I", "-m", "bench.overhead_rig", "flood", address, str(seconds)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(clients)]
    return sum(int(json.loads(child.communicate()[0])) for child in children)


def _child_echo(address: str) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(address)
    while True:
        identity, raw = socket.recv_multipart()
        if not raw.startswith(QUIET):
            socket.send_multipart([identity, raw])


def _child_flood(address: str, seconds: float) -> None:
    with dealer(address) as socket:
        socket.setsockopt(zmq.LINGER, 5000)
        session = RawSession(socket)
        session.open()
        sent, stop = session.sent, time.monotonic() + seconds
        for job in itertools.count(session.sent):
            now = time.monotonic_ns()
            if now / 1e9 >= stop:
                break
            deadline_ns = DEADLINES_NS[job // 64 % 2]
            socket.send(
                encode(Begin(v=1, session=1, job=job, start_ns=now, deadline_ns=deadline_ns))
            )
            socket.send(encode(End(v=1, session=1, job=job, start_ns=now, end_ns=now + 10**6)))
            sent += 2
        socket.send(encode(Close(v=1, id=9, session=1, ack=True)))
        # Its answer says that all before it has arrived; to leave earlier would lose the rest.
        while decode_answer(socket.recv()).id != 9:
            pass
    print(json.dumps(sent))


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        _child_echo(sys.argv[2])
    else:
        _child_flood(sys.argv[2], float(sys.argv[3]))
