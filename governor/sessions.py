"""Sessions: who asked for what, and how its jobs went. No I/O, no decisions.

A session belongs to one connection. It is *active* while a job is open and for three periods after.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from estimators.table import LatencyTable
from governor.messages import Code
from policies.base import Decision, Job, Policy

ACTIVE_PERIODS = 3
DEFAULT_PERIOD_NS = 1_000_000_000
"""Period assumed until two jobs, a period or a deadline tell better."""

MAX_PERIOD_NS = 10_000_000_000
"""A longer gap is a break, not a period."""

Key = tuple[bytes, int]
"""Connection identity and the session number its client chose."""


class RefusedError(Exception):
    """A request that is well formed but cannot be done; answered, never fatal.

    Args:
        code: Error code of the wire protocol.
        reason: One line: what and what to do.
        field: Path of the field at fault, if one is.
    """

    def __init__(self, code: Code, reason: str, field: str = "") -> None:
        self.code, self.reason, self.field = code, reason, field
        super().__init__(code, reason, field)


class Plan(NamedTuple):
    """A job and what was decided for it; kept, since the same few come again and again."""

    job: Job
    decision: Decision


@dataclass(slots=True)
class Counters:
    """What happened to the jobs of a session.

    Attributes:
        jobs: Jobs that ended with a time.
        late: Those over their deadline.
        infeasible: Jobs begun although no attainable point was on time.
        aborted: Jobs ended without a time.
        dropped: Messages out of order: begin after end, end without begin, job without end.
    """

    jobs: int = 0
    late: int = 0
    infeasible: int = 0
    aborted: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Session:
    """One application's stream of jobs of one model.

    Attributes:
        key: Connection and number.
        table: Latency table of the model.
        policy: Decides for this session.
        name: Label given by the application.
        deadline_us: Last deadline told; None before the first.
        context: Tokens in the context of the next job.
        period_ns: Declared period, or None to learn it.
        plan: Plan in force; None before the first.
        plans: Plans by deadline and context that still hold.
        job: The open job; None between jobs.
        last_job: Highest job number begun, that of the open job; -1 before the first.
        last_begin_ns: Start of the job before, to learn the period.
        active_until_ns: When the session stops counting.
        latency_us: Time of the last job.
    """

    key: Key
    table: LatencyTable
    policy: Policy
    name: str = ""
    deadline_us: float | None = None
    context: int = 0
    period_ns: int | None = None
    plan: Plan | None = None
    plans: dict[tuple[float, int], Plan] = field(default_factory=dict)
    job: Job | None = None
    last_job: int = -1
    last_begin_ns: int = 0
    learnt_period_ns: int = 0
    active_until_ns: int = 0
    latency_us: float | None = None
    counters: Counters = field(default_factory=Counters)

    @property
    def grows(self) -> bool:
        """Whether each job adds a token to the context."""
        return self.table.header.phase == "decode"

    def linger_ns(self) -> int:
        """Tell how long the session stays active after a job, ns."""
        deadline_ns = int((self.deadline_us or 0) * 1000)
        period_ns = self.period_ns or self.learnt_period_ns
        return ACTIVE_PERIODS * (max(period_ns, deadline_ns) or DEFAULT_PERIOD_NS)

    @property
    def decision(self) -> Decision | None:
        """Newest decision; None before the first."""
        return self.plan.decision if self.plan else None

    def begin(self, job_id: int, start_ns: int) -> None:
        """Note that a job begins.

        Raises:
            RefusedError: The number is not above that of every job before.
        """
        if job_id <= self.last_job:
            self.counters.dropped += 1
            raise RefusedError(
                Code.ORDER, f"job {job_id} does not follow job {self.last_job}", "$.job"
            )
        if self.job is not None:
            # Its end was lost on the way; waiting for it would wedge the session.
            self.counters.dropped += 1
        elif self.last_begin_ns:
            self._learn_period(start_ns - self.last_begin_ns)
        self.last_job, self.last_begin_ns = job_id, start_ns

    def end(self, job_id: int) -> Job:
        """Take the open job.

        Raises:
            RefusedError: No such job is open.
        """
        job = self.job
        if job is None or job_id != self.last_job:
            self.counters.dropped += 1
            raise RefusedError(Code.ORDER, f"job {job_id} was not begun", "$.job")
        self.job = None
        return job

    def _learn_period(self, gap_ns: int) -> None:
        if 0 < gap_ns <= MAX_PERIOD_NS:
            old = self.learnt_period_ns or gap_ns
            self.learnt_period_ns = (3 * old + gap_ns) // 4


@dataclass(slots=True)
class Peer:
    """One connection.

    Attributes:
        address: Credentials of the other end, ``uid:gid:pid``; empty if unknown.
        last_seen_ns: When it last sent anything.
        sessions: Its sessions by number.
    """

    address: str
    last_seen_ns: int
    sessions: dict[int, Session] = field(default_factory=dict)


class SessionTable:
    """All sessions of all peers, within limits.

    Args:
        total: Sessions in all.
        per_peer: Sessions of one process.
    """

    def __init__(self, *, total: int, per_peer: int) -> None:
        self.total, self.per_peer = total, per_peer
        self.peers: dict[bytes, Peer] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Session]:
        """Walk through all sessions."""
        for peer in self.peers.values():
            yield from peer.sessions.values()

    def check(self, identity: bytes, number: int, address: str) -> None:
        """Ask whether a session may be opened.

        A process counts as one peer however often it connects, where its address is known.

        Raises:
            RefusedError: The number is taken, or a limit is reached.
        """
        peer = self.peers.get(identity)
        if peer and number in peer.sessions:
            raise RefusedError(
                Code.DUPLICATE_SESSION, f"session {number} is open already", "$.session"
            )
        if self._held_by(identity, address) >= self.per_peer:
            raise RefusedError(
                Code.LIMIT, f"{self.per_peer} sessions per process are open; close one"
            )
        if self.count >= self.total:
            raise RefusedError(
                Code.LIMIT, f"{self.total} sessions are open; raise limits.sessions or close some"
            )

    def _held_by(self, identity: bytes, address: str) -> int:
        return sum(
            len(peer.sessions)
            for key, peer in self.peers.items()
            if key == identity or (address and peer.address == address)
        )

    def add(self, session: Session, address: str, now_ns: int) -> None:
        """Admit a session that passed :meth:`check`."""
        identity, number = session.key
        peer = self.peers.get(identity)
        if peer is None:
            peer = self.peers[identity] = Peer(address, now_ns)
        peer.sessions[number] = session
        self.count += 1

    def get(self, identity: bytes, number: int, now_ns: int) -> Session:
        """Find a session and renew its lease.

        Raises:
            RefusedError: There is none: the client must open it again.
        """
        peer = self.peers.get(identity)
        session = peer.sessions.get(number) if peer else None
        if peer is None or session is None:
            raise RefusedError(Code.REOPEN, f"session {number} is not open here", "$.session")
        peer.last_seen_ns = now_ns
        return session

    def touch(self, identity: bytes, now_ns: int) -> None:
        """Renew the lease of a peer, if it has sessions."""
        peer = self.peers.get(identity)
        if peer is not None:
            peer.last_seen_ns = now_ns

    def remove(self, session: Session) -> None:
        """Forget a session, and its peer with its last one."""
        identity, number = session.key
        peer = self.peers[identity]
        del peer.sessions[number]
        self.count -= 1
        if not peer.sessions:
            del self.peers[identity]

    def silent_since(self, moment_ns: int) -> list[Session]:
        """List the sessions whose peer was last heard before a moment."""
        return [
            session
            for peer in self.peers.values()
            if peer.last_seen_ns < moment_ns
            for session in peer.sessions.values()
        ]
