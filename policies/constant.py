"""Policies that do not look at the deadline: highest clocks, lowest clocks, or those told."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

from estimators.errors import PolicyError, TableError
from policies.base import BasePolicy, BoardView, Decision, Job, OperatingPoint, option


def _decide(job: Job, view: BoardView, point: OperatingPoint, reason: str) -> Decision:
    """Say what the table expects at a point; one that it lacks is not expected to be in time."""
    try:
        predicted_us = job.table.latency_at(*point, emc_hz=view.emc_hz, context=job.context)
    except TableError:
        return Decision(point, math.nan, False, f"{reason}, not in table")
    return Decision(point, predicted_us, predicted_us <= job.deadline_us, reason)


@dataclass(slots=True)
class MaxPolicy(BasePolicy):
    """The highest attainable clocks, as ``jetson_clocks`` sets them."""

    name: ClassVar[str] = "max"

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Choose the highest clocks."""
        cpu_hz, gpu_hz = view.attainable.cpu_hz, view.attainable.gpu_hz
        point = OperatingPoint(cpu_hz[-1] if cpu_hz else 0, gpu_hz[-1] if gpu_hz else 0)
        return _decide(job, view, point, "highest clocks")


@dataclass(slots=True)
class PowersavePolicy(BasePolicy):
    """The lowest attainable clocks."""

    name: ClassVar[str] = "powersave"

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Choose the lowest clocks."""
        cpu_hz, gpu_hz = view.attainable.cpu_hz, view.attainable.gpu_hz
        point = OperatingPoint(cpu_hz[0] if cpu_hz else 0, gpu_hz[0] if gpu_hz else 0)
        return _decide(job, view, point, "lowest clocks")


@dataclass(slots=True)
class FixedPolicy(BasePolicy):
    """The clocks told, or the nearest attainable ones above, or else the highest."""

    name: ClassVar[str] = "fixed"

    cpu_hz: int = option(0, "CPU clock; 0 means the lowest", "Hz")
    gpu_hz: int = option(0, "GPU clock; 0 means the lowest", "Hz")

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            PolicyError: A clock is negative.
        """
        for name, clock_hz in (("cpu_hz", self.cpu_hz), ("gpu_hz", self.gpu_hz)):
            if clock_hz < 0:
                raise PolicyError(f"option {name} must be 0 or more", why=f"it is {clock_hz}")

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Choose the clocks told, as nearly as the board allows."""
        cpu_hz, cpu_note = _nearest("cpu", self.cpu_hz, view.attainable.cpu_hz)
        gpu_hz, gpu_note = _nearest("gpu", self.gpu_hz, view.attainable.gpu_hz)
        reason = "fixed clocks" + cpu_note + gpu_note
        return _decide(job, view, OperatingPoint(cpu_hz, gpu_hz), reason)


def _nearest(domain: str, wanted_hz: int, clocks_hz: tuple[int, ...]) -> tuple[int, str]:
    """Find the lowest clock not below the wanted one, and a remark if it is another."""
    if not clocks_hz:
        return 0, ""
    index = bisect_left(clocks_hz, wanted_hz)
    if index == len(clocks_hz):
        return clocks_hz[-1], f", {domain} clamped to {clocks_hz[-1]} Hz"
    found_hz = clocks_hz[index]
    moved = wanted_hz and found_hz != wanted_hz
    return found_hz, f", {domain} raised to {found_hz} Hz" if moved else ""
