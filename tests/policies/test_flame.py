"""The flame policy against a plain reading of Eqs. 13-14 that shares no code with it."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.errors import PolicyError
from estimators.table import LatencyTable, TableHeader
from policies.base import Attainable, BoardView, Decision, Job, OperatingPoint, Outcome
from policies.flame import FlamePolicy

# Few distinct values, exact in binary, make ties, plateaus, bumps and exact hits common.
LEVELS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
MARGINS = (0.0, 0.25, 1.0)  # 1 + margin divides the deadlines below exactly, or they are far apart


@st.composite
def tables(draw: st.DrawFn) -> LatencyTable:
    emc = draw(st.sampled_from([[0], [200], [200, 600, 2000]]))
    context = draw(st.sampled_from([[0], [1, 5], [1, 5, 13]]))
    cpu = draw(st.lists(st.integers(1, 8), min_size=1, max_size=5, unique=True).map(sorted))
    gpu = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True).map(sorted))
    shape = (len(emc), len(context), len(cpu), len(gpu))
    count = math.prod(shape)
    values = draw(st.lists(st.sampled_from(LEVELS), min_size=count, max_size=count))
    cells = np.array(values).reshape(shape)
    if draw(st.booleans()):  # half of them nearly monotone, as measured ones are
        cells = np.flip(np.sort(np.sort(cells, axis=2), axis=3), axis=(2, 3)).copy()
        bump = tuple(draw(st.integers(0, n - 1)) for n in shape)
        cells[bump] = draw(st.sampled_from(LEVELS))
    axes = (np.array(axis) for axis in (emc, context, cpu, gpu))
    return LatencyTable(TableHeader(), *axes, cells)


clocks = st.lists(st.integers(1, 9), max_size=6, unique=True).map(sorted).map(tuple)


def latency_by_hand(table: LatencyTable, emc_hz: int, context: int, c: int, g: int) -> float:
    """Slower memory neighbour, then linear between context knots, clamped outside."""
    slower = [i for i, hz in enumerate(table.emc_hz.tolist()) if hz <= emc_hz]
    plane = table.latency_us[slower[-1] if slower else 0, :, c, g]
    return float(np.interp(context, table.context, plane.astype(np.float64)))


class _Search:
    """Eqs. 13-14 by brute force over every cell."""

    def __init__(self, job: Job, view: BoardView, limit_us: float) -> None:
        table, live = job.table, view.attainable
        self.cpu = self._axis(table.cpu_hz.tolist(), live.cpu_hz)
        self.gpu = self._axis(table.gpu_hz.tolist(), live.gpu_hz)
        self.t = {
            (c, g): latency_by_hand(table, view.emc_hz, job.context, c, g)
            for c in range(len(table.cpu_hz))
            for g in range(len(table.gpu_hz))
        }
        caps = [
            i for i, hz in enumerate(table.cpu_hz.tolist()) if hz <= max(live.cpu_hz, default=0)
        ]
        self.top = max(caps, default=0) if live.cpu_hz else 0
        self.limit_us = limit_us

    @staticmethod
    def _axis(table_hz: list[int], live_hz: tuple[int, ...]) -> list[tuple[int, int]]:
        """Index in the table and clock to ask for, of what may be chosen."""
        if not live_hz:
            return [(0, 0)]
        return [(i, hz) for i, hz in enumerate(table_hz) if hz in live_hz]

    def greedy(self) -> tuple[OperatingPoint, float] | None:
        refused: set[int] = set()
        while True:
            eq13 = [
                g for g, _ in self.gpu if g not in refused and self.t[self.top, g] <= self.limit_us
            ]
            if not eq13:
                return None
            g = min(eq13)
            eq14 = [c for c, _ in self.cpu if self.t[c, g] <= self.limit_us]
            if eq14:
                c = min(eq14)
                return OperatingPoint(dict(self.cpu)[c], dict(self.gpu)[g]), self.t[c, g]
            refused.add(g)  # raise f_g

    def fastest_us(self) -> float:
        return min(self.t[c, g] for c, _ in self.cpu for g, _ in self.gpu)


def assert_is(decision: Decision, search: _Search) -> None:
    if not (search.cpu and search.gpu):
        assert decision.point is None
        assert not decision.feasible
        assert math.isnan(decision.predicted_us)
        assert "no attainable clock" in decision.reason
        return
    found = search.greedy()
    assert decision.point is not None
    if found is not None:
        assert (decision.point, decision.feasible) == (found[0], True)
        assert decision.predicted_us == pytest.approx(found[1])
        assert decision.reason.startswith("greedy")
        return
    c = next(i for i, hz in search.cpu if hz == decision.point.cpu_hz)
    g = next(i for i, hz in search.gpu if hz == decision.point.gpu_hz)
    assert search.t[c, g] == pytest.approx(search.fastest_us())
    assert decision.predicted_us == pytest.approx(search.fastest_us())
    assert decision.feasible == (search.fastest_us() <= search.limit_us)
    assert decision.reason.startswith("fastest" if decision.feasible else "infeasible: fastest")


@settings(max_examples=300, deadline=None)
@given(
    table=tables(),
    live=st.builds(Attainable, clocks, clocks),
    emc_hz=st.sampled_from([0, 100, 200, 500, 600, 2500]),
    contexts=st.lists(st.integers(0, 15), min_size=1, max_size=3),
    margin=st.sampled_from(MARGINS),
    limit_us=st.sampled_from([0.5, 1.0, 1.25, 2.0, 2.4, 3.0, 3.3, 5.0, 100.0]),
)
def test_is_brute_force(
    table: LatencyTable,
    live: Attainable,
    emc_hz: int,
    contexts: list[int],
    margin: float,
    limit_us: float,
) -> None:
    policy = FlamePolicy(margin=margin)
    view = BoardView(live, emc_hz=emc_hz)
    for context in contexts:  # one instance: nothing kept from one decision may spoil the next
        job = Job(table, limit_us * (1.0 + margin), context)
        assert_is(policy.decide(job, view), _Search(job, view, limit_us))


@settings(max_examples=100, deadline=None)
@given(
    table=tables(),
    lives=st.lists(st.builds(Attainable, clocks, clocks), min_size=2, max_size=4),
    limit_us=st.sampled_from([1.0, 2.0, 3.0, 5.0]),
)
def test_follows_the_limits_as_they_move(
    table: LatencyTable, lives: list[Attainable], limit_us: float
) -> None:
    policy = FlamePolicy(margin=0.0)
    for live in (*lives, lives[0]):
        view, job = BoardView(live), Job(table, limit_us)
        assert_is(policy.decide(job, view), _Search(job, view, limit_us))


CPU, GPU = (100, 200, 300), (10, 20, 30)
ALL = BoardView(Attainable(CPU, GPU))


def _table(cells: Any, cpu: Any = CPU, gpu: Any = GPU, context: Any = (0,)) -> LatencyTable:
    shape = (1, len(context), len(cpu), len(gpu))
    values = np.array(cells, dtype=float).reshape(shape)
    axes = (np.array(axis) for axis in ((0,), context, cpu, gpu))
    return LatencyTable(TableHeader(), *axes, values)


# CPU clocks down, GPU clocks across.
PLAIN = _table([[90, 60, 50], [80, 45, 35], [70, 40, 30]])


def _decide(table: LatencyTable, deadline_us: float, view: BoardView = ALL, **options: Any) -> Any:
    return FlamePolicy(**{"margin": 0.0, **options}).decide(Job(table, deadline_us), view)


def test_the_papers_two_steps() -> None:
    assert _decide(PLAIN, 45.0) == ((200, 20), 45.0, True, "greedy")
    assert _decide(PLAIN, 44.0) == ((300, 20), 40.0, True, "greedy")
    assert _decide(PLAIN, 90.0) == ((100, 10), 90.0, True, "greedy")


def test_a_bump_in_the_table_is_not_trusted_to_be_a_slope() -> None:
    bumpy = _table([[50, 90, 90], [90, 60, 90], [40, 80, 30]])
    assert _decide(bumpy, 55.0).point == (100, 10), "200 MHz is slower than 100 MHz here"
    assert _decide(bumpy, 39.0).point == (300, 30)


def test_minima_of_two_contexts_are_not_minima_between_them() -> None:
    # Running minima at the knots are 2 2 2 and 9 2 2: half-way they promise 2 at the middle clock,
    # which takes (9 + 2) / 2 there.
    table = _table([[[2], [9], [3]], [[9], [2], [3]]], gpu=(10,), context=(0, 10))
    view = BoardView(Attainable(CPU, (10,)))
    policy = FlamePolicy(margin=0.0)
    assert policy.decide(Job(table, 3.0, 0), view).point == (100, 10)
    assert policy.decide(Job(table, 3.0, 10), view).point == (200, 10)
    assert policy.decide(Job(table, 3.0, 5), view) == ((300, 10), 3.0, True, "greedy")


def test_the_cpu_limit_is_used_in_eq_13() -> None:
    # With 300 the GPU could stay at 10; the board allows 200, which needs GPU clock 20.
    table = _table([[90, 60, 50], [80, 45, 35], [44, 40, 30]])
    capped = BoardView(Attainable((100, 200), GPU))
    assert _decide(table, 45.0).point == (300, 10)
    assert _decide(table, 45.0, capped).point == (200, 20)


def test_f_g_is_raised_when_eq_14_comes_out_empty() -> None:
    # The limit is 300, but the board does not offer 300 itself (its list is another one).
    odd = BoardView(Attainable((100, 200, 310), GPU))
    assert _decide(PLAIN, 70.0).point == (300, 10)
    assert _decide(PLAIN, 70.0, odd).point == (100, 20)


def test_infeasible_means_the_fastest_point_not_the_highest_clocks() -> None:
    table = _table([[90, 60, 50], [80, 45, 25], [70, 40, 30]])
    assert _decide(table, 20.0) == ((200, 30), 25.0, False, "infeasible: fastest point")
    capped = BoardView(Attainable(CPU, (10, 20)))
    assert _decide(table, 20.0, capped) == ((300, 20), 40.0, False, "infeasible: fastest point")


def test_a_point_in_time_that_eq_13_cannot_see_is_feasible_all_the_same() -> None:
    table = _table([[90, 60, 50], [80, 45, 25], [70, 40, 30]])
    assert _decide(table, 27.0) == ((200, 30), 25.0, True, "fastest point")


def test_among_equally_fast_points_the_lowest_clocks() -> None:
    assert _decide(_table(np.full(9, 5.0)), 1.0).point == (100, 10)
    corners = _table([[9, 9, 5], [9, 9, 9], [5, 9, 9]])
    assert _decide(corners, 1.0).point == (300, 10), "the GPU counts first, as in Eq. 13"


@pytest.mark.parametrize("deadline", [math.nan, -1.0, 0.0, -math.inf])
def test_a_senseless_deadline_is_infeasible_not_an_error(deadline: float) -> None:
    assert _decide(PLAIN, deadline) == ((300, 30), 30.0, False, "infeasible: fastest point")


def test_no_deadline_at_all() -> None:
    assert _decide(PLAIN, math.inf).point == (100, 10)


def test_nothing_in_common_leaves_the_clocks_alone() -> None:
    decision = _decide(PLAIN, 50.0, BoardView(Attainable((111,), GPU)))
    assert decision.point is None
    assert not decision.feasible
    assert math.isnan(decision.predicted_us)


def test_a_board_and_table_without_gpu() -> None:
    table = _table([9, 6, 3], gpu=(0,))
    assert _decide(table, 6.5, BoardView(Attainable(CPU, ()))) == ((200, 0), 6.0, True, "greedy")
    assert _decide(table, 1.0, BoardView(Attainable(CPU, ()))).point == (300, 0)


def test_a_board_and_table_without_cpu_clocks() -> None:
    table = _table([9, 6, 3], cpu=(0,))
    assert _decide(table, 6.5, BoardView(Attainable((), GPU))) == ((0, 20), 6.0, True, "greedy")


def test_a_table_that_leaves_the_gpu_to_the_board() -> None:
    assert _decide(_table([9, 6, 3], gpu=(0,)), 6.5).point == (200, 0)


def test_a_domain_that_the_board_lacks_is_planned_at_its_lowest_clock() -> None:
    assert _decide(PLAIN, 80.0, BoardView(Attainable(CPU, ()))).point == (200, 0)


def test_margin_scales_the_prediction() -> None:
    assert _decide(PLAIN, 48.0, margin=0.05).point == (200, 20)
    assert _decide(PLAIN, 47.0, margin=0.05).point == (300, 20)
    assert _decide(PLAIN, 48.0, margin=0.05).predicted_us == 45.0, "told without the margin"
    assert FlamePolicy().margin == 0.05


def test_remarks_on_what_the_table_does_not_hold() -> None:
    table = LatencyTable(
        TableHeader(),
        np.array([600, 2000]),
        np.array([1, 5]),
        np.array(CPU),
        np.array(GPU),
        np.stack([np.full((2, 3, 3), 9.0), np.full((2, 3, 3), 6.0)]),
    )
    policy = FlamePolicy()
    decision = policy.decide(Job(table, 100.0, 9), BoardView(Attainable(CPU, GPU), emc_hz=1000))
    assert decision.predicted_us == 9.0
    assert decision.reason == "greedy, memory clock not in table, context outside table"
    exact = policy.decide(Job(table, 100.0, 3), BoardView(Attainable(CPU, GPU), emc_hz=2000))
    assert (exact.predicted_us, exact.reason) == (6.0, "greedy")
    live = Attainable(CPU, GPU)
    views = [BoardView(live, emc_hz=emc_hz) for emc_hz in (600, 2000, 600)]
    assert [policy.decide(Job(table, 1.0), view).predicted_us for view in views] == [9.0, 6.0, 9.0]


# ---- learning -----------------------------------------------------------------------------------


def _outcome(latency_us: float, *, table: LatencyTable = PLAIN, **changes: Any) -> Outcome:
    outcome = Outcome(Job(table, 50.0), OperatingPoint(300, 30), 0, latency_us, mixed=False)
    return outcome._replace(**changes)


def test_learns_from_the_tables_value_where_the_job_ran() -> None:
    policy = FlamePolicy(margin=0.0)
    for _ in range(5):
        policy.observe(_outcome(40.0))
        policy.observe(_outcome(70.0, point=OperatingPoint(100, 20)))
    assert policy.stats() == {"offset_us": pytest.approx(6.0)}  # 0.6 of 10
    assert policy.decide(Job(PLAIN, 45.0), ALL) == ((200, 30), pytest.approx(41.0), True, "greedy")
    assert policy.decide(Job(PLAIN, 46.5), ALL).point == (300, 20)


@pytest.mark.parametrize("mode", ["raw", "cumulative", "self"])
def test_the_corrector_has_the_mode_asked_for(mode: str) -> None:
    left = {"raw": 0.16, "cumulative": -0.08, "self": 0.52}[mode]
    policy = FlamePolicy(corrector=mode)  # type: ignore[arg-type]  # one of the three
    for _ in range(20):
        policy.observe(_outcome(40.0))
    assert policy.stats()["offset_us"] == pytest.approx(10.0 * (1.0 - left))


def test_window_and_alpha_are_options() -> None:
    policy = FlamePolicy(window=2, alpha=1.0)
    policy.observe(_outcome(40.0))
    assert policy.stats()["offset_us"] == 0.0
    policy.observe(_outcome(40.0))
    assert policy.stats()["offset_us"] == 10.0


@pytest.mark.parametrize(
    "changes",
    [
        {"mixed": True},
        {"point": OperatingPoint(150, 30)},  # a clock that somebody else set
        {"latency_us": math.nan},
        {"latency_us": 0.0},
    ],
)
def test_what_teaches_nothing(changes: dict[str, Any]) -> None:
    policy = FlamePolicy(window=1)
    policy.observe(
        _outcome(40.0, **changes) if "latency_us" not in changes else _outcome(**changes)
    )
    assert policy.stats()["offset_us"] == 0.0


def test_correction_can_be_switched_off() -> None:
    policy = FlamePolicy(correction=False, window=1)
    policy.observe(_outcome(40.0))
    assert policy.stats()["offset_us"] == 0.0


def test_another_table_starts_from_nothing() -> None:
    policy, other = FlamePolicy(window=2, alpha=1.0), _table(np.full(9, 20.0))
    for _ in range(3):  # an update and half a window
        policy.observe(_outcome(40.0))
    assert policy.stats()["offset_us"] == 10.0
    policy.decide(Job(other, 50.0), ALL)
    assert policy.stats()["offset_us"] == 0.0
    policy.observe(_outcome(25.0, table=other))
    assert policy.stats()["offset_us"] == 0.0, "the half window of the old table counted"
    policy.observe(_outcome(25.0, table=other))
    assert policy.stats()["offset_us"] == 5.0


def test_new_limits_do_not_forget() -> None:
    policy = FlamePolicy(window=1, alpha=1.0)
    policy.observe(_outcome(40.0))
    policy.decide(Job(PLAIN, 50.0), ALL)
    policy.decide(Job(PLAIN, 50.0), BoardView(Attainable((100,), GPU)))
    assert policy.stats()["offset_us"] == 10.0


def test_instances_learn_apart() -> None:
    one, two = FlamePolicy(window=1), FlamePolicy(window=1)
    one.observe(_outcome(40.0))
    assert two.stats()["offset_us"] == 0.0


def test_predict() -> None:
    policy = FlamePolicy(window=1, alpha=1.0)
    job = Job(PLAIN, 50.0)
    assert policy.predict_us(job, OperatingPoint(200, 20), 0) == 45.0
    policy.observe(_outcome(40.0))
    assert policy.predict_us(job, OperatingPoint(200, 20), 0) == 55.0
    assert policy.predict_us(Job(_table(np.ones(9)), 1.0), OperatingPoint(200, 20), 0) == 1.0
    assert math.isnan(policy.predict_us(job, OperatingPoint(222, 20), 0))


@settings(max_examples=150, deadline=None)
@given(
    table=tables(),
    live=st.builds(Attainable, clocks, clocks),
    measured=st.lists(st.floats(0.5, 20.0), min_size=1, max_size=6),
    deadline=st.floats(0.3, 30.0),
)
def test_corrected_search_is_brute_force_on_corrected_values(
    table: LatencyTable, live: Attainable, measured: list[float], deadline: float
) -> None:
    policy = FlamePolicy(window=1, margin=0.05)
    point = OperatingPoint(int(table.cpu_hz[0]), int(table.gpu_hz[0]))
    for latency_us in measured:
        policy.observe(Outcome(Job(table, deadline), point, 0, latency_us, mixed=False))
    shift = policy.stats()["offset_us"]
    view, job = BoardView(live), Job(table, deadline)
    search = _Search(job, view, deadline / 1.05)
    search.t = {cell: max(raw + shift, 0.1 * raw) for cell, raw in search.t.items()}
    if any(math.isclose(t, search.limit_us, rel_tol=1e-9) for t in search.t.values()):
        return  # equal but for rounding: either answer is right
    decision = policy.decide(job, view)
    if decision.reason.startswith(("fastest", "infeasible")) and decision.point is not None:
        # The floor can make corrected values equal that the table tells apart; any is fastest.
        assert search.greedy() is None
        assert decision.predicted_us == pytest.approx(search.fastest_us())
        return
    assert_is(decision, search)


def test_the_longest_window_is_10000_jobs() -> None:
    assert FlamePolicy(window=10_000).window == 10_000


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"margin": -0.01}, "margin"),
        ({"margin": math.nan}, "margin"),
        ({"margin": math.inf}, "margin"),
        ({"window": 0}, "window"),
        ({"window": 10_001}, "window must be 10000 jobs or fewer: it is 10001"),
        ({"window": 10**9}, "window"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 2.0}, "alpha"),
        ({"corrector": "median"}, "corrector"),
    ],
)
def test_options_are_checked(options: dict[str, Any], word: str) -> None:
    with pytest.raises(PolicyError, match=word) as caught:
        FlamePolicy(**options)
    assert "\n" not in str(caught.value)
