"""Read and write the ``.npz`` files that tables travel in, trusting nothing that is read.

A table may come from anybody's machine, so no member is decompressed before its size is known to
be bearable, nothing is unpickled, and the claims in an array's own header are checked against the
bytes that are there. This module knows nothing of what the arrays mean (see ``table.py``).
"""

import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.errors import TableError

MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Cap on the uncompressed arrays of a file; 319 points x 1024 contexts x 4 EMC points take 5 MB."""

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, NotImplementedError)
_REMAKE = "make or fetch the table again"


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
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: _member(archive, name) for name in sorted(names)}
            found = {name: info for name, info in members.items() if info is not None}
            _check_size(path, sum(info.file_size for info in found.values()), max_bytes)
            return {name: _read_array(path, archive, info) for name, info in found.items()}
    except _DAMAGE as exc:
        raise TableError(
            "not a readable table", where=str(path), why=str(exc), hint=_REMAKE
        ) from exc
    except OSError as exc:
        raise TableError(
            "cannot read table",
            where=str(path),
            why=exc.strerror or str(exc),
            hint="check the path; flamegov table import makes one from a CSV file",
        ) from exc


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
    raw = archive.read(info)  # stops at info.file_size, whatever the compressed stream holds
    where = f"{path}: {info.filename.removesuffix('.npy')}"
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
