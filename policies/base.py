"""The contract between the daemon and a policy.

A policy is pure: no I/O, no clock, no logging, and the same answers under the same seed. The daemon
makes one instance per session (``scope = "session"``) or one for the board (``scope = "board"``).
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from estimators.errors import TableError
from estimators.table import LatencyTable

API_VERSION = 1
"""Version of this contract; a plug-in states the one it was written for in ``api``."""

Scope = Literal["session", "board"]


class OperatingPoint(NamedTuple):
    """One clock per domain, in Hz."""

    cpu_hz: int
    gpu_hz: int


@dataclass(frozen=True, slots=True)
class Attainable:
    """The clocks that the board can be asked for now: its lists cut to its live limits.

    Attributes:
        cpu_hz: Ascending CPU clocks, Hz; empty when the board has no CPU domain.
        gpu_hz: Ascending GPU clocks, Hz; empty when the board has no GPU domain.
    """

    cpu_hz: tuple[int, ...]
    gpu_hz: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoardView:
    """What a policy may know of the board. Readings that are missing are None.

    ``attainable`` is replaced as a whole when a limit moves, so a policy may cache by its identity.

    Attributes:
        attainable: Clocks that can be asked for.
        point: Operating point in force as last read back, or None before the first.
        emc_hz: Memory clock, Hz; 0 when unknown.
        cpu_power_mw: Power of the rail that feeds the CPU.
        gpu_power_mw: Power of the rail that feeds the GPU.
        cpu_temp_mc: CPU temperature, millidegrees Celsius.
        gpu_temp_mc: GPU temperature, millidegrees Celsius.
        cpu_load: Busy share of the busiest cluster, 0..1.
        gpu_load: Busy share of the GPU, 0..1.
    """

    attainable: Attainable
    point: OperatingPoint | None = None
    emc_hz: int = 0
    cpu_power_mw: float | None = None
    gpu_power_mw: float | None = None
    cpu_temp_mc: int | None = None
    gpu_temp_mc: int | None = None
    cpu_load: float | None = None
    gpu_load: float | None = None


class Job(NamedTuple):
    """One inference or one token to be planned.

    Attributes:
        table: Latency table of the session's model.
        deadline_us: Time allowed from the start of the job, us.
        context: Tokens in the context; 0 for models without one.
    """

    table: LatencyTable
    deadline_us: float
    context: int = 0


class Decision(NamedTuple):
    """Answer of a policy.

    Attributes:
        point: Operating point to set; None leaves the clocks to the board.
        predicted_us: Latency expected there (corrected, without margin), us; nan if unknown.
        feasible: Whether the deadline is expected to be met.
        reason: A few words for people: ``"greedy"``, ``"infeasible: fastest point"`` ...
    """

    point: OperatingPoint | None
    predicted_us: float
    feasible: bool
    reason: str


class Outcome(NamedTuple):
    """What became of a job.

    Attributes:
        job: The job as it was planned.
        point: Operating point in force while it ran (as read back).
        emc_hz: Memory clock while it ran, Hz; 0 when unknown.
        latency_us: Measured time from start to end, us.
        mixed: True if a clock moved while it ran: the time belongs to no single point.
    """

    job: Job
    point: OperatingPoint
    emc_hz: int
    latency_us: float
    mixed: bool


class Policy(Protocol):
    """Decides operating points."""

    api: ClassVar[int]
    name: ClassVar[str]
    scope: ClassVar[Scope]

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Choose the operating point for a job. Must not raise on any valid job and view."""

    def observe(self, outcome: Outcome) -> bool:
        """Learn from a finished job; tell whether decisions made before may no longer hold."""

    def predict_us(self, job: Job, point: OperatingPoint, emc_hz: int) -> float:
        """Predict a job's latency at any point, us, without margin; nan if unknown."""

    def tick(self, view: BoardView) -> Decision | None:
        """Choose from the board's state alone, every control period; None for no opinion."""

    def stats(self) -> dict[str, float]:
        """Tell figures worth showing in ``status`` (corrector terms, rewards ...)."""


@dataclass(slots=True)
class BasePolicy:
    """Defaults for the optional methods; a policy's fields are its options.

    Subclasses are dataclasses: each field is an option with a default and a ``help`` text and
    ``unit`` in its metadata (see :func:`option`); ``__post_init__`` validates.
    """

    api: ClassVar[int] = API_VERSION
    name: ClassVar[str] = "base"
    scope: ClassVar[Scope] = "session"

    def observe(self, outcome: Outcome) -> bool:
        """Ignore the outcome."""
        return False

    def predict_us(self, job: Job, point: OperatingPoint, emc_hz: int) -> float:
        """Read the table as it is."""
        try:
            return job.table.latency_at(*point, emc_hz=emc_hz, context=job.context)
        except TableError:
            return math.nan

    def tick(self, view: BoardView) -> Decision | None:
        """Have no opinion."""
        return None

    def stats(self) -> dict[str, float]:
        """Have nothing to tell."""
        return {}


def option(default: Any, help: str, unit: str = "") -> Any:  # noqa: A002 - reads as in argparse
    """Declare an option of a policy: its default, a line of help and its unit."""
    return field(default=default, metadata={"help": help, "unit": unit})
