"""Eqs. 10-11 against numbers worked out by hand."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.corrector import FLOOR_RATIO, Corrector, CorrectorMode

RAW_US = 1000.0


def _remaining(mode: CorrectorMode, updates: int, **options: Any) -> list[float]:
    """Share of a constant bias of 300 us that is left after each window of ten jobs."""
    corrector = Corrector(mode, **options)
    shares = []
    for _ in range(updates):
        for _ in range(10):
            corrector.observe(RAW_US, RAW_US + 300.0)
        shares.append((RAW_US + 300.0 - corrector.apply(RAW_US)) / 300.0)
    return shares


def test_raw_halves_and_more_towards_zero() -> None:
    assert _remaining("raw", 3) == pytest.approx([0.4, 0.16, 0.064])


def test_cumulative_swings_through_zero() -> None:
    # delta: .6, .48, .144, -.0768, -.11904; shift: .6, 1.08, 1.224, 1.1472, 1.02816
    assert _remaining("cumulative", 5) == pytest.approx([0.4, -0.08, -0.224, -0.1472, -0.02816])


def test_self_learns_half_the_bias() -> None:
    shares = _remaining("self", 40)
    assert shares[:3] == pytest.approx([0.4, 0.52, 0.496])
    assert shares[-1] == pytest.approx(0.5)


@pytest.mark.parametrize("alpha", [0.1, 0.6, 0.9])
def test_only_self_is_biased_in_the_end_whatever_alpha(alpha: float) -> None:
    assert _remaining("self", 200, alpha=alpha)[-1] == pytest.approx(0.5, abs=1e-3)
    assert _remaining("raw", 200, alpha=alpha)[-1] == pytest.approx(0.0, abs=1e-3)
    assert _remaining("cumulative", 200, alpha=alpha)[-1] == pytest.approx(0.0, abs=1e-3)


def test_eq_10_is_a_mean_over_one_window_only() -> None:
    corrector = Corrector(alpha=1.0, window=4)
    for error in (10.0, -20.0, 30.0, 60.0):
        corrector.observe(RAW_US, RAW_US + error)
    assert corrector.offset_us == pytest.approx(20.0)
    for error in (1.0, 2.0, 3.0, 6.0):  # nothing of the first window is left
        corrector.observe(RAW_US, RAW_US + error)
    assert corrector.offset_us == pytest.approx(3.0)


def test_one_update_per_ten_jobs() -> None:
    corrector = Corrector()
    updated = [corrector.observe(RAW_US, RAW_US + 100.0) for _ in range(30)]
    assert [i for i, yes in enumerate(updated) if yes] == [9, 19, 29]


def test_the_shift_stands_still_within_a_window() -> None:
    corrector = Corrector()
    for _ in range(9):
        corrector.observe(RAW_US, 5000.0)
        assert corrector.offset_us == 0.0


@pytest.mark.parametrize("mode", ["raw", "cumulative", "self"])
def test_errors_of_several_points_are_shared(mode: CorrectorMode) -> None:
    corrector = Corrector(mode, window=2, alpha=1.0)
    corrector.observe(100.0, 110.0)
    corrector.observe(10_000.0, 10_030.0)
    assert corrector.offset_us == pytest.approx(20.0)
    assert corrector.apply(500.0) == pytest.approx(520.0)


@pytest.mark.parametrize("mode", ["raw", "cumulative", "self"])
def test_reset_forgets_all(mode: CorrectorMode) -> None:
    corrector, fresh = Corrector(mode), Corrector(mode)
    for _ in range(15):  # one update and half a window
        corrector.observe(RAW_US, 1700.0)
    corrector.reset()
    for measured in itertools.repeat(900.0, 20):
        assert corrector.observe(RAW_US, measured) == fresh.observe(RAW_US, measured)
    assert corrector.offset_us == fresh.offset_us != 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_nonsense_is_not_learned(bad: float) -> None:
    corrector = Corrector(window=1)
    assert not corrector.observe(RAW_US, bad)
    assert not corrector.observe(bad, RAW_US)
    assert corrector.offset_us == 0.0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mode": "median"}, "corrector"),
        ({"window": 0}, "window"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.01}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Corrector(**options)


def test_alpha_of_one_is_allowed() -> None:
    assert _remaining("raw", 1, alpha=1.0) == pytest.approx([0.0])


def test_a_shift_learned_at_a_slow_point_does_not_sink_a_fast_one() -> None:
    corrector = Corrector(window=1, alpha=1.0)
    corrector.observe(90_000.0, 50_000.0)
    assert corrector.offset_us == -40_000.0
    assert corrector.apply(90_000.0) == 50_000.0
    assert corrector.apply(20_000.0) == 20_000.0 * FLOOR_RATIO


positive = st.floats(1.0, 1e7)


@settings(deadline=None)
@given(positive, positive, st.lists(positive, min_size=2, max_size=8), st.floats(1.0, 1e7))
def test_corrected_values_are_positive_ordered_and_match_the_limit(
    learned_raw: float, measured: float, raws: list[float], limit: float
) -> None:
    corrector = Corrector(window=1, alpha=1.0)
    corrector.observe(learned_raw, measured)
    corrected = [corrector.apply(raw) for raw in sorted(raws)]
    assert corrected[0] > 0.0
    assert corrected == sorted(corrected)
    for raw in raws:
        if not math.isclose(corrector.apply(raw), limit, rel_tol=1e-6):
            in_time = corrector.apply(raw) <= limit
            assert (raw <= corrector.raw_limit_us(limit)) == in_time
