"""Read and write the ``.npz`` files that tables travel in, trusting nothing that is read.

A table may come from anybody's machine, so no member is decompressed before its size is known to
be bearable, nothing is unpickled, and the claims in an array's own header are checked against the
bytes that are there. What is no regular file (a FIFO, a device) is not even opened. This module
knows nothing of what the arrays mean (see ``table.py``).
"""

import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.errors import TableError

MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Cap on the uncompressed arrays of a file; 319 points x 1024 contexts x 4 EMC points take 5 MB."""

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_REMAKE = "make or fetch the table again"
_MAX_WHY = 200


def read_members(
    path: Path, names: frozenset[str], *, max_bytes: int = MAX_TABLE_BYTES
) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an ``.npz`` file.

    Args:
        path: The file.
        names: Arrays wanted; those that the file lacks are left out, others are not touched.
        max_bytes: Cap on the uncompressed size of the wanted arrays together.

    Returns:
        The arrays by name, read-only.

    Raises:
        TableError: The file is missing, not an ``.npz``, damaged, too large, or holds pickles.
    """
    with reading(path):
        _check_file(path, max_bytes)
        with zipfile.ZipFile(path) as archive:
            members = {name: _member(archive, name) for name in sorted(names)}
            found = {name: info for name, info in members.items() if info is not None}
            _check_size(path, sum(info.file_size for info in found.values()), max_bytes)
            return {name: _read_array(path, archive, info) for name, info in found.items()}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Tell whatever goes wrong inside as the one error that names the file.

    The parsers below (zip, deflate, npy header, JSON) promise no set of exceptions for hostile
    bytes: seen were ``TokenError``, ``TypeError``, ``struct.error``, ``RecursionError``,
    ``MemoryError`` and more. All of them say the same of the file, so none is left out; the
    cause stays chained.

    Raises:
        TableError: In place of any other exception.
    """
    try:
        yield
    except TableError:
        raise
    except OSError as exc:
        raise TableError(
            "cannot read table",
            where=str(path),
            why=exc.strerror or str(exc),
            hint="check the path; flamegov table import makes one from a CSV file",
        ) from exc
    except Exception as exc:
        why = str(exc)[:_MAX_WHY] or type(exc).__name__
        raise TableError("not a readable table", where=str(path), why=why, hint=_REMAKE) from exc


def _check_file(path: Path, max_bytes: int) -> None:
    """Look before opening: a FIFO would block for ever, a device never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise TableError(
            "cannot read table",
            where=str(path),
            why="it is not a regular file",
            hint="put the table itself there",
        )
    if found.st_size > max_bytes:
        raise TableError(
            "table too large",
            where=str(path),
            why=f"the file has {found.st_size} bytes, the cap is {max_bytes}",
            hint="use fewer contexts or EMC points",
        )


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo | None:
    return archive.NameToInfo.get(f"{name}.npy")


def _check_size(path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TableError(
            "table too large",
            where=str(path),
            why=f"its arrays need {size} bytes, the cap is {max_bytes}",
            hint="use fewer contexts or EMC points",
        )


def _read_array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    where = f"{path}: {info.filename.removesuffix('.npy')}"
    if info.compress_type not in _METHODS:
        raise TableError(
            "refused", where=where, why="it is neither stored nor deflated", hint=_REMAKE
        )
    raw = archive.read(info)  # stops at info.file_size, whatever the compressed stream holds
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise TableError(
            "refused", where=where, why="it holds pickled objects, which may run code", hint=_REMAKE
        )
    body = memoryview(raw)[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(body):
        raise TableError(
            "damaged",
            where=where,
            why=f"shape {shape} does not fit {len(body)} bytes",
            hint=_REMAKE,
        )
    return np.frombuffer(body, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def write_members(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays as a compressed ``.npz``; a reader sees the old file or the whole new one.

    Raises:
        TableError: The file cannot be written.
    """
    try:
        with (
            replacing(path) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as exc:
        raise TableError(
            "cannot write table",
            where=str(path),
            why=exc.strerror or str(exc),
            hint="check that the folder exists and may be written",
        ) from exc


@contextmanager
def replacing(path: Path) -> Iterator[io.BufferedWriter]:
    """Open a new file that takes the place of ``path`` if all goes well and vanishes otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
