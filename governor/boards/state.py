"""What a board says of itself: readings, events, and how it is to be driven."""

from dataclasses import dataclass, field
from typing import Literal

from governor.boards.clock import ClockOptions, Mode
from policies.base import Attainable, OperatingPoint

EventKind = Literal["governor", "limit", "cap", "gone", "back", "appeared"]


@dataclass(frozen=True, slots=True)
class BoardOptions:
    """How a board is driven.

    Attributes:
        cpu_mode: ``auto``, ``userspace`` or ``pin`` for the CPU clusters.
        gpu_mode: The same for the GPU.
        lower_min: Whether lower limits may be lowered to the end of the lists.
        retake: Whether a governor switched by someone else is switched back.
    """

    cpu_mode: Mode = "auto"
    gpu_mode: Mode = "auto"
    lower_min: bool = False
    retake: bool = True

    def clock(self, mode: Mode) -> ClockOptions:
        """Options of one clock."""
        return ClockOptions(mode=mode, lower_min=self.lower_min, retake=self.retake)


@dataclass(frozen=True, slots=True)
class BoardEvent:
    """Something that others did to the board.

    Attributes:
        kind: ``governor`` switched, ``cap`` arrived or left (upper limit), ``limit`` moved
            (lower limit), a clock is ``gone``, ``back``, or has ``appeared`` for the first time.
        node: Name of the clock.
        text: One line for people.
    """

    kind: EventKind
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class BoardState:
    """One look at the board. A missing reading is None and has its reason in ``missing``.

    Attributes:
        at_ns: CLOCK_MONOTONIC time of the look.
        attainable: Clocks that can be asked for; the same object until a limit moves.
        point: Clocks in force (slowest cluster); 0 for a domain the board lacks.
        emc_hz: Memory clock.
        rails_mw: Power of each rail by its label; None for a rejected reading.
        total_mw: Module power, no rail counted twice.
        cpu_power_mw: Power of the rail that feeds the CPU.
        gpu_power_mw: Power of the rail that feeds the GPU.
        shared_rail: Whether those two are one rail.
        temps_mc: Temperature of each zone by its type, millidegrees Celsius.
        cpu_temp_mc: Hottest CPU zone.
        gpu_temp_mc: Hottest GPU zone.
        gpu_load: Busy share of the GPU, 0..1.
        cpu_load: Busy share of each cluster since the last look, 0..1.
        rejected: Implausible readings since the board was found.
        missing: Why a reading is None.
        events: What others did since the last look.
    """

    at_ns: int
    attainable: Attainable
    point: OperatingPoint | None = None
    emc_hz: int | None = None
    rails_mw: dict[str, int | None] = field(default_factory=dict)
    total_mw: int | None = None
    cpu_power_mw: int | None = None
    gpu_power_mw: int | None = None
    shared_rail: bool = False
    temps_mc: dict[str, int | None] = field(default_factory=dict)
    cpu_temp_mc: int | None = None
    gpu_temp_mc: int | None = None
    gpu_load: float | None = None
    cpu_load: dict[str, float] = field(default_factory=dict)
    rejected: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    events: tuple[BoardEvent, ...] = ()
