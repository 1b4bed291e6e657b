"""Hardware counters of a layer, as a profiler of CPU and GPU would show them.

Some tell what matters, some tell it twice, some are noise: choosing among them is the user's task.
Values are per run of the layer. Names follow the Arm PMU and Nsight Compute where these have one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bench.plant.types import Clocks

_LINE = 64.0  # bytes of a CPU cache line
_SECTOR = 32.0  # bytes of a GPU cache sector
_IPC = 1.4  # of framework code on an A78AE (assumption)


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What a layer did, the ground the counters stand on.

    Attributes:
        clocks: Clocks in force, Hz.
        kernels: Kernels launched.
        host_us: Host time.
        host_kcycles: Host cycles, thousands.
        gpu_us: GPU busy time.
        total_us: From the first host work to the end.
        tensor_flops: Operations on the tensor cores.
        cuda_flops: Operations on the CUDA cores.
        moved_bytes: Bytes through the L2 cache.
        dram_bytes: Bytes from and to memory.
        weight_bytes: Parameters read.
        out_elements: Output elements of all kernels.
        cores: Streaming multiprocessors.
    """

    clocks: Clocks
    kernels: int
    host_us: float
    host_kcycles: float
    gpu_us: float
    total_us: float
    tensor_flops: float
    cuda_flops: float
    moved_bytes: float
    dram_bytes: float
    weight_bytes: float
    out_elements: float
    cores: int


_Formula = Callable[[LayerFacts], float]

_CPU: Mapping[str, _Formula] = {
    "cpu_cycles": lambda f: f.host_us * f.clocks.cpu_hz / 1e6,
    "inst_retired": lambda f: f.host_kcycles * 1e3 * _IPC,
    "inst_spec": lambda f: f.host_kcycles * 1e3 * _IPC * 1.18,
    "br_retired": lambda f: f.host_kcycles * 1e3 * _IPC * 0.19,
    "br_mis_pred": lambda f: f.host_kcycles * 1e3 * _IPC * 0.0041,
    "l1d_cache": lambda f: f.host_kcycles * 1e3 * _IPC * 0.36,
    "l1d_cache_refill": lambda f: f.host_kcycles * 8.1 + f.kernels * 120,
    "l1i_cache_refill": lambda f: f.host_kcycles * 6.3,
    "l2d_cache": lambda f: f.host_kcycles * 19.0,
    "l2d_cache_refill": lambda f: f.host_kcycles * 2.2 + f.kernels * 35,
    "l3d_cache_refill": lambda f: f.host_kcycles * 0.6 + f.kernels * 18,
    "bus_access": lambda f: (f.host_kcycles * 0.6 + f.kernels * 18) * _LINE / 16.0,
    "mem_access": lambda f: f.host_kcycles * 1e3 * _IPC * 0.37,
    "stall_frontend": lambda f: f.host_kcycles * 210.0,
    "stall_backend": lambda f: f.host_us * f.clocks.cpu_hz / 1e6 * 0.27,
    "dtlb_walk": lambda f: f.host_kcycles * 0.35,
    "exc_taken": lambda f: 3.0 + f.total_us * 1e-3,
    "cpu_migrations": lambda _: 0.02,
    "page_faults": lambda _: 0.4,
}

_GPU: Mapping[str, _Formula] = {
    "gpc__cycles_elapsed": lambda f: f.gpu_us * f.clocks.gpu_hz / 1e6,
    "sm__cycles_active": lambda f: f.gpu_us * f.clocks.gpu_hz / 1e6 * f.cores * _filled(f),
    "sm__inst_executed": lambda f: f.cuda_flops / 48 + f.tensor_flops / 2900 + f.moved_bytes / 96,
    "sm__inst_executed_pipe_tensor": lambda f: f.tensor_flops / 4096,
    "sm__sass_thread_inst_executed_op_ffma": lambda f: f.cuda_flops / 2 + f.tensor_flops / 900,
    "sm__warps_launched": lambda f: f.out_elements / 128 + f.kernels * 8,
    "sm__ctas_launched": lambda f: f.out_elements / 1024 + f.kernels,
    "sm__warps_active": lambda f: 12.0 * _filled(f) + 2.0,
    "smsp__stall_long_scoreboard": lambda f: f.dram_bytes / _SECTOR * 1.9,
    "smsp__stall_math_throttle": lambda f: f.tensor_flops / 2600,
    "l1tex__t_sectors": lambda f: f.moved_bytes / _SECTOR * 1.3,
    "l1tex__t_requests": lambda f: f.moved_bytes / 128 * 1.2,
    "lts__t_sectors": lambda f: f.moved_bytes / _SECTOR,
    "lts__t_sectors_lookup_miss": lambda f: f.dram_bytes / _SECTOR,
    "lts__t_sector_hit_rate": lambda f: 1.0 - f.dram_bytes / max(f.moved_bytes, 1.0),
    "dram__bytes_read": lambda f: f.weight_bytes + 0.55 * (f.dram_bytes - f.weight_bytes),
    "dram__bytes_write": lambda f: 0.45 * (f.dram_bytes - f.weight_bytes),
    "smsp__shared_wavefronts": lambda f: f.tensor_flops / 1100 + f.cuda_flops / 4000,
    "gpu__time_duration": lambda f: f.gpu_us * 1e3,
    "launch__count": lambda f: float(f.kernels),
    "launch__registers_per_thread": lambda f: 96.0 if f.tensor_flops else 32.0,
    "pcie__read_bytes": lambda _: 64.0,
    "gpu__temperature": lambda _: 46.0,
    "nvlink__transmit": lambda _: 1.0,
}

CPU_COUNTERS = tuple(_CPU)
"""Counters of the CPU."""
GPU_COUNTERS = tuple(_GPU)
"""Counters of the GPU."""

_EXACT = frozenset({"launch__count", "launch__registers_per_thread"})
_IRRELEVANT = frozenset(
    {"cpu_migrations", "page_faults", "pcie__read_bytes", "gpu__temperature", "nvlink__transmit"}
)
_SPREAD, _LOOSE = 0.02, 0.5


def read_counters(facts: LayerFacts, rng: np.random.Generator) -> dict[str, float]:
    """Read all counters of one run of a layer.

    Args:
        facts: What the layer did.
        rng: Source of the reading error: 2 % where the counter means something, 50 % where not.
    """
    values: dict[str, float] = {}
    for name, formula in {**_CPU, **_GPU}.items():
        spread = 0.0 if name in _EXACT else _LOOSE if name in _IRRELEVANT else _SPREAD
        values[name] = formula(facts) * max(1.0 + spread * float(rng.standard_normal()), 0.0)
    return values


def _filled(facts: LayerFacts) -> float:
    """Share of the SMs that the kernels keep busy."""
    per_kernel = facts.out_elements / max(facts.kernels, 1)
    return per_kernel / (per_kernel + facts.cores * 1024.0)
