"""Profiles of the simulated board, in the schema that a profiler of a real board fills in too.

Nothing here looks at the plant's formulas: layers are run alone, networks are run whole, and what
the plant's profiler reports is written down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec, load_board
from bench.plant.engine import Engine
from bench.plant.networks import Layer
from bench.plant.profile import Profiler
from bench.plant.types import Clocks
from bench.plant.workload import Workload, get_workload
from bench.plant.worlds import PLAIN, World
from estimators.profiles import (
    BoardInfo,
    LayerRecord,
    NetworkRecord,
    Profile,
    Samples,
    check_profile,
    layer_key,
)
from estimators.sampling import context_levels, geometric_levels, interval_levels

Point = tuple[int, int]
Array = NDArray[np.float64]

LAYER_REPEATS, RUN_REPEATS = 20, 50
LONGEST = 1024
"""Contexts are evaluated up to here, as in the paper."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model on a simulated board in one world under one seed.

    Attributes:
        model: Name of a workload of the plant.
        board: Name of a board of the plant.
        world: How the board departs from the plain one.
        seed: Seed of all noise.
        engine: Inference engine of the plant.
        emc_hz: Memory clock, Hz; the highest of the board if 0.
    """

    model: str
    board: str = "agx-orin"
    world: World = PLAIN
    seed: int = 0
    engine: str = "flame-eager"
    emc_hz: int = 0

    @property
    def name(self) -> str:
        """Name in profiles, where the phase stands beside it."""
        return self.model.partition(":")[0]

    @property
    def spec(self) -> BoardSpec:
        """The board."""
        return _board(self.board)

    @property
    def memory_hz(self) -> int:
        """Memory clock in force, Hz."""
        return self.emc_hz or self.spec.emc_hz[-1]

    @property
    def workload(self) -> Workload:
        """What runs."""
        return get_workload(self.model, self.engine)

    @property
    def longest(self) -> int:
        """Longest context evaluated, tokens; 0 for models without one."""
        return min(self.workload.network.max_context, LONGEST)

    def run_engine(self, stream: int) -> Engine:
        """Make an engine whose noise no other stream shares."""
        return Engine(self.spec, self.workload, world=self.world, seed=self.seed * 1009 + stream)

    def truth_us(self, context: Sequence[int] = (0,)) -> Array:
        """Noise-free latency over the whole grid, us, ``[K, C, G]``."""
        return _truth(replace(self, seed=0), tuple(context))


@lru_cache(maxsize=8)
def _board(name: str) -> BoardSpec:
    return load_board(name)


@lru_cache(maxsize=64)
def _truth(subject: Subject, context: tuple[int, ...]) -> Array:
    spec = subject.spec
    return subject.run_engine(0).truth_us(spec.cpu_hz, spec.gpu_hz, subject.memory_hz, context)


def interval_points(spec: BoardSpec, cpu: int = 4, gpu: int = 4) -> list[Point]:
    """Clock pairs of the paper: every fourth of each list."""
    return list(product(interval_levels(spec.cpu_hz, cpu), interval_levels(spec.gpu_hz, gpu)))


def geometric_points(spec: BoardSpec, cpus: int, gpus: int) -> list[Point]:
    """Clock pairs at geometric levels with both ends."""
    return list(product(geometric_levels(spec.cpu_hz, cpus), geometric_levels(spec.gpu_hz, gpus)))


def default_contexts(subject: Subject) -> list[int]:
    """Contexts profiled by default: every 90 tokens with both ends."""
    return context_levels(subject.longest)


def board_info(subject: Subject) -> BoardInfo:
    """Describe the board as a profile does."""
    spec = subject.spec
    return BoardInfo(
        name=subject.board,
        cpu_hz=tuple(spec.cpu_hz),
        gpu_hz=tuple(spec.gpu_hz),
        emc_hz=tuple(spec.emc_hz),
        soc=spec.soc,
        engine=subject.engine,
        precision=subject.workload.precision,
    )


def profile_layers(
    subject: Subject,
    points: Iterable[Point],
    context: Sequence[int],
    *,
    repeats: int = LAYER_REPEATS,
) -> Profile:
    """Profile the distinct layers of a model, each run alone."""
    profiler = Profiler(subject.run_engine(1), seed=subject.seed)
    conditions = [(cpu, gpu, tokens) for tokens in context for cpu, gpu in points]
    return _profile(subject, profiler, conditions, repeats)


def _profile(
    subject: Subject,
    profiler: Profiler,
    conditions: Sequence[tuple[int, int, int]],
    repeats: int,
) -> Profile:
    """Run each distinct layer of the profiler's workload alone."""
    network = profiler.engine.workload.network
    layers: dict[str, LayerRecord] = {}
    order: list[str] = []
    for place, layer in enumerate(network.layers):
        config = {name: float(value) for name, value in layer.config}
        kind = _kind(layer)
        key = layer_key(kind, config)
        if key not in layers:
            samples = _isolated(profiler, place, subject.memory_hz, conditions, repeats)
            if samples is None:
                continue
            layers[key] = LayerRecord(kind, config, samples)
        order.append(key)
    record = NetworkRecord(tuple(order), network.phase, subject.longest)
    return Profile(
        board_info(subject),
        {subject.name: record},
        layers,
        provenance={subject.name: f"simulated, world {subject.world.name}, seed {subject.seed}"},
    )


def layer_names(subject: Subject) -> list[tuple[str, Layer]]:
    """Name every layer of the model as profiles do, in order."""
    return [
        (layer_key(_kind(layer), {n: float(v) for n, v in layer.config}), layer)
        for layer in subject.workload.network.layers
    ]


def _kind(layer: Layer) -> str:
    """Layer type as a profiler sees it: norm before a convolution is another pattern than after."""
    return f"pre-{layer.kind}" if layer.ops[0].kind == "bn" and len(layer.ops) > 1 else layer.kind


def _isolated(
    profiler: Profiler,
    place: int,
    emc_hz: int,
    conditions: Sequence[tuple[int, int, int]],
    repeats: int,
) -> Samples | None:
    """Run one layer alone under all conditions; None if the engine leaves nothing of it."""
    rows = [
        profiler.isolated(place, Clocks(cpu, gpu, emc_hz), context=tokens, n=repeats)
        for cpu, gpu, tokens in conditions
    ]
    if not rows[0].kernels:
        return None
    values = {
        name: np.array([getattr(r, name) for r in rows])
        for name in ("cpu_us", "gpu_us", "total_us")
    }
    values |= {name: np.array([r.counters[name] for r in rows]) for name in rows[0].counters}
    return _samples(emc_hz, conditions, values)


def _samples(
    emc_hz: int, conditions: Sequence[tuple[int, int, int]], values: dict[str, Array]
) -> Samples:
    cpu, gpu, tokens = (
        np.array(column, dtype=np.int64) for column in zip(*conditions, strict=True)
    )
    return Samples(np.full_like(cpu, emc_hz), tokens, cpu, gpu, values)


def run_samples(
    subject: Subject,
    conditions: Sequence[tuple[int, int, int]],
    *,
    stream: int = 2,
    repeats: int = RUN_REPEATS,
) -> Samples:
    """Run the whole model under each condition ``(cpu, gpu, context)``; median latencies."""
    engine = subject.run_engine(stream)
    latency = np.array(
        [
            np.median(engine.run(Clocks(cpu, gpu, subject.memory_hz), context=tokens, n=repeats))
            for cpu, gpu, tokens in conditions
        ]
    )
    return _samples(subject.memory_hz, conditions, {"latency_us": latency})


def anchor_conditions(subject: Subject, count: Literal[6, 9] = 9) -> list[tuple[int, int, int]]:
    """Clock pairs and contexts of the few end-to-end runs: contexts alternate between both ends."""
    points = geometric_points(subject.spec, 3, count // 3)
    ends = (1, subject.longest) if subject.longest else (0,)
    return [(cpu, gpu, ends[i % len(ends)]) for i, (cpu, gpu) in enumerate(points)]


def with_runs(profile: Profile, model: str, runs: Samples | None) -> Profile:
    """Replace the end-to-end runs of a model; None takes them away."""
    others = {name: samples for name, samples in profile.runs.items() if name != model}
    return replace(profile, runs=others if runs is None else others | {model: runs})


def with_places(
    profile: Profile, subject: Subject, points: Sequence[Point], context: Sequence[int]
) -> Profile:
    """Add the timing factor measured in place (Eq. 3) at every layer of the model."""
    profiler = Profiler(subject.run_engine(3), seed=subject.seed)
    conditions = [(cpu, gpu, tokens) for tokens in context for cpu, gpu in points]
    expanded: list[tuple[int, int, int]] = []
    position, delta = [], []
    for cpu, gpu, tokens in conditions:
        run = profiler.whole(Clocks(cpu, gpu, subject.memory_hz), context=tokens, n=LAYER_REPEATS)
        seen = np.isfinite(run.start_us)
        factor = (run.start_us - np.cumsum(run.cpu_us))[seen]
        delta.append(factor)
        position.append(np.arange(len(factor), dtype=np.float64))
        expanded += [(cpu, gpu, tokens)] * len(factor)
    places = _samples(
        subject.memory_hz,
        expanded,
        {"position": np.concatenate(position), "delta_us": np.concatenate(delta)},
    )
    return replace(profile, places=profile.places | {subject.name: places})


def full_profile(subject: Subject, *, points: Sequence[Point] | None = None) -> Profile:
    """Profile layers and anchor runs with the default design, checked."""
    chosen = geometric_points(subject.spec, 4, 6) if points is None else points
    profile = profile_layers(subject, chosen, default_contexts(subject))
    runs = run_samples(subject, anchor_conditions(subject))
    return check_profile(with_runs(profile, subject.name, runs))


def per_op(subject: Subject, points: Sequence[Point]) -> Profile:
    """Profile every op as a layer of its own, as a framework lists them: conv, bn, relu, add ..."""
    network = subject.workload.network
    layers = tuple(
        replace(layer, kind=op.kind, config=(*layer.config, ("op", place)), ops=(op,), modules=0)
        for layer in network.layers
        for place, op in enumerate(layer.ops)
    )
    workload = replace(subject.workload, network=replace(network, layers=layers))
    profiler = Profiler(Engine(subject.spec, workload, world=subject.world), seed=subject.seed)
    conditions = [(cpu, gpu, 0) for cpu, gpu in points]
    return _profile(subject, profiler, conditions, LAYER_REPEATS)
