"""The one exception tree of the project.

It stands on the ground floor because every room above raises from it and imports run upwards only.

    FlamegovError
    ├── TableError            a latency table cannot be read, written or used
    ├── ProfileError          a set of measurements is unusable
    ├── PolicyError           a policy is unknown, misconfigured or broken
    ├── ConfigError           a configuration file is wrong            (governor/errors.py)
    ├── BoardError            the board cannot be driven               (governor/errors.py)
    │   └── SysfsError        one file access failed                   (governor/errors.py)
    ├── JournalError          the restore journal is unusable          (governor/errors.py)
    ├── AlreadyRunningError   another daemon holds the lock            (governor/errors.py)
    └── UsageError            the command line was wrong               (governor/errors.py)

``governor.client`` has a small tree of its own (``ClientError``): it is copied into applications
and imports nothing outside ``governor``.

Each message is one line that tells what failed, where, why, and what to do next.
"""


class FlamegovError(Exception):
    """Root of all errors raised on purpose.

    Args:
        what: What failed.
        where: Path, configuration key or address it failed at; empty if there is none.
        why: Reason, in the words of the layer below.
        hint: The next step for the reader.
    """

    exit_code = 1

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


class Transient:
    """Mixin: the same call may work when tried again."""


class Permanent:
    """Mixin: trying again does not help; tell the user."""


class TableError(FlamegovError, Permanent):
    """A latency table cannot be read, written or used."""

    exit_code = 3


class ProfileError(FlamegovError, Permanent):
    """A set of measurements is unusable."""

    exit_code = 3


class PolicyError(FlamegovError, Permanent):
    """A policy is unknown, misconfigured or broken."""

    exit_code = 2
