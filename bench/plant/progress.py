"""Jobs on the live board: what was asked, how far it is, what came of it."""

from dataclasses import dataclass
from typing import NamedTuple

from bench.plant.engine import Engine
from bench.plant.types import Activity, Clocks


class JobRequest(NamedTuple):
    """One job to run.

    Attributes:
        workload: Name of the network.
        engine: What runs it.
        precision: Number format; empty takes the engine's own.
        batch: Inputs.
        context: Tokens in the context.
    """

    workload: str
    engine: str = "flame-eager"
    precision: str = ""
    batch: int = 1
    context: int = 0


class JobResult(NamedTuple):
    """What came of a job; all times are simulated.

    Attributes:
        start_ns: When it was received, CLOCK_MONOTONIC.
        end_ns: When it was done, CLOCK_MONOTONIC.
        latency_us: From start to end, the wait for earlier jobs included, us.
        start: Clocks in force when it began to run.
        end: Clocks in force when it ended.
        switched: Whether a clock moved while it ran.
    """

    start_ns: int
    end_ns: int
    latency_us: float
    start: Clocks
    end: Clocks
    switched: bool


@dataclass(slots=True)
class Progress:
    """A job that runs: it goes on at the speed of the clocks in force.

    When a clock changes, the share that is done stays done and the rest takes as long as at the new
    clocks; how lucky the job is with its jitter does not change on the way.

    Attributes:
        engine: The workload's engine.
        context: Tokens in the context.
        start: Clocks in force when it began.
        clocks: Clocks in force now.
        activity: What the whole job would do at these clocks.
        left: Share still to do.
        since_ns: When ``left`` was true.
    """

    engine: Engine
    context: int
    start: Clocks
    clocks: Clocks
    activity: Activity
    since_ns: int
    left: float = 1.0
    _luck: float = 0.0

    @classmethod
    def begin(cls, engine: Engine, context: int, clocks: Clocks, now_ns: int) -> "Progress":
        """Start a job."""
        return cls(engine, context, clocks, clocks, engine.job(clocks, context), now_ns)

    @property
    def end_ns(self) -> int:
        """When it will be done if no clock moves."""
        return self.since_ns + round(self.left * self.activity.latency_us * 1000)

    @property
    def switched(self) -> bool:
        """Whether a clock moved since it began."""
        return self._luck != 0.0

    def change(self, clocks: Clocks, now_ns: int) -> None:
        """Go on at other clocks."""
        if clocks == self.clocks:
            return
        if not self._luck:
            usual = self.engine.activity(self.clocks, self.context)
            self._luck = self.activity.latency_us / usual.latency_us
        done = (now_ns - self.since_ns) / 1000 / self.activity.latency_us
        self.left = max(self.left - done, 0.0)
        self.since_ns, self.clocks = now_ns, clocks
        usual = self.engine.activity(clocks, self.context)
        self.activity = Activity(
            latency_us=usual.latency_us * self._luck,
            cpu_busy_us=usual.cpu_busy_us * self._luck,
            gpu_busy_us=usual.gpu_busy_us * self._luck,
            gpu_compute_us=usual.gpu_compute_us * self._luck,
            dram_bytes=usual.dram_bytes,
            helper_us=usual.helper_us * self._luck,
        )
