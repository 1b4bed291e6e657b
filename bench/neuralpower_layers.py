"""Layers to learn from on the simulated board: random ones as networks have them, and networks'.

858 convolutions, 216 pooling and 116 fully connected layers, as many as in the NeuralPower paper,
each looped at fixed clocks and measured through the board's sensors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from bench.estimators_profile import Subject
from bench.neuralpower_rig import TEMP_C, Array, PowerMeter
from bench.plant.engine import Engine
from bench.plant.networks import Layer, Network
from bench.plant.networks.cnn import Tape
from bench.plant.power import PowerModel
from bench.plant.types import Clocks
from bench.plant.workload import Workload
from estimators.neuralpower.layerfile import MeasuredLayers
from estimators.neuralpower.shapes import KINDS, Columns, Kind, LayerShape

COUNTS: dict[Kind, int] = {"conv": 858, "pool": 216, "fc": 116}
"""Layers measured in the paper."""

_SIZES = (224, 112, 56, 55, 32, 28, 27, 16, 14, 13, 8, 7)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_MOST_ELEMENTS = 1.2e8  # of one tensor: what fits a board
_MOST_FLOP = 2e11


def shape_of(layer: Layer, batch: int = 1) -> LayerShape | None:
    """Describe a layer of the plant to the models; None if they have no such type."""
    config = dict(layer.config)
    if layer.kind == "linear":
        return LayerShape.fc(batch, config["in_features"], config["out_features"])
    if layer.kind not in ("conv", "pool"):
        return None
    main = next(op for op in layer.ops if op.kind in ("conv", "dwconv", "pool"))
    in_c, size, kernel = config["in_channels"], config["in_size"], config["kernel"]
    out_c = config.get("out_channels", in_c)
    stride, out = config["stride"], isqrt(main.out // out_c)
    pad = max(0.0, ((out - 1) * stride + kernel - size) / 2)
    kind: Kind = "conv" if layer.kind == "conv" else "pool"
    return LayerShape(
        kind=kind,
        batch=batch,
        in_c=in_c,
        in_h=size,
        in_w=size,
        out_c=out_c,
        out_h=out,
        out_w=out,
        k_h=kernel,
        k_w=kernel,
        pad_h=pad,
        pad_w=pad,
        stride_h=stride,
        stride_w=stride,
        groups=config.get("groups", 1),
    )


def random_layers(kind: Kind, seed: int) -> Iterator[tuple[Layer, int]]:
    """Yield layers with batch sizes for ever, log-uniform in channels."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    while True:
        batch, size = int(rng.choice(_BATCHES)), int(rng.choice(_SIZES))
        in_c, out_c = (int(round(2**power)) for power in rng.uniform(3, 10.5, 2))
        tape = Tape(3 if size >= 112 and rng.random() < 0.2 else in_c, size)
        if kind == "conv":
            kernel = int(rng.choice((1, 3, 3, 3, 5, 7, 11)))
            tape.conv(out_c, min(kernel, size), int(rng.choice((1, 1, 1, 2))), norm=False)
        elif kind == "pool":
            kernel, stride = ((2, 2), (3, 2), (size, 1))[int(rng.integers(3))]
            tape.pool(min(kernel, size), stride)
        else:
            tape = Tape(int(round(2 ** rng.uniform(6, 14.7))), 1)
            tape.linear(int(round(2 ** rng.uniform(3, 12.2))), act=True)
        shape = shape_of(tape.layers[0], batch)
        if shape is None:
            continue
        largest = max(shape.in_elements, shape.out_elements, shape.weights)
        if largest <= _MOST_ELEMENTS and shape.flop <= _MOST_FLOP:
            yield tape.layers[0], batch


def looped(subject: Subject, layer: Layer, batch: int) -> Workload:
    """Workload that runs one layer over and over."""
    return replace(subject.workload.alone(layer), batch=batch)


def top_clocks(subject: Subject) -> Clocks:
    """Fixed configuration that layers are measured in."""
    return Clocks(subject.spec.cpu_hz[-1], subject.spec.gpu_hz[-1], subject.memory_hz)


def measure_layers(subject: Subject, meter: PowerMeter, kind: Kind, count: int) -> MeasuredLayers:
    """Measure random layers of one type."""
    clocks, shapes, rows = top_clocks(subject), [], []
    layers = random_layers(kind, subject.seed)
    for number in range(count):
        layer, batch = next(layers)
        shape = shape_of(layer, batch)
        assert shape is not None  # random layers are of the modelled types
        engine = Engine(
            subject.spec, looped(subject, layer, batch), seed=subject.seed * 100_003 + number
        )
        job, power_mw = meter.load(engine, clocks)
        shapes.append(shape)
        rows.append((job.latency_us / 1e3, power_mw / 1e3))
    time_ms, power_w = np.array(rows).T
    return MeasuredLayers(Columns.of(shapes), time_ms, power_w)


@dataclass(frozen=True, slots=True)
class Truth:
    """A network and its layers, noise-free at fixed clocks.

    Attributes:
        shapes: Layers; None where the models have no such type.
        time_ms: Time of each layer alone, ms, ``[L]``.
        power_w: Power of each alone, W, ``[L]``.
        network_ms: Time of the whole network, ms.
        network_w: Power of the whole network, W.
    """

    shapes: tuple[LayerShape | None, ...]
    time_ms: Array
    power_w: Array
    network_ms: float
    network_w: float

    @property
    def network_mj(self) -> float:
        """Energy of one run of the network, mJ."""
        return self.network_ms * self.network_w


def true_network(subject: Subject, network: Network, batch: int) -> Truth:
    """Run a network and its layers without noise."""
    clocks, model = top_clocks(subject), PowerModel(subject.spec)

    def run(workload: Workload) -> tuple[float, float]:
        job = Engine(subject.spec, workload).activity(clocks)
        power_mw = model.mean_power_mw(clocks, job, temp_c=TEMP_C)
        return job.latency_us / 1e3, power_mw / 1e3

    alone = np.array([run(looped(subject, layer, batch)) for layer in network.layers])
    whole = run(replace(subject.workload, network=network, batch=batch))
    shapes = tuple(shape_of(layer, batch) for layer in network.layers)
    return Truth(shapes, alone[:, 0], alone[:, 1], *whole)


def random_cifar(seed: int) -> Network:
    """Make a random network for 32 x 32 inputs: 2 to 10 convolutions, 1 to 3 layers on top."""
    rng = np.random.default_rng([seed, 7])
    tape = Tape(3, 32)
    for _ in range(int(rng.integers(2, 11))):
        kernel = int(rng.choice((1, 3, 5)))
        tape.conv(int(2 ** rng.uniform(4, 10)), kernel, norm=False)
        if tape.size > 4 and rng.random() < 0.35:
            tape.pool(2, 2)
    for _ in range(int(rng.integers(0, 3))):
        tape.linear(int(2 ** rng.uniform(6, 12)), act=True)
    tape.linear(10)
    return tape.network(f"cifar-{seed}")


def modelled(truth: Truth) -> Sequence[int]:
    """Indices of the layers that the models know."""
    return [index for index, shape in enumerate(truth.shapes) if shape is not None]
