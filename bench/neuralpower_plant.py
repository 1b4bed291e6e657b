"""NeuralPower on the simulated board: layers, networks, bottlenecks, power tables; simulated."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bench.estimators_profile import Subject, full_profile
from bench.neuralpower_layers import (
    COUNTS,
    Truth,
    measure_layers,
    modelled,
    random_cifar,
    true_network,
)
from bench.neuralpower_rig import (
    Array,
    PowerMeter,
    idle_samples,
    powered_layers,
    powered_runs,
    spread_grid,
    true_power_mw,
)
from bench.plant.errors import PlantError
from bench.plant.networks import Network, get_network
from bench.plant.types import Clocks
from estimators.flame import FlameEstimator
from estimators.maketable import make_table
from estimators.neuralpower.layerfile import MeasuredLayers
from estimators.neuralpower.layerfile import train as fit_models
from estimators.neuralpower.networks import NamedLayer
from estimators.neuralpower.paleo import PERCENT_OF_PEAK, get_device, paleo_ms
from estimators.neuralpower.process import DefaultModel
from estimators.neuralpower.score import groups_of, held_out, rmspe
from estimators.neuralpower.shapes import Columns, Kind
from estimators.neuralpower.surface import LayerPower, corrected, surface_from_runs
from estimators.neuralpower.totals import LayerModels, Totals
from estimators.table import LatencyTable
from policies.base import Attainable, BoardView, Job
from policies.flame import FlamePolicy

NETWORKS = ("vgg16", "alexnet", "nin", "overfeat", "cifar10_6conv")
"""Networks of the paper; none of their layers is learned from."""
TABLE_NETWORKS = ("resnet50", "vgg16", "mobilenetv2", "alexnet", "nin")
DONOR = "overfeat"
"""Network whose runs tell what a job costs the host outside layers; it has no table here."""
BATCH = 64
CIFAR_NETWORKS = 40
_SAME = 0.01  # layers whose true values differ by less are equally the bottleneck
_DEADLINES = (1.1, 1.3, 1.7, 2.5, 4.0)  # over the latency at top clocks
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Trained:
    """What was measured on a board and learned from it.

    Attributes:
        subject: Board and engine.
        sets: Layers by type.
        models: Fitted to all of them.
        times_s: Seconds of this machine for fitting, simulated seconds for measuring.
    """

    subject: Subject
    sets: dict[Kind, MeasuredLayers]
    models: LayerModels
    times_s: dict[str, float]


def train(subject: Subject, scale: float = 1.0) -> Trained:
    """Measure random layers on a board and fit all models.

    Args:
        subject: Board, engine and seed; the model is not used.
        scale: Share of the paper's number of layers.
    """
    meter = PowerMeter(subject.spec, intervals=1)
    sets = {k: measure_layers(subject, meter, k, int(n * scale)) for k, n in COUNTS.items()}
    start = time.perf_counter()
    models = fit_models(sets)
    fit_s = time.perf_counter() - start
    times = {"fit": round(fit_s, 2), "collect_simulated": round(meter.busy_s, 1)}
    return Trained(subject, sets, models, times)


def layer_errors(trained: Trained) -> dict[str, float]:
    """Held-out RMSPE of layer power and runtime by type, %, and of the best constant."""
    result: dict[str, float] = {}
    for kind, measured in trained.sets.items():
        layers, groups = measured.layers, groups_of(measured.layers.shapes)
        for what, values, make in (
            ("power", measured.power_w, lambda: DefaultModel(roofline=False)),
            ("runtime", measured.runtime_ms, DefaultModel),
        ):
            predicted = held_out(make, layers, values, groups=groups, folds=_FOLDS)
            result[f"{kind}_{what}_rmspe"] = round(rmspe(predicted, values), 2)
        best = (1 / measured.power_w).sum() / (1 / measured.power_w**2).sum()
        constant = rmspe(np.full(len(layers), best), measured.power_w)
        result[f"{kind}_power_constant_rmspe"] = round(constant, 2)
    return result


def network_errors(trained: Trained) -> dict[str, Any]:
    """Predict the paper's networks at its batch from layers of others; relative errors, %."""
    rows = {}
    for name in NETWORKS:
        truth = true_network(trained.subject, get_network(name), BATCH)
        totals = _predict(trained.models, truth)
        rows[name] = {
            "runtime_pct": _percent(totals.total_ms, truth.network_ms),
            "power_pct": _percent(totals.mean_w, truth.network_w),
            "energy_pct": _percent(totals.total_mj, truth.network_mj),
        }
    worst = max(abs(row["energy_pct"]) for row in rows.values())
    mean = float(np.mean([abs(row["energy_pct"]) for row in rows.values()]))
    return {
        "network_energy_err_pct": round(mean, 2),
        "network_energy_worst_pct": round(worst, 2),
        "networks": rows,
        "network_batch": BATCH,
    }


def _predict(models: LayerModels, truth: Truth) -> Totals:
    named = [
        NamedLayer(str(index), shape)
        for index, shape in enumerate(truth.shapes)
        if shape is not None
    ]
    return models.totals(named)


def bottlenecks(trained: Trained, *, cifar_networks: int = CIFAR_NETWORKS) -> dict[str, Any]:
    """Share of networks whose leading layer is named right; the paper's two cases beside Paleo."""
    networks = [(get_network(name), BATCH) for name in NETWORKS]
    networks += [(get_network(name), 1) for name in NETWORKS]
    networks += [(random_cifar(seed), 16) for seed in range(cifar_networks)]
    hits: dict[str, list[bool]] = {"runtime": [], "power": [], "energy": [], "runtime_paleo": []}
    cases = {}
    device = get_device("jetson-agx-orin")
    for network, batch in networks:
        truth = true_network(trained.subject, network, batch)
        known = modelled(truth)
        time_ms, power_w = truth.time_ms[list(known)], truth.power_w[list(known)]
        totals = _predict(trained.models, truth)
        shapes = [shape for shape in truth.shapes if shape is not None]
        analytic = np.array(
            [paleo_ms(Columns.of([shape]), device, PERCENT_OF_PEAK)[0] for shape in shapes]
        )
        for what, guess, true in (
            ("runtime", totals.runtime_ms, time_ms),
            ("power", totals.power_w, power_w),
            ("energy", totals.energy_mj, time_ms * power_w),
            ("runtime_paleo", analytic, time_ms),
        ):
            hits[what].append(bool(true[int(guess.argmax())] >= (1 - _SAME) * true.max()))
        if network.name in ("nin", "vgg16"):
            cases[f"{network.name} batch {batch}"] = {
                "true": _describe(network, known[int(time_ms.argmax())]),
                "ours": _describe(network, known[int(totals.runtime_ms.argmax())]),
                "paleo": _describe(network, known[int(analytic.argmax())]),
            }
    shares = {f"{what}_pct": round(100 * float(np.mean(h)), 1) for what, h in hits.items()}
    return {"networks": len(networks), **shares, "cases": cases}


def _describe(network: Network, index: int) -> str:
    layer = network.layers[index]
    same = [i for i, other in enumerate(network.layers) if other.kind == layer.kind]
    return f"{layer.kind} {same.index(index) + 1}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Truth and estimates of one network over the clock pairs, ``[C, G]`` each.

    Attributes:
        power_mw: True power back to back.
        idle_mw: True idle power.
        latency_us: True latency.
        estimates: Estimated power by the way it was made, mW.
        table: Estimated latency, from layers alone.
        idle_guess_mw: Estimated idle power.
    """

    power_mw: Array
    idle_mw: Array
    latency_us: Array
    estimates: dict[str, Array]
    table: LatencyTable
    idle_guess_mw: Array


def host_cost(donor: str = DONOR) -> float:
    """Host work per job outside layers, us Hz, as learned from runs of another network.

    It belongs to engine and board, not to the network, but layers run alone do not show it.
    """
    subject = Subject(donor)
    profile = full_profile(subject, points=spread_grid(subject, 9))
    return FlameEstimator().fit(profile, donor).anchors_[subject.memory_hz].serial


def power_grid(model: str, host_us_hz: float) -> Grid:
    """Estimate the power of a network from layers, from 24 runs and from 9.

    Args:
        model: The network; without the runs it has never been run.
        host_us_hz: Host work per job outside layers, see :func:`host_cost`.
    """
    subject = Subject(model)
    meter, spec = PowerMeter(subject.spec), subject.spec
    cpu, gpu = np.array(spec.cpu_hz, dtype=np.float64), np.array(spec.gpu_hz, dtype=np.float64)
    idle = idle_samples(subject, meter)
    profile = powered_layers(subject, meter, spread_grid(subject, 24))
    table = make_table(profile, model, anchor=False)
    bare = table.latency_us[0, 0].astype(np.float64)
    latency = bare + host_us_hz / cpu[:, None]
    layered = LayerPower(
        idle, list(profile.layers.values()), top_hz=(float(cpu[-1]), float(gpu[-1]))
    )
    order = profile.networks[model].layers
    zero = layered.predict(order, cpu, gpu, latency)
    estimates = {
        "zero_run": zero,
        "zero_run_layers_only": layered.predict(order, cpu, gpu, bare),
    }
    for count in (24, 9):
        runs = powered_runs(subject, meter, spread_grid(subject, count))
        estimates[f"{count}"] = surface_from_runs(runs, cpu, gpu, idle=idle, total_us=latency)
        estimates[f"{count}_runs_only"] = surface_from_runs(runs, cpu, gpu)
        estimates[f"{count}_with_layers"] = corrected(zero, cpu, gpu, runs)
    true_idle = np.array(
        [
            [meter.model.mean_power_mw(Clocks(c, g, subject.memory_hz)) for g in spec.gpu_hz]
            for c in spec.cpu_hz
        ]
    )
    return Grid(
        true_power_mw(subject),
        true_idle,
        subject.truth_us()[0],
        estimates,
        table,
        layered.board_.idle_mw(cpu[:, None], gpu[None, :]),
    )


def power_tables(models: Sequence[str] = TABLE_NETWORKS) -> dict[str, Any]:
    """MAPE of power tables over all pairs, energy of the points chosen from them, greedy's too."""
    errors: dict[str, dict[str, float]] = {}
    chosen: dict[str, list[float]] = {}
    greedy: list[dict[str, float]] = []
    host_us_hz = host_cost()
    for model in models:
        grid = power_grid(model, host_us_hz)
        errors[model] = {
            way: round(100 * float(np.abs(power / grid.power_mw - 1).mean()), 2)
            for way, power in grid.estimates.items()
        }
        for ratio in _DEADLINES:
            deadline_us = ratio * float(grid.latency_us.min())
            for way in ("zero_run", "24", "9"):
                chosen.setdefault(way, []).append(_excess(grid, way, deadline_us))
            greedy.append(_greedy(grid, deadline_us))
    ways = errors[models[0]]
    means = {
        f"power_table_mape_{way}": round(float(np.mean([row[way] for row in errors.values()])), 2)
        for way in ways
    }
    return {
        **means,
        "power_table_mape": errors,
        "chosen_energy_excess_pct": {
            way: {"mean": round(float(np.mean(v)), 2), "worst": round(max(v), 2)}
            for way, v in chosen.items()
        },
        "greedy": _summary(greedy),
    }


def period_energy(power_mw: Array, idle_mw: Array, latency_us: Array, period_us: float) -> Array:
    """Energy of one job and the idle rest of its period, mJ; infinite where it is late."""
    rest_us = period_us - latency_us
    energy = (power_mw * latency_us + idle_mw * rest_us) / 1e6  # mW us is nJ
    return np.where(rest_us >= 0, energy, np.inf)


def _excess(grid: Grid, way: str, deadline_us: float) -> float:
    """True energy of the point chosen from a table over that of the best point, %.

    Points that are late in truth are not choosable: which point is in time is the latency table's
    business, here only the power is judged.
    """
    truth = period_energy(grid.power_mw, grid.idle_mw, grid.latency_us, deadline_us)
    guess = period_energy(grid.estimates[way], grid.idle_guess_mw, grid.latency_us, deadline_us)
    return 100 * float(truth.flat[int(guess.argmin())] / truth.min() - 1)


def _greedy(grid: Grid, deadline_us: float) -> dict[str, float]:
    """Greedy pair (Eqs. 13-14) against least mean power and least busy energy, all true, %."""
    table = LatencyTable(
        grid.table.header,
        grid.table.emc_hz,
        grid.table.context,
        grid.table.cpu_hz,
        grid.table.gpu_hz,
        grid.latency_us[None, None].astype(np.float32),
    )
    cpus, gpus = (tuple(int(hz) for hz in axis) for axis in (table.cpu_hz, table.gpu_hz))
    view = BoardView(Attainable(cpus, gpus), emc_hz=int(table.emc_hz[0]))
    point = FlamePolicy().decide(Job(table, deadline_us, 0), view).point
    if point is None:
        raise PlantError("the greedy search found no point", where=f"deadline {deadline_us:g} us")
    at = cpus.index(point.cpu_hz), gpus.index(point.gpu_hz)
    mean = period_energy(grid.power_mw, grid.idle_mw, grid.latency_us, deadline_us)
    in_time = np.isfinite(mean)
    busy = np.where(in_time, grid.power_mw * grid.latency_us, np.inf)
    best_busy = np.unravel_index(int(busy.argmin()), busy.shape)
    return {
        "greedy_over_min_power_pct": 100 * float(mean[at] / mean.min() - 1),
        "greedy_over_min_busy_energy_pct": 100 * float(busy[at] / busy.min() - 1),
        "busy_pair_over_min_power_pct": 100 * float(mean[best_busy] / mean.min() - 1),
        "max_over_min_power_pct": 100 * float(mean[-1, -1] / mean.min() - 1),
    }


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    names = [name for name in rows[0] if name.endswith("_pct")]
    return {
        name: {
            "mean": round(float(np.mean([row[name] for row in rows])), 2),
            "worst": round(max(float(row[name]) for row in rows), 2),
        }
        for name in names
    }


def predict_ms(models: LayerModels) -> float:
    """Time to predict a network of the paper, ms, median of 20."""
    from estimators.neuralpower.networks import get_network as paper_network

    layers = paper_network("vgg16", BATCH).layers
    return 1e3 * median(_timed(lambda: models.totals(layers)) for _ in range(20))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _percent(value: float, true: float) -> float:
    return round(100 * (value / true - 1), 2)
