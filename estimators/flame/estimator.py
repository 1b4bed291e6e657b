"""The FLAME estimator: layers profiled at few clocks and contexts, latency at all of them."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from estimators.errors import ProfileError
from estimators.flame import timeline
from estimators.flame.anchor import MIN_RUNS, Anchor, coordinates
from estimators.flame.interaction import Delta, Threshold
from estimators.flame.layers import (
    DeltaKnots,
    Layer,
    LayerWork,
    check_spread,
    context_weights,
)
from estimators.flame.timeline import LayerTimes
from estimators.profiles import LayerRecord, NetworkRecord, Profile, Samples
from estimators.residual import Array

Mode = Literal[
    "maxplus",
    "paper",
    "paper-literal",
    "paper-insitu",
    "no-module",
    "no-aggregation",
    "sum-max",
]

_RESIDUAL_KNOTS = 9  # contexts at which the anchor's residual is evaluated; linear between them

LIGHT_KINDS = frozenset({"bn", "norm", "batch_norm", "relu", "activation", "add", "dropout"})
"""Layer types that the paper neglects (section V)."""


class FlameEstimator:
    """Latency of a model from its layers, Eqs. 1-9 of the FLAME paper.

    Args:
        mode: How layers are put together. ``maxplus`` (recommended): max-plus timeline, anchored on
            the runs of the profile. ``paper``: Eqs. 1-9 with the maximum in both cases.
            ``paper-literal``: Eq. 6 to the letter. ``paper-insitu``: the same with the timing
            factor measured in place (Eq. 3); needs ``places`` and fits that model only.
            ``no-module``, ``no-aggregation``, ``sum-max``: ablations.
        anchor: Whether to use end-to-end runs (``maxplus`` only); without: zero-run mode.
        threshold: What the breakpoint of Eq. 4 is compared with.
        saturates: Whether GPU time may have a saturation clock; by default in ``maxplus`` only.
        ignore_light_layers: Neglect layers of :data:`LIGHT_KINDS` as the paper does.

    Attributes:
        emc_hz_: Memory clocks profiled, ascending, Hz.
        anchors_: What the end-to-end runs said, by memory clock.
        longest_: Longest context profiled, tokens; 0 if layers do not depend on it.
    """

    def __init__(
        self,
        *,
        mode: Mode = "maxplus",
        anchor: bool = True,
        threshold: Threshold = "cpu",
        saturates: bool | None = None,
        ignore_light_layers: bool = False,
    ) -> None:
        if mode not in get_args(Mode):
            known = ", ".join(get_args(Mode))
            raise ProfileError(f"unknown mode '{mode}'", hint=f"choose from {known}")
        self.mode, self.anchor, self.threshold = mode, anchor, threshold
        self.saturates = mode == "maxplus" if saturates is None else saturates
        self.ignore_light_layers = ignore_light_layers

    def fit(
        self, profile: Profile, model: str, *, layers: Mapping[str, LayerRecord] | None = None
    ) -> "FlameEstimator":
        """Fit all layers of a model at every memory clock of the profile.

        Args:
            profile: Measurements.
            model: A network of the profile.
            layers: Layers to use instead of the profile's own (for example predicted ones).

        Raises:
            ProfileError: Layers are missing, or measured at too few clocks.
        """
        network = profile.network(model)
        records = dict(layers) if layers is not None else profile.layers_of(model)
        order = [key for key in network.layers if not self._is_light(records[key].kind)]
        self._order = tuple(order)
        self.emc_hz_ = _common_emc(profile.source, {key: records[key] for key in order})
        self._layers = {
            emc: {
                key: Layer.fit(
                    f"{profile.source}: layer {key}, emc {emc} Hz",
                    records[key].samples.at(emc_hz=emc),
                    saturates=self.saturates,
                    threshold=self.threshold,
                )
                for key in dict.fromkeys(order)
            }
            for emc in self.emc_hz_
        }
        self.longest_ = self._longest(network)
        if self.mode == "paper-insitu":
            ordered = [records[key] for key in order]
            places = profile.places.get(model)
            self._places = {
                e: _fit_places(places, ordered, e, self.threshold) for e in self.emc_hz_
            }
        runs = profile.runs.get(model)
        self.anchors_ = {emc: self._fit_anchor(runs, emc) for emc in self.emc_hz_}
        return self

    def joined(self, mode: Mode) -> "FlameEstimator":
        """Put the same fitted layers together in another way, without end-to-end runs.

        ``paper-insitu`` needs measurements of its own and is fitted instead.
        """
        other = copy(self)
        other.mode, other.anchor = mode, False
        other.anchors_ = dict.fromkeys(self.emc_hz_, Anchor())
        return other

    def borrow(self, donors: Sequence["FlameEstimator"]) -> "FlameEstimator":
        """Take over the anchors of other models on the same board: none of this one was run.

        Raises:
            ProfileError: No donor has an anchor at one of the memory clocks.
        """
        self.anchors_ = {
            emc: Anchor.transfer(
                [d.anchors_[emc] for d in donors if emc in d.anchors_ and d.anchors_[emc].serial]
            )
            for emc in self.emc_hz_
        }
        return self

    def predict(
        self,
        cpu_hz: ArrayLike,
        gpu_hz: ArrayLike,
        *,
        emc_hz: int | None = None,
        context: Sequence[int] = (0,),
    ) -> Array:
        """Estimate latency on a grid.

        Args:
            cpu_hz: CPU clocks, Hz, ``[C]``.
            gpu_hz: GPU clocks, Hz, ``[G]``.
            emc_hz: Memory clock, one of :attr:`emc_hz_`; the highest if None.
            context: Contexts, tokens, ``[K]``.

        Returns:
            Latency, us, ``[K, C, G]``.

        Raises:
            ProfileError: The memory clock was not profiled, or a context is beyond the profiled
                ones.
        """
        emc = self.emc_hz_[-1] if emc_hz is None else emc_hz
        if emc not in self._layers:
            raise ProfileError(
                f"memory clock {emc} Hz was not profiled", hint=f"profiled: {list(self.emc_hz_)}"
            )
        tokens = self._check_context(context)
        cpu, gpu = np.asarray(cpu_hz, dtype=np.float64), np.asarray(gpu_hz, dtype=np.float64)
        if self.mode == "maxplus":
            return self._anchored(emc, tokens, cpu, gpu)
        times = self._layer_times(emc, tokens, cpu, gpu)
        result: Array = np.broadcast_to(
            _AGGREGATE[self.mode](times), (len(tokens), len(cpu), len(gpu))
        )
        return result

    def heldout(self, profile: Profile, model: str) -> dict[int, Array]:
        """Predict each end-to-end run from the others; layers stay as they were fitted.

        Returns:
            Measured over predicted by memory clock, ``[R]``; empty where there are too few runs.
        """
        ratios: dict[int, Array] = {}
        for emc in self.emc_hz_:
            runs = profile.runs[model].at(emc_hz=emc) if model in profile.runs else None
            if runs is None or len(runs) <= MIN_RUNS or self.mode != "maxplus":
                ratios[emc] = np.zeros(0)
                continue
            measured = runs.values["latency_us"]
            index = np.arange(len(runs))
            predicted = [
                self._run_time(
                    self._fit_anchor(runs.where(index != i), emc), runs.where(index == i)
                )
                for i in index
            ]
            ratios[emc] = measured / np.array(predicted)
        return ratios

    def _run_time(self, anchor: Anchor, run: Samples) -> float:
        """Latency of one run under another anchor, us."""
        tokens, cpu, gpu = (a.astype(np.float64) for a in (run.context, run.cpu_hz, run.gpu_hz))
        emc = int(run.emc_hz[0])
        times = {
            key: LayerWork.at_runs(layer, tokens, cpu, gpu).scaled(
                anchor.cpu_factor, anchor.gpu_factor
            )
            for key, layer in self._layers[emc].items()
        }
        latency = timeline.maxplus(times[key] for key in self._order) + anchor.serial / cpu
        return float((latency * anchor.correction(coordinates(tokens, cpu, gpu)))[0])

    def _is_light(self, kind: str) -> bool:
        return self.ignore_light_layers and kind in LIGHT_KINDS

    def _longest(self, network: NetworkRecord) -> int:
        if not network.longest:
            return 0
        layers = [layer for by_key in self._layers.values() for layer in by_key.values()]
        return max((int(layer.context[-1]) for layer in layers), default=0)

    def _check_context(self, context: Sequence[int]) -> Array:
        tokens = np.asarray(context, dtype=np.float64)
        if tokens.size == 0 or tokens.min() < 0 or tokens.max() > self.longest_:
            raise ProfileError(
                "context out of range",
                where=f"context {tokens.max():g}" if tokens.size else "context",
                why=f"profiled up to {self.longest_}",
                hint="profile longer contexts or ask for shorter ones",
            )
        return tokens

    def _work(self, emc: int, tokens: Array, cpu: Array, gpu: Array) -> dict[str, LayerWork]:
        layers = self._layers[emc]
        return {key: LayerWork.on_grid(layer, tokens, cpu, gpu) for key, layer in layers.items()}

    def _anchored(self, emc: int, tokens: Array, cpu: Array, gpu: Array) -> Array:
        anchor = self.anchors_[emc]
        work = self._work(emc, tokens, cpu, gpu)
        times = {k: w.scaled(anchor.cpu_factor, anchor.gpu_factor) for k, w in work.items()}
        latency = timeline.maxplus(times[key] for key in self._order)
        latency = latency + anchor.serial / cpu[:, None]
        knots = np.unique(np.geomspace(tokens.min() + 1, tokens.max() + 1, _RESIDUAL_KNOTS)) - 1
        where = np.stack(np.meshgrid(knots, cpu, gpu, indexing="ij"), axis=-1).reshape(-1, 3)
        factor = anchor.correction(coordinates(*where.T)).reshape(len(knots), len(cpu), len(gpu))
        result: Array = latency * np.tensordot(context_weights(knots, tokens), factor, axes=1)
        return result

    def _layer_times(self, emc: int, tokens: Array, cpu: Array, gpu: Array) -> list[LayerTimes]:
        """Times with the timing factor as the mode wants it, in order of execution."""
        if self.mode == "paper-insitu":
            deltas = [place.on_grid(tokens, cpu, gpu) for place in self._places[emc]]
        else:
            layers = self._layers[emc]
            by_key = {key: layers[key].delta.on_grid(tokens, cpu, gpu) for key in layers}
            deltas = [by_key[key] for key in self._order]
        work = self._work(emc, tokens, cpu, gpu)
        return [
            LayerTimes(work[key].cpu, work[key].gpu, delta)
            for key, delta in zip(self._order, deltas, strict=True)
        ]

    def _fit_anchor(self, runs: Samples | None, emc: int) -> Anchor:
        if not self.anchor or self.mode != "maxplus" or runs is None:
            return Anchor()
        runs = runs.at(emc_hz=emc)
        if len(runs) < MIN_RUNS:
            return Anchor()
        tokens, cpu, gpu = (a.astype(np.float64) for a in (runs.context, runs.cpu_hz, runs.gpu_hz))
        layers = self._layers[emc]
        work = {key: LayerWork.at_runs(layer, tokens, cpu, gpu) for key, layer in layers.items()}

        def predict(cpu_factor: float, gpu_factor: float) -> Array:
            times = {key: layer.scaled(cpu_factor, gpu_factor) for key, layer in work.items()}
            return timeline.maxplus(times[key] for key in self._order)

        return Anchor.fit(predict, cpu, runs.values["latency_us"], coordinates(tokens, cpu, gpu))


_AGGREGATE = {
    "paper": timeline.paper,
    "paper-literal": timeline.paper_literal,
    "paper-insitu": timeline.paper_literal,
    "no-module": timeline.sum_of_processors,
    "no-aggregation": timeline.sum_of_layers,
    "sum-max": timeline.longer_processor,
}


def _common_emc(source: str, records: Mapping[str, LayerRecord]) -> tuple[int, ...]:
    """Memory clocks at which every layer was measured."""
    sets = [set(record.samples.emc_hz.tolist()) for record in records.values()]
    common = set.intersection(*sets) if sets else set()
    if not common:
        raise ProfileError(
            "no memory clock at which all layers were measured",
            where=source,
            why=f"{len(sets)} layers",
            hint="profile all layers at the same memory clocks",
        )
    return tuple(sorted(common))


def _fit_places(
    places: Samples | None, layers: Sequence[LayerRecord], emc: int, threshold: Threshold
) -> list[DeltaKnots]:
    """Fit Eq. 4 to the timing factor measured at each place of the model (Eq. 3)."""
    if places is None:
        raise ProfileError(
            "no layers seen in place", hint="paper-insitu needs them; use another mode"
        )
    fitted = []
    here = places.at(emc_hz=emc)
    for position, record in enumerate(layers):
        rows = here.where(here.values["position"] == position)
        where = f"place {position} of the model, emc {emc} Hz"
        check_spread(where, rows)
        contexts = np.unique(rows.context)
        deltas = tuple(_fit_place(rows.at(context=int(c)), record, threshold) for c in contexts)
        fitted.append(DeltaKnots(contexts, deltas))
    return fitted


def _fit_place(rows: Samples, record: LayerRecord, threshold: Threshold) -> Delta:
    cpu, gpu = rows.cpu_hz.astype(np.float64), rows.gpu_hz.astype(np.float64)
    delta = rows.values["delta_us"]
    # Relative to the layer's own size: a backlog can make the timing factor many times that.
    scale = np.maximum(np.abs(delta), float(record.samples.values["total_us"].min()))
    return Delta.fit(cpu, gpu, delta, scale, threshold)
