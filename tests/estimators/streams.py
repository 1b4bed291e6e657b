"""A tiny in-order stream to test estimators against: one kernel after another, nothing else."""

import numpy as np

from estimators.profiles import (
    BoardInfo,
    LayerRecord,
    NetworkRecord,
    Profile,
    Samples,
    layer_key,
)

CPU_HZ = tuple(range(200_000_000, 2_200_000_001, 200_000_000))
GPU_HZ = tuple(range(300_000_000, 1_300_000_001, 100_000_000))
POINTS = [(c, g) for c in (CPU_HZ[0], CPU_HZ[2], CPU_HZ[5], CPU_HZ[-1]) for g in GPU_HZ[::2]]
EMC_HZ = 3_199_000_000
BOARD = BoardInfo("toy", CPU_HZ, GPU_HZ, (EMC_HZ,), engine="loop")
LAUNCH_US = 5.0

# Layers as (launches of kilocycles, kernels of (arithmetic us GHz, memory us)).
Shape = tuple[tuple[float, float, float], ...]
BIG: Shape = ((40.0, 900.0, 200.0), (30.0, 100.0, 150.0))
SMALL: Shape = ((60.0, 20.0, 15.0), (40.0, 10.0, 12.0), (40.0, 8.0, 3.0))
SINGLE: Shape = ((50.0, 300.0, 10.0),)


def kernels(
    shape: Shape, cpu_hz: float, gpu_hz: float, context: int = 0
) -> list[tuple[float, float]]:
    """Host and GPU time of each kernel, us; memory time grows with context."""
    grow = 1 + context / 1000
    return [
        (kcycles * 1e9 / cpu_hz, max(work * 1e9 / gpu_hz, memory * grow) + 3)
        for kcycles, work, memory in shape
    ]


def stream_us(work: list[tuple[float, float]]) -> float:
    """End of the last kernel, or of the host's work if later, us."""
    host = end = 0.0
    for launch, duration in work:
        host += launch
        end = max(host + LAUNCH_US, end) + duration
    return max(host, end)


def layer(name: str, shape: Shape, contexts: tuple[int, ...] = (0,), points=None) -> LayerRecord:
    """Profile a layer alone, without noise."""
    rows = [(c, g, k) for k in contexts for c, g in (points or POINTS)]
    work = [kernels(shape, *row) for row in rows]
    values = {
        "cpu_us": np.array([sum(h for h, _ in w) for w in work]),
        "gpu_us": np.array([sum(g for _, g in w) for w in work]),
        "total_us": np.array([stream_us(w) for w in work]),
    }
    return LayerRecord("op", {name: 1.0}, samples(rows, values))


def samples(rows, values) -> Samples:
    """Make samples of rows ``(cpu, gpu, context)``."""
    cpu, gpu, context = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Samples(np.full_like(cpu, EMC_HZ), context, cpu, gpu, values)


def truth(order: list[Shape], contexts: tuple[int, ...] = (0,), host_kcycles: float = 0.0):
    """Latency of the whole stream on the grid, us, ``[K, C, G]``."""
    return np.array(
        [[[_whole(order, c, g, k, host_kcycles) for g in GPU_HZ] for c in CPU_HZ] for k in contexts]
    )


def _whole(order, cpu_hz, gpu_hz, context, host_kcycles) -> float:
    work = [pair for shape in order for pair in kernels(shape, cpu_hz, gpu_hz, context)]
    return stream_us(work) + host_kcycles * 1e9 / cpu_hz


def profile(order: list[Shape], contexts: tuple[int, ...] = (0,), **runs) -> Profile:
    """Profile of a model whose layers run in this order."""
    names = {BIG: "big", SMALL: "small", SINGLE: "single"}
    layers = {layer_key("op", {names[s]: 1.0}): layer(names[s], s, contexts) for s in set(order)}
    keys = tuple(layer_key("op", {names[s]: 1.0}) for s in order)
    network = NetworkRecord(keys, "decode" if contexts != (0,) else "inference", max(contexts))
    return Profile(BOARD, {"toy": network}, layers, runs=dict(runs), source="toy.json")


def run_set(
    order: list[Shape], contexts: tuple[int, ...] = (0,), host_kcycles: float = 0.0
) -> Samples:
    """Nine end-to-end runs, without noise; contexts alternate."""
    points = [(c, g) for c in CPU_HZ[::5] for g in GPU_HZ[::5]]
    rows = [(c, g, contexts[i % len(contexts)]) for i, (c, g) in enumerate(points)]
    latency = np.array([_whole(order, c, g, k, host_kcycles) for c, g, k in rows])
    return samples(rows, {"latency_us": latency})
