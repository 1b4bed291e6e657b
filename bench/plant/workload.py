"""A workload is a network run by an engine in a precision: a sequence of launches and kernels.

An engine says what a launch costs the host and which ops become kernels of their own; a precision
says how many bytes a number has and which arithmetic units it uses. No clock appears here.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.plant.errors import PlantError
from bench.plant.networks import NETWORKS, Layer, Network, Op, get_network
from bench.plant.networks.ops import batched

Array = NDArray[np.float64]

_VIEW_SHARE = 0.45
"""Host cost of a view relative to an op that launches (no allocation, no driver): assumption."""
_ALL = frozenset({"*"})
_COLUMNS = 15  # of a kernel while lowering
_TENSOR_KINDS = frozenset({"conv", "linear", "qk", "av"})


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What running a network costs on the host, and how well kernels use the GPU.

    Attributes:
        name: As the command line and the calibration table call it.
        precision: Precision used unless another is asked for.
        op_kcycles: Host cycles of one op (dispatch, shapes, allocation), thousands.
        launch_kcycles: Host cycles of one kernel launch in the driver, thousands.
        module_kcycles: Host cycles of entering one framework module, thousands.
        frame_kcycles: Host cycles before the first launch of a job, thousands.
        frame_const_us: Time before the first launch that follows no CPU clock (copy of inputs), us.
        host_const_us: Part of an op's host cost that does not follow the CPU clock (memory), us.
        glue_kcycles: Host cycles of interpreted model code around each op of a language model
            (caches, masks, argument checks), thousands.
        tail_share: Part of an op's host cost that comes after its launch.
        folds: Kinds of ops folded into their neighbours; ``"*"`` folds all that can be.
        helper_cores: Cores kept busy besides the launching one.
        spins: Whether the host spins while it waits for the GPU (the core stays busy).
        math_share: Share of peak arithmetic that a large kernel reaches.
        matvec_share: Share of streaming bandwidth that a matrix-vector product reaches.
        launch_jitter: Relative standard deviation of one launch.
        kernel_jitter: Relative standard deviation of one kernel.
        run_jitter: Relative standard deviation common to one job.
        burst_ratio: Mean slowdown of jobs within a burst of slow ones, relative.
    """

    name: str
    precision: str
    op_kcycles: float
    launch_kcycles: float
    module_kcycles: float
    frame_kcycles: float
    host_const_us: float
    math_share: float
    glue_kcycles: float = 0.0
    frame_const_us: float = 0.0
    tail_share: float = 0.2
    folds: frozenset[str] = frozenset()
    helper_cores: float = 0.3
    spins: bool = True
    matvec_share: float = 1.0
    launch_jitter: float = 0.05
    kernel_jitter: float = 0.015
    run_jitter: float = 0.008
    burst_ratio: float = 0.04


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes per number and arithmetic relative to dense fp16 on the tensor cores."""

    weight_bytes: float
    act_bytes: float
    tensor_rate: float


PRECISIONS = {
    "fp32": Precision(4.0, 4.0, 0.5),  # TF32 on the tensor cores, as PyTorch convolutions do
    "fp16": Precision(2.0, 2.0, 1.0),
    "int8": Precision(1.0, 1.0, 2.0),
    "q4": Precision(0.5625, 2.0, 1.0),  # 4-bit blocks of 32 with an fp16 scale
}

ENGINES = {
    spec.name: spec
    for spec in (
        # PyTorch and Transformers eager as in the FLAME paper; fitted to its ResNet50, VGG16,
        # GPT2-large and Qwen2-7B profiling times.
        EngineSpec(
            name="flame-eager",
            precision="fp32",
            op_kcycles=42.5,
            launch_kcycles=16.6,
            module_kcycles=9.3,
            glue_kcycles=49.0,
            frame_kcycles=500.0,
            host_const_us=2.5,
            math_share=0.26,
            matvec_share=0.36,
        ),
        # The same with a data loader and a copy to the GPU in each pass (pagoda's measurements).
        EngineSpec(
            name="eager-loop",
            precision="fp32",
            op_kcycles=69.5,
            launch_kcycles=27.0,
            module_kcycles=15.2,
            glue_kcycles=80.0,
            frame_kcycles=12500.0,
            host_const_us=4.1,
            helper_cores=1.5,
            math_share=0.26,
            matvec_share=0.36,
        ),
        EngineSpec(
            name="eager-fp16",
            precision="fp16",
            op_kcycles=42.5,
            launch_kcycles=16.6,
            module_kcycles=9.3,
            glue_kcycles=49.0,
            frame_kcycles=500.0,
            host_const_us=2.5,
            math_share=0.26,
            matvec_share=0.60,
        ),
        # Captured graph or TensorRT plan: few launches, elementwise work folded in.
        EngineSpec(
            name="fused",
            precision="fp16",
            op_kcycles=1.0,
            launch_kcycles=4.0,
            module_kcycles=0.0,
            frame_kcycles=400.0,
            host_const_us=0.2,
            folds=_ALL,
            math_share=0.36,
            run_jitter=0.003,
            burst_ratio=0.02,
        ),
        EngineSpec(
            name="llamacpp",
            precision="q4",
            op_kcycles=2.0,
            launch_kcycles=7.0,
            module_kcycles=0.0,
            frame_kcycles=300.0,
            host_const_us=0.3,
            folds=_ALL,
            math_share=0.30,
            matvec_share=0.75,
            run_jitter=0.004,
            burst_ratio=0.02,
        ),
        # ONNX Runtime, CUDA provider: batch norms folded, activations not.
        EngineSpec(
            name="ort-cuda",
            precision="fp32",
            op_kcycles=12.6,
            launch_kcycles=16.8,
            module_kcycles=0.0,
            frame_kcycles=207.0,
            frame_const_us=300.0,
            host_const_us=0.5,
            folds=frozenset({"bn", "view", "cat"}),
            math_share=0.26,
            matvec_share=0.36,
            launch_jitter=0.03,
            kernel_jitter=0.008,
            run_jitter=0.001,
            burst_ratio=0.012,
        ),
    )
}


@dataclass(frozen=True)
class Program:
    """The launches of one job, as arrays over its K kernels.

    Attributes:
        host_kcycles: Host cycles from the previous launch (or the start) to this one, thousands.
        host_const_us: The part of the same that does not follow the CPU clock, us.
        tail_kcycles: Host cycles after the last launch, thousands.
        tail_const_us: The part of the same that does not follow the CPU clock, us.
        flops: Floating-point operations, ``[3, K]``: constant, per token, per squared token.
        weight_bytes: Parameters read, ``[K]``.
        act_bytes: Activations moved, ``[3, K]``.
        out: Output elements, ``[2, K]``: constant, per token.
        tensor: Whether the kernel may use the tensor cores, ``[K]``.
        depthwise: Whether it is a convolution without reuse across channels, ``[K]``.
        matvec: Whether it is a matrix-vector product, ``[K]``.
        layer: Index of the layer the kernel belongs to, ``[K]``.
    """

    host_kcycles: Array
    host_const_us: Array
    tail_kcycles: float
    tail_const_us: float
    flops: Array
    weight_bytes: Array
    act_bytes: Array
    out: Array
    tensor: NDArray[np.bool_]
    depthwise: NDArray[np.bool_]
    matvec: NDArray[np.bool_]
    layer: NDArray[np.int64]

    @property
    def kernels(self) -> int:
        """Number of kernels, K."""
        return len(self.layer)

    @cached_property
    def follows_context(self) -> NDArray[np.bool_]:
        """Whether a kernel does more with a longer context, ``[K]``."""
        parts = (self.flops[1:], self.act_bytes[1:], self.out[1:])
        grows: NDArray[np.bool_] = np.any(np.concatenate(parts) != 0, axis=0)
        return grows

    def only(self, chosen: NDArray[np.bool_]) -> "Program":
        """Keep some of the kernels, ``[K]``; what the host does is not moved to others."""
        arrays: dict[str, Any] = {
            field.name: value[..., chosen]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)


@dataclass(frozen=True)
class Workload:
    """A network, an engine and a precision.

    Attributes:
        network: The static list of layers.
        engine: What runs it.
        precision: Key of :data:`PRECISIONS`.
        batch: Inputs per job.
    """

    network: Network
    engine: EngineSpec
    precision: str
    batch: int = 1

    @property
    def name(self) -> str:
        """Model name, without engine."""
        return self.network.name

    @cached_property
    def program(self) -> Program:
        """The launches of one whole job."""
        return lower(self, self.network.layers)

    def alone(self, layer: Layer) -> "Workload":
        """Make a workload of one layer run by itself, without what precedes a whole job."""
        name = f"{self.network.name}/{layer.kind}"
        net = Network(name, (layer,), self.network.phase, self.network.max_context)
        return replace(
            self, network=net, engine=replace(self.engine, frame_kcycles=0.0, frame_const_us=0.0)
        )


class _Lowering:
    """Walks ops and writes kernels down."""

    def __init__(self, workload: Workload) -> None:
        self.engine = workload.engine
        self.precision = PRECISIONS[workload.precision]
        self.kcycles, self.const_us = self.engine.frame_kcycles, self.engine.frame_const_us
        self.rows: list[tuple[float, ...]] = []

    def enter(self, layer: Layer) -> None:
        self.kcycles += layer.modules * self.engine.module_kcycles
        if layer.kind in ("embedding", "decoder", "head"):
            self.kcycles += len(layer.ops) * self.engine.glue_kcycles

    def op(self, op: Op, layer: int) -> None:
        engine = self.engine
        if op.fusable and (op.kind in engine.folds or "*" in engine.folds):
            return
        cost = engine.op_kcycles * (1.0 if op.kernels else _VIEW_SHARE)
        self.kcycles += cost * (1.0 - engine.tail_share)
        self.const_us += engine.host_const_us * (1.0 if op.kernels else _VIEW_SHARE)
        for index in range(op.kernels):
            self.kcycles += engine.launch_kcycles
            self._kernel(op, layer, main=index == 0)
        self.kcycles += cost * engine.tail_share

    def _kernel(self, op: Op, layer: int, *, main: bool) -> None:
        """Write one kernel; kernels after the main one only touch the output again."""
        p, flop = self.precision, 2.0 if main else 0.0
        acts = (op.acts, op.ctx_acts, op.ctx2_acts) if main else (2.0 * op.out, 0.0, 0.0)
        self.rows.append(
            (
                self.kcycles,
                self.const_us,
                op.macs * flop,
                op.ctx_macs * flop,
                op.ctx2_macs * flop,
                op.weights * p.weight_bytes if main else 0.0,
                *(count * p.act_bytes for count in acts),
                op.out,
                op.ctx_out,
                op.kind in _TENSOR_KINDS,
                op.kind == "dwconv",
                op.kind == "linear" and main and 0 < op.macs <= 2 * op.weights,
                layer,
            )
        )
        self.kcycles = self.const_us = 0.0

    def program(self) -> Program:
        table = np.array(self.rows, dtype=np.float64).reshape(-1, _COLUMNS).T
        return Program(
            host_kcycles=table[0],
            host_const_us=table[1],
            tail_kcycles=self.kcycles,
            tail_const_us=self.const_us,
            flops=table[2:5],
            weight_bytes=table[5],
            act_bytes=table[6:9],
            out=table[9:11],
            tensor=table[11] > 0,
            depthwise=table[12] > 0,
            matvec=table[13] > 0,
            layer=table[14].astype(np.int64),
        )


def lower(workload: Workload, layers: tuple[Layer, ...]) -> Program:
    """Turn layers into the launches that the workload's engine makes of them.

    A layer of which a fusing engine leaves nothing is skipped; its host cost vanishes with it.
    """
    lowering = _Lowering(workload)
    for index, layer in enumerate(layers):
        lowering.enter(layer)
        for op in layer.ops:
            lowering.op(batched(op, workload.batch), index)
    return lowering.program()


WORKLOADS = tuple(NETWORKS)
"""Names that :func:`get_workload` knows; language models take ``:prefill``."""


@lru_cache(maxsize=256)
def get_workload(
    name: str, engine: str = "flame-eager", *, precision: str = "", batch: int = 1
) -> Workload:
    """Make a workload.

    Args:
        name: One of :data:`WORKLOADS`.
        engine: One of :data:`ENGINES`.
        precision: One of :data:`PRECISIONS`; empty takes the engine's own.
        batch: Inputs per job.

    Raises:
        PlantError: There is no such network, engine or precision.
    """
    precision = precision or (ENGINES[engine].precision if engine in ENGINES else "")
    for what, key, known in (
        ("workload", name, NETWORKS),
        ("engine", engine, ENGINES),
        ("precision", precision, PRECISIONS),
    ):
        if key not in known:
            raise PlantError(f"unknown {what} {key!r}", hint=f"choose from {', '.join(known)}")
    return Workload(get_network(name), ENGINES[engine], precision, batch)
