"""Errors of the daemon's rooms; the whole tree is drawn in ``estimators/errors.py``."""

import errno as _errno
import traceback

from estimators.errors import FlamegovError, Permanent, Transient


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


def told(error: Exception) -> str:
    """Tell an error of other people's code in one line, with the place that raised it."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = f" ({frame.f_code.co_filename}:{line})"
    return " ".join(f"{type(error).__name__}: {error}{place}".split())
