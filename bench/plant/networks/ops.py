"""Words of the network lists: op, layer, network.

Static facts only: counts of elements, parameters and multiply-accumulates. Times, clocks, precision
and launch costs belong to :mod:`bench.plant.workload` and below.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

_MAC_KINDS = ("conv", "dwconv", "linear")
Phase = Literal["inference", "decode", "prefill"]


@dataclass(frozen=True, slots=True)
class Op:
    """One framework operation, as eager execution issues it.

    Attributes:
        kind: ``"conv"``, ``"linear"``, ``"view"`` ...
        macs: Multiply-accumulates.
        weights: Parameters read.
        acts: Activation elements read and written.
        out: Output elements: how much the op can be spread over the GPU.
        ctx_macs: Further multiply-accumulates per token of context.
        ctx_acts: Further elements moved per token of context (the cache of keys and values).
        ctx_out: Further output elements per token of context.
        ctx2_macs: Further multiply-accumulates per squared token (attention over a whole prompt).
        ctx2_acts: Further elements moved per squared token.
        kernels: Kernels it launches; 0 for a view, which only costs the host.
        fusable: Whether a graph compiler folds it into its neighbour.
    """

    kind: str
    macs: float = 0.0
    weights: int = 0
    acts: int = 0
    out: int = 0
    ctx_macs: float = 0.0
    ctx_acts: float = 0.0
    ctx_out: float = 0.0
    ctx2_macs: float = 0.0
    ctx2_acts: float = 0.0
    kernels: int = 1
    fusable: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A unit that a profiler can cut out and run alone: a main op and what goes with it.

    Attributes:
        kind: ``"conv"``, ``"linear"``, ``"pool"``, ``"decoder"`` ...
        config: What a user writes to make it: names and values.
        ops: In order of issue.
        params: Trainable parameters (shared ones are counted where they are made).
        modules: Framework modules entered on the way (each costs the host).
    """

    kind: str
    config: tuple[tuple[str, int], ...]
    ops: tuple[Op, ...]
    params: int = 0
    modules: int = 1


@dataclass(frozen=True, slots=True)
class Network:
    """A model as a list of layers for one input.

    Attributes:
        name: As users call it.
        layers: In order of execution.
        phase: Convolutional ``"inference"``, or a language model's ``"decode"`` or ``"prefill"``.
        max_context: Longest context, tokens; 0 if there is none.
    """

    name: str
    layers: tuple[Layer, ...]
    phase: Phase = "inference"
    max_context: int = 0

    @property
    def params(self) -> int:
        """Trainable parameters."""
        return sum(layer.params for layer in self.layers)

    @property
    def macs(self) -> float:
        """Multiply-accumulates of convolutions and linear layers, context 0."""
        return sum(op.macs for op in ops_of(self.layers) if op.kind in _MAC_KINDS)

    @property
    def kernels(self) -> int:
        """Kernels launched by eager execution."""
        return sum(op.kernels for op in ops_of(self.layers))


def ops_of(layers: Iterable[Layer]) -> Iterable[Op]:
    """Walk all ops in order."""
    return (op for layer in layers for op in layer.ops)


def elementwise(kind: str, elements: int, reads: int = 1) -> Op:
    """Make an op that reads ``reads`` tensors and writes one, all of ``elements``."""
    return Op(kind, macs=float(elements), acts=(reads + 1) * elements, out=elements, fusable=True)


def view(kind: str = "view") -> Op:
    """Make an op that moves nothing and launches nothing."""
    return Op(kind, kernels=0, fusable=True)


def batched(op: Op, batch: int) -> Op:
    """Scale an op to a batch: all but its weights grows."""
    return replace(
        op,
        macs=op.macs * batch,
        acts=op.acts * batch,
        out=op.out * batch,
        ctx_macs=op.ctx_macs * batch,
        ctx_acts=op.ctx_acts * batch,
        ctx_out=op.ctx_out * batch,
        ctx2_macs=op.ctx2_macs * batch,
        ctx2_acts=op.ctx2_acts * batch,
    )
