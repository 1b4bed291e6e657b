"""Networks as lists of layers: those of the paper, and the user's own.

Built in are AlexNet, NIN, Overfeat, VGG-16 and CIFAR10-6conv as the Paleo and NeuralPower projects
define them. A file is JSON in Paleo's form: ``{"name", "layers": {name: {"parents", "type",
"filter": [k_h, k_w, in, out], "strides": [1, s_h, s_w, 1], "padding": "SAME"|"VALID"|[h, w]}}}``;
pooling has ``"ksize": [1, k_h, k_w, 1]``, the input ``"tensor": [N, H, W, C]``. A convolution that
covers its whole input is a fully connected layer. Other types are listed and skipped.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimators.errors import ProfileError
from estimators.neuralpower.shapes import LayerShape

Size = tuple[int, int, int]
"""Channels, height, width."""


@dataclass(frozen=True, slots=True)
class NamedLayer:
    """A layer of a network under its name."""

    name: str
    shape: LayerShape


@dataclass(frozen=True, slots=True)
class Skipped:
    """A layer that is not modelled.

    Attributes:
        name: Its name.
        kind: Its type, as written.
        flop: Operations it is thought to do: one per element of its input.
    """

    name: str
    kind: str
    flop: int


@dataclass(frozen=True, slots=True)
class Network:
    """Layers in order of execution.

    Attributes:
        name: Name of the network.
        layers: What is modelled.
        skipped: What is not.
    """

    name: str
    layers: tuple[NamedLayer, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def batch(self) -> int:
        """Inputs per run."""
        return self.layers[0].shape.batch

    @property
    def flop(self) -> int:
        """Operations of the modelled layers."""
        return sum(layer.shape.flop for layer in self.layers)

    @property
    def skipped_share(self) -> float:
        """Share of all operations that the skipped layers carry, 0..1."""
        left_out = sum(layer.flop for layer in self.skipped)
        return left_out / (self.flop + left_out)


class Tape:
    """Writes layers down while it follows the shape of the activations.

    Args:
        batch: Inputs per run.
        size: Channels, height and width of the input.
    """

    def __init__(self, batch: int, size: Size) -> None:
        self.batch, self.size = batch, size
        self.layers: list[NamedLayer] = []

    def conv(
        self, name: str, out_c: int, kernel: int, *, stride: int = 1, pad: int | None = None
    ) -> None:
        """Add a square convolution; ``pad`` keeps the size (at stride 1) if None."""
        in_c, height, width = self.size
        pads = (kernel // 2 if pad is None else pad,) * 2
        shape = LayerShape.conv(
            self.batch,
            in_c,
            (height, width),
            out_c,
            (kernel, kernel),
            stride=(stride, stride),
            pad=pads,
        )
        self._add(name, shape)

    def pool(self, name: str, kernel: int, stride: int) -> None:
        """Add a square pooling layer without padding."""
        channels, height, width = self.size
        shape = LayerShape.pool(
            self.batch, channels, (height, width), (kernel, kernel), stride=(stride, stride)
        )
        self._add(name, shape)

    def fc(self, name: str, out_c: int) -> None:
        """Add a fully connected layer on all there is."""
        in_c, height, width = self.size
        self._add(name, LayerShape.fc(self.batch, in_c, out_c, size=(height, width)))

    def network(self, name: str) -> Network:
        """Close the tape."""
        return Network(name, tuple(self.layers))

    def _add(self, name: str, shape: LayerShape) -> None:
        self.layers.append(NamedLayer(name, shape))
        self.size = (shape.out_c, shape.out_h, shape.out_w)


def _alexnet(batch: int) -> Network:
    t = Tape(batch, (3, 224, 224))
    t.conv("conv1", 64, 11, stride=4, pad=0)
    t.pool("pool1", 3, 2)
    t.conv("conv2", 192, 5)
    t.pool("pool2", 3, 2)
    for name, width in (("conv3", 384), ("conv4", 384), ("conv5", 256)):
        t.conv(name, width, 3)
    t.pool("pool5", 3, 2)
    _classifier(t, ("fc6", 4096), ("fc7", 4096), ("fc8", 1000))
    return t.network("AlexNet")


def _nin(batch: int) -> Network:
    t = Tape(batch, (3, 224, 224))
    blocks = ((96, 11, 4, 0, "cccp1", "cccp2"), (256, 5, 1, 2, "cccp3", "cccp4"))
    for number, (width, kernel, stride, pad, first, second) in enumerate(
        (*blocks, (384, 3, 1, 1, "cccp5", "cccp6")), start=1
    ):
        t.conv(f"conv{number}", width, kernel, stride=stride, pad=pad)
        t.conv(first, width, 1)
        t.conv(second, width, 1)
        t.pool(f"pool{number}", 3, 2)
    t.conv("conv4", 1024, 3)
    t.conv("cccp7", 1024, 1)
    t.conv("cccp8", 1000, 1)
    t.pool("pool4", 5, 1)
    return t.network("NIN")


def _overfeat(batch: int) -> Network:
    t = Tape(batch, (3, 231, 231))
    t.conv("conv1", 64, 11, stride=4, pad=0)
    t.pool("pool1", 2, 2)
    t.conv("conv2", 256, 5, pad=0)
    t.pool("pool2", 2, 2)
    for name, width in (("conv3", 512), ("conv4", 1024), ("conv5", 1024)):
        t.conv(name, width, 3)
    t.pool("pool5", 2, 2)
    _classifier(t, ("fc6", 3072), ("fc7", 4096), ("fc8", 1000))
    return t.network("Overfeat")


def _vgg16(batch: int) -> Network:
    t = Tape(batch, (3, 224, 224))
    for stage, (width, depth) in enumerate(
        ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1
    ):
        for number in range(1, depth + 1):
            t.conv(f"conv{stage}_{number}", width, 3)
        t.pool(f"pool{stage}", 2, 2)
    _classifier(t, ("fc6", 4096), ("fc7", 4096), ("fc8", 1000))
    return t.network("VGG-16")


def _cifar10_6conv(batch: int) -> Network:
    t = Tape(batch, (3, 32, 32))
    for number, width in enumerate((128, 256, 512)):
        t.conv(f"conv{2 * number + 1}", width, 3)
        t.conv(f"conv{2 * number + 2}", width, 3)
        if number < 2:
            t.pool(f"pool{2 * number + 2}", 2, 2)
    _classifier(t, ("fc7", 1024), ("fc8", 1024), ("fc9", 10))
    return t.network("CIFAR10-6conv")


def _classifier(tape: Tape, *layers: tuple[str, int]) -> None:
    for name, width in layers:
        tape.fc(name, width)


BUILT_IN: dict[str, Callable[[int], Network]] = {
    "alexnet": _alexnet,
    "nin": _nin,
    "overfeat": _overfeat,
    "vgg16": _vgg16,
    "cifar10-6conv": _cifar10_6conv,
}


def get_network(name: str, batch: int | None = None) -> Network:
    """Find a network by name, or read it from a file.

    Args:
        name: A key of :data:`BUILT_IN`, or the path of a JSON file.
        batch: Inputs per run; the file's own, or 1, if None.

    Raises:
        ProfileError: Unknown name, or an unusable file.
    """
    if name in BUILT_IN:
        return BUILT_IN[name](1 if batch is None else batch)
    path = Path(name)
    if path.suffix != ".json":
        raise ProfileError(
            f"unknown network '{name}'",
            hint=f"known are {', '.join(BUILT_IN)}; or give a JSON file, *.json",
        )
    try:
        return _parse(str(path), json.loads(path.read_bytes()), batch)
    except OSError as error:
        raise ProfileError(
            "cannot read the network", where=str(path), why=error.strerror or str(error)
        ) from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ProfileError(
            "not a network", where=str(path), why=f"{type(error).__name__}: {error}"
        ) from error


def _parse(path: str, document: Mapping[str, Any], batch: int | None) -> Network:
    sizes: dict[str, Size] = {}
    layers: list[NamedLayer] = []
    skipped: list[Skipped] = []
    inputs = batch
    for name, entry in document["layers"].items():
        where = f"{path}: layer {name}"
        if entry["type"] == "Input":
            n, height, width, channels = (int(value) for value in entry["tensor"])
            inputs = n if inputs is None else inputs
            sizes[name] = (channels, height, width)
            continue
        size = _joined(where, entry, sizes)
        made = _make(where, entry, size, inputs or 1)
        if isinstance(made, LayerShape):
            layers.append(NamedLayer(name, made))
            size = (made.out_c, made.out_h, made.out_w)
        else:
            channels, height, width = size
            elements = (inputs or 1) * channels * height * width
            skipped.append(Skipped(name, entry["type"], elements))
        sizes[name] = size
    if not layers:
        raise ProfileError("no layer that can be modelled", where=path)
    return Network(str(document.get("name", path)), tuple(layers), tuple(skipped))


def _joined(where: str, entry: Mapping[str, Any], sizes: Mapping[str, Size]) -> Size:
    """Size of a layer's input: its parent's, or of several ones with all their channels."""
    parents = entry["parents"]
    missing = [parent for parent in parents if parent not in sizes]
    if missing or not parents:
        raise ProfileError(
            "parent unknown",
            where=where,
            why=", ".join(missing) or "none given",
            hint="list each layer after its parents",
        )
    first = sizes[parents[0]]
    if entry["type"] != "Concatenate":
        return first
    return (sum(sizes[parent][0] for parent in parents), *first[1:])


def _make(where: str, entry: Mapping[str, Any], size: Size, batch: int) -> LayerShape | None:
    kind, (channels, height, width) = entry["type"], size
    if kind == "Convolution":
        k_h, k_w, in_c, out_c = (int(value) for value in entry["filter"])
        if channels % in_c:
            raise ProfileError(
                "channels do not fit", where=where, why=f"filter has {in_c}, input has {channels}"
            )
        stride, pad = _window(entry, size, (k_h, k_w))
        if (k_h, k_w) == (height, width) and pad == (0, 0):
            return LayerShape.fc(batch, channels, out_c, size=(height, width))
        return LayerShape.conv(
            batch,
            channels,
            (height, width),
            out_c,
            (k_h, k_w),
            stride=stride,
            pad=pad,
            groups=channels // in_c,
        )
    if kind in ("Pooling", "AvgPool"):
        kernel = (int(entry["ksize"][1]), int(entry["ksize"][2]))
        stride, pad = _window(entry, size, kernel)
        return LayerShape.pool(batch, channels, (height, width), kernel, stride=stride, pad=pad)
    if kind in ("InnerProduct", "FullyConnected"):
        return LayerShape.fc(batch, channels, int(entry["num_outputs"]), size=(height, width))
    return None


def _window(
    entry: Mapping[str, Any], size: Size, kernel: Sequence[int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Strides and padding on each side; ``"SAME"`` gives ceil(size / stride) outputs."""
    strides = entry["strides"]
    stride = (int(strides[1]), int(strides[2]))
    padding = entry["padding"]
    if padding == "VALID":
        return stride, (0, 0)
    if padding != "SAME":
        return stride, (int(padding[0]), int(padding[1]))
    pads = []
    for length, k, step in zip(size[1:], kernel, stride, strict=True):
        total = max((-(-length // step) - 1) * step + k - length, 0)
        pads.append(-(-total // 2))
    return stride, (pads[0], pads[1])
