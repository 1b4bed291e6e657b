"""The command ``flamegov``; what it does stands in ``dispatch.py``.

Nothing but what Python itself has loaded is imported here before :func:`main` has made sure that
the names of our packages mean ours.
"""

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see ``dispatch.py`` for the exit codes."""
    if argv is None:
        _isolate()
    from governor.cli.dispatch import run

    return run(sys.argv[1:] if argv is None else argv)


def _isolate() -> None:
    """Start again with ``python -I`` if the environment could put other packages before ours.

    The package names are plain words; a folder on PYTHONPATH with a ``policies`` of its own must
    not end up inside a process that runs as root.
    """
    if not sys.flags.isolated and (os.environ.get("PYTHONPATH") or os.environ.get("PYTHONHOME")):
        os.execv(sys.executable, [sys.executable, "-I", "-m", "governor.cli", *sys.argv[1:]])
