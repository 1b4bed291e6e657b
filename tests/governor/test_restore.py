"""Random lives of a governor, killed anywhere, on plain files: the tree ends as it began.

Except where another writer changed a value meanwhile: that one stays.
"""

import errno
import os
import random
import signal
import time
from pathlib import Path

import pytest

from bench.plant.board import load_board
from bench.plant.tree import build_tree
from governor.boards import Board, BoardOptions, discover
from governor.boards.clock import Mode
from governor.errors import BoardError, JournalError, SysfsBusyError
from governor.journal import Journal, restore_from
from tests.boards import plain
from tests.boards.kernel_os import KernelOs, Killed
from tests.boards.plain import CPUFREQ, GPU

SEQUENCES = 240
GOVERNORS = ("powersave", "ondemand", "performance", "schedutil")


def random_board(root: Path, rng: random.Random) -> BoardOptions:
    """Make a board unlike the last one, and a way to drive it."""
    pinned = rng.random() < 0.4
    names = "powersave ondemand performance schedutil" + ("" if pinned else " userspace")
    for first in (0, 4, 8):
        plain.add_cluster(
            root,
            first,
            governor=rng.choice(names.split()),
            governors=names,
            low=rng.choice((115200, 729600, 960000)),
            high=rng.choice((1190400, 1728000, 2201600)),
        )
    gpu = "nvhost_podgov performance" + ("" if pinned else " userspace")
    plain.add_gpu(
        root,
        governors=gpu,
        governor=rng.choice(gpu.split()),
        low=rng.choice(plain.GPU_HZ[:3]),
        high=rng.choice(plain.GPU_HZ[6:]),
    )
    return BoardOptions(lower_min=rng.random() < 0.5)


class Other:
    """Another writer, who changes governors and limits and remembers what."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.wrote: dict[str, str] = {}

    def act(self) -> None:
        """Change one knob to a value nobody else uses, so that it is known for theirs."""
        folder = self.rng.choice([f"{CPUFREQ}/policy{n}" for n in (0, 4, 8)])
        kind = self.rng.random()
        if kind < 0.3:
            self._write(f"{folder}/scaling_governor", "conservative")
        elif kind < 0.7:
            step = self.rng.choice(plain.CPU_KHZ[14:])
            self._write(f"{folder}/scaling_max_freq", str(step + 1))
        else:
            self._write(f"{GPU}/max_freq", str(self.rng.choice(plain.GPU_HZ[3:]) + 1))

    def _write(self, path: str, text: str) -> None:
        plain.put(self.root, path, text)
        self.wrote[path] = text


def life(board: Board, journal: Journal, rng: random.Random, steps: int) -> None:
    """Take the board and move its clocks; give it back now and then."""
    board.acquire(journal)
    for _ in range(steps):
        node = rng.choice(board.nodes)
        node.set_hz(rng.choice(node.available_hz))
        if rng.random() < 0.05:
            board.release()
            board.acquire(journal)


def killed_life(root: Path, run: Path, options: BoardOptions, rng: random.Random) -> None:
    """Start a governor in a process of its own and kill it at a random moment."""
    seed, delay = rng.randrange(1 << 30), rng.random() ** 2 * 0.012
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            journal = Journal.open(run, root)
            board = discover(root, options=options)
            os.write(told, b".")
            restore_from(journal, root)
            life(board, journal, random.Random(seed), 10_000)
        finally:
            os._exit(1)
    os.close(told)
    alive = os.read(ready, 1)
    os.close(ready)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert alive == b"."
    assert os.WIFSIGNALED(status), "it ended by itself"


@pytest.mark.parametrize("block", range(8))
def test_random_lives_end_with_the_tree_as_it_was(tmp_path: Path, block: int) -> None:
    for number in range(SEQUENCES // 8):
        seed = block * 1000 + number
        rng = random.Random(seed)
        root, run = tmp_path / f"root{number}", tmp_path / f"run{number}"
        options = random_board(root, rng)
        before = plain.knobs(root)
        other = Other(root, rng)
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.4:
                other.act()
            if rng.random() < 0.6:
                killed_life(root, run, options, rng)
            else:
                journal = Journal.open(run, root)
                assert restore_from(journal, root).complete
                board = discover(root, options=options)
                life(board, journal, rng, rng.randint(0, 8))
                if rng.random() < 0.5:
                    other.act()
                if rng.random() < 0.5:
                    life_goes_on(board, rng)
                board.restore()
                board.close()
        if rng.random() < 0.4:
            other.act()
        report = restore_from(Journal.open(run, root), root)
        assert report.complete
        expected = before | {path: f"{text}\n".encode() for path, text in other.wrote.items()}
        assert plain.knobs(root) == expected, f"seed {seed}: {report}"
        assert list(run.glob("*.journal")) == []


def life_goes_on(board: Board, rng: random.Random) -> None:
    """Move clocks after another writer came by; a switched governor is taken or left to them."""
    for _ in range(4):
        node = rng.choice(board.nodes)
        try:
            node.set_hz(rng.choice(node.available_hz))
        except BoardError:
            continue  # LostControl: the governor is theirs now


@pytest.mark.parametrize("mode", ["userspace", "pin"])
@pytest.mark.parametrize("kill_before", [True, False])
def test_a_kill_at_each_write_is_undone_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, kill_before: bool
) -> None:
    root = tmp_path / "root"
    kernel = KernelOs(build_tree(root, load_board("agx-orin"), mode="30W"))
    kernel.install(monkeypatch)
    kernel.kernel.write(f"{kernel.kernel.policies[1].where}/scaling_governor", b"performance")
    kernel.tree.sync()
    before = plain.knobs(root)
    options = BoardOptions(cpu_mode=mode, gpu_mode=mode, lower_min=True)
    kills = 0
    for at in range(1, 200):
        kernel.kill_in, kernel.kill_before = at, kill_before
        try:
            whole_life(root, tmp_path / "run", options)
        except Killed:
            kills += 1
        else:
            break
        kernel.kill_in = None
        report = restore_from(Journal.open(tmp_path / "run", root), root)
        assert report.complete
        assert report.kept == ()
        assert plain.knobs(root) == before, f"killed at write {at}"
    assert kills == at - 1 > 20, "every write of the life was a place to die"
    assert plain.knobs(root) == before


@pytest.mark.parametrize("mode", ["userspace", "pin"])
def test_caps_that_come_and_go_are_never_lifted_nor_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    root = tmp_path / "root"
    kernel = KernelOs(build_tree(root, load_board("agx-orin"), mode="MAXN"))
    kernel.install(monkeypatch)
    gpu, cooling = kernel.kernel.gpu, kernel.kernel.cooling[-1]
    options = BoardOptions(cpu_mode=mode, gpu_mode=mode)
    theirs = gpu.range_hz()[1]
    for seed in range(25):
        rng = random.Random(seed)
        board = discover(root, options=options)
        board.acquire(Journal.create(tmp_path / "run", root))
        for _ in range(rng.randint(1, 12)):
            act = rng.random()
            if act < 0.2:
                cooling.set_state(0 if cooling.state else rng.randint(1, cooling.max_state))
            elif act < 0.4 and not cooling.state:
                theirs = rng.choice(gpu.table[2:]) + 1000  # no step: told from a pin of ours
                kernel.kernel.gpu.store("max_freq", str(theirs))
                theirs = gpu.range_hz()[1]
            kernel.tree.sync()
            assert board.gpu is not None
            board.gpu.set_hz(rng.choice(board.gpu.available_hz))
            assert gpu.cur_hz <= theirs
            board.poll()
        board.restore()
        cooling.set_state(0)
        kernel.tree.sync()
        assert board.restore().complete
        assert gpu.range_hz() == (gpu.table[0], theirs), f"seed {seed}"
        assert gpu.governor == "nvhost_podgov"
        board.close()


def whole_life(root: Path, run: Path, options: BoardOptions) -> None:
    """Take the board, move each clock up and down, give it back."""
    board = discover(root, options=options)
    board.acquire(Journal.create(run, root))
    for step in (9, 5, 10, 8):
        for node in board.nodes:
            node.set_hz(node.available_hz[step])
    assert board.restore().complete


def test_a_start_never_takes_our_own_pins_for_originals(tmp_path: Path) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    before = plain.knobs(root)
    first = discover(root)
    first.acquire(Journal.create(run, root))
    first.clusters[0].set_hz(1_190_400_000)
    first.close()  # as if killed: nothing is put back
    board = discover(root)
    board.acquire(Journal.open(run, root))  # even without a restore before
    assert board.restore().complete
    assert plain.knobs(root) == before


def test_a_clock_whose_journal_is_damaged_is_not_taken_until_it_is_seen_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    before = plain.knobs(root)
    first = discover(root)
    first.acquire(Journal.create(run, root))
    assert first.gpu is not None
    first.gpu.set_hz(918_000_000)
    first.close()  # as if killed
    path = run / "gpu.journal"
    path.write_bytes(path.read_bytes()[:4096])
    assert not restore_from(Journal.open(run, root), root).complete
    pinned = {name: text for name, text in plain.knobs(root).items() if GPU in name}
    board = discover(root)
    board.acquire(Journal.open(run, root))
    assert [node.name for node in board.nodes if node.acquired] == ["policy0", "policy4", "policy8"]
    assert "remove the file" in caplog.messages[-1]
    assert board.gpu is not None
    with pytest.raises(SysfsBusyError, match="remove the file"):  # as the status shows it
        board.gpu.set_hz(612_000_000)
    assert not board.release().complete
    assert plain.knobs(root) == before | pinned
    (root / GPU / "governor").write_bytes(before[f"{GPU}/governor"])  # what the message asks for
    (run / "gpu.corrupt").unlink()
    board.acquire(Journal.open(run, root))
    assert all(node.acquired for node in board.nodes)
    assert board.restore().complete
    assert plain.knobs(root) == before


def test_heat_elsewhere_does_not_hide_another_writers_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    kernel = KernelOs(build_tree(root, load_board("agx-orin"), mode="MAXN"))
    kernel.install(monkeypatch)
    board = discover(root, options=BoardOptions(cpu_mode="pin"))
    board.acquire(Journal.create(tmp_path / "run", root))
    kernel.kernel.cooling[2].set_state(8)  # of policy8
    theirs = kernel.kernel.policies[1]
    kernel.kernel.write(f"{theirs.where}/scaling_max_freq", b"1804800")
    kernel.tree.sync()
    assert board.clusters[1].set_hz(1_267_200_000) == 1_267_200_000
    kernel.kernel.cooling[2].set_state(0)
    kernel.tree.sync()
    assert board.restore().complete
    assert theirs.range_khz()[1] == 1_804_800


def test_taking_a_board_twice_does_not_forget_how_it_was(tmp_path: Path) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    before = plain.knobs(root)
    board = discover(root)
    journal = Journal.create(run, root)
    for _ in range(2):
        board.acquire(journal)
        board.clusters[0].set_hz(1_190_400_000)
    assert board.restore().complete
    assert plain.knobs(root) == before


def test_a_write_killed_before_its_tail_was_cut_is_tidied(tmp_path: Path) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    before = plain.knobs(root)
    board = discover(root)
    board.acquire(Journal.create(run, root))
    path = root / CPUFREQ / "policy8" / "scaling_governor"
    path.write_text("ondemand\n\n")
    assert board.restore().complete
    assert plain.knobs(root) == before


def test_a_governor_already_userspace_gets_its_target_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    plain.add_cluster(root, 0, governor="userspace")
    board = discover(root)
    board.acquire(Journal.create(tmp_path / "run", root))
    board.clusters[0].set_hz(1_728_000_000)
    assert board.restore().complete
    assert plain.get(root, f"{CPUFREQ}/policy0/scaling_setspeed") == "1190400"


def test_an_offline_cluster_is_left_in_the_journal_and_restored_later(tmp_path: Path) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    before = plain.knobs(root)
    board = discover(root)
    board.acquire(Journal.create(run, root))
    path = root / CPUFREQ / "policy4" / "scaling_governor"
    path.write_text("")  # so a plain tree shows a cluster without CPUs
    report = board.restore()
    assert not report.complete
    assert "policy4" in report.left[0]
    assert [p.name for p in run.iterdir()] == ["policy4.journal"]
    path.write_text("userspace\n")
    assert restore_from(Journal.open(run, root), root).complete
    assert plain.knobs(root) == before


def test_a_clock_that_cannot_be_restored_yet_is_left_out_not_retaken(tmp_path: Path) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    board = discover(root)
    board.acquire(Journal.create(run, root))
    path = root / CPUFREQ / "policy4" / "scaling_governor"
    path.write_text("")
    board.close()
    again = discover(root)
    again.acquire(Journal.open(run, root))
    assert [node.name for node in again.nodes if node.acquired] == ["policy0", "policy8", "gpu"]
    path.write_text("userspace\n")
    again.poll()
    assert all(node.acquired for node in again.nodes)
    assert again.restore().complete
    assert plain.get(root, f"{CPUFREQ}/policy4/scaling_governor") == "performance"


def test_a_minimum_of_ours_pushed_down_by_their_maximum_is_put_back(tmp_path: Path) -> None:
    root, run = tmp_path / "root", tmp_path / "run"
    plain.add_gpu(root, governors="nvhost_podgov")
    board = discover(root)
    board.acquire(Journal.create(run, root))
    assert board.gpu is not None
    board.gpu.set_hz(918_000_000)
    for name in ("min_freq", "max_freq"):  # the kernel shows both as the new maximum
        plain.put(root, f"{GPU}/{name}", 612_000_000)
    report = board.restore()
    assert report.kept == (f"{root / GPU / 'max_freq'}: 612000000",)
    assert plain.get(root, f"{GPU}/min_freq") == "306000000"
    assert plain.get(root, f"{GPU}/max_freq") == "612000000"


def test_a_refused_write_is_left_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    board = discover(root)
    board.acquire(Journal.create(run, root))
    real = os.pwrite

    def refuse(fd: int, data: bytes, at: int) -> int:
        if "policy8" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.EBUSY, "busy")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", refuse)
    report = board.restore()
    assert len(report.left) == 1
    assert "EBUSY" in report.left[0]
    assert len(report.restored) == 3
    monkeypatch.undo()
    assert restore_from(Journal.open(run, root), root).complete
    assert plain.get(root, f"{CPUFREQ}/policy8/scaling_governor") == "ondemand"


def test_the_journal_comes_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, run = plain.orin(tmp_path / "root"), tmp_path / "run"
    before = plain.knobs(root)
    journal = Journal.create(run, root)
    board = discover(root)

    def full(*_: object) -> None:
        raise JournalError("no room")

    monkeypatch.setattr(journal, "add", full)
    with pytest.raises(JournalError):
        board.acquire(journal)
    assert plain.knobs(root) == before
