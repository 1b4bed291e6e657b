"""The end-to-end estimator on made-up boards whose law it does not know."""

import numpy as np
import pytest

from estimators.endtoend import EndToEndEstimator
from estimators.errors import ProfileError
from estimators.residual import interpolate
from estimators.sampling import spread_points

CPU = np.geomspace(0.2e9, 2.2e9, 12)
GPU = np.geomspace(0.3e9, 1.3e9, 8)
GRID = np.array([(c, g, 1.0) for c in CPU for g in GPU])


def chosen(grid, count):
    return spread_points(np.log(grid), count)


def laws():
    c, g = 1e12 / GRID[:, 0], 2e12 / GRID[:, 1]
    return {
        "sum": c + g + 300,
        "maximum": np.maximum(c, g) + 300,
        "between": (c**2.5 + g**2.5) ** 0.4 + 100,
        "cpu only": c + 50,
    }


@pytest.mark.parametrize("law", list(laws()))
def test_any_overlap_is_learned_from_nine_runs(law):
    y = laws()[law]
    at = chosen(GRID, 9)
    estimate = EndToEndEstimator().fit(GRID[at], y[at]).predict(GRID)
    error = np.abs(estimate / y - 1) * 100
    assert error.mean() < 1.5
    assert error.max() < 6


def test_family_members_are_weighed_by_what_fits():
    at = chosen(GRID, 12)
    added = EndToEndEstimator().fit(GRID[at], laws()["sum"][at]).exponent_weights_
    longest = EndToEndEstimator().fit(GRID[at], laws()["maximum"][at]).exponent_weights_
    assert sum(added.values()) == pytest.approx(1)
    assert added[1.0] + added[1.5] > 0.5
    assert longest[10.0] + longest[40.0] > 0.9


def test_memory_clock_is_a_term_of_its_own():
    emc = (0.6e9, 2.1e9, 3.2e9)
    grid = np.array([(1.0, g, m) for g in GPU for m in emc])
    y = np.maximum(2e12 / grid[:, 1], 3e12 / grid[:, 2]) + 2e11 / grid[:, 1]
    at = [i for i, row in enumerate(grid) if row[1] in (GPU[0], GPU[4], GPU[-1])]
    estimate = EndToEndEstimator().fit(grid[at], y[at]).predict(grid)
    assert (np.abs(estimate / y - 1) * 100).max() < 2


def test_latency_may_rise_with_a_clock_if_measured_so():
    y = laws()["cpu only"] * np.where(GRID[:, 1] == GPU[-1], 1.08, 1.0)
    at = np.arange(len(GRID))
    estimate = EndToEndEstimator().fit(GRID[at], y[at]).predict(GRID).reshape(12, 8)
    assert estimate[-1, -1] > estimate[-1, -2]


def test_fit_is_deterministic_and_scale_free():
    at = chosen(GRID, 9)
    y = laws()["between"][at]
    one, other = EndToEndEstimator().fit(GRID[at], y), EndToEndEstimator().fit(GRID[at], y * 1000)
    assert one.predict(GRID).tolist() == EndToEndEstimator().fit(GRID[at], y).predict(GRID).tolist()
    assert other.predict(GRID) == pytest.approx(one.predict(GRID) * 1000, rel=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -3.0])
def test_unusable_values_are_named(bad):
    y = laws()["sum"][:6].copy()
    y[2] = bad
    with pytest.raises(ProfileError, match="row 2, column latency_us: unusable run"):
        EndToEndEstimator().fit(GRID[:6], y)
    x = GRID[:6].copy()
    x[4, 1] = bad
    with pytest.raises(ProfileError, match="row 4, column gpu_hz"):
        EndToEndEstimator().fit(x, laws()["sum"][:6])


def test_too_few_runs_one_point_and_wrong_shapes_are_refused():
    y = laws()["sum"]
    with pytest.raises(ProfileError, match="too few runs: 4 given, 5 needed"):
        EndToEndEstimator().fit(GRID[:4], y[:4])
    with pytest.raises(ProfileError, match="all runs were made at one operating point"):
        EndToEndEstimator().fit(np.repeat(GRID[:1], 6, axis=0), y[:6])
    with pytest.raises(ProfileError, match="wrong shape"):
        EndToEndEstimator().fit(GRID[:, :2], y)


def test_residual_is_kept_near_its_points_and_forgotten_far_away():
    points = np.array([[0.0], [1.0]])
    near, far = interpolate(points, np.array([0.04, 0.04]), np.array([[0.5], [30.0]]))
    assert near == pytest.approx(0.04, rel=0.15)
    assert abs(far) < 1e-6
