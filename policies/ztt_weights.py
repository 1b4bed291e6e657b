"""Weights of a trained zTT network as a file: ``.npz`` with one array per parameter."""

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from estimators.errors import PolicyError
from policies.ztt_net import Array

_MAX_BYTES = 1_000_000
_MAX_ARRAYS = 16


def save_weights(path: Path, parameters: Sequence[Array]) -> None:
    """Write parameters in order.

    Raises:
        PolicyError: The file cannot be written.
    """
    try:
        np.savez(path, *parameters)
    except OSError as exc:
        raise PolicyError(
            "cannot write weights", where=str(path), why=exc.strerror or str(exc)
        ) from exc


def load_weights(path: Path) -> list[Array]:
    """Read parameters in order.

    Raises:
        PolicyError: The file cannot be read or does not hold weights.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise PolicyError("not a file of weights", where=str(path), why="it is too large")
        with np.load(path, allow_pickle=False) as file:
            names = [f"arr_{i}" for i in range(min(len(file.files), _MAX_ARRAYS))]
            arrays = [np.asarray(file[name], dtype=np.float64) for name in names]
    except OSError as exc:
        raise PolicyError(
            "cannot read weights", where=str(path), why=exc.strerror or str(exc)
        ) from exc
    except (ValueError, KeyError, TypeError, AttributeError, BadZipFile) as exc:
        raise PolicyError("not a file of weights", where=str(path), why=str(exc)) from exc
    if not arrays or not all(np.isfinite(array).all() for array in arrays):
        raise PolicyError("not a file of weights", where=str(path), why="a weight is not finite")
    return arrays
