"""Boards that lack something: each is driven as far as it goes, or refused in one line."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from governor.boards import Board, BoardOptions, discover
from governor.errors import BoardError, SysfsError
from governor.journal import Journal
from tests.kernel import orinlike
from tests.kernel.orinlike import CPUFREQ, GPU, GPU_DRIVER, get, put

pytestmark = pytest.mark.kernel
ROOT = Path("/")
MHZ = 1_000_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    orinlike.reset()
    yield
    orinlike.reset()


@contextmanager
def without(module: str) -> Iterator[None]:
    """Take a governor out of the kernel."""
    orinlike.unload(module)
    try:
        yield
    finally:
        orinlike.load(module)


def hold(run: Path, **options: str) -> Board:
    board = discover(ROOT, options=BoardOptions(**options))
    board.acquire(Journal.create(run, ROOT))
    return board


def give_back(board: Board, before: dict[str, dict[str, str]]) -> None:
    assert board.restore().complete
    board.close()
    orinlike.wait_for(lambda: orinlike.state() == before, "the originals")


def one_line(text: str) -> bool:
    return bool(text) and "\n" not in text


def test_no_gpu(tmp_path: Path) -> None:
    put(GPU_DRIVER / "unbind", "17000000.gpu")
    try:
        board = hold(tmp_path)
        assert board.gpu is None
        assert board.notes == ("no GPU clock can be set: the GPU is left to the board",)
        assert board.clusters[0].set_hz(960 * MHZ) == 960 * MHZ
        assert board.attainable().gpu_hz == ()
        put(GPU_DRIVER / "bind", "17000000.gpu")  # as when the GPU is powered for the first time
        assert [event.kind for event in board.poll().events if event.node == "gpu"] == ["appeared"]
        assert board.gpu is not None
        assert board.gpu.set_hz(408 * MHZ) == 408 * MHZ
        assert board.restore().complete
        board.close()
    finally:
        if not GPU.exists():
            put(GPU_DRIVER / "bind", "17000000.gpu")


def test_a_gpu_without_the_userspace_governor_is_pinned(tmp_path: Path) -> None:
    before = orinlike.state()
    with without("governor_userspace"):
        board = hold(tmp_path)
        assert board.gpu is not None
        assert board.gpu.set_hz(408 * MHZ) == 408 * MHZ
        assert [get(GPU / name) for name in ("min_freq", "max_freq")] == ["408000000"] * 2
        give_back(board, before)
        with pytest.raises(BoardError, match="userspace governor is not offered") as refusal:
            hold(tmp_path / "second", gpu_mode="userspace")
        assert one_line(str(refusal.value))
    assert orinlike.state() == before


def test_cpus_without_the_userspace_governor_are_pinned(tmp_path: Path) -> None:
    before = orinlike.state()
    with without("cpufreq_userspace"):
        board = hold(tmp_path)
        for node in board.clusters:
            assert node.set_hz(960 * MHZ) == 960 * MHZ
            folder = CPUFREQ / node.name
            limits = [get(folder / f"scaling_{name}_freq") for name in ("min", "max", "cur")]
            assert limits == ["960000"] * 3
        give_back(board, before)


@pytest.mark.parametrize(("steps", "why"), [(0, "no clocks"), (1, "one clock")])
def test_cpus_with_nothing_to_choose_are_left_alone(tmp_path: Path, steps: int, why: str) -> None:
    with orinlike.reloaded(f"cpu_steps={steps}"):
        board = hold(tmp_path)
        assert board.clusters == []
        assert [why in note for note in board.notes] == [True, True, True, False]
        assert "CPU clocks are left to the board" in board.notes[-1]
        assert all(one_line(note) for note in board.notes)
        assert board.gpu is not None
        assert board.gpu.set_hz(408 * MHZ) == 408 * MHZ
        assert board.restore().complete
        board.close()


def test_a_read_only_sys_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    before = orinlike.state()
    subprocess.run(["/bin/mount", "-o", "remount,ro", "/sys"], check=True)
    try:
        with pytest.raises(SysfsError, match="EROFS") as refusal:
            hold(tmp_path)
        assert "mounted read-only here" in str(refusal.value)
        assert one_line(str(refusal.value))
    finally:
        subprocess.run(["/bin/mount", "-o", "remount,rw", "/sys"], check=True)
    assert orinlike.state() == before
    assert list(tmp_path.glob("*.journal")) == []
