"""The process that keeps a board's tree alive: ``python -m bench.plant.live --root DIR ...``.

It sleeps until a file is written, a client speaks or the machine has something due; it never polls.
"""

import argparse
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bench.plant import livewire as wire
from bench.plant.board import load_board
from bench.plant.errors import KernelError, PlantError
from bench.plant.fusetree import FuseFiles
from bench.plant.inotify import Inotify
from bench.plant.machine import Machine
from bench.plant.progress import JobRequest, JobResult
from bench.plant.tree import GOVERNOR_FOLDERS, SimTree, build_tree

_PLAIN_LAG_NS = 500_000  # from a write to its being seen, and from a change to its being shown
_FUSE_LAG_NS = 300_000  # the way of a write through FUSE and back
_NICE = -15
READY = "ready"
"""Line on stdout that says that tree and socket are there."""


class Client:
    """One connection and what is remembered of it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.asked_ns = 0
        self.rails_mj: dict[str, float] = {}
        self.total_mj = 0.0

    def fileno(self) -> int:
        """Give the connection's descriptor."""
        return self.connection.fileno()

    def send(self, reply: wire.Reply) -> None:
        """Send a reply; somebody who went away or does not read gets none."""
        try:
            self.connection.send(wire.encode(reply), socket.MSG_DONTWAIT)
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            self.connection.close()

    def ran(self, result: JobResult) -> None:
        """Tell what came of a job."""
        if self.fileno() >= 0:
            self.send(wire.Ran(**result._asdict()))


class PlainFiles:
    """The tree as plain files: writes are seen through inotify, answers are written back."""

    def __init__(self, tree: SimTree, machine: Machine) -> None:
        self.lock = nullcontext()  # one thread alone
        self._tree, self._machine = tree, machine
        self._inotify = Inotify(tree.root)
        for folder in self._writable_folders():
            self._inotify.watch(folder)

    def fileno(self) -> int:
        """Give the descriptor that is readable when a file was written."""
        return self._inotify.fileno()

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()

    def take(self, now_ns: int) -> None:
        """Give the writes of others to the machine, in order."""
        for path in self._inotify.written():
            self._take(path, now_ns)

    def show(self) -> None:
        """Write what has changed. A file that somebody has just written is taken first."""
        machine = self._machine
        while machine.touched:
            devices = list(machine.touched)
            machine.touched.clear()
            for path in self._tree.stale(devices):
                self._take(path, time.monotonic_ns())
                if self._tree.show(path):
                    self._watch_new(path)

    def _take(self, path: str, now_ns: int) -> None:
        data = self._tree.foreign(path)
        device = self._tree.device_of(path)
        if data is None or device is None:
            return
        prefix = f"{device.where}/" if device.where else ""
        try:
            self._machine.write(device, path[len(prefix) :], data, now_ns)
        except KernelError:
            # A plain file cannot refuse; the old value is shown again, which is all a reader sees.
            self._machine.touched.add(device)

    def _watch_new(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder.endswith(GOVERNOR_FOLDERS) and not self._inotify.watching(folder):
            self._inotify.watch(folder)
            self._take(path, time.monotonic_ns())  # it may have been written before the watch

    def _writable_folders(self) -> set[str]:
        return {
            str(Path(device.where, name).parent)
            for device in self._tree.files.devices
            for name, attr in device.files().items()
            if attr.mode & 0o200
        }


Files = PlainFiles | FuseFiles


class Live:
    """The loop.

    Args:
        machine: The board.
        files: How its files are shown.
        path: Where to listen.
    """

    def __init__(self, machine: Machine, files: Files, path: Path) -> None:
        self._machine, self._files = machine, files
        self._clients: list[Client] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen()
        self._running = True
        self._handlers: dict[type, Callable[..., wire.Reply | None]] = {
            wire.Run: self._run,
            wire.AskEnergy: self._energy,
            wire.AskState: self._state,
            wire.Cap: self._cap,
            wire.Write: self._write,
            wire.SetMode: self._set_mode,
            wire.Break: self._break,
            wire.Heat: self._set_heat,
            wire.Stop: self._stop,
        }

    def close(self) -> None:
        """Hang up."""
        for client in self._clients:
            client.connection.close()
        self._listener.close()

    def loop(self, parent: int | None) -> None:
        """Serve until told to stop, or until the parent's end of a pipe closes."""
        while self._running:
            watched: list[Any] = [self._files, self._listener, *self._clients]
            if parent is not None:
                watched.append(parent)
            with self._files.lock:
                wait_s = max(self._machine.next_ns - time.monotonic_ns(), 0) / 1e9
            ready = select.select(watched, [], [], wait_s)[0]
            if parent in ready:
                return
            with self._files.lock:
                self._turn(ready)

    def _turn(self, ready: list[Any]) -> None:
        now_ns = time.monotonic_ns()
        self._machine.advance(now_ns)
        for source in ready:
            self._serve(source, now_ns)
        self._files.show()
        _ = self._machine.rails  # computed now, so that the next write need not wait for it
        self._clients = [client for client in self._clients if client.fileno() >= 0]

    def _serve(self, source: object, now_ns: int) -> None:
        if source is self._files:
            self._files.take(now_ns)
        elif source is self._listener:
            self._clients.append(Client(self._listener.accept()[0]))
        elif isinstance(source, Client) and source.fileno() >= 0:
            self._hear(source, now_ns)

    def _hear(self, client: Client, now_ns: int) -> None:
        try:
            packet = client.connection.recv(wire.MAX_BYTES)
        except ConnectionResetError:
            packet = b""
        if not packet:
            self._machine.withdraw(client.ran)
            client.connection.close()
            return
        reply: wire.Reply | None
        try:
            request = wire.decode_request(packet)
            reply = self._handlers[type(request)](client, request, now_ns)
        except KernelError as error:
            reply = wire.Refused(str(error), error.errno or 0)
        except PlantError as error:
            reply = wire.Refused(str(error))
        if reply is not None:
            client.send(reply)

    def _run(self, client: Client, request: wire.Run, now_ns: int) -> None:
        job = JobRequest(
            request.workload, request.engine, request.precision, request.batch, request.context
        )
        self._machine.submit(job, now_ns, client.ran)

    def _energy(self, client: Client, _: wire.AskEnergy, now_ns: int) -> wire.Energy:
        self._machine.catch_up(now_ns)
        meter = self._machine.meter
        rails = dict(meter.energy_mj)
        reply = wire.Energy(
            now_ns=now_ns,
            rails_mj=rails,
            total_mj=meter.total_mj,
            since_ns=client.asked_ns,
            since_rails_mj={key: mj - client.rails_mj.get(key, 0.0) for key, mj in rails.items()},
            since_total_mj=meter.total_mj - client.total_mj,
        )
        client.asked_ns, client.rails_mj, client.total_mj = now_ns, rails, meter.total_mj
        return reply

    def _state(self, _: Client, __: wire.AskState, now_ns: int) -> wire.State:
        machine, kernel = self._machine, self._machine.kernel
        clocks = machine.clocks
        return wire.State(
            now_ns=now_ns,
            cpu_hz=clocks.cpu_hz,
            gpu_hz=clocks.gpu_hz,
            emc_hz=clocks.emc_hz,
            policies_hz={Path(p.where).name: p.cur_khz * 1000 for p in kernel.policies},
            cpu_governor=kernel.policies[0].governor,
            gpu_governor=kernel.gpu.governor,
            rails_mw=machine.rails.power_mw,
            total_mw=machine.rails.total_mw,
            temp_mc=machine.temp_mc,
            jobs=machine.jobs,
        )

    def _cap(self, _: Client, request: wire.Cap, now_ns: int) -> wire.Ok:
        self._machine.cap(request.cpu_hz, request.gpu_hz, now_ns)
        return wire.Ok()

    def _write(self, _: Client, request: wire.Write, now_ns: int) -> wire.Ok:
        self._machine.write_path(request.path, request.text.encode(), now_ns)
        return wire.Ok()

    def _set_mode(self, _: Client, request: wire.SetMode, now_ns: int) -> wire.Ok:
        self._machine.set_mode(request.name, now_ns)
        return wire.Ok()

    def _break(self, _: Client, request: wire.Break, now_ns: int) -> wire.Ok:
        self._machine.break_hardware(
            request.domain, request.driver_errno, request.hardware_cap_hz, now_ns
        )
        return wire.Ok()

    def _set_heat(self, _: Client, request: wire.Heat, now_ns: int) -> wire.Ok:
        self._machine.set_heat(request.chip_c, now_ns)
        return wire.Ok()

    def _stop(self, _: Client, __: wire.Stop, ___: int) -> wire.Ok:
        self._running = False
        return wire.Ok()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a board until it is stopped; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.plant.live", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder that stands for /")
    parser.add_argument("--socket", type=Path, required=True, help="where to listen")
    parser.add_argument("--board", default="agx-orin", help="name of the board")
    parser.add_argument("--jetpack", type=int, default=6, help="5, 6 or 7")
    parser.add_argument("--mode", default="", help="nvpmodel mode (default: the board's own)")
    parser.add_argument("--world", default="plain", help="how it departs from the plain model")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness")
    parser.add_argument("--fuse", action="store_true", help="show /sys through FUSE")
    parser.add_argument("--with-parent", action="store_true", help="end when stdin closes")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _serve(options)
    except PlantError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _hurry() -> None:
    """Go before other programs, as hardware does; whoever may not stays where everybody is."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def _serve(options: argparse.Namespace) -> None:
    _hurry()
    board = load_board(options.board)
    tree = build_tree(options.root, board, jetpack=options.jetpack, mode=options.mode)
    machine = Machine(
        tree.files,
        world=options.world,
        seed=options.seed,
        now_ns=time.monotonic_ns(),
        lag_ns=_FUSE_LAG_NS if options.fuse else _PLAIN_LAG_NS,
    )
    with ExitStack() as stack:
        files: Files = FuseFiles(tree.root, machine) if options.fuse else PlainFiles(tree, machine)
        stack.callback(files.close)
        live = Live(machine, files, options.socket)
        stack.callback(partial(options.socket.unlink, missing_ok=True))
        stack.callback(live.close)
        files.show()
        print(READY, flush=True)
        live.loop(sys.stdin.fileno() if options.with_parent else None)


if __name__ == "__main__":
    sys.exit(main())
