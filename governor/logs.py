"""Logging of the daemon: stderr, journald priorities when systemd reads it, repeats held back."""

import logging
import os
import sys
import time

PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class _Formatter(logging.Formatter):
    def __init__(self, journal: bool) -> None:
        super().__init__("%(name)s: %(message)s")
        self.journal = journal

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if self.journal:
            return f"<{PRIORITY.get(record.levelno, 6)}>{text}"
        return f"{record.levelname.lower():7} {text}"


class RepeatFilter(logging.Filter):
    """Let the same warning pass once in ``every_s``, and say how many were held back.

    Of warnings that differ in their arguments alone (one per clock, one per client) a few pass.
    """

    def __init__(self, every_s: float = 30.0, keep: int = 256, alike: int = 16) -> None:
        super().__init__()
        self.every_s, self.keep, self.alike = every_s, keep, alike
        self._seen: dict[tuple[str, str], tuple[float, set[str], int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide whether the record is printed."""
        if record.levelno < logging.WARNING:
            return True
        key, text = (record.name, str(record.msg)), record.getMessage()
        now = time.monotonic()
        since, told, held = self._seen.get(key, (-self.every_s, set(), 0))
        if now - since < self.every_s:
            if text in told or len(told) >= self.alike:
                self._seen[key] = (since, told, held + 1)
                return False
            told.add(text)
            return True
        if len(self._seen) >= self.keep:
            self._seen.clear()
        self._seen[key] = (now, {text}, 0)
        if held:
            record.msg = f"{record.msg} ({held} like it held back)"
        return True


def setup_logging(level: str) -> None:
    """Send the log to stderr at the given level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("JOURNAL_STREAM" in os.environ))
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
