"""Runs experiments: spreads units over cores or a Dask cluster, keeps and resumes results."""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bench.cores import at_most, parallel
from bench.harness_plan import Unit
from bench.harness_store import Store
from bench.harness_unit import run_unit
from estimators.errors import FlamegovError

CONNECT_S = 10.0


class Result(NamedTuple):
    """A unit and what came of it, as :func:`~bench.harness_unit.run_unit` tells."""

    unit: Unit
    runs: list[dict[str, Any]]
    series: dict[str, list[float]] | None
    error: str | None


def run_all(
    units: Sequence[Unit],
    *,
    folder: Path,
    workers: int = 0,
    scheduler: str = "",
    progress: Callable[[str], None] | None = None,
) -> list[Result]:
    """Compute what is not there yet.

    Args:
        units: What to compute.
        folder: Where results are kept.
        workers: Processes; 0 for as many as there are cores, 1 to stay in this one.
        scheduler: Address of a Dask scheduler; empty for processes of this machine.
        progress: Told a line after each unit; None to show a bar on a terminal.

    Returns:
        Results in the order of ``units``.

    Raises:
        FlamegovError: A result cannot be kept, or the scheduler cannot be reached.
    """
    store = Store(folder)
    found = {unit_key(unit): store.get(unit) for unit in units}
    missing = [unit for unit in units if found[unit_key(unit)] is None]
    missing.sort(key=_jobs, reverse=True)  # the longest first, so that all workers end together
    with ExitStack() as stack:
        report = progress or stack.enter_context(_Bar(len(missing)))
        compute = _on_cluster(missing, scheduler) if scheduler else _on_cores(missing, workers)
        for unit, result in compute:
            store.put(unit, result)
            found[unit_key(unit)] = result
            report(f"{unit.cell.model} {unit.cell.rate_hz:g}/s {unit.policy.label}")
    return [_result(unit, found[unit_key(unit)]) for unit in units]


def unit_key(unit: Unit) -> str:
    """Name a unit for look-ups."""
    return repr(unit)


def _jobs(unit: Unit) -> float:
    cell = unit.cell
    counted = sum(segment.jobs for segment in cell.segments)
    timed = (cell.seconds + unit.policy.learn_s) * cell.rate_hz
    return (counted or timed) * unit.seeds


def _result(unit: Unit, found: dict[str, Any] | None) -> Result:
    assert found is not None  # computed or loaded for every unit
    return Result(unit, found["runs"], found["series"], found["error"])


def _on_cores(units: Sequence[Unit], workers: int) -> Iterator[tuple[Unit, dict[str, Any]]]:
    count = at_most(workers, len(units))
    if count == 1:
        yield from ((unit, run_unit(unit)) for unit in units)
        return
    from joblib import delayed

    over_cores = parallel(count, return_as="generator_unordered", batch_size=1)
    try:
        yield from over_cores(delayed(_tagged)(unit) for unit in units)
    except BrokenExecutor as error:  # killed, such as for want of memory, or a policy ended it
        raise FlamegovError(
            "a worker process died", why="killed from outside, or by what it ran",
            hint="run it again: what is finished is kept; --workers 1 shows where it dies",
        ) from error  # fmt: skip


def _tagged(unit: Unit) -> tuple[Unit, dict[str, Any]]:
    return unit, run_unit(unit)


def _on_cluster(units: Sequence[Unit], address: str) -> Iterator[tuple[Unit, dict[str, Any]]]:
    try:
        dask: Any = import_module("distributed")
    except ImportError as error:
        raise FlamegovError(
            "a scheduler needs Dask", hint="pip install '.[bench]' in the checkout"
        ) from error
    try:
        client = dask.Client(address, timeout=CONNECT_S)
    except (OSError, ValueError, TypeError) as error:
        raise FlamegovError(
            "cannot reach the Dask scheduler", where=address, why=str(error) or "no answer",
            hint="start one with: dask scheduler",
        ) from error  # fmt: skip
    with client:
        futures = client.map(_tagged, list(units), pure=False)
        try:
            for future in dask.as_completed(futures):
                yield future.result()
        except Exception as error:  # a worker or the scheduler died, or runs other code
            raise FlamegovError(
                "the Dask cluster gave up", where=address, why=f"{type(error).__name__}: {error}",
                hint="run it again: what is finished is kept",
            ) from error  # fmt: skip


class _Bar:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._stack = ExitStack()

    def __enter__(self) -> Callable[[str], None]:
        if not (self._total and sys.stderr.isatty()):
            return lambda line: None
        from rich.console import Console
        from rich.progress import Progress

        progress = self._stack.enter_context(Progress(console=Console(stderr=True)))
        task = progress.add_task("runs", total=self._total)
        return lambda line: progress.update(task, advance=1, description=line)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
