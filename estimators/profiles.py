"""The profile data set: what was measured on a board, in one schema for every source.

A profile holds three kinds of measurements of one board in one configuration: layers run alone,
whole models run end to end, and how layers stood in time inside a run. A layer is known by its type
and static configuration, not by the model it came from: profiles of other models fill in for one
that was never run. This module checks and never repairs; files are read and written by
``profilefile``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ProfileError
from estimators.residual import Array

Phase = Literal["inference", "decode", "prefill"]
Clocks = NDArray[np.int64]

LAYER_COLUMNS = ("cpu_us", "gpu_us", "total_us")
POWER_COLUMN = "power_mw"
"""Optional column of a layer: rail power while it ran in a loop; no hardware counter."""

RUN_COLUMNS = ("latency_us",)
PLACE_COLUMNS = ("position", "delta_us")
AXES = ("emc_hz", "context", "cpu_hz", "gpu_hz")

_SIGNED = frozenset({"delta_us"})  # a layer's GPU part may start before its CPU part ends
_AGREE = 0.15  # two people's times of one layer may differ from their mean by this share
_MAY_BE_ZERO = frozenset({"gpu_us", "position"})


def layer_key(kind: str, config: Mapping[str, float]) -> str:
    """Name a layer by what it is: ``"conv(in_channels=64,kernel=3)"``."""
    return f"{kind}({','.join(f'{name}={config[name]:.12g}' for name in sorted(config))})"


def parse_layer_key(key: str) -> tuple[str, dict[str, float]]:
    """Read a layer's name back: type and configuration.

    Raises:
        ProfileError: It is no such name.
    """
    kind, _, inside = key.removesuffix(")").partition("(")
    try:
        pairs = [part.split("=") for part in inside.split(",") if part]
        return kind, {name: float(value) for name, value in pairs}
    except ValueError as error:
        raise ProfileError(
            "not the name of a layer", where=key, hint="layers are named type(name=value,...)"
        ) from error


@dataclass(frozen=True, slots=True)
class BoardInfo:
    """The board and configuration that a profile belongs to.

    Attributes:
        name: Board name; profiles of different boards are never merged.
        cpu_hz: Ascending CPU clocks that the board offers, Hz.
        gpu_hz: The same for the GPU.
        emc_hz: The same for memory; ``(0,)`` if it is governed by the board.
        soc: System on chip.
        l4t: JetPack / L4T release.
        power_mode: Power mode (nvpmodel).
        online_cpus: CPUs online while measuring.
        gpu_tpc_mask: GPU power-gating mask; None if unknown.
        engine: Inference engine.
        precision: Numeric precision.
    """

    name: str
    cpu_hz: tuple[int, ...]
    gpu_hz: tuple[int, ...]
    emc_hz: tuple[int, ...] = (0,)
    soc: str = ""
    l4t: str = ""
    power_mode: str = ""
    online_cpus: tuple[int, ...] = ()
    gpu_tpc_mask: int | None = None
    engine: str = ""
    precision: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Samples:
    """Measurements in columns.

    Attributes:
        emc_hz: Memory clock, Hz, int64 ``[n]``.
        context: Tokens in the context, int64 ``[n]``; 0 for models without one.
        cpu_hz: CPU clock, Hz, int64 ``[n]``.
        gpu_hz: GPU clock, Hz, int64 ``[n]``.
        values: Measured columns, float64 ``[n]`` each; times in us.
    """

    emc_hz: Clocks
    context: Clocks
    cpu_hz: Clocks
    gpu_hz: Clocks
    values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.cpu_hz)

    def where(self, mask: NDArray[np.bool_]) -> "Samples":
        """Keep the rows where the mask is True."""
        axes = {name: getattr(self, name)[mask] for name in AXES}
        return Samples(values={n: column[mask] for n, column in self.values.items()}, **axes)

    def at(self, *, emc_hz: int | None = None, context: int | None = None) -> "Samples":
        """Keep the rows of one memory clock and one context length."""
        mask = np.ones(len(self), dtype=bool)
        if emc_hz is not None:
            mask &= self.emc_hz == emc_hz
        if context is not None:
            mask &= self.context == context
        return self.where(mask)

    def join(self, other: "Samples") -> "Samples":
        """Put the rows of another set below; columns that either lacks are dropped."""
        axes = {n: np.concatenate([getattr(self, n), getattr(other, n)]) for n in AXES}
        names = [name for name in self.values if name in other.values]
        values = {n: np.concatenate([self.values[n], other.values[n]]) for n in names}
        return Samples(values=values, **axes)


@dataclass(frozen=True, eq=False, slots=True)
class LayerRecord:
    """A layer and its measurements.

    Attributes:
        kind: Layer type: ``"conv"``, ``"linear"``, ``"decoder"`` ...
        config: Static configuration, numbers by name.
        samples: Columns :data:`LAYER_COLUMNS`, and one per hardware counter.
    """

    kind: str
    config: dict[str, float]
    samples: Samples

    @property
    def key(self) -> str:
        """Name of the layer, see :func:`layer_key`."""
        return layer_key(self.kind, self.config)

    @property
    def counters(self) -> tuple[str, ...]:
        """Names of the counters that were read."""
        known = {*LAYER_COLUMNS, POWER_COLUMN}
        return tuple(name for name in self.samples.values if name not in known)


@dataclass(frozen=True, slots=True)
class NetworkRecord:
    """A model as the layers it runs, in order.

    Attributes:
        layers: Keys of layers; repeated ones are listed as often as they run.
        phase: Part of the work that one run is.
        longest: Longest context, tokens; 0 for none.
    """

    layers: tuple[str, ...]
    phase: Phase = "inference"
    longest: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Profile:
    """All measurements of one board in one configuration.

    Attributes:
        board: Where they were made.
        networks: Models by name.
        layers: Layers run alone, by key.
        runs: End-to-end runs by model, column :data:`RUN_COLUMNS`.
        places: Layers seen inside a run by model, columns :data:`PLACE_COLUMNS`: which layer of
            the list, and GPU start minus CPU end (Eq. 3 of the FLAME paper).
        provenance: Who measured what and when, free form.
        source: File it came from, for messages.
    """

    board: BoardInfo
    networks: dict[str, NetworkRecord] = field(default_factory=dict)
    layers: dict[str, LayerRecord] = field(default_factory=dict)
    runs: dict[str, Samples] = field(default_factory=dict)
    places: dict[str, Samples] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    source: str = ""

    def network(self, model: str) -> NetworkRecord:
        """Look a model up.

        Raises:
            ProfileError: The profile does not know it.
        """
        if model not in self.networks:
            raise ProfileError(
                f"unknown model '{model}'",
                where=self.source,
                hint=f"the profile holds: {', '.join(sorted(self.networks)) or 'none'}",
            )
        return self.networks[model]

    def layers_of(self, model: str) -> dict[str, LayerRecord]:
        """Collect the distinct layers of a model.

        Raises:
            ProfileError: Layers of the model were never measured.
        """
        keys = dict.fromkeys(self.network(model).layers)
        missing = [key for key in keys if key not in self.layers]
        if missing:
            shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            raise ProfileError(
                f"{len(missing)} of {len(keys)} layers of '{model}' were not measured",
                where=self.source,
                why=shown,
                hint="merge a profile that has them, or estimate with --unseen",
            )
        return {key: self.layers[key] for key in keys}


def check_profile(profile: Profile) -> Profile:
    """Check every measurement; returns the profile with identical duplicates dropped.

    Raises:
        ProfileError: A value is not finite, negative or zero where it cannot be; a clock is not
            one of the board; a context is out of range; two rows of one condition disagree.
            Names the layer or model, the row and the column.
    """
    where = profile.source
    for name in ("cpu_hz", "gpu_hz", "emc_hz"):
        clocks = getattr(profile.board, name)
        if not clocks or list(clocks) != sorted(set(clocks)) or clocks[0] < 0:
            raise ProfileError(
                "clocks of the board must ascend", where=f"{where}: board.{name}", why=str(clocks)
            )
    longest = max((n.longest for n in profile.networks.values()), default=0)
    layers = {
        key: LayerRecord(
            record.kind,
            record.config,
            _check(f"{where}: layer {key}", record.samples, LAYER_COLUMNS, profile.board, longest),
        )
        for key, record in profile.layers.items()
    }
    runs = {
        model: _check(f"{where}: runs of {model}", s, RUN_COLUMNS, profile.board, longest)
        for model, s in profile.runs.items()
    }
    places = {
        model: _check(f"{where}: places of {model}", s, PLACE_COLUMNS, profile.board, longest)
        for model, s in profile.places.items()
    }
    return Profile(
        profile.board, profile.networks, layers, runs, places, profile.provenance, profile.source
    )


def _check(
    where: str, samples: Samples, required: Iterable[str], board: BoardInfo, longest: int
) -> Samples:
    for name in required:
        if name not in samples.values:
            raise ProfileError("a column is missing", where=f"{where}, column {name}")
    for name in ("cpu_hz", "gpu_hz", "emc_hz"):
        column, known = getattr(samples, name), getattr(board, name)
        _refuse(where, name, column, ~np.isin(column, known), f"is not a clock of {board.name}")
    _refuse(
        where,
        "context",
        samples.context,
        (samples.context < 0) | (samples.context > longest),
        f"is outside 0..{longest}",
    )
    for name, values in samples.values.items():
        _refuse(where, name, values, ~np.isfinite(values), "is not a finite number")
        if name not in _SIGNED:
            positive = name in (*LAYER_COLUMNS, *RUN_COLUMNS) and name not in _MAY_BE_ZERO
            wrong = values <= 0 if positive else values < 0
            _refuse(where, name, values, wrong, "is not positive" if positive else "is negative")
    return _without_duplicates(where, samples)


def _refuse(
    where: str, name: str, column: NDArray[np.generic], wrong: NDArray[np.bool_], why: str
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ProfileError(
            "unusable measurement",
            where=f"{where}, row {row}, column {name}",
            why=f"{column[row]} {why} ({int(wrong.sum())} such rows)",
            hint="measure again or drop the row",
        )


def _without_duplicates(where: str, samples: Samples) -> Samples:
    table = _conditions(samples)
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    original = first[inverse.reshape(-1)]
    if len(first) == len(table):
        return samples
    for name, values in samples.values.items():
        differs = values != values[original]
        if differs.any():
            row = int(np.argmax(differs))
            raise ProfileError(
                "two rows of the same clocks and context disagree",
                where=f"{where}, rows {int(original[row])} and {row}, column {name}",
                why=f"{values[original[row]]:g} and {values[row]:g}",
                hint="keep one of them",
            )
    keep = np.zeros(len(table), dtype=bool)
    keep[first] = True
    return samples.where(keep)


def merge_profiles(profiles: Iterable[Profile]) -> Profile:
    """Put profiles of one board together, as a shared repository of profiles does.

    Raises:
        ProfileError: They are of different boards, or two measurements of the same thing disagree.
    """
    first, *others = profiles
    merged = first
    for other in others:
        merged = _merge(merged, other)
    return check_profile(merged)


def _merge(a: Profile, b: Profile) -> Profile:
    both = " and ".join(source for source in (a.source, b.source) if source)
    if a.board != b.board:
        names = a.board.__dataclass_fields__
        name = next(n for n in names if getattr(a.board, n) != getattr(b.board, n))
        raise ProfileError(
            "profiles of different boards cannot be merged",
            where=f"{both}: board.{name}",
            why=f"{getattr(a.board, name)} and {getattr(b.board, name)}",
            hint="keep them in separate files",
        )
    for model in a.networks.keys() & b.networks.keys():
        if a.networks[model] != b.networks[model]:
            raise ProfileError(
                "two models of one name differ",
                where=f"{both}: networks.{model}",
                hint="rename one",
            )
    layers = dict(a.layers)
    for key, record in b.layers.items():
        if key in layers:
            samples = _pool(f"{both}: layer {key}", layers[key].samples, record.samples)
            layers[key] = LayerRecord(record.kind, record.config, samples)
        else:
            layers[key] = record
    return Profile(
        a.board,
        a.networks | b.networks,
        layers,
        _join(f"{both}: runs", a.runs, b.runs),
        _join(f"{both}: places", a.places, b.places),
        a.provenance | b.provenance,
        both,
    )


def _join(where: str, a: dict[str, Samples], b: dict[str, Samples]) -> dict[str, Samples]:
    joined = dict(a)
    for name, samples in b.items():
        mine = joined.get(name)
        joined[name] = samples if mine is None else _pool(f"{where} of {name}", mine, samples)
    return joined


def _pool(where: str, mine: Samples, other: Samples) -> Samples:
    """Put two sets together; conditions that both measured get the mean, if they agree.

    Raises:
        ProfileError: Two times of one condition differ by more than repetition explains.
    """
    joined = mine.join(other)
    keys = _conditions(joined)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    count = np.bincount(inverse)
    means = {n: np.bincount(inverse, v) / count for n, v in joined.values.items()}
    for name in (*LAYER_COLUMNS, *RUN_COLUMNS):
        if name not in means:
            continue
        values, mean = joined.values[name], means[name][inverse]
        wrong = np.abs(values - mean) > _AGREE * mean
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ProfileError(
                "two measurements of the same clocks and context disagree",
                where=f"{where}, row {row}, column {name}",
                why=f"{values[row]:g} against a mean of {mean[row]:g}",
                hint="find out which is wrong, and drop its rows",
            )
    axes = {name: getattr(joined, name)[first] for name in AXES}
    return Samples(values=means, **axes)


def _conditions(samples: Samples) -> NDArray[np.float64]:
    """What makes a row a measurement of its own, ``[n, 4 or 5]``."""
    keys = [getattr(samples, name).astype(np.float64) for name in AXES]
    if "position" in samples.values:
        keys.append(samples.values["position"])
    return np.stack(keys, axis=1)
