"""Errors of the simulated board.

They stand apart from the product's tree because the plant imports nothing from the rooms it is used
to judge.
"""

import os


class PlantError(Exception):
    """A simulated board cannot be made or used as asked.

    Args:
        what: What failed.
        where: Board, path or socket it failed at; empty if there is none.
        why: Reason.
        hint: The next step for the reader.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        super().__init__(what, where, why, hint)

    def __str__(self) -> str:
        """Join the four parts into one line."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.why:
            text += f": {self.why}"
        if self.hint:
            text += f"; {self.hint}"
        return " ".join(text.split())


class KernelError(OSError):
    """The simulated kernel refuses an access, with the errno that the real one gives."""

    def __init__(self, code: int) -> None:
        super().__init__(code, os.strerror(code))
