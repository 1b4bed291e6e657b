"""Start a live board and talk to it: ``with spawn_board(root) as board: board.run("resnet50")``."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from bench.plant import livewire as wire
from bench.plant.errors import KernelError, PlantError
from bench.plant.fusetree import unmount
from bench.plant.live import READY

_START_S = 20.0
_STOP_S = 5.0
_R = TypeVar("_R", bound=wire.Reply)


class LiveClient:
    """One connection to a live board; not for several threads at a time.

    Args:
        path: The board's socket.

    Raises:
        PlantError: Nobody listens there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise PlantError("no live board", where=str(path), why=str(error)) from error

    def __enter__(self) -> "LiveClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def run(
        self,
        workload: str,
        *,
        context: int = 0,
        engine: str = "flame-eager",
        precision: str = "",
        batch: int = 1,
    ) -> wire.Ran:
        """Run one job and wait until its simulated end.

        Args:
            workload: Name of the network.
            context: Tokens in the context.
            engine: What runs it.
            precision: Number format; empty takes the engine's own.
            batch: Inputs.

        Raises:
            PlantError: There is no such workload, or the board is gone.
        """
        request = wire.Run(workload, engine, precision, batch, context)
        return self._ask(request, wire.Ran)

    def energy(self) -> wire.Energy:
        """Ask for the true energy since the start and since this connection asked last."""
        return self._ask(wire.AskEnergy(), wire.Energy)

    def state(self) -> wire.State:
        """Ask what is in force."""
        return self._ask(wire.AskState(), wire.State)

    def cap(self, *, cpu_hz: int = 0, gpu_hz: int = 0) -> None:
        """Limit clocks as another requester than the user, Hz; 0 lifts a limit."""
        self._ask(wire.Cap(cpu_hz, gpu_hz), wire.Ok)

    def write(self, path: str, text: str) -> None:
        """Write a file, by its path below the root, as another program would.

        Raises:
            KernelError: The kernel refuses.
        """
        self._ask(wire.Write(path, text), wire.Ok)

    def set_online(self, cpu: int, online: bool) -> None:
        """Take a CPU away or bring it back."""
        self.write(f"sys/devices/system/cpu/cpu{cpu}/online", str(int(online)))

    def set_mode(self, name: str) -> None:
        """Do what ``nvpmodel -m`` does."""
        self._ask(wire.SetMode(name), wire.Ok)

    def break_hardware(
        self, domain: str, *, driver_errno: int = 0, hardware_cap_hz: int = 0
    ) -> None:
        """Make ``"cpu"`` or ``"gpu"`` hardware fail; zeroes heal it."""
        self._ask(wire.Break(domain, driver_errno, hardware_cap_hz), wire.Ok)

    def set_heat(self, chip_c: float) -> None:
        """Set the chip's temperature, degrees Celsius."""
        self._ask(wire.Heat(chip_c), wire.Ok)

    def stop(self) -> None:
        """End the board's process."""
        self._ask(wire.Stop(), wire.Ok)

    def _ask(self, request: wire.Request, kind: type[_R]) -> _R:
        try:
            self._socket.send(wire.encode(request))
            packet = self._socket.recv(wire.MAX_BYTES)
        except OSError as error:
            raise PlantError(
                "the live board is gone", where=str(self.path), why=str(error)
            ) from error
        if not packet:
            raise PlantError("the live board is gone", where=str(self.path))
        reply = wire.decode_reply(packet)
        if isinstance(reply, wire.Refused):
            if reply.errno:
                raise KernelError(reply.errno)
            raise PlantError("refused", where=str(self.path), why=reply.why)
        if not isinstance(reply, kind):
            raise PlantError(f"unexpected reply {type(reply).__name__}", where=str(self.path))
        return reply


class LiveBoard(LiveClient):
    """A live board that this process has started.

    Attributes:
        root: Folder that stands for ``/`` on the board.
        pid: Its process.
    """

    def __init__(self, root: Path, path: Path, process: "subprocess.Popen[str]") -> None:
        super().__init__(path)
        self.root = root
        self.pid = process.pid

    def client(self) -> LiveClient:
        """Open another connection, such as for another thread."""
        return LiveClient(self.path)


@contextmanager
def spawn_board(
    root: Path,
    *,
    board: str = "agx-orin",
    jetpack: int = 6,
    mode: str = "",
    world: str = "plain",
    seed: int = 0,
    fuse: bool = False,
) -> Iterator[LiveBoard]:
    """Start a live board below a folder and stop it at the end.

    Args:
        root: Folder that stands for ``/``; made if missing. The socket lies beside it.
        board: Name of the board.
        jetpack: 5, 6 or 7.
        mode: nvpmodel mode; empty for the board's default.
        world: How it departs from the plain model.
        seed: Seed of all randomness.
        fuse: Show ``/sys`` through FUSE, with real refusals and blocking writes.

    Raises:
        PlantError: It does not start.
    """
    path = root.with_name(root.name + ".sock")
    command = [sys.executable, "-m", "bench.plant.live", "--with-parent"]
    command += ["--root", str(root), "--socket", str(path), "--board", board]
    command += ["--jetpack", str(jetpack), "--world", world, "--seed", str(seed)]
    command += ["--mode", mode] if mode else []
    command += ["--fuse"] if fuse else []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _await_ready(process)
            live = LiveBoard(root, path, process)
            with live:
                yield live
        finally:
            if not _ended(process) and fuse:
                unmount(root)


def _await_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout and process.stderr  # both are pipes
    deadline = time.monotonic() + _START_S
    readable = select.select([process.stdout], [], [], deadline - time.monotonic())[0]
    if readable and process.stdout.readline().strip() == READY:
        return
    process.kill()
    why = process.stderr.read().strip().splitlines()
    raise PlantError("the live board does not start", why=why[-1] if why else "no word from it")


def _ended(process: "subprocess.Popen[str]") -> bool:
    """End the process; tells whether it ended by itself."""
    if process.stdin:
        process.stdin.close()  # it ends when its stdin does
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return False
    return process.returncode == 0
