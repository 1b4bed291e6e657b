"""Random lives of the board code, killed anywhere, on the kernel's own files.

Whatever happened - drivers that failed, caps, CPUs that came and went - the board ends as it
began, cluster by cluster, except where another writer set a value: that one stays.
"""

import functools
import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from estimators.errors import FlamegovError
from governor.boards import Board, BoardOptions, discover
from governor.boards.clock import Mode
from governor.journal import Journal, restore_from
from tests.kernel import orinlike
from tests.kernel.orinlike import CLUSTERS, ORIGINALS, folder, put
from tests.kernel.semantics import CPU_KHZ, GPU_HZ

pytestmark = pytest.mark.kernel
SEQUENCES, BLOCKS = 200, 8
ROOT = Path("/")
MODES: tuple[Mode, Mode] = ("userspace", "pin")

# No clock of ours is ever one of another writer's or of a thermal cap: so the end tells them apart.
OURS = {"cpu": CPU_KHZ[0::3], "gpu": tuple(hz for hz in GPU_HZ[0::3])}
THEIRS = {"cpu": CPU_KHZ[13::3], "gpu": tuple(hz + 5000 for hz in GPU_HZ[4:-1:3])}


class Life:
    """A governor in a process of its own that does what it is told, one command at a time."""

    def __init__(self, run: Path, options: BoardOptions, *, look: bool) -> None:
        known = None if look else _known(options)
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            gc.disable()
            os.close(self._orders)
            os.close(self._answers)
            code = 1
            try:
                _live(orders, answers, run, lambda: known or discover(ROOT, options=options))
                code = 0
            finally:
                os._exit(code)
        os.close(orders)
        os.close(answers)
        self.answer()

    def tell(self, order: str) -> None:
        os.write(self._orders, order.ljust(32).encode())

    def answer(self) -> bytes:
        """Wait for the end of a command."""
        said = os.read(self._answers, 1)
        assert said, "the governor died of itself"
        return said

    def end(self, number: int) -> None:
        """Kill it, or let it give the board back."""
        if number:
            os.kill(self.pid, number)
        else:
            self.tell("leave")
            self.answer()
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status) == bool(number)
        os.close(self._orders)
        os.close(self._answers)


@functools.cache
def _known(options: BoardOptions) -> Board:
    """Find the board once for all lives that are driven alike: finding it is what takes longest."""
    return discover(ROOT, options=options)


def _live(orders: int, answers: int, run: Path, find: Callable[[], Board]) -> None:
    journal = Journal.open(run, ROOT)
    restore_from(journal, ROOT)
    board = find()
    order = ["take"]
    while True:
        said = b"."
        try:
            if order[0] == "take":
                board.acquire(journal)
            elif order[0] == "give" or order[0] == "leave":
                board.restore()
            elif order[0] == "look":
                board.poll()
            else:
                node = next(node for node in board.nodes if node.name == order[0])
                node.set_hz(int(order[1]))
        except (FlamegovError, StopIteration):
            said = b"!"  # a refusal; what matters is the state at the end
        os.write(answers, said)
        if order[0] == "leave":
            return
        order = os.read(orders, 32).decode().split()


class World:
    """What happens to the board besides us, and what it must look like in the end."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.expected = {name: dict(files) for name, files in ORIGINALS.items()}
        governors = ["schedutil", "performance", "powersave"]
        rng.shuffle(governors)
        for cluster, governor in zip(CLUSTERS, governors, strict=True):
            low, high = rng.choice(CPU_KHZ[:9]), rng.choice(CPU_KHZ[16:])
            files = self.expected[cluster]
            files["scaling_governor"] = governor
            files["scaling_min_freq"], files["scaling_max_freq"] = str(low), str(high)
        gpu = self.expected["gpu"]
        gpu["min_freq"], gpu["max_freq"] = str(rng.choice(GPU_HZ[:3])), str(rng.choice(GPU_HZ[7:]))
        gpu["governor"] = rng.choice(("simple_ondemand", "performance"))
        for name, files in self.expected.items():
            for file, text in files.items():
                put(folder(name) / file, text)
        orinlike.wait_for(self.as_expected, "the beginning")
        # A limit written below a thermal cap cannot be seen, so no clock has both.
        self.heated = {name for name in self.expected if rng.random() < 0.5}
        self.offline: set[int] = set()
        self.history: list[str] = []

    def as_expected(self) -> bool:
        return orinlike.state() == self.expected

    def happens(self) -> None:
        """Let one thing happen."""
        act = self.rng.choice(
            (self.other, self.other, self.thermal, self.thermal, self.fault, self.hotplug)
        )
        self.history.append(act.__name__)
        act()

    def other(self) -> None:
        """Another writer sets a limit, as nvpmodel does, or a governor."""
        name = self.rng.choice((*CLUSTERS, "gpu"))
        domain = "gpu" if name == "gpu" else "cpu"
        prefix = "" if domain == "gpu" else "scaling_"
        file, text = f"{prefix}max_freq", str(self.rng.choice(THEIRS[domain]))
        if self.rng.random() < 0.3:
            file, text = f"{prefix}governor", "performance" if domain == "gpu" else "ondemand"
        heated = name in self.heated and file.endswith("max_freq")
        if heated or (domain == "cpu" and CLUSTERS[name][0] in self.offline):
            return
        put(folder(name) / file, text)
        self.expected[name][file] = text
        self.history.append(f"{name}/{file}={text}")

    def thermal(self) -> None:
        """A thermal cap arrives, or leaves."""
        name = self.rng.choice((*CLUSTERS, "gpu"))
        state = self.rng.choice((0, 3, 6) if name == "gpu" else (0, 2, 5, 8))
        if name not in self.heated:
            return
        orinlike.cool(name, state)
        self.history.append(f"{name} cooled {state}")

    def fault(self) -> None:
        """A driver fails, or recovers."""
        name = self.rng.choice(("cpu_errno", "gpu_errno"))
        value = self.rng.choice((0, 5))
        orinlike.hardware(**{name: value})
        self.history.append(f"{name}={value}")

    def hotplug(self) -> None:
        """A CPU goes or returns."""
        cpu = self.rng.choice((1, 2, 3))
        orinlike.online(cpu, cpu in self.offline)
        self.offline ^= {cpu}
        self.history.append(f"offline {self.offline}")

    def calm(self) -> None:
        """All is over."""
        orinlike.hardware(cpu_errno=0, gpu_errno=0)
        for cpu in self.offline:
            orinlike.online(cpu, True)
        for name in self.heated - {"emc"}:
            orinlike.cool(name, 0)


def random_order(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return rng.choice(("give", "take", "look"))
    name = rng.choice((*CLUSTERS, "gpu"))
    if name == "gpu":
        return f"gpu {rng.choice(OURS['gpu'])}"
    return f"{name} {rng.choice(OURS['cpu']) * 1000}"


def random_life(run: Path, rng: random.Random, world: World, options: BoardOptions) -> None:
    life = Life(run, options, look=rng.random() < 0.2)
    for _ in range(rng.randint(1, 5)):
        order = random_order(rng)
        life.tell(order)
        world.history.append(f"{order} {life.answer().decode()}")
        if rng.random() < 0.35:
            world.happens()
    ending = rng.random()
    if ending < 0.5:  # killed in the middle of something
        order = random_order(rng)
        life.tell(order)
        world.history.append(f"{order} killed")
        time.sleep(rng.random() ** 2 * 0.006)
    world.history.append("killed" if ending < 0.7 else "leave")
    life.end(signal.SIGKILL if ending < 0.7 else 0)


def _warm_up(folder: Path) -> None:
    """Have everything that is made at its first use made before the forks."""
    board = discover(ROOT)
    board.acquire(Journal.create(folder / "warm", ROOT))
    board.nodes[0].set_hz(board.nodes[0].available_hz[-1])
    assert board.restore().complete
    board.close()


@pytest.fixture
def one_cpu(tmp_path: Path) -> Iterator[None]:
    """Keep parent and child on one CPU: waking an emulated one takes its host's scheduler."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    _warm_up(tmp_path)
    gc.collect()
    gc.freeze()  # or each child's collector would touch, and so copy, all there is
    yield
    gc.unfreeze()
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_cpu")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_lives_end_with_the_board_as_it_was(tmp_path: Path, block: int) -> None:
    orinlike.reset()
    for number in range(SEQUENCES // BLOCKS):
        seed = block * 1000 + number
        rng = random.Random(seed)
        world = World(rng)
        run = tmp_path / f"run{number}"
        options = BoardOptions(
            cpu_mode=rng.choice(MODES), gpu_mode=rng.choice(MODES), lower_min=rng.random() < 0.5
        )
        for _ in range(rng.choice((1, 1, 1, 2))):
            random_life(run, rng, world, options)
            if rng.random() < 0.3:
                world.happens()
        world.calm()
        time.sleep(0.01)
        report = restore_from(Journal.open(run, ROOT), ROOT)
        assert report.complete, f"seed {seed}: {report}"
        orinlike.wait_for(
            world.as_expected,
            f"seed {seed}, {options}: {world.expected}, got {orinlike.state()}, "
            f"{report}, {world.history}",
        )
        assert list(run.glob("*.journal")) == []
    orinlike.reset()
