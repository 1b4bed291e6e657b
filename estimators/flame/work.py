"""How much a layer computes and moves, from its configuration alone."""

from collections.abc import Mapping

_PASSES = ("norm", "act", "add")
"""Elementwise steps that follow a convolution, counted by its configuration."""


def static_work(kind: str, config: Mapping[str, float]) -> dict[str, float]:
    """Count multiply-accumulates and elements of one layer; empty for types it does not know.

    ``depth`` is the work behind one output: with few outputs, units stay idle and depth rules.

    Args:
        kind: ``conv``, ``linear`` or ``pool``.
        config: ``in_channels``, ``out_channels``, ``in_size`` (height, square), ``kernel``,
            ``stride``, ``groups``; ``in_features``, ``out_features`` of a linear layer.
    """
    if kind == "linear" and {"in_features", "out_features"} <= config.keys():
        inp, out = config["in_features"], config["out_features"]
        return {"macs": inp * out, "weights": inp * out, "inputs": inp, "outputs": out}
    if (
        kind not in ("conv", "pre-conv", "pool")
        or not {"in_channels", "in_size", "kernel"} <= config.keys()
    ):
        return {}
    inp, size, kernel = config["in_channels"], config["in_size"], config["kernel"]
    out = config.get("out_channels", inp)
    area = (size / config.get("stride", 1.0)) ** 2
    weights = out * inp / config.get("groups", 1.0) * kernel**2 if kind != "pool" else 0.0
    macs = weights * area if kind != "pool" else out * area * kernel**2
    outputs = out * area
    passes = sum(config.get(name, 0.0) for name in _PASSES)
    return {
        "macs": macs,
        "depth": macs / outputs,
        "inputs": inp * size**2,
        "outputs": outputs,
        "weights": weights,
        "elementwise": passes * outputs,
    }
