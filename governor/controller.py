"""From requests to operating points: plan each session, merge, hand over, mind the idle time.

Knows sessions, policies and the actuator, but no socket and no file: the server feeds it.
"""

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Protocol

from estimators.table import LatencyTable, Phase
from estimators.tablestore import TableKey
from governor.boards import BoardState
from governor.config import Config
from governor.guard import Guard
from governor.messages import Begin, Close, Code, End, Open, Update
from governor.sessions import Plan, RefusedError, Session, SessionTable
from governor.shadow import Shadow
from governor.words import nearest
from policies.base import BoardView, Decision, Job, OperatingPoint, Outcome, Policy

log = logging.getLogger(__name__)

PLANS = 64
"""Plans kept per session: an app has a few deadlines, but a language model many contexts."""

CLOCK_SLACK_NS = 1_000_000_000
"""A start this far ahead of now is a clock of another kind."""


class PolicyFactory(Protocol):
    """Makes instances of one policy."""

    @property
    def name(self) -> str:
        """Name it was asked for by."""

    def __call__(self) -> Policy:
        """Make an instance."""


class Drive(Protocol):
    """What the controller asks of the actuator."""

    held: bool
    state: BoardState

    def set_point(self, point: OperatingPoint) -> None:
        """Hand over a point; returns at once."""

    def release(self) -> None:
        """Give the board back; returns at once."""

    def point(self) -> OperatingPoint:
        """Tell the clocks in force."""

    def moved_since(self, start_ns: int) -> bool:
        """Tell whether a clock moved at or after a moment."""


def view_of(state: BoardState, floor_hz: int) -> BoardView:
    """Make the policies' view of a board state; ``floor_hz`` cuts the CPU clocks from below."""
    attainable = state.attainable
    if floor_hz and attainable.cpu_hz:
        above = tuple(hz for hz in attainable.cpu_hz if hz >= floor_hz)
        attainable = type(attainable)(above or attainable.cpu_hz[-1:], attainable.gpu_hz)
    return BoardView(
        attainable=attainable,
        point=state.point,
        emc_hz=state.emc_hz or 0,
        cpu_power_mw=state.cpu_power_mw,
        gpu_power_mw=state.gpu_power_mw,
        cpu_temp_mc=state.cpu_temp_mc,
        gpu_temp_mc=state.gpu_temp_mc,
        cpu_load=max(state.cpu_load.values(), default=None),
        gpu_load=state.gpu_load,
    )


def _observed(policy: Policy, outcome: Outcome) -> bool:
    return bool(policy.observe(outcome))


class Controller:
    """Decides for all sessions.

    Args:
        config: Limits, CPU floor and idle behaviour.
        drive: The actuator.
        tables: Latency tables by model and phase.
        make_policy: Makes an instance of the policy in force.

    Attributes:
        sessions: All sessions.
        point: Point last handed over; None while the board is not asked for.
        paused: Whether an operator has paused control.
        shadow: A second policy that is asked but not obeyed; None for none.
        guard: Calls into the policy in force.
        decisions: Times a policy was asked.
        changes: Points handed over.
    """

    def __init__(
        self,
        config: Config,
        drive: Drive,
        tables: Mapping[TableKey, LatencyTable],
        make_policy: PolicyFactory,
    ) -> None:
        self.config, self.drive, self.tables = config, drive, tables
        limits = config.limits
        self.sessions = SessionTable(total=limits.sessions, per_peer=limits.sessions_per_peer)
        self.point: OperatingPoint | None = None
        self.paused = False
        self.shadow: Shadow | None = None
        self.decisions = self.changes = self._past_errors = 0
        self._active: dict[tuple[bytes, int], Session] = {}
        self._idle_at_ns = 0
        self.view = view_of(drive.state, config.cpu.floor_hz)
        self.guard = Guard("")
        self._use(make_policy)

    @property
    def policy_errors(self) -> int:
        """Times a policy raised or answered against the contract."""
        return self._past_errors + self.guard.errors

    # ---- requests --------------------------------------------------------------------------

    def open(self, identity: bytes, request: Open, address: str, now_ns: int) -> Session:
        """Open a session and, if its deadline is known, move the clocks before its first job.

        Raises:
            RefusedError: Unknown model, number taken, or a limit reached.
        """
        self.sessions.check(identity, request.session, address)
        table = self.find_table(request.model, request.phase)
        session = Session(
            key=(identity, request.session),
            table=table,
            policy=self._policy_for_session(),
            name=request.name,
            deadline_us=request.deadline_ns / 1e3 if request.deadline_ns else None,
            context=request.context,
            period_ns=request.period_ns,
        )
        self.sessions.add(session, address, now_ns)
        if session.deadline_us is not None:
            self._plan_active(session, now_ns + session.linger_ns())
        return session

    def find_table(self, model: str, phase: Phase) -> LatencyTable:
        """Look up the table of a model.

        Raises:
            RefusedError: There is none.
        """
        table = self.tables.get((model, phase))
        if table is None:
            raise RefusedError(
                Code.UNKNOWN_MODEL,
                f"no {phase} table for model '{model}' in {self.config.tables.dir}; "
                f"{self._known(model)}; a table that was added later needs 'flamegov reload'",
                "$.model",
            )
        return table

    def _known(self, model: str) -> str:
        """Name what there is: the nearest model, or the phases of this one, or all."""
        names = {name for name, _ in self.tables}
        if model not in names and (near := nearest(model, names)):
            return near
        keys = [key for key in sorted(self.tables) if key[0] == model or model not in names]
        return "known: " + (", ".join(f"{name} ({phase})" for name, phase in keys)[:80] or "none")

    def begin(self, identity: bytes, request: Begin, now_ns: int) -> Session:
        """Note that a job began, and correct the clocks if it differs from what was expected.

        Raises:
            RefusedError: Unknown session, no deadline, deadline passed, or out of order.
        """
        session = self.sessions.get(identity, request.session, now_ns)
        if request.start_ns > now_ns + CLOCK_SLACK_NS:
            raise RefusedError(
                Code.BAD_FIELD, "start_ns lies ahead; send CLOCK_MONOTONIC", "$.start_ns"
            )
        deadline_us = self._deadline_us(session, request, now_ns)
        session.begin(request.job, request.start_ns)
        session.deadline_us = deadline_us
        if request.context is not None:
            session.context = request.context
        self._plan_active(session, now_ns + self.config.limits.lease_ms * 1_000_000)
        session.job = session.plan.job if session.plan else None
        return session

    @staticmethod
    def _deadline_us(session: Session, request: Begin, now_ns: int) -> float:
        if request.deadline_at_ns is not None:
            if request.deadline_at_ns <= now_ns:
                session.counters.dropped += 1
                raise RefusedError(Code.LATE, "the deadline has passed", "$.deadline_at_ns")
            return (request.deadline_at_ns - request.start_ns) / 1e3
        if request.deadline_ns is not None:
            return request.deadline_ns / 1e3
        if session.deadline_us is None:
            raise RefusedError(
                Code.BAD_FIELD, "neither session nor job has a deadline", "$.deadline_ns"
            )
        return session.deadline_us

    def end(self, identity: bytes, request: End, now_ns: int) -> Session:
        """Learn from a finished job and set the clocks for the next one.

        Raises:
            RefusedError: Unknown session, or the job was not begun.
        """
        session = self.sessions.get(identity, request.session, now_ns)
        job = session.end(request.job)
        if request.aborted:
            session.counters.aborted += 1
        else:
            self._learn(session, job, request)
        if session.grows:
            session.context = job.context + 1
        self._plan_active(session, now_ns + session.linger_ns())
        return session

    def _learn(self, session: Session, job: Job, request: End) -> None:
        latency_us = (request.end_ns - request.start_ns) / 1e3
        self._count(session, job, latency_us)
        drive = self.drive
        outcome = Outcome(
            job,
            drive.point(),
            self.view.emc_hz,
            latency_us,
            drive.moved_since(request.start_ns),
        )
        if self.shadow is not None:
            self.shadow.look(session, job, self.view, outcome)
        if self.guard.call(_observed, session.policy, outcome):
            for touched in (session,) if self._shared is None else self.sessions:
                touched.plans.clear()

    @staticmethod
    def _count(session: Session, job: Job, latency_us: float) -> None:
        counters = session.counters
        counters.jobs += 1
        counters.late += latency_us > job.deadline_us
        counters.infeasible += session.decision is not None and not session.decision.feasible
        session.latency_us = latency_us

    def update(self, identity: bytes, request: Update, now_ns: int) -> Session:
        """Change what a session asks for.

        Raises:
            RefusedError: Unknown session.
        """
        session = self.sessions.get(identity, request.session, now_ns)
        if request.deadline_ns is not None:
            session.deadline_us = request.deadline_ns / 1e3
        if request.context is not None:
            session.context = request.context
        if request.period_ns is not None:
            session.period_ns = request.period_ns
        if session.deadline_us is not None:
            self._plan_active(session, now_ns + session.linger_ns())
        return session

    def close(self, identity: bytes, request: Close, now_ns: int) -> Session:
        """End a session.

        Raises:
            RefusedError: Unknown session.
        """
        session = self.sessions.get(identity, request.session, now_ns)
        self._drop(session, now_ns)
        return session

    # ---- events ----------------------------------------------------------------------------

    def state_changed(self) -> None:
        """Take the actuator's new state; plan again if clocks or limits moved."""
        old = self.view
        self.view = view_of(self.drive.state, self.config.cpu.floor_hz)
        if self.view.attainable == old.attainable:
            # Same object again: policies cache by its identity.
            self.view = dataclasses.replace(self.view, attainable=old.attainable)
        if self.view.attainable is not old.attainable or self.view.emc_hz != old.emc_hz:
            self._plan_again()
        if self._shared is not None and self._active and not self.paused:
            decision = self.guard.tick(self._shared, self.view)
            if decision is not None and decision.point is not None:
                self._hand_over(decision.point)

    def timer(self, now_ns: int) -> None:
        """End leases and activity that ran out; act when idle. Call about ten times a second."""
        lease_ns = self.config.limits.lease_ms * 1_000_000
        for session in self.sessions.silent_since(now_ns - lease_ns):
            log.info("session %d of %s: lease ended", session.key[1], session.name or "a client")
            self._drop(session, now_ns)
        self._idle_time(now_ns)

    def peer_died(self, identity: bytes, now_ns: int) -> None:
        """End the sessions of a connection whose process is gone."""
        for session in list(self.sessions.peers[identity].sessions.values()):
            self._drop(session, now_ns)

    def _idle_time(self, now_ns: int) -> None:
        for session in [s for s in self._active.values() if s.active_until_ns <= now_ns]:
            self._deactivate(session, now_ns)
        if self._idle_at_ns and now_ns >= self._idle_at_ns:
            self._idle_at_ns = 0
            self._go_idle()

    def pause(self) -> None:
        """Give the board back and decide nothing until :meth:`resume`."""
        self.paused = True
        self.point = None
        self.drive.release()

    def resume(self) -> None:
        """Take the board again if a session is active."""
        self.paused = False
        self._merge()

    def set_policy(self, make_policy: PolicyFactory) -> None:
        """Swap the policy for all sessions; the clocks stay until the new one has decided."""
        self._use(make_policy)
        for session in self.sessions:
            session.policy = self._policy_for_session()
        self._plan_again()

    def reconfigure(
        self,
        config: Config,
        tables: Mapping[TableKey, LatencyTable],
        make_policy: PolicyFactory,
    ) -> None:
        """Swap configuration, tables and policy; open sessions go over to their new table."""
        self.config, self.tables = config, tables
        self.sessions.total = config.limits.sessions
        self.sessions.per_peer = config.limits.sessions_per_peer
        for session in self.sessions:
            header = session.table.header
            session.table = tables.get((header.model, header.phase), session.table)
        self.set_policy(make_policy)

    def would_choose(self, job: Job) -> OperatingPoint | None:
        """Ask a policy without acting on it.

        A policy of the whole board learns from being asked, so it is not: its point stands.
        """
        if self._shared is not None:
            return self.point
        decision = self.guard.decide(self.policy_like(job.table), job, self.view)
        return decision.point if decision else None

    def policy_like(self, table: LatencyTable) -> Policy:
        """Find the policy of a session with that table, for what it has learnt; else a new one."""
        same = (session.policy for session in self.sessions if session.table is table)
        return next(same, None) or self._make_policy()

    def is_active(self, session: Session) -> bool:
        """Tell whether a session counts now."""
        return session.key in self._active

    # ---- planning --------------------------------------------------------------------------

    def _use(self, make_policy: PolicyFactory) -> None:
        first = make_policy()
        self._make_policy = make_policy
        self._past_errors = self.policy_errors
        self.guard = Guard(f"policy {make_policy.name}", " since it is in force")
        self._shared = first if first.scope == "board" else None

    def _policy_for_session(self) -> Policy:
        return self._make_policy() if self._shared is None else self._shared

    def _plan_active(self, session: Session, until_ns: int) -> None:
        """Plan for a session that is active until a moment; move the clocks if that changes."""
        moved = self._plan(session)
        session.active_until_ns = until_ns
        if session.key not in self._active:
            self._active[session.key] = session
            self._idle_at_ns = 0
            moved = True
        if moved:
            self._merge()

    def _plan(self, session: Session) -> bool:
        """Ask the policy, unless it has answered before; tell whether the point moved."""
        if session.deadline_us is None:
            return False
        key = (session.deadline_us, session.context)
        plan = session.plans.get(key) or self._decide(session, key)
        old, session.plan = session.plan, plan
        return plan is not old and (old is None or old.decision.point != plan.decision.point)

    def _decide(self, session: Session, key: tuple[float, int]) -> Plan:
        job = Job(session.table, *key)
        decision = self.guard.decide(session.policy, job, self.view)
        self.decisions += 1
        if decision is None:
            decision = Decision(self._highest(), math.nan, False, "policy failed: highest clocks")
        if len(session.plans) >= PLANS:
            session.plans.clear()
        plan = session.plans[key] = Plan(job, decision)
        return plan

    def _plan_again(self) -> None:
        """Throw all plans away and plan for the active sessions."""
        for session in self.sessions:
            session.plans.clear()
        for session in self._active.values():
            self._plan(session)
        self._merge()

    def _highest(self) -> OperatingPoint:
        attainable = self.view.attainable
        return OperatingPoint(
            attainable.cpu_hz[-1] if attainable.cpu_hz else 0,
            attainable.gpu_hz[-1] if attainable.gpu_hz else 0,
        )

    def _merge(self) -> None:
        """Hand over the element-wise maximum of what the active sessions want."""
        cpu_hz = gpu_hz = 0
        if len(self._active) == 1:
            decision = next(iter(self._active.values())).decision
            if decision is not None and decision.point is not None:
                self._hand_over(decision.point)
            elif decision is not None:
                self._leave()
            return
        for session in self._active.values():
            decision = session.decision
            if decision is not None and decision.point is not None:
                cpu_hz = max(cpu_hz, decision.point[0])
                gpu_hz = max(gpu_hz, decision.point[1])
        if cpu_hz or gpu_hz:
            self._hand_over(OperatingPoint(cpu_hz, gpu_hz))
        elif self._active:
            self._leave()

    def _leave(self) -> None:
        """Give the board back because a policy leaves the clocks to it; a ticking one sets them."""
        if self.point is not None and self._shared is None and not self.paused:
            self.point = None
            self.drive.release()

    def _hand_over(self, point: OperatingPoint) -> None:
        if self.paused or point == self.point:
            return
        self.point = point
        self.changes += 1
        self.drive.set_point(point)

    # ---- activity --------------------------------------------------------------------------

    def _deactivate(self, session: Session, now_ns: int) -> None:
        if self._active.pop(session.key, None) is None:
            return
        if self._active:
            self._merge()
        elif self.config.idle.action != "hold":
            self._idle_at_ns = now_ns + self.config.idle.after_ms * 1_000_000

    def _drop(self, session: Session, now_ns: int) -> None:
        self.sessions.remove(session)
        if self.shadow is not None:
            self.shadow.forget(session.key)
        self._deactivate(session, now_ns)

    def _go_idle(self) -> None:
        if self.config.idle.action == "release":
            self.point = None
            self.drive.release()
            return
        lowest = self.view.attainable
        self._hand_over(
            OperatingPoint(
                lowest.cpu_hz[0] if lowest.cpu_hz else 0, lowest.gpu_hz[0] if lowest.gpu_hz else 0
            )
        )

    @property
    def active(self) -> int:
        """Number of active sessions."""
        return len(self._active)
