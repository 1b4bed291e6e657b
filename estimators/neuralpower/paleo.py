"""Paleo (Qi, Sparks, Talwalkar; ICLR 2017): runtime from operations, bytes and a data sheet.

``t = flop / (peak * ppp) + bytes / (bandwidth * ppp)``, each part at least one clock of the GPU.
Convolutions are counted as implicit matrix products, without Winograd or FFT. Nothing is fitted.
"""

from dataclasses import dataclass

import numpy as np

from estimators.errors import ProfileError
from estimators.neuralpower.shapes import Columns
from estimators.residual import Array

PERCENT_OF_PEAK = 0.62
"""Platform percent of peak in the paper's scripts; the command of its authors defaults to 1.0."""
_BYTES = 4  # it knows single precision only


@dataclass(frozen=True, slots=True)
class Device:
    """A line of a data sheet.

    Attributes:
        clock_mhz: Clock of the GPU.
        gflops: Peak single-precision arithmetic, GFLOP/s.
        gbps: Peak memory bandwidth, GB/s (2^30 bytes, as Paleo counts).
    """

    clock_mhz: float
    gflops: float
    gbps: float


DEVICES = {
    "titan-x": Device(1000, 6144, 336.5),
    "k20": Device(1000, 3520, 208),
    "k20x": Device(1000, 3935, 250),
    "k40": Device(745, 4290, 288),
    "k80": Device(560, 5600, 480),
    "gtx-780-ti": Device(875, 5040, 336),
    "gtx-750m": Device(941, 722.7, 80),
    # Not in Paleo's table; from NVIDIA's data sheets (boost clocks).
    "titan-x-pascal": Device(1417, 10974, 480),
    "gtx-1080-ti": Device(1481, 11340, 484),
    "gtx-1070": Device(1506, 6463, 256),
    "m40": Device(948, 6844, 288),
    "p100": Device(1328, 10609, 732),
    "v100": Device(1370, 14030, 900),
    "t4": Device(1590, 8141, 320),
    "rtx-2080-ti": Device(1545, 13450, 616),
    "jetson-tx1": Device(998, 511, 25.6),
    "jetson-tx2": Device(1300, 665.6, 59.7),
    "jetson-agx-orin": Device(1300, 5325, 204.8),
}


def get_device(name: str) -> Device:
    """Find a device.

    Raises:
        ProfileError: There is none of that name.
    """
    if name not in DEVICES:
        raise ProfileError(f"unknown device '{name}'", hint=f"known are {', '.join(DEVICES)}")
    return DEVICES[name]


def paleo_ms(layers: Columns, device: Device, percent_of_peak: float = PERCENT_OF_PEAK) -> Array:
    """Runtime of layers, ms, ``[n]``.

    Args:
        layers: Layers of one type.
        device: What they run on.
        percent_of_peak: Share of both peaks that is reached, over 0 up to 1.
    """
    if not 0.0 < percent_of_peak <= 1.0:
        raise ProfileError("percent of peak must be over 0 and up to 1", why=f"{percent_of_peak:g}")
    padded = layers["batch"] * layers["in_c"]
    padded = padded * (layers["in_h"] + 2 * layers["pad_h"])
    padded = padded * (layers["in_w"] + 2 * layers["pad_w"])
    read = padded if layers.kind == "conv" else layers["in_elements"]
    moved = _BYTES * (read + layers["weights"] + layers["out_elements"])
    least_ms = 1.0 / (device.clock_mhz * 1e3)
    compute_ms = layers["flop"] / 1e6 / device.gflops / percent_of_peak
    memory_ms = moved / 2**30 / device.gbps * 1e3 / percent_of_peak
    return np.maximum(compute_ms, least_ms) + np.maximum(memory_ms, least_ms)
