"""Reads experiments and refuses wrong ones before anything runs.

Beyond the keys of :class:`~bench.harness_plan.Experiment` a file may have ``base``: the name of
another experiment, which has the keys that are not given.
"""

import math
import re
import stat
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bench.harness_plan import ORACLES, Experiment, PolicyEntry
from bench.plant.board import board_names, load_board
from bench.plant.errors import PlantError
from bench.plant.workload import get_workload
from bench.plant.worlds import get_world
from estimators.errors import FlamegovError
from governor.errors import UsageError
from governor.words import nearest
from policies.registry import load_policy

# Read by name: which of the two exists depends on the Python version.
_toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

EXPERIMENTS = Path(__file__).parent / "experiments"

MAX_RATE_HZ = 100_000.0
MAX_JOBS = 10_000_000
MAX_SEEDS = 1000
MAX_TOKENS = 32_768
MAX_LEARN_S = 1e6
MAX_DEADLINE_MS = 3.6e6
MAX_BYTES = 1_000_000

_FIGURE = re.compile(r"[0-9]{1,2}")


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
        kind = path.stat()  # before it is opened: a FIFO would wait for ever
        if not stat.S_ISREG(kind.st_mode) or kind.st_size > MAX_BYTES:
            why = f"it is no regular file of at most {MAX_BYTES} bytes"
            raise UsageError("cannot read the experiment", where=str(path), why=why)
        raw: dict[str, Any] = _toml.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        known = experiment_names()
        raise UsageError(
            f"unknown experiment {name!r}",
            why=f"there are {', '.join(known)}",
            hint=nearest(name, known) or "",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError("cannot read the experiment", where=str(path), why=str(error)) from error
    return raw


def _checked(where: str, raw: Mapping[str, Any]) -> Experiment:
    try:
        experiment = msgspec.convert(raw, Experiment)
        msgspec.convert({**raw, **raw.get("quick", {})}, Experiment)
        _check_names(experiment)
        for entry in experiment.policies:
            _check_policy(experiment, entry)
    except (msgspec.ValidationError, FlamegovError, PlantError) as error:
        raise UsageError("wrong experiment", where=where, why=str(error)) from error
    why = _complaint(experiment)
    if why:
        raise UsageError("wrong experiment", where=where, why=why)
    return experiment


def _check_names(experiment: Experiment) -> None:
    known = [name for name in board_names() if load_board(name).physics]
    if experiment.board not in known:
        hint = f"choose from {', '.join(known)}"
        raise PlantError(f"no board {experiment.board!r} to simulate", hint=hint)
    load_board(experiment.board).mode(experiment.mode)
    for model in (*experiment.models, *experiment.schedule):
        get_workload(model)
    for segments in experiment.schedule.values():
        for segment in segments:
            get_world(segment.world)


def _check_policy(experiment: Experiment, entry: PolicyEntry) -> None:
    board = load_board(experiment.board)
    board.mode(entry.mode)
    board.layout(entry.jetpack)
    for model in entry.models:
        get_workload(model)
    if entry.name in ORACLES:
        return
    load_policy(entry.name, entry.options)
    for segments in experiment.schedule.values():
        for segment in segments:
            load_policy(entry.name, {**entry.options, **segment.options})


def _complaint(e: Experiment) -> str:
    """Say what is wrong beyond types; empty if nothing is."""
    labels = [entry.label for entry in e.policies]
    twice = ", ".join(sorted({label for label in labels if labels.count(label) > 1}))
    checks = (
        (not e.models and not e.schedule, "neither models nor schedule names a model"),
        (not e.policies, "no policy to run"),
        (not (0 < e.seeds <= MAX_SEEDS and 0 < e.seconds < math.inf),
         f"seeds and seconds must be above 0, seeds up to {MAX_SEEDS}"),
        (not e.release or len(set(e.release)) < len(e.release), "release must name each kind once"),
        (not (0 < e.prompt <= MAX_TOKENS and 0 < e.answer <= MAX_TOKENS),
         f"prompt and answer must be in 1..{MAX_TOKENS}"),
        (any(not _FIGURE.fullmatch(number) for number in e.figures), "figures must be numbers"),
        (bool(twice), f"policies: {twice} stands there twice; tell them apart by variant"),
    )  # fmt: skip
    return (
        next((why for wrong, why in checks if wrong), "")
        or _wrong_policies(e)
        or _wrong_deadlines(e)
    )


def _wrong_policies(experiment: Experiment) -> str:
    models = {*experiment.models, *experiment.schedule}
    for entry in experiment.policies:
        if not (0 <= entry.seeds <= MAX_SEEDS and 0 <= entry.learn_s <= MAX_LEARN_S):
            return (
                f"policy {entry.label}: seeds must be in 0..{MAX_SEEDS}, learn_s in "
                f"0..{MAX_LEARN_S:g}"
            )
        if entry.models and not models & set(entry.models):
            return f"policy {entry.label}: none of its models is one of the experiment's"
    return ""


def _wrong_deadlines(experiment: Experiment) -> str:
    for model, rates in experiment.models.items():
        bad = [rate for rate in rates if not 0 < rate <= MAX_RATE_HZ]
        if bad or not rates:
            return f"models.{model}: rates must be in 0..{MAX_RATE_HZ:g}, got {bad or 'none'}"
        if len(set(rates)) < len(rates):
            return f"models.{model}: a rate stands there twice"
        if max(rates) * experiment.seconds > MAX_JOBS:
            return f"models.{model}: more than {MAX_JOBS} jobs in a run; lower seconds"
    for model, segments in experiment.schedule.items():
        if not segments or any(not 0 < s.deadline_ms <= MAX_DEADLINE_MS for s in segments):
            return f"schedule.{model}: each stretch needs a deadline_ms above 0 and up to an hour"
        if any(not 0 < s.jobs <= MAX_JOBS for s in segments):
            return f"schedule.{model}: each stretch needs a number of jobs above 0"
    return ""
