import threading
import time

import pytest

from governor.actuator import Actuator
from governor.boards import BoardEvent, RestoreReport
from governor.errors import BoardError, SysfsError
from policies.base import OperatingPoint

from .daemons import wait_for
from .fakes import CPU, GPU, board_state

LOW, HIGH = OperatingPoint(CPU[0], GPU[0]), OperatingPoint(CPU[2], GPU[2])


class Node:
    """A clock whose writes can be slow, fail, or fall short."""

    def __init__(self, name, domain):
        self.name, self.domain = name, domain
        self.writes = []
        self.takes_s = 0.0
        self.fails = False
        self.cap = None
        self.gate = threading.Event()
        self.gate.set()

    def set_hz(self, hz):
        assert self.gate.wait(5)
        time.sleep(self.takes_s)
        if self.fails:
            raise SysfsError("write", f"/sys/{self.name}", 5, hint="see dmesg")
        self.writes.append(hz)
        return min(hz, self.cap) if self.cap else hz


class Board:
    def __init__(self):
        self.clusters = [Node(f"policy{n}", "cpu") for n in (0, 4)]
        self.gpu = Node("gpu", "gpu")
        self.late = []
        self.state = board_state(point=OperatingPoint(1, 2))
        self.acquired = self.released = 0
        self.refuses = False
        self.report = RestoreReport()

    @property
    def nodes(self):
        return (*self.clusters, self.gpu, *self.late)

    def poll(self):
        return self.state

    def acquire(self, journal):
        if self.refuses:
            raise BoardError("no clock of the board can be set")
        self.acquired += 1

    def release(self):
        self.released += 1
        return self.report


@pytest.fixture
def board():
    return Board()


@pytest.fixture
def actuator(board):
    it = Actuator(board, None, poll_ms=20)
    it.start()
    yield it
    for node in board.nodes:
        node.gate.set()
    if it.alive:
        it.close(restore=True)


def go(actuator, point):
    actuator.set_point(point)
    actuator.flush()


def reached(actuator, point):
    wait_for(lambda: actuator.held and actuator.point() == point, what=f"{point}")


def test_the_board_is_taken_with_the_first_point_and_only_once(actuator, board):
    time.sleep(0.05)
    assert board.acquired == 0
    go(actuator, LOW)
    reached(actuator, LOW)
    go(actuator, HIGH)
    reached(actuator, HIGH)
    assert board.acquired == 1


def test_no_write_without_a_change(actuator, board):
    for _ in range(5):
        go(actuator, HIGH)
        reached(actuator, HIGH)
    assert [node.writes for node in board.nodes] == [[CPU[2]], [CPU[2]], [GPU[2]]]


def test_nothing_is_written_before_flush(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    actuator.set_point(HIGH)
    time.sleep(0.05)
    assert board.gpu.writes == [GPU[0]]


def test_a_slow_write_blocks_neither_the_caller_nor_the_others(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    board.gpu.gate.clear()
    start = time.monotonic()
    go(actuator, HIGH)
    assert time.monotonic() - start < 0.05
    wait_for(lambda: board.clusters[1].writes[-1] == CPU[2], what="the CPU")
    assert board.gpu.writes == [GPU[0]]


def test_the_newest_target_wins(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    board.gpu.gate.clear()
    go(actuator, HIGH)
    wait_for(lambda: actuator.writers[2].busy)
    for gpu_hz in (GPU[1], GPU[0], GPU[1]):
        go(actuator, OperatingPoint(CPU[2], gpu_hz))
    board.gpu.gate.set()
    reached(actuator, OperatingPoint(CPU[2], GPU[1]))
    assert board.gpu.writes == [GPU[0], GPU[2], GPU[1]]


def test_every_node_gets_there_whatever_the_speed_of_the_writes(actuator, board):
    for takes_s in (0.0, 0.002, 0.0, 0.002):
        for node in board.nodes:
            node.takes_s = takes_s
        for point in (LOW, HIGH, LOW, HIGH):
            go(actuator, point)
            time.sleep(0.001)
        reached(actuator, HIGH)
        wait_for(lambda: all(n.writes[-1] in (CPU[2], GPU[2]) for n in board.nodes))


def test_a_failed_write_is_told_and_tried_again(actuator, board):
    board.gpu.fails = True
    go(actuator, HIGH)
    wait_for(lambda: actuator.writers[2].error, what="the error")
    assert "see dmesg" in actuator.writers[2].error
    board.gpu.fails = False
    reached(actuator, HIGH)
    assert actuator.writers[2].error == ""


def test_a_clock_that_fell_short_is_written_again(actuator, board):
    board.gpu.cap = GPU[1]
    go(actuator, HIGH)
    reached(actuator, OperatingPoint(CPU[2], GPU[1]))
    board.gpu.cap = None
    reached(actuator, HIGH)


def test_what_others_touched_is_written_again(actuator, board):
    go(actuator, HIGH)
    reached(actuator, HIGH)
    board.state = board_state(events=(BoardEvent("governor", "policy0", "policy0: touched"),))
    wait_for(lambda: len(board.clusters[0].writes) > 1, what="the second write")
    assert len(board.clusters[1].writes) == 1


def test_a_clock_that_appears_late_gets_a_writer(actuator, board):
    go(actuator, HIGH)
    reached(actuator, HIGH)
    board.late = [Node("gpu1", "gpu")]
    wait_for(lambda: board.late[0].writes == [GPU[2]], what="the late clock")


def test_a_board_that_refuses_is_told_and_asked_again(actuator, board):
    board.refuses = True
    go(actuator, HIGH)
    wait_for(lambda: actuator.error, what="the error")
    board.refuses = False
    go(actuator, LOW)
    reached(actuator, LOW)
    assert actuator.error == ""


def test_release_waits_for_a_write_under_way(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    board.gpu.gate.clear()
    go(actuator, HIGH)
    wait_for(lambda: actuator.writers[2].busy)
    actuator.release()
    time.sleep(0.05)
    assert board.released == 0
    board.gpu.gate.set()
    wait_for(lambda: board.released == 1)
    go(actuator, LOW)
    reached(actuator, LOW)
    assert board.acquired == 2


def test_a_release_overtaken_by_a_new_point_leaves_it_in_force(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    for _ in range(20):
        actuator.release()
        go(actuator, HIGH)
        reached(actuator, HIGH)
        go(actuator, LOW)
        reached(actuator, LOW)


def test_close_restores(actuator, board):
    go(actuator, HIGH)
    reached(actuator, HIGH)
    assert actuator.close(restore=True)
    assert board.released == 1


def test_close_without_restore(actuator, board):
    go(actuator, HIGH)
    reached(actuator, HIGH)
    assert actuator.close(restore=False)
    assert board.released == 0


def test_close_tells_of_an_incomplete_restore(actuator, board):
    go(actuator, HIGH)
    reached(actuator, HIGH)
    board.report = RestoreReport(left=("policy4: EBUSY",))
    assert not actuator.close(restore=True)


def test_close_tells_of_a_stuck_write_and_does_not_restore(actuator, board, monkeypatch):
    monkeypatch.setattr("governor.actuator.JOIN_TIMEOUT_S", 0.1)
    go(actuator, LOW)
    reached(actuator, LOW)
    board.gpu.gate.clear()
    go(actuator, HIGH)
    wait_for(lambda: actuator.writers[2].busy)
    assert not actuator.close(restore=True)
    assert board.released == 0


def test_moved_since_covers_writes_under_way_and_done(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    wait_for(lambda: not any(w.busy for w in actuator.writers))
    now = time.monotonic_ns()
    assert not actuator.moved_since(now)
    board.gpu.gate.clear()
    go(actuator, HIGH)
    wait_for(lambda: actuator.writers[2].busy)
    assert actuator.moved_since(time.monotonic_ns())
    board.gpu.gate.set()
    reached(actuator, HIGH)
    assert actuator.moved_since(now)


def test_a_wish_overtaken_by_a_release_does_not_take_the_board(actuator, board):
    actuator.set_point(LOW)
    actuator.release()
    actuator.flush()
    time.sleep(0.05)
    assert not actuator.held
    assert board.acquired == 0


def test_what_could_not_be_given_back_is_told_once_shown_and_tried_again(actuator, board, caplog):
    go(actuator, LOW)
    reached(actuator, LOW)
    board.report = RestoreReport(left=("gpu/min_freq: EROFS",))
    actuator.release()
    wait_for(lambda: board.released > 3, what="more tries")
    assert actuator.owed == ("gpu/min_freq: EROFS",)
    assert [m for m in caplog.messages if "EROFS" in m] == ["not restored yet: gpu/min_freq: EROFS"]
    board.report = RestoreReport(restored=("gpu/min_freq: 2 -> 1",))
    wait_for(lambda: not actuator.owed, what="the rest")
    tries = board.released
    time.sleep(0.1)
    assert board.released == tries
    assert actuator.close(restore=True)


def test_close_tries_once_more_to_give_back_what_is_owed(actuator, board):
    go(actuator, LOW)
    reached(actuator, LOW)
    board.report = RestoreReport(left=("policy4: EBUSY",))
    actuator.release()
    wait_for(lambda: actuator.owed)
    board.report = RestoreReport()
    assert actuator.close(restore=True)


def test_a_clock_that_was_never_written_has_what_the_board_shows(actuator, board):
    board.gpu.fails = True
    go(actuator, LOW)
    wait_for(lambda: actuator.writers[2].error, what="the error")
    assert actuator.point() == OperatingPoint(LOW.cpu_hz, 2)


def test_before_the_board_is_taken_its_own_clocks_are_told(actuator):
    assert actuator.point() == OperatingPoint(1, 2)
