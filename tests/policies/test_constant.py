import math

import pytest

from estimators.errors import PolicyError
from policies.base import Attainable, BoardView, Job, OperatingPoint, Policy
from policies.constant import FixedPolicy, MaxPolicy, PowersavePolicy
from tests.estimators.tables import CPU_HZ, GPU_HZ, make_table

TABLE = make_table()
ALL = BoardView(Attainable(CPU_HZ, GPU_HZ), emc_hz=2_133_000_000)
CAPPED = BoardView(Attainable(CPU_HZ[1:3], GPU_HZ[1:2]), emc_hz=2_133_000_000)


def _expected(point: OperatingPoint, context: int = 1) -> float:
    return TABLE.latency_at(*point, emc_hz=2_133_000_000, context=context)


def test_max_is_the_highest_attainable() -> None:
    policy: Policy = MaxPolicy()
    decision = policy.decide(Job(TABLE, 1e6, 46), ALL)
    assert decision.point == (CPU_HZ[3], GPU_HZ[2])
    assert decision.predicted_us == _expected(OperatingPoint(CPU_HZ[3], GPU_HZ[2]), 46)
    assert decision.feasible
    assert policy.decide(Job(TABLE, 1e6), CAPPED).point == (CPU_HZ[2], GPU_HZ[1])


def test_powersave_is_the_lowest_attainable() -> None:
    policy: Policy = PowersavePolicy()
    assert policy.decide(Job(TABLE, 1e6), ALL).point == (CPU_HZ[0], GPU_HZ[0])
    assert policy.decide(Job(TABLE, 1e6), CAPPED).point == (CPU_HZ[1], GPU_HZ[1])


@pytest.mark.parametrize(
    ("wanted", "point", "reason"),
    [
        ((CPU_HZ[1], GPU_HZ[1]), (1, 1), "fixed clocks"),
        ((CPU_HZ[1] + 1, GPU_HZ[1]), (2, 1), "fixed clocks, cpu raised to 1420800000 Hz"),
        ((CPU_HZ[1] - 1, GPU_HZ[1]), (1, 1), "fixed clocks, cpu raised to 729600000 Hz"),
        ((CPU_HZ[3], 9_999_999_999), (3, 2), "fixed clocks, gpu clamped to 1300500000 Hz"),
        ((0, 0), (0, 0), "fixed clocks"),
    ],
)
def test_fixed_takes_the_nearest_not_below(
    wanted: tuple[int, int], point: tuple[int, int], reason: str
) -> None:
    policy: Policy = FixedPolicy(cpu_hz=wanted[0], gpu_hz=wanted[1])
    decision = policy.decide(Job(TABLE, 1e6), ALL)
    assert decision.point == (CPU_HZ[point[0]], GPU_HZ[point[1]])
    assert decision.reason == reason


def test_fixed_under_a_limit_says_so() -> None:
    decision = FixedPolicy(cpu_hz=CPU_HZ[3], gpu_hz=GPU_HZ[2]).decide(Job(TABLE, 1e6), CAPPED)
    assert decision.point == (CPU_HZ[2], GPU_HZ[1])
    assert decision.reason.count("clamped to") == 2


def test_fixed_refuses_negative_clocks() -> None:
    with pytest.raises(PolicyError, match="option gpu_hz must be 0 or more: it is -1"):
        FixedPolicy(gpu_hz=-1)


@pytest.mark.parametrize("policy", [MaxPolicy(), PowersavePolicy(), FixedPolicy(gpu_hz=5)])
def test_what_is_late_is_told(policy: Policy) -> None:
    assert not policy.decide(Job(TABLE, 10.0), ALL).feasible


@pytest.mark.parametrize("policy", [MaxPolicy(), PowersavePolicy(), FixedPolicy(gpu_hz=5)])
def test_a_missing_domain_is_not_ours_to_set(policy: Policy) -> None:
    decision = policy.decide(Job(TABLE, 1e6), BoardView(Attainable(CPU_HZ, ())))
    assert decision.point is not None
    assert decision.point.gpu_hz == 0
    assert decision.feasible
    assert policy.decide(Job(TABLE, 1e6), BoardView(Attainable((), ()))).point == (0, 0)


def test_a_clock_that_the_table_lacks_promises_nothing() -> None:
    decision = MaxPolicy().decide(Job(TABLE, 1e6), BoardView(Attainable((5,), (6,))))
    assert decision.point == (5, 6)
    assert math.isnan(decision.predicted_us)
    assert not decision.feasible
    assert decision.reason == "highest clocks, not in table"


@pytest.mark.parametrize("policy", [MaxPolicy(), PowersavePolicy(), FixedPolicy()])
def test_the_rest_of_the_contract(policy: Policy) -> None:
    assert policy.tick(ALL) is None
    assert policy.stats() == {}
    assert policy.scope == "session"
