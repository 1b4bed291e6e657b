"""QoS as the paper defines it, worked by hand."""

import math

import numpy as np
import pytest

from bench.qos import ppw, score
from estimators.errors import ProfileError


def test_early_jobs_pay_for_late_ones_in_the_run_figure_only() -> None:
    got = score([5_000.0, 15_000.0], 10_000.0)
    assert got.qos_run_pct == pytest.approx(100.0)
    assert got.qos_job_pct == pytest.approx(100 * (1 + 10 / 15) / 2)
    assert got.miss_pct == pytest.approx(50.0)


def test_slow_run_is_the_ratio_of_rates() -> None:
    got = score([10_000.0, 30_000.0], [10_000.0, 10_000.0])
    # r_a = 2 / 40 ms, r_d = 2 / 20 ms
    assert got.qos_run_pct == pytest.approx(50.0)
    assert got.jobs == 2


def test_a_job_that_ends_on_its_deadline_is_not_late() -> None:
    assert score([10.0, 10.0], 10.0).miss_pct == 0.0


def test_lateness_quantiles_keep_their_sign() -> None:
    got = score(np.linspace(9_000, 11_000, 101), 10_000)
    assert got.lateness_us["p50"] == pytest.approx(0.0, abs=1e-9)
    assert got.lateness_us["max"] == pytest.approx(1_000.0)
    assert got.lateness_us["p90"] == pytest.approx(800.0)


def test_longest_miss_run() -> None:
    assert score([2.0, 2.0, 1.0, 2.0, 2.0, 2.0, 1.0], 1.5).longest_miss_run == 3


def test_ppw() -> None:
    assert ppw(90.0, 30.0) == pytest.approx(3.0)
    assert ppw(90.0, None) is None
    assert ppw(90.0, 0.0) is None


@pytest.mark.parametrize(
    ("latency", "deadline", "word"),
    [
        ([], 1.0, "no jobs"),
        ([1.0, math.nan], 1.0, "latency"),
        ([1.0], 0.0, "deadline"),
        ([1.0], math.inf, "deadline"),
        ([1.0, 2.0], [1.0, 1.0, 1.0], "each job"),
    ],
)
def test_bad_input_is_one_line(latency: list[float], deadline: float, word: str) -> None:
    with pytest.raises(ProfileError, match=word) as caught:
        score(latency, deadline)
    assert "\n" not in str(caught.value)
