"""Weights of a trained zTT network as a file: ``.npz`` with one array per parameter."""

import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from estimators.errors import PolicyError
from policies.ztt_net import Array
from policies.ztt_replay import Report

_MAX_BYTES = 10_000_000
_MAX_UNPACKED_BYTES = 50_000_000
_MAX_ARRAYS = 16
_INPUTS = len(Report._fields)


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
        PolicyError: The file cannot be read, or does not hold weights of a network of the agent
            (of any number of actions).
    """
    try:
        _check_file(path)
        with np.load(path, allow_pickle=False) as file:
            found = [np.asarray(file[f"arr_{i}"]) for i in range(len(file.files))]
        _check_layers(found)
        arrays = [np.asarray(array, dtype=np.float64) for array in found]
    except OSError as exc:
        raise PolicyError(
            "cannot read weights", where=str(path), why=exc.strerror or str(exc)
        ) from exc
    # zipfile raises the last two for a password and for a way of packing that it does not know.
    except (
        ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError,
        BadZipFile, zlib.error, RuntimeError, NotImplementedError,
    ) as exc:  # fmt: skip
        raise PolicyError("not a file of weights", where=str(path), why=str(exc)) from exc
    if not all(np.isfinite(array).all() for array in arrays):
        raise PolicyError("not a file of weights", where=str(path), why="a weight is not finite")
    return arrays


def _check_file(path: Path) -> None:
    """Refuse what would block or fill the memory, before anything of it is read.

    Raises:
        ValueError: It is no regular file, or too large, packed or unpacked.
        BadZipFile: It is no ``.npz``.
        OSError: It cannot be read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    if status.st_size > _MAX_BYTES:
        raise ValueError(f"it is too large: {status.st_size} bytes, not {_MAX_BYTES} at most")
    with ZipFile(path) as archive:
        members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if unpacked > _MAX_UNPACKED_BYTES:
        raise ValueError(
            f"it is too large: {unpacked} bytes unpacked, not {_MAX_UNPACKED_BYTES} at most"
        )
    if len(members) > _MAX_ARRAYS:
        raise ValueError(f"it holds {len(members)} arrays, not {_MAX_ARRAYS} at most")


def _check_layers(arrays: Sequence[NDArray[Any]]) -> None:
    """Refuse what fits no network of the agent.

    Raises:
        ValueError: An array is not of real numbers, or the layers do not chain.
    """
    if not arrays or len(arrays) % 2:
        raise ValueError(f"{len(arrays)} arrays are no weights and biases in turn")
    width = _INPUTS
    for place in range(0, len(arrays), 2):
        weight, bias = arrays[place : place + 2]
        if weight.dtype.kind not in "fiu" or bias.dtype.kind not in "fiu":
            raise ValueError(
                f"layer {place // 2} is of {weight.dtype} and {bias.dtype}, not of real numbers"
            )
        fits = weight.ndim == 2 and weight.shape[0] == width and bias.shape == weight.shape[1:]
        if not fits or not bias.size:
            raise ValueError(
                f"layer {place // 2} has shapes {weight.shape} and {bias.shape}, "
                f"not ({width}, n) and (n,)"
            )
        width = bias.size
