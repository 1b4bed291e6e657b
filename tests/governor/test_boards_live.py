"""The same board code over the live simulated board, which answers a moment later."""

from pathlib import Path

import pytest

from bench.plant.liveclient import spawn_board
from governor.boards import BoardOptions, discover
from governor.boards.clock import Mode
from governor.journal import Journal
from tests.boards import plain


@pytest.mark.parametrize("mode", ["userspace", "pin"])
def test_clocks_of_the_live_board_follow_and_are_given_back(tmp_path: Path, mode: Mode) -> None:
    root = tmp_path / "root"
    with spawn_board(root):
        before = plain.knobs(root)
        board = discover(root, options=BoardOptions(cpu_mode=mode, gpu_mode=mode))
        board.acquire(Journal.create(tmp_path / "run", root))
        assert board.gpu is not None
        for cpu_hz, gpu_hz in ((1_190_400_000, 408_000_000), (960_000_000, 612_000_000)):
            assert [node.set_hz(cpu_hz) for node in board.clusters] == [cpu_hz] * 3
            assert board.gpu.set_hz(gpu_hz) == gpu_hz
            point = board.poll().point
            assert point == (cpu_hz, gpu_hz), "in force when set_hz returns"
        state = board.poll()
        assert state.total_mw is not None
        assert state.events == ()
        assert board.restore().complete
        board.close()
        assert plain.knobs(root) == before
