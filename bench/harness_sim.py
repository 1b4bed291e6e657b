"""Runs a policy on the simulated board in virtual time, as the daemon would drive it.

The point of the next job is decided when a job ends; the clocks follow 1.3 ms (CPU) and 5.3 ms
(GPU) later, in the middle of the next job if that has begun by then. A job goes on at the speed of
the clocks in force: the share that is done stays done, as on the live board.
"""

import math
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.harness_jobs import KNOT, Subject, Warmth
from bench.harness_plan import Cell, Segment
from estimators.errors import PolicyError
from estimators.table import LatencyTable
from policies.base import Attainable, BoardView, Decision, Job, OperatingPoint, Outcome, Policy

CPU_DELAY_US, GPU_DELAY_US = 1300.0, 5300.0
"""From a request to its effect: means of the times measured on an Orin Nano (see the plant)."""

_NEVER = math.inf

_TYPES = "dffdIIHHbf"
"""Array types of the columns of a run: start, latency, deadline, meter, clocks, context ..."""

_FLUSH = 1024
"""Rows kept as tuples before they go to the columns together."""


class Records(NamedTuple):
    """One run, a row per job, 41 bytes each.

    Attributes:
        start_us: When it started, us from the start of the run, ``[n]``.
        latency_us: Time from start to end, ``[n]``.
        deadline_us: Time allowed, ``[n]``.
        energy_mj: Energy from its start to the next one's, idle time included, ``[n]``.
        cpu_hz: CPU clock in force when it ended, ``[n]``.
        gpu_hz: GPU clock in force when it ended, ``[n]``.
        context: Tokens in the context, ``[n]``.
        segment: Index of its stretch of the run, ``[n]``.
        switched: Whether a clock moved while it ran, ``[n]``.
        span_us: Time from its start to the next one's, ``[n]``.
        wait_us: Time from its release to its start, ``[n]``.
    """

    start_us: NDArray[Any]
    latency_us: NDArray[Any]
    deadline_us: NDArray[Any]
    energy_mj: NDArray[Any]
    cpu_hz: NDArray[Any]
    gpu_hz: NDArray[Any]
    context: NDArray[Any]
    segment: NDArray[Any]
    switched: NDArray[Any]
    span_us: NDArray[Any]
    wait_us: NDArray[Any]

    def part(self, first: int, last: int | None = None) -> "Records":
        """Take jobs by index."""
        return Records(*(column[first:last] for column in self))


class VirtualBoard:
    """Clocks, energy and heat of a board whose clocks are set by us.

    Args:
        subject: What runs on it.
        attainable: Clocks that can be asked for.
        seed: Seed of the jobs.

    Attributes:
        subject: What runs on it; may be replaced between jobs.
        clocks: Clocks in force.
        now_us: Time since the start.
        energy_mj: Energy since the start.
        switched: Whether a clock moved during the last job.
        view: What a policy may know.
    """

    def __init__(self, subject: Subject, attainable: Attainable, seed: int) -> None:
        self.subject, self._seed = subject, seed
        self._wanted = OperatingPoint(attainable.cpu_hz[-1], attainable.gpu_hz[-1])
        self.clocks = subject.clocks(*self._wanted)
        self.now_us = self.energy_mj = 0.0
        self.switched = False
        self._pending: list[tuple[float, str, int]] = []
        idle = subject.cost(self.clocks, 0, round(subject.board.physics["thermal"]["ambient_c"]))
        self._warmth = Warmth(subject.board, idle.idle)
        self._temp_c = round(self._warmth.chip_c)
        self._sums = [0.0] * 5
        self._sensed_us = 0.0
        self._interval_us = subject.board.sensor_interval_ms * 1e3
        self.view = BoardView(attainable, self._wanted, subject.emc_hz)
        self._show(idle.idle.rails)

    def request(self, point: OperatingPoint) -> None:
        """Ask for clocks; 0 leaves one as it is."""
        if point == self._wanted:
            return
        for field, old, new, delay_us in (
            ("cpu_hz", self._wanted.cpu_hz, point.cpu_hz, CPU_DELAY_US),
            ("gpu_hz", self._wanted.gpu_hz, point.gpu_hz, GPU_DELAY_US),
        ):
            if new and new != old:
                self._move(field, new, delay_us)

    def work(self, job: int, context: int) -> float:
        """Run a job and tell its latency, us."""
        began_us, left = self.now_us, 1.0
        self.switched = False
        self._kick(working=True)
        while True:
            clocks = self.clocks
            whole_us = self._luck(job) * self.subject.nominal_us(clocks, context)
            event_us = self._next_us()
            if self.now_us + left * whole_us <= event_us:
                self._pass(left * whole_us, context)
                break
            left -= (event_us - self.now_us) / whole_us
            self._pass(event_us - self.now_us, context)
            self._event()
            self.switched |= self.clocks != clocks
        self._kick(working=False)
        return self.now_us - began_us

    def rest(self, until_us: float) -> None:
        """Do nothing until a moment."""
        while self.now_us < until_us:
            event_us = min(self._next_us(), until_us)
            self._pass(event_us - self.now_us, None)
            if event_us < until_us or self._next_us() <= until_us:
                self._event()

    # ---- hooks of the kernel's governors -----------------------------------------------------

    def _kick(self, *, working: bool) -> None:
        """Note that work came or went."""

    def _luck(self, job: int) -> float:
        return self.subject.luck(self._seed, job, self.clocks)

    def _next_us(self) -> float:
        """Tell when something happens next."""
        return self._pending[0][0] if self._pending else _NEVER

    def _event(self) -> None:
        """Let what is due happen: clocks come into force."""
        while self._pending and self._pending[0][0] <= self.now_us:
            _, field, hz = self._pending.pop(0)
            self.clocks = self.clocks._replace(**{field: hz})

    def _pass(self, span_us: float, context: int | None) -> None:
        """Let time pass, busy with a job of some context or (None) idle."""
        knot = 0 if context is None else context // KNOT
        cost = self.subject.cost(self.clocks, knot, self._temp_c)
        draw = cost.idle if context is None else cost.busy
        self.now_us += span_us
        self.energy_mj += draw.total * span_us * 1e-6
        a, b, c, d, e = draw.sensed
        sums = self._sums
        sums[0] += a * span_us
        sums[1] += b * span_us
        sums[2] += c * span_us
        sums[3] += d * span_us
        sums[4] += e * span_us
        if self.now_us - self._sensed_us >= self._interval_us:
            self._sense()

    # ---- inside ------------------------------------------------------------------------------

    def _move(self, field: str, hz: int, delay_us: float) -> None:
        self._wanted = self._wanted._replace(**{field: hz})
        self._pending = [entry for entry in self._pending if entry[1] != field]
        if getattr(self.clocks, field) != hz:
            self._pending.append((self.now_us + delay_us, field, hz))
            self._pending.sort()

    def _sense(self) -> None:
        """End an interval of the sensors: warm the chip and show the mean powers."""
        span_us = self.now_us - self._sensed_us
        cpu_mw, gpu_mw, *regions = (total / span_us for total in self._sums)
        self._warmth.step((regions[0], regions[1], regions[2]), span_us / 1e6)
        self._temp_c = round(self._warmth.chip_c)
        self._sums = [0.0] * 5
        self._sensed_us = self.now_us
        self._show((cpu_mw, gpu_mw))

    def _show(self, rails: tuple[float, float]) -> None:
        cpu_mw, gpu_mw = self.subject.quantised(rails)
        self.view = BoardView(
            self.view.attainable,
            OperatingPoint(self.clocks.cpu_hz, self.clocks.gpu_hz),
            self.subject.emc_hz,
            cpu_power_mw=cpu_mw,
            gpu_power_mw=gpu_mw,
            cpu_temp_mc=round(self._warmth.cpu_c * 1e3),
            gpu_temp_mc=round(self._warmth.gpu_c * 1e3),
        )


class Stretch(NamedTuple):
    """A segment with what it runs on.

    Attributes:
        segment: Deadline and number of jobs.
        subject: Model in the world of the segment.
    """

    segment: Segment
    subject: Subject


MakePolicy = Callable[[Segment], Policy]


def jobs_of(cell: Cell, learn_s: float) -> list[Segment]:
    """Put numbers of jobs to the stretches of a run; the learning part goes with the first."""
    result = []
    for index, segment in enumerate(cell.segments):
        jobs = segment.jobs or max(round(cell.seconds * 1e3 / segment.deadline_ms), 1)
        jobs += cell.learning_jobs(learn_s) if index == 0 else 0
        result.append(Segment(segment.deadline_ms, jobs, segment.world, segment.options))
    return result


def run_policy(
    board: VirtualBoard,
    make_policy: MakePolicy | None,
    stretches: list[Stretch],
    cell: Cell,
    table: LatencyTable,
    *,
    skip: int = 0,
) -> Records:
    """Run all jobs.

    Args:
        board: What they run on.
        make_policy: Makes the policy, again where options change; None: the board has its own.
        stretches: What to run.
        cell: How jobs are released and contexts grow.
        table: What the policy knows.
        skip: Jobs left out at the start: others learn from them.

    Raises:
        PolicyError: The policy leaves the clocks to the board, which nobody governs here, or asks
            for clocks that are not attainable.
    """
    columns: list[Any] = [array(kind) for kind in _TYPES]
    rows: list[tuple[Any, ...]] = []
    daemon = None if make_policy is None else _Daemon(board, make_policy, table)
    due_us = 0.0
    for index, place, stretch, context in _jobs(stretches, cell, skip):
        board.subject = stretch.subject
        deadline_us = stretch.segment.deadline_ms * 1e3
        if daemon is not None:
            daemon.plan(stretch.segment, deadline_us, context)
        wait_us = 0.0
        if cell.release == "periodic":
            board.rest(due_us)
            wait_us = board.now_us - due_us
            due_us += deadline_us
        began_us, began_mj = board.now_us, board.energy_mj
        latency_us = board.work(index, context)
        rows.append((
            began_us, latency_us, deadline_us, began_mj, *board.clocks[:2], context, place,
            board.switched, wait_us,
        ))  # fmt: skip
        if len(rows) == _FLUSH:
            _flush(rows, columns)
        if daemon is not None:
            daemon.learn(latency_us)
    _flush(rows, columns)
    board.rest(due_us)
    return _records(columns, board.now_us, board.energy_mj)


def _flush(rows: list[tuple[Any, ...]], columns: list[Any]) -> None:
    """Move rows to the columns, which take a tenth of the memory."""
    for column, values in zip(columns, zip(*rows, strict=True), strict=False):
        column.extend(values)
    rows.clear()


def _records(columns: list[Any], end_us: float, end_mj: float) -> Records:
    """Put the columns together; time and energy of a job end where those of the next begin."""
    start_us, latency_us, deadline_us, meter_mj, *rest = (np.asarray(column) for column in columns)
    cpu_hz, gpu_hz, context, segment, switched, wait_us = rest
    return Records(
        start_us,
        latency_us,
        deadline_us,
        np.diff(meter_mj, append=end_mj).astype(np.float32),
        cpu_hz,
        gpu_hz,
        context,
        segment,
        switched.astype(np.bool_),
        np.diff(start_us, append=end_us).astype(np.float32),
        wait_us,
    )


def _jobs(
    stretches: list[Stretch], cell: Cell, skip: int
) -> Iterator[tuple[int, int, Stretch, int]]:
    """Go through the jobs: number of the job, index of the stretch, the stretch, the context."""
    grows = bool(stretches[0].subject.engine.workload.network.max_context)
    number = skip
    for place, stretch in enumerate(stretches):
        for _ in range(stretch.segment.jobs):
            context = cell.prompt + number % cell.answer if grows else 0
            yield number, place, stretch, context
            number += 1


class _Daemon:
    """What the daemon does for its one session: keep plans, ask the policy, hand over points."""

    def __init__(self, board: VirtualBoard, make_policy: MakePolicy, table: LatencyTable) -> None:
        self._board, self._make, self._table = board, make_policy, table
        self._segment: Segment | None = None
        self._policy: Policy | None = None
        self._plans: dict[tuple[float, int], tuple[Job, Decision]] = {}
        self._job: Job | None = None
        self._clocks = board.clocks
        self._point = OperatingPoint(board.clocks.cpu_hz, board.clocks.gpu_hz)

    def plan(self, segment: Segment, deadline_us: float, context: int) -> None:
        """Set the clocks for the next job."""
        if segment is not self._segment:
            self._enter(segment)
        assert self._policy is not None  # made by the lines above
        key = (deadline_us, context)
        plan = self._plans.get(key)
        if plan is None:
            job = Job(self._table, deadline_us, context)
            plan = self._plans[key] = job, self._policy.decide(job, self._board.view)
            self._check(plan[1])
        self._job, decision = plan
        assert decision.point is not None  # checked when it was made
        self._board.request(decision.point)

    def _check(self, decision: Decision) -> None:
        if decision.point is None:
            raise PolicyError(
                "the policy leaves the clocks to the board", why=decision.reason,
                hint="is a clock of the table attainable in this power mode?",
            )  # fmt: skip
        attainable = self._board.view.attainable
        lists = (attainable.cpu_hz, attainable.gpu_hz)
        for wanted_hz, list_hz in zip(decision.point, lists, strict=True):
            if wanted_hz and wanted_hz not in list_hz:
                why = f"{wanted_hz} Hz"
                raise PolicyError("the policy asks for a clock that is not attainable", why=why)

    def learn(self, latency_us: float) -> None:
        """Tell the policy what became of the job."""
        assert self._policy is not None and self._job is not None  # a job was planned
        clocks = self._board.clocks
        if clocks is not self._clocks:
            self._clocks, self._point = clocks, OperatingPoint(clocks.cpu_hz, clocks.gpu_hz)
        outcome = Outcome(self._job, self._point, clocks.emc_hz, latency_us, self._board.switched)
        if self._policy.observe(outcome):
            self._plans.clear()

    def _enter(self, segment: Segment) -> None:
        old, self._segment = self._segment, segment
        if self._policy is None or (old is not None and old.options != segment.options):
            self._policy = self._make(segment)
            self._plans.clear()
