"""Access to the constants of a board's physics, with an error that names what is missing."""

from collections.abc import Mapping
from typing import Any

from bench.plant.board import BoardSpec
from bench.plant.errors import PlantError


def physics(board: BoardSpec, section: str) -> Mapping[str, Any]:
    """Return one section of a board's ``[physics]``.

    Raises:
        PlantError: The board is known by its files only and has no such constants.
    """
    try:
        found: Mapping[str, Any] = board.physics[section]
    except KeyError:
        raise PlantError(
            f"no constants for {section}",
            where=board.name,
            why="only the files of this board are known",
            hint="choose agx-orin, orin-nx or orin-nano",
        ) from None
    return found
