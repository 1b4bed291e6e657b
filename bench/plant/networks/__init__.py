"""Networks as static lists of layers: what they compute and move, not how long it takes."""

from collections.abc import Callable
from functools import cache, partial

from bench.plant.networks.cnn import (
    alexnet,
    cifar10_6conv,
    densenet121,
    mobilenetv2,
    nin,
    overfeat,
    resnet50,
    vgg16,
    yolov8n,
)
from bench.plant.networks.ops import Layer, Network, Op, Phase
from bench.plant.networks.transformer import SHAPES, decoder

__all__ = ["NETWORKS", "Layer", "Network", "Op", "Phase", "get_network"]

NETWORKS: dict[str, Callable[[], Network]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "densenet121": densenet121,
    "mobilenetv2": mobilenetv2,
    "alexnet": alexnet,
    "nin": nin,
    "overfeat": overfeat,
    "cifar10_6conv": cifar10_6conv,
    "yolov8n": yolov8n,
    **{name: partial(decoder, name) for name in SHAPES},
    **{f"{name}:prefill": partial(decoder, name, "prefill") for name in SHAPES},
}


@cache
def get_network(name: str) -> Network:
    """Return a network by name; language models decode unless ``:prefill`` is appended.

    Raises:
        KeyError: If there is no such network.
    """
    return NETWORKS[name]()
