"""Experiments as data files: which board, models, deadlines and policies, under which seeds.

A file in ``bench/experiments`` is TOML; :class:`Experiment` lists its keys, and ``base`` names
another one, which has the keys that are not given. Each combination of model, rate, release and
power mode is a *cell*; each policy of the file runs in each cell.
"""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from bench.plant.board import board_names, load_board
from bench.plant.errors import PlantError
from bench.plant.workload import get_workload
from bench.plant.worlds import get_world
from governor.errors import UsageError
from governor.words import nearest

# Read by name: which of the two exists depends on the Python version.
_toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

EXPERIMENTS = Path(__file__).parent / "experiments"

Release = Literal["periodic", "closed"]
TableKind = Literal["estimated", "interpolated"]

MAX_RATE_HZ = 100_000.0
MAX_JOBS = 10_000_000


class Segment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of a run under one deadline.

    Attributes:
        deadline_ms: Time allowed for each job.
        jobs: How many; 0 for as many as fit the run's seconds.
        world: How the board departs from the plain one meanwhile.
        options: Options that are changed at the start, as ``flamegov policy set`` does.
    """

    deadline_ms: float
    jobs: int = 0
    world: str = "plain"
    options: dict[str, Any] = {}


class PolicyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy in an experiment.

    Attributes:
        name: Name of the policy; ``oracle`` and ``oracle_mean`` are known here only.
        variant: What tells it from other entries of the same policy.
        options: Its options; ``seed`` is filled in.
        learn_s: Simulated time before the scored part, for policies that learn.
        seeds: Number of seeds; 0 for the experiment's.
        mode: Power mode that this entry runs in; empty for the cell's.
        jetpack: JetPack whose kernel governors are emulated.
        models: Models that it runs on; empty for all.
        table: What it knows: ``estimated`` by FLAME from profiled layers, or ``interpolated``
            between whole runs at a few clocks.
    """

    name: str
    variant: str = ""
    options: dict[str, Any] = {}
    learn_s: float = 0.0
    seeds: int = 0
    mode: str = ""
    jetpack: int = 6
    models: list[str] = []
    table: TableKind = "estimated"

    @property
    def label(self) -> str:
        """Policy and variant."""
        return f"{self.name} ({self.variant})" if self.variant else self.name


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment.

    Attributes:
        title: Heading for people.
        board: Name of a board of the plant.
        models: Rates of each model, jobs per second.
        policies: What is compared.
        figures: Figures of the paper that it stands for.
        release: When a job starts: ``periodic`` every deadline, ``closed`` when the last has ended.
        seconds: Simulated time of the scored part.
        seeds: Number of seeds, from 0.
        mode: Power mode; empty for the board's default.
        schedule: Stretches of a run instead of one rate, by model.
        prompt: Tokens in the context of the first job of an answer.
        answer: Tokens after which the context starts again.
        quick: Keys that ``--quick`` replaces.
    """

    title: str
    board: str
    policies: list[PolicyEntry]
    models: dict[str, list[float]] = {}
    figures: list[str] = []
    release: list[Release] = msgspec.field(default_factory=lambda: ["periodic"])
    seconds: float = 60.0
    seeds: int = 20
    mode: str = ""
    schedule: dict[str, list[Segment]] = {}
    prompt: int = 64
    answer: int = 200
    quick: dict[str, Any] = {}


class Cell(NamedTuple):
    """What all policies of an experiment are run on alike.

    Attributes:
        board: Name of the board.
        model: Name of the model.
        segments: Stretches of the run.
        release: When jobs start.
        seconds: Simulated time of the scored part.
        mode: Power mode.
        prompt: See :class:`Experiment`.
        answer: See :class:`Experiment`.
    """

    board: str
    model: str
    segments: tuple[Segment, ...]
    release: Release
    seconds: float
    mode: str
    prompt: int
    answer: int

    @property
    def rate_hz(self) -> float:
        """Jobs per second asked for first."""
        return 1e3 / self.segments[0].deadline_ms


class Unit(NamedTuple):
    """One policy in one cell: what is computed, stored and resumed as a whole."""

    experiment: str
    cell: Cell
    policy: PolicyEntry
    seeds: int


def experiment_names() -> list[str]:
    """List the experiments that come with the package."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))


def load_experiment(name: str, *, quick: bool = False) -> Experiment:
    """Read an experiment by name, or by path if it ends in ``.toml``.

    Raises:
        UsageError: There is no such file, or a key or value in it is wrong.
    """
    path = Path(name) if name.endswith(".toml") else EXPERIMENTS / f"{name}.toml"
    raw = _read(name, path)
    base = raw.pop("base", "")
    if base:
        raw = _read(str(base), EXPERIMENTS / f"{base}.toml") | raw
    if quick and isinstance(raw.get("quick"), dict):  # what else it is, is refused below
        raw |= raw["quick"]
    return _checked(str(path), raw)


def _read(name: str, path: Path) -> dict[str, Any]:
    try:
        raw: dict[str, Any] = _toml.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = experiment_names()
        raise UsageError(
            f"unknown experiment {name!r}",
            why=f"there are {', '.join(known)}",
            hint=nearest(name, known) or "",
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError("cannot read the experiment", where=str(path), why=str(error)) from error
    return raw


def _checked(where: str, raw: Mapping[str, Any]) -> Experiment:
    try:
        experiment = msgspec.convert(raw, Experiment)
        msgspec.convert({**raw, **raw.get("quick", {})}, Experiment)
        if experiment.board not in board_names():
            known = ", ".join(board_names())
            raise PlantError(f"unknown board {experiment.board!r}", hint=f"choose from {known}")
        load_board(experiment.board).mode(experiment.mode)
        for model in (*experiment.models, *experiment.schedule):
            get_workload(model)
        for segments in experiment.schedule.values():
            for segment in segments:
                get_world(segment.world)
    except (msgspec.ValidationError, PlantError) as error:
        raise UsageError("wrong experiment", where=where, why=str(error)) from error
    why = _complaint(experiment)
    if why:
        raise UsageError("wrong experiment", where=where, why=why)
    return experiment


def _complaint(experiment: Experiment) -> str:
    """Say what is wrong beyond types; empty if nothing is."""
    if not experiment.models and not experiment.schedule:
        return "neither models nor schedule names a model"
    if not experiment.policies:
        return "no policy to run"
    if not (experiment.seeds > 0 and 0 < experiment.seconds < float("inf")):
        return "seeds and seconds must be above 0"
    labels = [entry.label for entry in experiment.policies]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        return f"policies: {', '.join(twice)} stands there twice; tell them apart by variant"
    return _wrong_deadlines(experiment)


def _wrong_deadlines(experiment: Experiment) -> str:
    for model, rates in experiment.models.items():
        bad = [rate for rate in rates if not 0 < rate <= MAX_RATE_HZ]
        if bad or not rates:
            return f"models.{model}: rates must be in 0..{MAX_RATE_HZ:g}, got {bad or 'none'}"
    for model, segments in experiment.schedule.items():
        if not segments or any(not 0 < s.deadline_ms < float("inf") for s in segments):
            return f"schedule.{model}: each stretch needs a deadline_ms above 0"
        if any(not 0 < s.jobs <= MAX_JOBS for s in segments):
            return f"schedule.{model}: each stretch needs a number of jobs above 0"
    return ""


def units(name: str, experiment: Experiment) -> Iterator[Unit]:
    """List everything there is to compute."""
    for cell in _cells(experiment):
        for entry in experiment.policies:
            if not entry.models or cell.model in entry.models:
                own = cell._replace(mode=entry.mode or cell.mode)
                yield Unit(name, own, entry, entry.seeds or experiment.seeds)


def _cells(e: Experiment) -> Iterator[Cell]:
    for release in e.release:
        for model, rates in e.models.items():
            for rate in rates:
                segments = (Segment(1e3 / rate),)
                yield Cell(e.board, model, segments, release, e.seconds, e.mode, e.prompt, e.answer)
        for model, stretches in e.schedule.items():
            yield Cell(
                e.board, model, tuple(stretches), release, e.seconds, e.mode, e.prompt, e.answer
            )
