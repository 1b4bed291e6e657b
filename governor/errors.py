"""Errors of the daemon's rooms; the whole tree is drawn in ``estimators/errors.py``."""

import errno as _errno
import traceback

from estimators.errors import FlamegovError, Permanent, Transient
from governor.words import one_line, printable

TOLD_CHARS = 300
"""Longest text of an error of other people's code."""

_PLACE_CHARS = 180


class ConfigError(FlamegovError, Permanent):
    """A configuration file is wrong."""

    exit_code = 2


class UsageError(FlamegovError, Permanent):
    """The command line was wrong."""

    exit_code = 2


class BoardError(FlamegovError, Permanent):
    """The board cannot be driven."""

    exit_code = 4


class SysfsError(BoardError):
    """One access to one board file failed.

    Args:
        op: ``"open"``, ``"read"`` or ``"write"``.
        path: The file.
        code: errno of the failure; 0 when the content was the trouble.
        hint: The next step for the reader.
    """

    def __init__(self, op: str, path: str, code: int, *, why: str = "", hint: str = "") -> None:
        self.op, self.path, self.code = op, path, code
        name = _errno.errorcode.get(code, str(code)) if code else ""
        reason = " ".join(part for part in (name, why) if part)
        super().__init__(f"cannot {op}", where=path, why=reason, hint=hint)


class SysfsBusyError(SysfsError, Transient):
    """The file refuses for now (EBUSY, EAGAIN): the cluster is offline or not ready."""


class JournalError(FlamegovError, Permanent):
    """The restore journal is unusable."""

    exit_code = 4


class AlreadyRunningError(FlamegovError, Permanent):
    """Another daemon holds the lock."""

    exit_code = 5


def told(error: BaseException) -> str:
    """Tell an error of other people's code in one printable line, with the place that raised it."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = f" ({frame.f_code.co_filename[-_PLACE_CHARS:]}:{line})"
    try:
        text = str(error)
    except BaseException as broken:  # told where nothing may raise
        text = f"its text raises {type(broken).__name__}"
    place = printable(place)
    return one_line(f"{type(error).__name__}: {text}", TOLD_CHARS - len(place)) + place
