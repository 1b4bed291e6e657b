"""Times of single kernels and launches on one board: a roofline per kernel.

A kernel takes a fixed part plus the longest of arithmetic, traffic to memory and traffic through
the L2 cache. Memory speed depends on its own clock and, through the fabric, on the GPU's.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.plant.board import BoardSpec
from bench.plant.physics import physics
from bench.plant.workload import PRECISIONS, Program, Workload

Array = NDArray[np.float64]


class KernelTimes(NamedTuple):
    """Kernels at one set of clocks.

    Attributes:
        total_us: Duration, ``[..., K]``.
        compute_us: Time the arithmetic takes at the rate of a large kernel, ``[..., K]``.
        dram_bytes: Bytes from and to memory, ``[..., K]``.
    """

    total_us: Array
    compute_us: Array
    dram_bytes: Array


class Chip:
    """The timing side of a board.

    Args:
        board: Its definition; ``physics.gpu``, ``physics.memory`` and ``physics.cpu`` are read.
        traffic_share: Share of memory bandwidth taken by others.
        inversion: Slowdown of cache-resident kernels at the top GPU clock.
        host_slowdown: Factor on host costs.
    """

    def __init__(
        self,
        board: BoardSpec,
        *,
        traffic_share: float = 0.0,
        inversion: float = 0.0,
        host_slowdown: float = 1.0,
    ) -> None:
        self.gpu = physics(board, "gpu")
        self.memory = physics(board, "memory")
        self.host = physics(board, "host")
        self.traffic_share, self.inversion = traffic_share, inversion
        self.host_slowdown = host_slowdown
        self.top_gpu_hz, self.top_emc_hz = board.gpu_hz[-1], board.emc_hz[-1]

    @property
    def launch_latency_us(self) -> float:
        """Time from a launch to the earliest start of its kernel, us."""
        return float(self.host["launch_latency_us"])

    def host_us(self, program: Program, cpu_hz: Array, emc_hz: int) -> tuple[Array, Array]:
        """Tell what the host needs before each launch and after the last one.

        Args:
            program: The launches.
            cpu_hz: CPU clocks, Hz, any shape.
            emc_hz: Memory clock, Hz: the part of host work that waits for memory follows it.

        Returns:
            Times before each launch ``[..., K]`` and after the last ``[...]``, us.
        """
        per_k = 1e9 / np.asarray(cpu_hz, dtype=np.float64) * self.host["cycles_ratio"]
        share = self.host["memory_share"]
        const = 1.0 - share + share * self.top_emc_hz / emc_hz
        before = per_k[..., None] * program.host_kcycles + const * program.host_const_us
        tail = per_k * program.tail_kcycles + const * program.tail_const_us
        return before * self.host_slowdown, tail * self.host_slowdown

    def sync_us(self, cpu_hz: Array) -> Array:
        """Time from the end of the last kernel until the host goes on, us."""
        per_k = 1e9 / np.asarray(cpu_hz, dtype=np.float64)
        wait: Array = self.host["sync_us"] + self.host["sync_kcycles"] * per_k
        return wait

    def bandwidth(self, gpu_hz: Array, emc_hz: int) -> Array:
        """Rate at which the GPU streams from memory, bytes per us."""
        m = self.memory
        bus = m["bus_bytes_per_clk"] * emc_hz * m["efficiency"] * (1.0 - self.traffic_share)
        fabric = m["fabric_bytes_per_clk"] * np.asarray(gpu_hz, dtype=np.float64)
        p = m["knee"]
        rate: Array = (bus**-p + fabric**-p) ** (-1.0 / p) / 1e6
        return rate

    def kernels(
        self, workload: Workload, program: Program, gpu_hz: Array, emc_hz: int, context: Array
    ) -> KernelTimes:
        """Time all kernels of a program; small outputs leave units idle.

        Args:
            workload: What the program was lowered from.
            program: The kernels.
            gpu_hz: GPU clocks, Hz, ``[G]``.
            emc_hz: Memory clock, Hz.
            context: Tokens in the context, ``[X]``.

        Returns:
            Arrays ``[X, G, K]``.
        """
        powers = np.stack([np.ones(len(context)), context, np.square(context, dtype=np.float64)])
        f_mhz = np.asarray(gpu_hz, dtype=np.float64)[:, None] / 1e6
        flops, acts = powers.T @ program.flops, powers.T @ program.act_bytes
        out = powers[:2].T @ program.out
        full = flops[:, None, :] / (self._flops_per_clk(workload, program) * f_mhz)
        filled = out / (out + self.gpu["cores"] * self.gpu["fill_elements_per_core"])
        share = np.where(program.depthwise, self.gpu["depthwise_share"], filled)
        compute = full / np.maximum(share, 1e-6)[:, None, :]
        moved = program.weight_bytes + acts
        dram = program.weight_bytes + acts * (acts / (acts + self.gpu["l2_keep_bytes"]))
        stream = np.where(program.matvec, workload.engine.matvec_share, 1.0)
        memory = dram[:, None, :] / (self.bandwidth(gpu_hz, emc_hz)[:, None] * stream)
        cache = moved[:, None, :] / (self.gpu["l2_bytes_per_clk"] * f_mhz)
        fixed = self.gpu["fixed_us"] + self.gpu["fixed_kcycles"] * 1e3 / f_mhz
        body = np.maximum(np.maximum(compute, memory), cache)
        total = fixed + body
        if self.inversion:
            resident = (moved < self.gpu["l2_bytes"])[:, None, :]
            top = (np.asarray(gpu_hz) == self.top_gpu_hz)[None, :, None]
            total = total * np.where(resident & top, 1.0 + self.inversion, 1.0)
        return KernelTimes(total, np.minimum(full, total), dram[:, None, :])

    def _flops_per_clk(self, workload: Workload, program: Program) -> Array:
        """Arithmetic per GPU clock of a kernel that fills the GPU, ``[K]``."""
        tensor = self.gpu["tensor_flops_per_clk"] * PRECISIONS[workload.precision].tensor_rate
        peak = np.where(program.tensor, tensor, self.gpu["cuda_flops_per_clk"])
        rate: Array = peak * workload.engine.math_share
        return rate
