"""Feature vectors of layers: those of the paper to the letter, and the few of the default model.

Cai et al., "NeuralPower", ACML 2017, section 3 and the authors' published training scripts: all
monomials up to a degree over a layer's sizes, plus products that have a meaning (operations,
elements read and written). Power gets the binary logarithms of the sizes beside them. Logarithms
are only taken of sizes, which are positive by construction (:mod:`shapes`).
"""

from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from estimators.neuralpower.shapes import Columns, Kind
from estimators.residual import Array

Target = Literal["runtime", "power"]

_BASE: dict[Kind, tuple[str, ...]] = {
    "conv": ("batch", "out_h", "out_w", "k_w", "in_c", "out_c", "in_h"),
    "fc": ("batch", "out_c", "in_h", "in_w", "in_c"),
    "pool": ("batch", "out_h", "out_w", "in_c", "k_h", "in_h"),
}
PAPER_DEGREE: dict[tuple[Kind, Target], int] = {
    ("conv", "runtime"): 3,
    ("fc", "runtime"): 2,
    ("pool", "runtime"): 3,
    ("conv", "power"): 2,
    ("fc", "power"): 2,
    ("pool", "power"): 2,
}
"""Order of the published models."""


def monomials(x: Array, degree: int) -> Array:
    """All products of 1..degree columns of ``[n, d]``, repetition allowed, by degree."""
    columns = [
        np.prod(x[:, combination], axis=1)
        for order in range(1, degree + 1)
        for combination in combinations_with_replacement(range(x.shape[1]), order)
    ]
    return np.stack(columns, axis=1)


def _product(layers: Columns, names: str) -> Array:
    result: Array = np.prod([layers[name] for name in names.split()], axis=0)
    return result


_SPECIAL: dict[tuple[Kind, Target], tuple[str, ...]] = {
    ("conv", "runtime"): (
        "out_h out_w out_c k_h k_w in_c",
        "batch out_h out_w out_c k_h k_w in_c",
        "batch out_h out_w k_h k_w in_c",
        "batch out_h out_w out_c",
        "k_h k_w in_c out_c",
        "batch in_h in_w in_c",
        "batch in_w in_c",
        "batch in_h in_c",
    ),
    ("fc", "runtime"): ("batch out_c in_h in_w in_c",),
    ("fc", "power"): (),
    ("pool", "runtime"): (
        "batch out_h out_w in_c k_h k_w",
        "batch out_h out_w in_c",
        "batch in_w in_h in_c",
    ),
}
_SPECIAL["conv", "power"] = _SPECIAL["conv", "runtime"]
_SPECIAL["pool", "power"] = _SPECIAL["pool", "runtime"]


def paper_features(layers: Columns, target: Target, degree: int | None = None) -> Array:
    """Feature vectors of the paper.

    Args:
        layers: Layers of one type.
        target: Power has the logarithms of all sizes beside the sizes.
        degree: Order of the polynomial; the published one if None.

    Returns:
        ``[n, 127 | 21 | 86]`` for runtime of conv, fc, pool at the published orders,
        ``[n, 127 | 65 | 93]`` for power.
    """
    base = np.stack([layers[name] for name in _BASE[layers.kind]], axis=1)
    if target == "power":
        base = np.concatenate([base, np.log2(base)], axis=1)
    order = PAPER_DEGREE[layers.kind, target] if degree is None else degree
    special = [_product(layers, names) for names in _SPECIAL[layers.kind, target]]
    return np.column_stack([monomials(base, order), *special])


def log_flop(layers: Columns) -> Array:
    """Natural log of the operations, ``[n]``: the one variable to beat."""
    result: Array = np.log(layers["flop"])
    return result


def log_features(layers: Columns) -> Array:
    """Logs of sizes and of what is computed and moved, for the default model, ``[n, d]``.

    A conv or fc layer is a matrix product of ``out_c x (reduction) x places``; how well its three
    sides fill the GPU is what FLOP alone does not tell.
    """
    moved = layers["in_elements"] + layers["out_elements"] + layers["weights"]
    places = layers["batch"] * layers["out_h"] * layers["out_w"]
    if layers.kind == "pool":
        columns = [places, layers["in_c"], layers["k_h"] * layers["k_w"], layers["flop"], moved]
    elif layers.kind == "fc":
        columns = [layers["batch"], _reduction(layers), layers["out_c"], layers["flop"], moved]
    else:
        columns = [
            layers["batch"],
            layers["in_c"] / layers["groups"],
            layers["in_h"] * layers["in_w"],
            layers["out_c"],
            layers["k_h"] * layers["k_w"],
            layers["stride_h"] * layers["stride_w"],
            layers["out_h"] * layers["out_w"],
            layers["flop"],
            moved,
        ]
    return np.log(np.stack(columns, axis=1))


def roofline_terms(layers: Columns) -> Array:
    """What takes time, whatever the GPU: a constant, operations, elements moved, ``[n, t]``.

    Convolutions with 3 x 3 kernels and stride 1 have a term of their own, because libraries run
    them with fewer operations (Winograd); the reduction's length is one too, because it cannot be
    spread over the GPU as freely.
    """
    flop, one = layers["flop"], np.ones(len(layers))
    moved = layers["in_elements"] + layers["out_elements"] + layers["weights"]
    if layers.kind == "pool":
        return np.stack([one, flop, moved], axis=1)
    if layers.kind == "fc":
        return np.stack([one, flop, moved, _reduction(layers)], axis=1)
    reduced = (layers["k_h"] == 3) & (layers["k_w"] == 3)
    reduced &= (layers["stride_h"] == 1) & (layers["stride_w"] == 1)
    columns = [one, flop * ~reduced, flop * reduced, moved, _reduction(layers)]
    return np.stack(columns, axis=1)


def _reduction(layers: Columns) -> Array:
    """Length of the sum behind one output element, ``[n]``."""
    if layers.kind == "fc":
        return layers["in_h"] * layers["in_w"] * layers["in_c"]
    return layers["k_h"] * layers["k_w"] * layers["in_c"] / layers["groups"]
