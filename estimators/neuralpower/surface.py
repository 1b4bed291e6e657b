"""Power tables: from layers, from a few runs of the network, or from both.

With layers, the work of each is fitted alone and added up along the network's timeline; the network
itself need not have been run. Runs, if there are any, correct what is left over. For engines that
show no layers, nine or more runs give a surface by themselves. Either way the result rises with
both clocks, as power does, so that a search along a clock meets no false minimum.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from estimators.errors import ProfileError
from estimators.flame.processor import ProcessorTime
from estimators.neuralpower.boardpower import (
    STEP_MW,
    BoardPower,
    Load,
    check_power,
    fit_board,
    guessed_us,
)
from estimators.profiles import LayerRecord, Profile, Samples
from estimators.residual import Array, interpolate
from estimators.table import LatencyTable

MIN_RUNS = 9
"""Runs below which a surface is not fitted without layers: three levels of each clock."""
_REFERENCES = 10  # layers that the board's own terms are learned from; more do not change them
_MIN_RESIDUAL = 6  # runs below which what is left over is not interpolated but averaged


def monotone(values: Array) -> Array:
    """Make a ``[C, G]`` surface rise along both axes, changing it as little on either side.

    The mean of the lowest rising surface above and the highest one below; both rise, so it does.
    """
    above = np.maximum.accumulate(np.maximum.accumulate(values, axis=0), axis=1)
    flipped = values[::-1, ::-1]
    below = np.minimum.accumulate(np.minimum.accumulate(flipped, axis=0), axis=1)[::-1, ::-1]
    result: Array = (above + below) / 2
    return result


class LayerPower:
    """Power of a network from its layers, at one memory clock.

    Args:
        idle: Idle rows.
        records: Layers with power (column ``power_mw``), of any networks.
        top_hz: Top CPU and GPU clock, Hz.
        step_mw: Resolution of the power sensor, mW.

    Attributes:
        board_: The fitted board.
        unresolved_: Layers whose work adds less to power than one step of the sensor.
    """

    def __init__(
        self,
        idle: Samples,
        records: Sequence[LayerRecord],
        *,
        top_hz: tuple[float, float],
        step_mw: float = STEP_MW,
    ) -> None:
        self._loads = {r.key: Load.of(f"layer {r.key}", r.samples) for r in records}
        for key, load in self._loads.items():
            if len(load.power_mw) == 0:
                raise ProfileError(
                    "a layer was not measured at this memory clock",
                    where=f"layer {key}",
                    hint="measure all layers at the same memory clocks",
                )
        by_power = sorted(self._loads, key=lambda key: float(self._loads[key].power_mw.max()))
        chosen = np.unique(np.linspace(0, len(by_power) - 1, _REFERENCES).round().astype(int))
        references = [self._loads[by_power[i]] for i in chosen] if by_power else []
        self.board_ = fit_board(Load.of("idle", idle), references, top_hz=top_hz)
        self._work = {key: self.board_.work_of(load) for key, load in self._loads.items()}
        self.unresolved_ = tuple(k for k in self._loads if self._added_mw(k) < step_mw)

    def _added_mw(self, key: str) -> float:
        """Most that the layer's GPU work adds to a host that spins, over its rows, mW."""
        load = self._loads[key]
        without = self.board_.power_mw(
            load.cpu_hz, load.gpu_hz, _total(load), np.zeros(2), cpu_us=load.cpu_us
        )
        return float((load.power_mw - without).max())

    def energy_shares(self, layers: Sequence[str], cpu_hz: float, gpu_hz: float) -> Array:
        """Share of each layer in the energy above idle at one point, ``[L]``."""
        cpu, gpu = np.array(cpu_hz), np.array(gpu_hz)
        dynamic = np.array([self._dynamic(key, cpu, gpu) for key in layers])
        shares: Array = dynamic / dynamic.sum()
        return shares

    def _dynamic(self, key: str, cpu_hz: Array, gpu_hz: Array) -> float:
        busy = _busy_us(self._loads[key], gpu_hz)
        one = np.maximum(busy, 1e-9)
        power = self.board_.power_mw(cpu_hz, gpu_hz, one, self._work[key], gpu_us=busy)
        return float((power - self.board_.idle_mw(cpu_hz, gpu_hz)) * one)

    def predict(
        self, layers: Sequence[str], cpu_hz: ArrayLike, gpu_hz: ArrayLike, total_us: Array
    ) -> Array:
        """Power of a network that runs over and over, mW, ``[C, G]``.

        Args:
            layers: Keys of its layers, repeated ones as often as they run.
            cpu_hz: CPU clocks, Hz, ``[C]``.
            gpu_hz: GPU clocks, Hz, ``[G]``.
            total_us: Its latency, us, ``[C, G]``.

        Raises:
            ProfileError: The power of a layer was not measured.
        """
        missing = sorted(set(layers) - set(self._loads))
        if missing or not layers:
            raise ProfileError(
                f"power of {len(missing)} layers was not measured",
                why=", ".join(missing[:3]),
                hint="measure them in a loop long enough for the sensor",
            )
        cpu, gpu = np.asarray(cpu_hz, dtype=np.float64), np.asarray(gpu_hz, dtype=np.float64)
        counts = {key: layers.count(key) for key in dict.fromkeys(layers)}
        work: Array = np.sum([n * self._work[key] for key, n in counts.items()], axis=0)
        host = np.sum([n * _host_us(self._loads[key], cpu) for key, n in counts.items()], axis=0)
        busy = np.sum([n * _busy_us(self._loads[key], gpu) for key, n in counts.items()], axis=0)
        power = self.board_.power_mw(
            cpu[:, None],
            gpu[None, :],
            total_us,
            work,
            cpu_us=np.minimum(host[:, None], total_us),
            gpu_us=np.minimum(busy[None, :], total_us),
        )
        return monotone(power)


def _total(load: Load) -> Array:
    if load.total_us is None:
        raise ProfileError("layers need their total time", hint="the column is called total_us")
    return load.total_us


def _busy_us(load: Load, gpu_hz: Array) -> Array:
    measured = np.maximum(np.broadcast_to(load.gpu_us, load.gpu_hz.shape), 1e-6)
    return ProcessorTime.fit(load.gpu_hz, measured, saturates=True)(gpu_hz)


def _host_us(load: Load, cpu_hz: Array) -> Array:
    measured = np.maximum(np.broadcast_to(load.cpu_us, load.cpu_hz.shape), 1e-6)
    return ProcessorTime.fit(load.cpu_hz, measured)(cpu_hz)


def corrected(
    power_mw: Array, cpu_hz: ArrayLike, gpu_hz: ArrayLike, runs: Samples, *, where: str = "runs"
) -> Array:
    """Correct a ``[C, G]`` surface by measured runs of the network, in log clocks.

    Raises:
        ProfileError: A run is at a clock that the surface lacks, or its power is implausible.
    """
    measured = check_power(where, runs.values["power_mw"])
    rows, columns = np.searchsorted(cpu_hz, runs.cpu_hz), np.searchsorted(gpu_hz, runs.gpu_hz)
    if not (np.isin(runs.cpu_hz, cpu_hz).all() and np.isin(runs.gpu_hz, gpu_hz).all()):
        raise ProfileError("a run is at a clock that the table lacks", where=where)
    errors = np.log(measured / power_mw[rows, columns])
    level = float(np.median(errors))
    if len(errors) < _MIN_RESIDUAL:
        return monotone(power_mw * np.exp(level))
    points = np.log(np.stack([runs.cpu_hz, runs.gpu_hz], axis=-1).astype(np.float64))
    grid = np.stack(np.meshgrid(np.log(cpu_hz), np.log(gpu_hz), indexing="ij"), axis=-1)
    rest = interpolate(points, errors - level, grid.reshape(-1, 2)).reshape(power_mw.shape)
    return monotone(power_mw * np.exp(level + rest))


def surface_from_runs(
    runs: Samples,
    cpu_hz: ArrayLike,
    gpu_hz: ArrayLike,
    *,
    idle: Samples | None = None,
    total_us: Array | None = None,
    where: str = "runs",
) -> Array:
    """Power at every clock pair from runs alone, mW, ``[C, G]``.

    Args:
        runs: Nine or more rows with ``power_mw``; ``latency_us`` helps.
        cpu_hz: CPU clocks, Hz, ``[C]``.
        gpu_hz: GPU clocks, Hz, ``[G]``.
        idle: Idle rows of the board; help at low clocks.
        total_us: Latency over the grid, us, ``[C, G]``; a guess of its shape is fitted if None.
        where: For messages.

    Raises:
        ProfileError: Too few runs, or implausible power.
    """
    load = Load.of(where, runs)
    if len(runs) < MIN_RUNS:
        raise ProfileError(
            "too few runs for a power surface",
            where=where,
            why=f"{len(runs)} given, {MIN_RUNS} needed",
            hint="measure at three levels of each clock, both ends among them",
        )
    cpu, gpu = np.asarray(cpu_hz, dtype=np.float64), np.asarray(gpu_hz, dtype=np.float64)
    top_hz = (float(cpu[-1]), float(gpu[-1]))
    known = total_us is not None and load.total_us is not None
    if not known:
        load = replace(load, total_us=None)
    rows = None if idle is None else Load.of("idle", idle)
    board: BoardPower = fit_board(rows, [load], top_hz=top_hz)
    latency = total_us if known else None
    if latency is None:
        latency = guessed_us(cpu[:, None], gpu[None, :], top_hz, board.balance)
    power = board.power_mw(cpu[:, None], gpu[None, :], latency, board.work[0])
    return corrected(power, cpu_hz, gpu_hz, runs, where=where)


def with_power(table: LatencyTable, profile: Profile, idle: Samples) -> LatencyTable:
    """Add power to a table by the best of what the profile holds.

    Layers with power if all were measured, corrected by runs with power if there are some; else
    runs alone.

    Args:
        table: Latency of a model of the profile, without contexts.
        profile: Measurements with columns ``power_mw``.
        idle: Idle rows of the board.

    Raises:
        ProfileError: Neither layers nor runs have power, or the table has contexts.
    """
    if len(table.context) > 1:
        raise ProfileError(
            "power over context lengths is not modelled",
            where=table.header.model,
            hint="make one table per context",
        )
    planes, reports = [], {}
    for number, emc in enumerate(table.emc_hz.tolist()):
        plane, report = _plane(table, number, profile, idle.at(emc_hz=emc))
        planes.append(plane[None])
        reports[str(emc)] = report
    header = replace(
        table.header,
        fit=table.header.fit | {"power": reports},
        units=table.header.units | {"power_mw": "mW"},
    )
    return replace(table, header=header, power_mw=np.stack(planes).astype(np.float32))


def _plane(
    table: LatencyTable, number: int, profile: Profile, idle: Samples
) -> tuple[Array, dict[str, Any]]:
    model, emc = table.header.model, int(table.emc_hz[number])
    total_us = table.latency_us[number, 0].astype(np.float64)
    runs = profile.runs.get(model)
    powered = None
    if runs is not None and "power_mw" in runs.values:
        powered = runs.at(emc_hz=emc)
    order = profile.network(model).layers
    records = [profile.layers[key] for key in dict.fromkeys(order) if key in profile.layers]
    records = [replace(r, samples=r.samples.at(emc_hz=emc)) for r in records]
    if order and all("power_mw" in record.samples.values for record in records):
        top_hz = (float(table.cpu_hz[-1]), float(table.gpu_hz[-1]))
        layered = LayerPower(idle, records, top_hz=top_hz)
        power = layered.predict(order, table.cpu_hz, table.gpu_hz, total_us)
        report: dict[str, Any] = {"from": "layers", **layered.board_.fit}
        report["unresolved_layers"] = list(layered.unresolved_)
        if powered is not None and len(powered):
            power = corrected(power, table.cpu_hz, table.gpu_hz, powered, where=model)
            report |= {"from": "layers and runs", "runs": len(powered)}
        return power, report
    if powered is None:
        raise ProfileError(
            f"no power of '{model}'",
            where=profile.source,
            hint="measure power_mw of its layers, or of nine runs",
        )
    power = surface_from_runs(
        powered, table.cpu_hz, table.gpu_hz, idle=idle, total_us=total_us, where=model
    )
    return power, {"from": "runs", "runs": len(powered)}
