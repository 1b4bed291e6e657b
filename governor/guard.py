"""Calls into policies: whatever a plug-in raises or answers, the daemon lives on.

Policies are other people's code. What one raises, ``SystemExit`` included, or answers against the
contract of ``policies/base.py`` is counted, logged and told in ``status``.
"""

import logging
from collections.abc import Callable
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from governor.errors import told
from governor.words import one_line, printable
from policies.base import BoardView, Decision, Job, OperatingPoint, Policy

log = logging.getLogger(__name__)

REASON_CHARS = 200
"""Longest reason that is passed on: every answer to an application carries it."""

CLOCK_LIMIT_HZ = 1 << 63
"""Clocks below it fit the messages; the actuator cuts them to the board's own."""


class AnswerError(TypeError):
    """A policy answered what the contract does not allow."""


class Guard:
    """Calls into one policy.

    Args:
        whose: What its faults are told of: ``"policy flame"``.
        since: Words after the number of faults.

    Attributes:
        errors: Times it raised, or answered against the contract.
        fault: What it did last; empty if nothing.
    """

    def __init__(self, whose: str, since: str = "") -> None:
        self.errors, self.fault = 0, ""
        self._whose, self._since = whose, since

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function with arguments; None if it raises."""
        try:
            return function(*args)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # This daemon must not die of a policy that calls sys.exit either.
            self.errors += 1
            what = str(error) if isinstance(error, AnswerError) else f"raised {told(error)}"
            fault = f"{self._whose} {what}"
            self.fault = f"{fault}; {self.errors} in all{self._since}"
            log.warning("%s", fault)
            return None

    def decide(self, policy: Policy, job: Job, view: BoardView) -> Decision | None:
        """Ask for a sound decision about a job; None if there is none."""
        decision: Decision | None = self.call(decided, policy, job, view)
        return decision

    def tick(self, policy: Policy, view: BoardView) -> Decision | None:
        """Ask for a sound decision without a job; None if there is none, or no opinion."""
        decision: Decision | None = self.call(_ticked, policy, view)
        return decision

    def stats(self, policy: Policy) -> dict[str, float]:
        """Ask for figures; none if they are no numbers."""
        return self.call(_stats, policy) or {}

    def predict_us(
        self, policy: Policy, job: Job, point: OperatingPoint, emc_hz: int
    ) -> float | None:
        """Ask for a latency, us; None if the policy fails."""
        latency_us: float | None = self.call(predicted, policy, job, point, emc_hz)
        return latency_us


def decided(policy: Policy, job: Job, view: BoardView) -> Decision:
    """Ask a policy about a job.

    Raises:
        AnswerError: The answer is no sound decision.
        BaseException: Whatever the policy raises.
    """
    return sound(policy.decide(job, view))


def predicted(policy: Policy, job: Job, point: OperatingPoint, emc_hz: int) -> float:
    """Ask a policy for a latency, us; nan if it is unknown. Raises as :func:`decided`."""
    return _real(policy.predict_us(job, point, emc_hz), "predict_us")


def sound(answer: Any) -> Decision:
    """Make a decision that the rest of the daemon can rely on out of what a policy answered.

    Args:
        answer: A Decision. Clocks may be integers of any kind (numpy's too), in any pair.

    Returns:
        The same with exact types: clocks of 0 or more, Hz, a printable reason.

    Raises:
        AnswerError: It is none, or one of its fields is not what the contract says.
    """
    if not isinstance(answer, Decision):
        raise AnswerError(f"returned {_kind(answer)} instead of a Decision")
    fields: tuple[Any, ...] = answer  # its types are a promise of other people's
    point, predicted_us, feasible, reason = fields
    if point is not None and not _exact(point):
        point = _point(point)
    if type(predicted_us) is not float:
        predicted_us = _real(predicted_us, "predicted_us")
    if type(feasible) is not bool:
        if not isinstance(feasible, np.bool_):
            raise AnswerError(f"returned a Decision whose feasible is {_kind(feasible)}, no bool")
        feasible = bool(feasible)
    if type(reason) is not str or len(reason) > REASON_CHARS or not reason.isprintable():
        reason = _reason(reason)
    return Decision(point, predicted_us, feasible, reason)


def _exact(point: Any) -> bool:
    """Tell whether a point is sound as it is, as it nearly always is."""
    if type(point) is not OperatingPoint:
        return False
    cpu_hz, gpu_hz = point
    if type(cpu_hz) is not int or type(gpu_hz) is not int:
        return False
    return 0 <= cpu_hz < CLOCK_LIMIT_HZ and 0 <= gpu_hz < CLOCK_LIMIT_HZ


def _point(pair: Any) -> OperatingPoint:
    try:
        cpu_hz, gpu_hz = pair
        cpu_hz, gpu_hz = index(cpu_hz), index(gpu_hz)
    except (TypeError, ValueError):
        raise AnswerError(
            f"returned a Decision whose point is no pair of whole clocks: {_shown(pair)}"
        ) from None
    if not (0 <= cpu_hz < CLOCK_LIMIT_HZ and 0 <= gpu_hz < CLOCK_LIMIT_HZ):
        raise AnswerError(f"returned a Decision with clocks out of range: {_shown(pair)}")
    return OperatingPoint(cpu_hz, gpu_hz)


def _real(value: Any, name: str) -> float:
    if not isinstance(value, Real):
        raise AnswerError(f"returned {_kind(value)} as {name}, no number (nan if unknown)")
    return float(value)


def _reason(reason: Any) -> str:
    if not isinstance(reason, str):
        raise AnswerError(f"returned a Decision whose reason is {_kind(reason)}, no str")
    return printable(str.__str__(reason)[:REASON_CHARS])[:REASON_CHARS]


def _ticked(policy: Policy, view: BoardView) -> Decision | None:
    answer = policy.tick(view)
    return None if answer is None else sound(answer)


def _stats(policy: Policy) -> dict[str, float]:
    return {one_line(str(key), 40): _real(value, "a stat") for key, value in policy.stats().items()}


def _kind(value: Any) -> str:
    return "None" if value is None else one_line(type(value).__name__, 60)


def _shown(value: Any) -> str:
    return one_line(repr(value), 100)
