"""Measuring power on the simulated board as one does on a real one: in loops, through its sensors.

A layer is far shorter than the sensor's averaging interval, so it runs over and over while the
power monitors, which resolve 0.4 W on an AGX board, are read a few times.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.estimators_profile import Point, Subject, geometric_points
from bench.plant.board import BoardSpec
from bench.plant.engine import Engine
from bench.plant.power import PowerModel
from bench.plant.sensors import power_monitors
from bench.plant.types import Activity, Clocks, Rails
from bench.plant.workload import Workload
from estimators.profiles import LayerRecord, NetworkRecord, Profile, Samples, layer_key

Array = NDArray[np.float64]

INTERVALS = 4
"""Sensor readings averaged per point of a power table; layers at fixed clocks get one."""
_JOBS = 6  # jobs drawn per reading: they stand for all of an interval
TEMP_C = 45.0
"""The chip is kept warm and constant while profiling."""


class PowerMeter:
    """Reads module power of a simulated board through its power monitors.

    Args:
        board: The board.
        intervals: Readings averaged; one more is waited for first, as it began with other work.

    Attributes:
        busy_s: Simulated time spent measuring so far, s.
    """

    def __init__(self, board: BoardSpec, *, intervals: int = INTERVALS) -> None:
        self.intervals = intervals
        self.model = PowerModel(board)
        self.busy_s = 0.0
        self._monitors = power_monitors(board)
        self._interval_us = board.sensor_interval_ms * 1e3

    def load(self, engine: Engine, clocks: Clocks) -> tuple[Activity, float]:
        """Loop a workload; tells the mean job and the power shown, mW."""
        shown, jobs = [], []
        for _ in range(self.intervals):
            sample = [engine.job(clocks) for _ in range(_JOBS)]
            mean = Activity(*(float(np.mean(column)) for column in zip(*sample, strict=True)))
            shown.append(self._show(self.model.rails(clocks, mean, temp_c=TEMP_C)))
            jobs.append(mean)
        self._wait(jobs[0].latency_us)
        mean = Activity(*(float(np.mean(column)) for column in zip(*jobs, strict=True)))
        return mean, float(np.mean(shown))

    def idle(self, clocks: Clocks) -> float:
        """Power shown by the idle board, mW."""
        self._wait(0.0)
        return self._show(self.model.rails(clocks, temp_c=TEMP_C))

    def _wait(self, job_us: float) -> None:
        readings_us = (self.intervals + 1) * self._interval_us
        self.busy_s += max(readings_us, job_us * _JOBS) / 1e6

    def _show(self, rails: Rails) -> float:
        labels = rails.disjoint or tuple(rails.power_mw)
        total = 0.0
        for monitor in self._monitors:
            monitor.show(rails.power_mw)
            for channel, rail in monitor.rails.items():
                if rail.label in labels:
                    total += monitor.shown_ma[channel] * rail.bus_mv / 1e3
        return total


def idle_samples(subject: Subject, meter: PowerMeter) -> Samples:
    """Measure idle power along both axes and at the far corner."""
    cpu, gpu = subject.spec.cpu_hz, subject.spec.gpu_hz
    points = [(c, gpu[0]) for c in cpu] + [(cpu[-1], g) for g in gpu] + [(cpu[0], gpu[-1])]
    power = [meter.idle(Clocks(c, g, subject.memory_hz)) for c, g in points]
    return samples(subject, points, {"power_mw": np.array(power)})


def samples(subject: Subject, points: Sequence[Point], values: dict[str, Array]) -> Samples:
    """Put values at clock pairs into columns."""
    cpu, gpu = (np.array(column, dtype=np.int64) for column in zip(*points, strict=True))
    return Samples(np.full_like(cpu, subject.memory_hz), np.zeros_like(cpu), cpu, gpu, values)


def powered_layers(subject: Subject, meter: PowerMeter, points: Sequence[Point]) -> Profile:
    """Profile the distinct layers of a network alone, with power."""
    from bench.estimators_profile import board_info

    workload, layers, order = subject.workload, {}, []
    for place, layer in enumerate(workload.network.layers):
        config = {name: float(value) for name, value in layer.config}
        key = layer_key(layer.kind, config)
        alone = workload.alone(layer)
        if not alone.program.kernels:
            continue
        order.append(key)
        if key not in layers:
            columns = _measure(subject, meter, alone, points, seed=place)
            layers[key] = LayerRecord(layer.kind, config, samples(subject, points, columns))
    network = NetworkRecord(tuple(order), workload.network.phase)
    return Profile(board_info(subject), {subject.model: network}, layers)


def powered_runs(subject: Subject, meter: PowerMeter, points: Sequence[Point]) -> Samples:
    """Run the whole network at clock pairs, with power."""
    columns = _measure(subject, meter, subject.workload, points, seed=4099)
    return samples(
        subject, points, {"latency_us": columns["total_us"], "power_mw": columns["power_mw"]}
    )


def _measure(
    subject: Subject, meter: PowerMeter, workload: Workload, points: Sequence[Point], *, seed: int
) -> dict[str, Array]:
    engine = Engine(subject.spec, workload, seed=subject.seed * 65_537 + seed)
    rows = []
    for cpu, gpu in points:
        clocks = Clocks(cpu, gpu, subject.memory_hz)
        job, power = meter.load(engine, clocks)
        nominal = engine.nominal(clocks, 0)
        host_us = float(nominal.host_us.sum()) + nominal.tail_us
        rows.append((host_us, job.gpu_busy_us, job.latency_us, power))
    cpu_us, gpu_us, total_us, power_mw = np.array(rows).T
    return {"cpu_us": cpu_us, "gpu_us": gpu_us, "total_us": total_us, "power_mw": power_mw}


def true_power_mw(subject: Subject) -> Array:
    """True power of back-to-back runs over the grid, mW, ``[C, G]``."""
    spec = subject.spec
    engine, model = Engine(spec, subject.workload), PowerModel(spec)
    grid = [
        model.mean_power_mw(clocks, engine.activity(clocks), temp_c=TEMP_C)
        for clocks in (Clocks(c, g, subject.memory_hz) for c in spec.cpu_hz for g in spec.gpu_hz)
    ]
    return np.array(grid).reshape(len(spec.cpu_hz), len(spec.gpu_hz))


def spread_grid(subject: Subject, count: int) -> list[Point]:
    """Clock pairs at geometric levels with both ends: 24 or 9 of them."""
    return geometric_points(subject.spec, *((6, 4) if count == 24 else (3, 3)))
