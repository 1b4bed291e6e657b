"""From a profile to the table that travels: one call for models with and without visible layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.baselines import OverContext
from estimators.endtoend import EndToEndEstimator
from estimators.errors import ProfileError
from estimators.flame import FlameEstimator, Mode
from estimators.flame.unseen import complete_layers
from estimators.profiles import Profile, Samples
from estimators.residual import Array
from estimators.table import LatencyTable, TableHeader

TAIL_LEVELS = (0.5, 0.9, 0.95)
"""Quantiles of held-out measured over estimated latency that go into the table."""

_CONTEXTS = 64  # contexts of a table by default: linear between them is off by less than 0.1 %
_MIN_TAIL = 5  # held-out runs below which their quantiles say nothing


@dataclass(frozen=True, slots=True)
class _Estimate:
    """What an estimator found: axes, latency ``[E, K, C, G]``, held-out ratios per memory clock."""

    emc_hz: Sequence[int]
    context: Sequence[int]
    latency_us: Array
    ratios: Sequence[Array]
    fit: dict[str, Any]


def make_table(
    profile: Profile,
    model: str,
    *,
    mode: Mode = "maxplus",
    anchor: bool = True,
    context: Sequence[int] | None = None,
    end_to_end: bool = False,
    unseen: bool = False,
) -> LatencyTable:
    """Estimate a model at every clock of the board.

    Args:
        profile: Measurements.
        model: A model of the profile.
        mode: How layers are put together.
        anchor: Whether end-to-end runs may correct the layers.
        context: Contexts of the table; 64 up to the longest profiled if None.
        end_to_end: Use the runs alone even if layers were profiled; also the way for a model whose
            engine shows none.
        unseen: Foretell layers that were not measured from others of their type.

    Raises:
        ProfileError: The measurements do not suffice; says which.
    """
    if end_to_end or not profile.network(model).layers:
        return _from_runs(profile, model, context)
    layers = complete_layers(profile, model) if unseen else None
    estimator = FlameEstimator(mode=mode, anchor=anchor).fit(profile, model, layers=layers)
    tokens = _contexts(context, estimator.longest_)
    board = profile.board
    latency = np.stack(
        [
            estimator.predict(board.cpu_hz, board.gpu_hz, emc_hz=emc, context=tokens)
            for emc in estimator.emc_hz_
        ]
    )
    ratios = estimator.heldout(profile, model) if anchor else {}
    anchors = {
        str(emc): {"cpu_factor": a.cpu_factor, "gpu_factor": a.gpu_factor, "serial_us_hz": a.serial}
        for emc, a in estimator.anchors_.items()
    }
    estimate = _Estimate(
        emc_hz=estimator.emc_hz_,
        context=tokens,
        latency_us=latency,
        ratios=[ratios.get(emc, np.zeros(0)) for emc in estimator.emc_hz_],
        fit={"estimator": f"flame {mode}", "anchors": anchors},
    )
    return _table(profile, model, estimate)


def _from_runs(profile: Profile, model: str, context: Sequence[int] | None) -> LatencyTable:
    runs = profile.runs.get(model)
    if runs is None:
        raise ProfileError(
            f"no end-to-end runs of '{model}'",
            where=profile.source,
            hint="measure some; flamegov profile plan lists the clocks",
        )
    board = profile.board
    estimator = OverContext(EndToEndEstimator).fit(runs)
    tokens = _contexts(context, int(estimator.context_[-1]))
    emc_points = tuple(int(emc) for emc in np.unique(runs.emc_hz))
    latency = np.stack(
        [
            estimator.predict(board.cpu_hz, board.gpu_hz, emc_hz=emc, context=tokens)
            for emc in emc_points
        ]
    )
    ratio = heldout_runs(runs)
    estimate = _Estimate(
        emc_hz=emc_points,
        context=tokens,
        latency_us=latency,
        ratios=[ratio[runs.emc_hz == emc] for emc in emc_points],
        fit={"estimator": "end-to-end smooth hinge", "runs": len(runs)},
    )
    return _table(profile, model, estimate)


def heldout_runs(runs: Samples) -> Array:
    """Predict each run from the others of its context; measured over predicted, nan if too few."""
    ratio = np.full(len(runs), np.nan)
    for context in np.unique(runs.context):
        rows = np.flatnonzero(runs.context == context)
        x_hz = np.stack([runs.cpu_hz, runs.gpu_hz, np.maximum(runs.emc_hz, 1)], axis=1)[rows]
        time_us = runs.values["latency_us"][rows]
        for i in range(len(rows)) if len(rows) > _MIN_TAIL else ():
            keep = np.arange(len(rows)) != i
            fitted = EndToEndEstimator().fit(x_hz[keep], time_us[keep])
            ratio[rows[i]] = time_us[i] / fitted.predict(x_hz[[i]])[0]
    return ratio


def _contexts(context: Sequence[int] | None, longest: int) -> list[int]:
    if context is not None:
        return sorted(set(context))
    if not longest:
        return [0]
    return sorted({int(t) for t in np.linspace(1, longest, min(_CONTEXTS, longest))})


def _table(profile: Profile, model: str, estimate: _Estimate) -> LatencyTable:
    board = profile.board
    usable = [ratio[np.isfinite(ratio)] for ratio in estimate.ratios]
    tails = None
    if all(len(ratio) >= _MIN_TAIL for ratio in usable):
        tails = np.array([np.quantile(r, TAIL_LEVELS, method="higher") for r in usable])
    header = TableHeader(
        board=board.name,
        soc=board.soc,
        l4t=board.l4t,
        power_mode=board.power_mode,
        online_cpus=board.online_cpus,
        gpu_tpc_mask=board.gpu_tpc_mask,
        engine=board.engine,
        precision=board.precision,
        model=model,
        phase=profile.network(model).phase,
        provenance={"profile": profile.source, **profile.provenance},
        fit=estimate.fit | _report(np.concatenate(usable)),
    )
    return LatencyTable(
        header,
        np.asarray(estimate.emc_hz, dtype=np.int64),
        np.asarray(estimate.context, dtype=np.int64),
        np.asarray(board.cpu_hz, dtype=np.int64),
        np.asarray(board.gpu_hz, dtype=np.int64),
        estimate.latency_us.astype(np.float32),
        tail_ratio=None if tails is None else tails.astype(np.float32),
        tail_levels=None if tails is None else np.array(TAIL_LEVELS),
    )


def _report(ratio: Array) -> dict[str, Any]:
    """Figures of the held-out runs; empty without any."""
    if not len(ratio):
        return {"heldout_runs": 0}
    errors = np.abs(1 / ratio - 1) * 100
    return {
        "heldout_runs": len(ratio),
        "heldout_mape_pct": round(float(errors.mean()), 3),
        "heldout_worst_pct": round(float(errors.max()), 3),
    }
