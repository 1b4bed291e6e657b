"""A drive without a board, and tables small enough to reckon by hand."""

from dataclasses import dataclass, field

import numpy as np

from estimators.table import LatencyTable, TableHeader
from governor.boards import BoardState
from policies.base import Attainable, OperatingPoint

CPU = (500_000_000, 1_000_000_000, 2_000_000_000)
GPU = (300_000_000, 600_000_000, 1_200_000_000)


def board_state(cpu=CPU, gpu=GPU, **more) -> BoardState:
    return BoardState(at_ns=0, attainable=Attainable(cpu, gpu), **more)


@dataclass
class FakeDrive:
    state: BoardState = field(default_factory=board_state)
    held: bool = True
    sent: list[OperatingPoint] = field(default_factory=list)
    releases: int = 0
    moved: bool = False

    def set_point(self, point: OperatingPoint) -> None:
        self.sent.append(point)

    def release(self) -> None:
        self.releases += 1

    def point(self) -> OperatingPoint:
        return self.sent[-1] if self.sent else OperatingPoint(0, 0)

    def moved_since(self, start_ns: int) -> bool:
        return self.moved


def table(model="net", phase="inference", contexts=(0,), scale=1.0) -> LatencyTable:
    """10 ms at the top; each halving of a clock adds 10 ms (GPU) or 5 ms (CPU)."""
    gpu_us = {GPU[0]: 30_000, GPU[1]: 20_000, GPU[2]: 10_000}
    cpu_us = {CPU[0]: 10_000, CPU[1]: 5_000, CPU[2]: 0}
    grid = np.array([[gpu_us[g] + cpu_us[c] for g in GPU] for c in CPU], dtype=np.float32)
    latency = np.stack([grid * (1 + k / 1000) for k in contexts])[None] * scale
    return LatencyTable(
        TableHeader(model=model, phase=phase),
        np.array([0]),
        np.array(contexts),
        np.array(CPU),
        np.array(GPU),
        latency.astype(np.float32),
    )
