"""Idle power of a board as CSV: ``cpu_hz,gpu_hz,emc_hz,power_mw``, one row per clock pair.

It belongs to the board, not to a model, so it has a file of its own. Clocks are held while
measuring; both ends of both axes at least, all clocks of one axis at a time at best.
"""

import csv
from pathlib import Path

import numpy as np

from estimators.errors import ProfileError
from estimators.neuralpower.boardpower import check_power
from estimators.profiles import Samples

_COLUMNS = ("cpu_hz", "gpu_hz", "emc_hz", "power_mw")


def load_idle(path: Path) -> Samples:
    """Read idle rows.

    Raises:
        ProfileError: The file cannot be read, a column is missing, or a value is unusable.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = [[float(row[name]) for name in _COLUMNS] for row in csv.DictReader(stream)]
    except OSError as error:
        raise ProfileError(
            "cannot read idle power", where=str(path), why=error.strerror or str(error)
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise ProfileError(
            "not a file of idle power",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            hint=f"columns are {', '.join(_COLUMNS)}",
        ) from error
    if not rows:
        raise ProfileError("no idle rows", where=str(path))
    table = np.array(rows)
    clocks = table[:, :3].astype(np.int64)
    if not (clocks == table[:, :3]).all() or (clocks[:, :2] <= 0).any():
        raise ProfileError("clocks must be whole numbers of Hz", where=str(path))
    power_mw = check_power(str(path), table[:, 3])
    zeros = np.zeros(len(rows), dtype=np.int64)
    return Samples(clocks[:, 2], zeros, clocks[:, 0], clocks[:, 1], {"power_mw": power_mw})


def save_idle(path: Path, idle: Samples) -> None:
    """Write idle rows.

    Raises:
        ProfileError: The file cannot be written.
    """
    columns = (idle.cpu_hz, idle.gpu_hz, idle.emc_hz, idle.values["power_mw"])
    try:
        with path.open("w", newline="", encoding="utf-8") as stream:
            out = csv.writer(stream)
            out.writerow(_COLUMNS)
            out.writerows(zip(*(column.tolist() for column in columns), strict=True))
    except OSError as error:
        raise ProfileError(
            "cannot write idle power", where=str(path), why=error.strerror or str(error)
        ) from error
