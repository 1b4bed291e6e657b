"""The demo's application: an ordinary client of the governor, on a simulated board.

Started as a process of its own (``python -I -m bench.demo_app``): it reads an order from its
standard input and writes one record per line, as JSON, to its standard output.
"""

import sys
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Protocol

import msgspec

from bench.demo_plan import Farewell, JobRecord, Order, Record, Step, StepRecord
from bench.plant.liveclient import LiveClient
from bench.plant.livewire import Energy, Ran, State
from governor.client import Client, Session, connect

WARM_UP_JOBS = 3
"""Jobs before the first one that counts, as an application warms its model up."""


SETTLE_S = 10.0


class Board(Protocol):
    """What the application uses of the simulated board."""

    def run(self, workload: str, *, context: int = 0) -> Ran:
        """Run one job and wait for its end."""

    def energy(self) -> Energy:
        """Tell the true energy up to now."""

    def state(self) -> State:
        """Tell clocks, power and temperatures."""


Emit = Callable[[Record], None]


def play(steps: list[Step], gov: Client, board: Board, emit: Emit) -> None:
    """Run all steps: a session per model, a job per deadline."""
    for (model, phase), group in groupby(enumerate(steps), key=lambda s: (s[1].model, s[1].phase)):
        mine = list(group)
        first = mine[0][1]
        deadline_ns = first.deadline_us * 1000
        with gov.session(
            model, deadline=deadline_ns, period=deadline_ns, phase=phase, context=first.context
        ) as session:
            for _ in range(WARM_UP_JOBS):
                board.run(model, context=first.context)
            settle(gov)
            _play_model(mine, session, board, emit)


def settle(gov: Client) -> None:
    """Wait until the clocks that the daemon wants are in force.

    A plain-file tree shows ``userspace/set_freq`` only after the simulated kernel has run; on a
    busy machine the daemon may have to look for it again. The demo counts from when it is in
    control.

    Raises:
        TimeoutError: That does not happen.
    """
    end_s = time.monotonic() + SETTLE_S
    while time.monotonic() < end_s:
        point = (gov.status() or {}).get("point", {})
        if all(point.get(f"wanted_{d}_hz") == point.get(f"{d}_hz") for d in ("cpu", "gpu")):
            return
        time.sleep(0.02)
    raise TimeoutError(f"the daemon did not reach the clocks it wants within {SETTLE_S:g} s")


def _play_model(mine: list[tuple[int, Step]], session: Session, board: Board, emit: Emit) -> None:
    release_ns = time.monotonic_ns()
    before = board.energy()
    for position, (index, step) in enumerate(mine):
        for job in range(step.jobs):
            _sleep_until(release_ns)
            emit(_one(index, step, job, session, board))
            if job == step.jobs - 1 and position + 1 < len(mine):
                _announce(session, mine[position + 1][1])
            # The rate is kept: after a job that overran, the next one starts at once.
            release_ns += step.deadline_us * 1000
        _sleep_until(release_ns)
        now = board.energy()
        spent_mj = now.total_mj - before.total_mj
        temp_c = max(board.state().temp_mc.values()) / 1000
        emit(StepRecord(index, before.now_ns, now.now_ns, spent_mj, temp_c))
        before = now


def _announce(session: Session, step: Step) -> None:
    """Tell the next deadline as soon as it is known: the clocks then move between two jobs."""
    deadline_ns = step.deadline_us * 1000
    session.update(deadline=deadline_ns, period=deadline_ns, context=step.context)


def _one(index: int, step: Step, job: int, session: Session, board: Board) -> JobRecord:
    context = step.context_of(job)
    number = session.begin(context=context)
    ran = board.run(step.model, context=context)
    session.end(number, start_ns=ran.start_ns, end_ns=ran.end_ns)
    return JobRecord(
        step=index,
        start_ns=ran.start_ns,
        latency_us=ran.latency_us,
        cpu_hz=ran.end[0],
        gpu_hz=ran.end[1],
    )


def _sleep_until(moment_ns: int) -> None:
    while (left_ns := moment_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def main() -> int:
    """Follow the order on standard input; returns the exit code."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)

    def emit(record: Record) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
        sys.stdout.buffer.flush()

    with (
        connect(order.address, strict=True, timeout="2s") as gov,
        LiveClient(Path(order.board)) as board,
    ):
        play(order.steps, gov, board, emit)
        emit(Farewell(gov.stats.dropped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
