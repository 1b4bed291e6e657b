"""A board whose files turn read-only under a running daemon: told once, tried again, lived with."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from governor.actuator import Actuator
from governor.boards import Board, discover
from governor.journal import Journal
from policies.base import OperatingPoint
from tests.boards import plain

from .daemons import wait_for

LOW = OperatingPoint(960_000_000, 408_000_000)
HIGH = OperatingPoint(1_728_000_000, 918_000_000)
POLL_MS = 20


class Refusal:
    """Answers writes below some folders as a read-only mount does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = errno.EROFS
        self.folders: tuple[str, ...] = ()
        self.tries = 0
        self._open, self._pwrite = os.open, os.pwrite
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def _check(self, path: object) -> None:
        if any(folder in str(path) for folder in self.folders):
            self.tries += 1
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: object, flags: int, *more: int, **named: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._check(path)
        return self._open(path, flags, *more, **named)

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        self._check(Path(f"/proc/self/fd/{fd}").readlink())
        return self._pwrite(fd, data, at)


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    return Refusal(monkeypatch)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return discover(plain.orin(tmp_path / "root"))


@pytest.fixture
def actuator(board: Board, tmp_path: Path, refusal: Refusal) -> Iterator[Actuator]:
    it = Actuator(board, Journal.open(tmp_path / "run", tmp_path / "root"), poll_ms=POLL_MS)
    it.start()
    yield it
    refusal.folders = ()
    if it.alive:
        it.close(restore=True)


def go(actuator: Actuator, point: OperatingPoint) -> None:
    actuator.set_point(point)
    actuator.flush()


def reached(actuator: Actuator, point: OperatingPoint) -> None:
    wait_for(lambda: actuator.held and actuator.point() == point, what=f"{point}")


def errors(actuator: Actuator) -> dict[str, str]:
    return {writer.node.name: writer.error for writer in actuator.writers if writer.error}


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_clock_that_turns_read_only_while_held(
    actuator: Actuator, refusal: Refusal, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    go(actuator, LOW)
    reached(actuator, LOW)
    refusal.code, refusal.folders = code, ("17000000.gpu",)
    go(actuator, HIGH)
    reached(actuator, OperatingPoint(HIGH.cpu_hz, LOW.gpu_hz))
    start, before = time.monotonic(), refusal.tries
    wait_for(lambda: refusal.tries >= before + 5, what="more tries")
    assert time.monotonic() - start > 4 * POLL_MS / 1000, "no more than one a poll"
    assert list(errors(actuator)) == ["gpu"]
    assert errno.errorcode[code] in errors(actuator)["gpu"]
    assert len([m for m in caplog.messages if errno.errorcode[code] in m]) == 1
    refusal.folders = ()
    reached(actuator, HIGH)
    assert errors(actuator) == {}


def test_a_clock_that_is_read_only_when_the_board_is_taken_leaves_the_others_governed(
    actuator: Actuator, refusal: Refusal
) -> None:
    refusal.folders = ("17000000.gpu",)
    go(actuator, LOW)
    wait_for(lambda: actuator.held and actuator.point().cpu_hz == LOW.cpu_hz, what="the CPU")
    wait_for(lambda: "EROFS" in errors(actuator).get("gpu", ""), what="the error")
    assert list(errors(actuator)) == ["gpu"]
    refusal.folders = ()
    reached(actuator, LOW)
    assert errors(actuator) == {}


def test_a_whole_board_that_is_read_only_is_told_once_and_asked_again(
    actuator: Actuator, refusal: Refusal, caplog: pytest.LogCaptureFixture
) -> None:
    refusal.folders = ("/sys/",)
    go(actuator, LOW)
    before = refusal.tries
    wait_for(lambda: "EROFS" in actuator.error, what="the error")
    wait_for(lambda: refusal.tries > before + 12, what="more tries")
    assert not actuator.held
    assert len([m for m in caplog.messages if "cannot take the board over" in m]) == 1
    assert len([m for m in caplog.messages if "left out" in m]) == 4
    refusal.folders = ()
    reached(actuator, LOW)
    assert actuator.error == ""


def test_what_turned_read_only_before_the_release_is_given_back_later(
    actuator: Actuator, refusal: Refusal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    before = plain.knobs(root)
    go(actuator, HIGH)
    reached(actuator, HIGH)
    refusal.folders = ("policy4",)
    actuator.release()
    wait_for(lambda: actuator.owed, what="what is owed")
    tries = refusal.tries
    wait_for(lambda: refusal.tries > tries + 3, what="more tries")
    told = [m for m in caplog.messages if "not restored yet" in m]
    assert told == [f"not restored yet: {line}" for line in actuator.owed], "each once"
    refusal.folders = ()
    wait_for(lambda: not actuator.owed, what="the rest")
    assert plain.knobs(root) == before
