"""Results of units on disk, so that an interrupted run goes on where it stopped.

A result is found again by what it was computed from: the unit and the source code that matters.
"""

import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.harness_plan import Unit
from estimators.errors import FlamegovError

_CODE = (
    "estimators/**/*.py",
    "policies/**/*.py",
    "governor/boards/sensors.py",
    "bench/plant/**/*.py",
    "bench/plant/**/*.toml",
    "bench/harness*.py",
    "bench/demo_table.py",
    "bench/estimators_profile.py",
    "bench/oracle.py",
    "bench/qos.py",
    "bench/sparse.py",
)


class Store:
    """A folder of results, one JSON file each.

    Args:
        folder: Where; made on the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, unit: Unit) -> dict[str, Any] | None:
        """Find the result of a unit; None if there is none, or only a broken or failed one."""
        try:
            found = json.loads(self._path(unit).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise self._failed("read", error) from error
        return found if isinstance(found, dict) and not found.get("error") else None

    def put(self, unit: Unit, result: dict[str, Any]) -> None:
        """Keep a result, whole or not at all.

        Raises:
            FlamegovError: It cannot be written: no space, no permission.
        """
        path = self._path(unit)
        temporary: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(result).encode())
            Path(temporary).replace(path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise self._failed("write", error) from error

    def _path(self, unit: Unit) -> Path:
        text = msgspec.json.encode([unit, code_digest()], order="sorted")
        name = hashlib.sha256(text).hexdigest()[:24]
        return self.folder / unit.experiment / f"{name}.json"

    def _failed(self, verb: str, error: OSError) -> FlamegovError:
        return FlamegovError(
            f"cannot {verb} results",
            where=str(self.folder),
            why=error.strerror or str(error),
            hint="name another folder with --results; finished parts are kept",
        )


@cache
def code_digest() -> str:
    """Digest the source code that results depend on."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _CODE for path in root.glob(pattern)):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
