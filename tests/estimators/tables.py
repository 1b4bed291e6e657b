"""Small tables that the tests of several rooms use."""

from typing import Any

import numpy as np

from estimators.table import LatencyTable, TableHeader

CPU_HZ = (115_200_000, 729_600_000, 1_420_800_000, 2_201_600_000)
GPU_HZ = (306_000_000, 816_000_000, 1_300_500_000)


def make_table(**changes: Any) -> LatencyTable:
    """2 memory clocks x 3 contexts x 4 CPU x 3 GPU clocks; each value tells its own cell."""
    cells = np.arange(2 * 3 * 4 * 3, dtype=np.float32).reshape(2, 3, 4, 3)
    parts: dict[str, Any] = {
        "header": TableHeader(model="resnet50", board="orin"),
        "emc_hz": np.array([665_600_000, 2_133_000_000]),
        "context": np.array([1, 91, 181]),
        "cpu_hz": np.array(CPU_HZ),
        "gpu_hz": np.array(GPU_HZ),
        "latency_us": 1000.0 - cells,
    }
    return LatencyTable(**{**parts, **changes})
