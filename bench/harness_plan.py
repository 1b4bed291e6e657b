"""Experiments as data files: which board, models, deadlines and policies, under which seeds.

A file in ``bench/experiments`` is TOML; :class:`Experiment` lists its keys. Each combination of
model, rate, release and power mode is a *cell*; each policy of the file runs in each cell.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

Release = Literal["periodic", "closed"]
TableKind = Literal["estimated", "interpolated"]

_ROUNDING = 1e-6

ORACLES = ("oracle", "oracle_mean")
"""Policies that are known here only: the oracle by the tail of latencies, and by their mean."""


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
        learn_s: Seconds before the scored part, for policies that learn (see
            :meth:`Cell.learning_jobs`).
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

    def learning_jobs(self, learn_s: float) -> int:
        """Tell how many jobs a learning part has: for each second as many as begin in one.

        A policy that decides once per second does so between jobs: at 1.2 jobs per second after
        every second one. Counted so, it decides as often at all rates.
        """
        return math.ceil(learn_s) * math.ceil(self.rate_hz - _ROUNDING)


class Unit(NamedTuple):
    """One policy in one cell: what is computed, stored and resumed as a whole.

    Attributes:
        experiment: Name of the experiment.
        cell: Where it runs.
        policy: What runs.
        seeds: Number of seeds.
        skip: Jobs left out at the start, from which others learn: all are scored on the same jobs.
    """

    experiment: str
    cell: Cell
    policy: PolicyEntry
    seeds: int
    skip: int = 0


def units(name: str, experiment: Experiment) -> Iterator[Unit]:
    """List everything there is to compute."""
    longest_s = max(entry.learn_s for entry in experiment.policies)
    for cell in _cells(experiment):
        for entry in experiment.policies:
            if not entry.models or cell.model in entry.models:
                own = cell._replace(mode=entry.mode or cell.mode)
                skip = cell.learning_jobs(longest_s) - cell.learning_jobs(entry.learn_s)
                yield Unit(name, own, entry, entry.seeds or experiment.seeds, skip)


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
