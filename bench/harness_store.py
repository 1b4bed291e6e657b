"""Results of units on disk, so that an interrupted run goes on where it stopped.

A result is found again by what it was computed from: the unit and the source code that matters.
"""

import hashlib
import inspect
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.harness_plan import ORACLES, Unit
from estimators.errors import FlamegovError
from policies.registry import OWN, load_policy_class

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


class _Figures(msgspec.Struct, forbid_unknown_fields=True):
    """Figures of some jobs, as :func:`~bench.harness_score.measure` tells."""

    jobs: int
    seconds: float
    qos_run_pct: float
    qos_job_pct: float
    miss_pct: float
    miss_from_release_pct: float
    longest_miss_run: int
    mean_power_w: float
    ppw: float
    energy_mj_per_job: float
    energy_mj_per_on_time_job: float | None
    lateness_us: dict[str, float]
    switches_per_s: float
    mean_cpu_hz: float
    mean_gpu_hz: float


class _Run(msgspec.Struct, forbid_unknown_fields=True):
    seed: int
    scored: _Figures
    all: _Figures
    segments: list[_Figures]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What a file must hold; anything else is computed again."""

    runs: list[_Run]
    series: dict[str, list[float]] | None
    error: str | None


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
            found = msgspec.json.decode(self._path(unit).read_bytes(), type=_Stored)
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        except OSError as error:
            raise self._failed("read", error) from error
        if found.error or [run.seed for run in found.runs] != list(range(unit.seeds)):
            return None
        return msgspec.to_builtins(found)  # type: ignore[no-any-return]  # a dict, as it was put

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
        text = msgspec.json.encode([unit, code_digest(), _others(unit)], order="sorted")
        name = hashlib.sha256(text).hexdigest()[:24]
        return self.folder / unit.experiment / f"{name}.json"

    def _failed(self, verb: str, error: OSError) -> FlamegovError:
        return FlamegovError(
            f"cannot {verb} results",
            where=str(self.folder),
            why=error.strerror or str(error),
            hint="name another folder with --results; finished parts are kept",
        )


def _others(unit: Unit) -> list[str]:
    """Digest what a result depends on beyond our code: files it names, and a plug-in's module."""
    paths = [Path(str(unit.policy.options.get("weights") or ""))]
    if unit.policy.name not in (*ORACLES, *OWN):
        try:
            paths.append(Path(inspect.getfile(load_policy_class(unit.policy.name))))
        except (FlamegovError, TypeError):  # it will fail where it is run, and tell
            return []
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]


@cache
def code_digest() -> str:
    """Digest the source code that results depend on."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _CODE for path in root.glob(pattern)):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
