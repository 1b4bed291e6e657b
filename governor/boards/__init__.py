"""Boards: the only rooms that touch clocks and sensors, all under a root folder."""

from pathlib import Path

from governor.boards.board import Board
from governor.boards.clock import ClockNode
from governor.boards.identity import BoardIdentity
from governor.boards.node import DryRun, Files, LostControlError, OnWrite
from governor.boards.restore import RestoreReport
from governor.boards.state import BoardEvent, BoardOptions, BoardState
from governor.errors import BoardError

__all__ = [
    "Board",
    "BoardEvent",
    "BoardIdentity",
    "BoardOptions",
    "BoardState",
    "ClockNode",
    "LostControlError",
    "OnWrite",
    "RestoreReport",
    "discover",
]


def discover(
    root: Path = Path("/"),
    *,
    options: BoardOptions | None = None,
    dry_run: DryRun | None = None,
    on_write: OnWrite | None = None,
) -> Board:
    """Find the board under a root folder.

    Args:
        root: Folder that stands for ``/``: a real board's, or a simulated one's.
        options: How it is driven.
        dry_run: When given, told ``(path, text)`` of each write, which is then not made.
        on_write: Told ``(path, CLOCK_MONOTONIC ns)`` just before each pwrite.

    Returns:
        The board, not yet acquired; ``board.notes`` tells what it lacks.

    Raises:
        BoardError: There is no clock at all that could be set.
    """
    files = Files(root, dry_run=dry_run, on_write=on_write)
    board = Board(files, options or BoardOptions())
    if not board.nodes:
        raise BoardError(
            "no clock can be set here",
            where=str(root),
            why="; ".join(board.notes),
            hint="is this a Jetson? try flamegov demo",
        )
    return board
