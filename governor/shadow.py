"""A second policy that decides along without touching a clock, and what it would have done.

It sees the same jobs, board and outcomes as the policy in force. Outcomes were measured at the
other's operating points, so what it would have been late on is a prediction: its own, or, if it has
none, that of the policy in force.
"""

import math
from collections.abc import Callable
from typing import Any

from governor.guard import Guard, decided, predicted
from governor.sessions import Key, Session
from policies.base import BoardView, Decision, Job, OperatingPoint, Outcome, Policy


class Shadow:
    """Asks a policy about each finished job and adds up its answers.

    Args:
        name: Name of the policy.
        make: Makes an instance, one per session or one for the board.

    Attributes:
        name: Name of the policy.
        guard: Calls into it.
    """

    def __init__(self, name: str, make: Callable[[], Policy]) -> None:
        self.name, self.guard = name, Guard(f"shadow policy {name}")
        self._make = make
        first = make()
        self._shared = first if first.scope == "board" else None
        self._own: dict[Key, Policy] = {}
        self._jobs = self._same = self._left = self._late = self._known = 0
        self._sums = [0.0] * 4

    def look(self, session: Session, job: Job, view: BoardView, outcome: Outcome) -> None:
        """Ask about a job that has just ended, then let the policy learn from it."""
        self.guard.call(self._look, session, job, view, outcome)

    def _look(self, session: Session, job: Job, view: BoardView, outcome: Outcome) -> None:
        policy = self._shared or self._own.get(session.key)
        if policy is None:
            policy = self._own[session.key] = self._make()
        decision = decided(policy, job, view)
        policy.observe(outcome)
        self._count(session, job, view, decision)

    def forget(self, key: Key) -> None:
        """Drop what belongs to a session that has ended."""
        self._own.pop(key, None)

    def report(self) -> dict[str, Any]:
        """Tell what it would have done, beside what was done; None where nothing is known."""
        chosen = self._jobs - self._left
        mean = [total / chosen if chosen else None for total in self._sums]
        return {
            "policy": self.name,
            "jobs": self._jobs,
            "same_point": self._same,
            "left_to_board": self._left,
            "predicted_late": self._late,
            "predicted": self._known,
            "mean_cpu_hz": mean[0],
            "mean_gpu_hz": mean[1],
            "in_force_mean_cpu_hz": mean[2],
            "in_force_mean_gpu_hz": mean[3],
            "errors": self.guard.errors,
        }

    def _count(self, session: Session, job: Job, view: BoardView, decision: Decision) -> None:
        self._jobs += 1
        point = decision.point
        if point is None:
            self._left += 1
            return
        real = session.decision
        in_force = real.point if real and real.point else view.point or OperatingPoint(0, 0)
        self._same += point == in_force
        for index, hz in enumerate((*point, *in_force)):
            self._sums[index] += hz
        predicted_us = decision.predicted_us
        if not math.isfinite(predicted_us):
            predicted_us = predicted(session.policy, job, point, view.emc_hz)
        if math.isfinite(predicted_us):
            self._known += 1
            self._late += predicted_us > job.deadline_us
