import numpy as np
import pytest

from estimators.baselines import (
    AnalyticEstimator,
    BilinearEstimator,
    ConstantEstimator,
    FixedEstimator,
    MlpEstimator,
    OverContext,
)
from estimators.errors import ProfileError
from estimators.profiles import Samples

X = np.array([(c, g, 1.0) for c in (5e8, 1e9, 2e9) for g in (3e8, 6e8, 1.2e9)])


def test_fixed_tells_the_run_at_the_highest_clocks():
    y = 1e12 / X[:, 0] + 1e12 / X[:, 1]
    assert FixedEstimator().fit(X, y).predict(X[:2]).tolist() == [y[-1]] * 2


def test_constant_has_the_least_relative_error():
    y = np.array([100.0, 110, 120, 500, 900, 1000, 2000, 3000, 5000])
    best = ConstantEstimator().fit(X, y).predict(X)[0]
    cost = [np.abs(guess / y - 1).mean() for guess in y]
    assert best == y[int(np.argmin(cost))]


@pytest.mark.parametrize("relative", [True, False])
def test_analytic_law_is_recovered(relative):
    y = 3e3 * (X[:, 1] / 1e9) ** -1.05 + 200
    estimate = AnalyticEstimator(relative=relative).fit(X, y).predict(X)
    assert estimate == pytest.approx(y, rel=1e-3)


def test_mlp_learns_its_runs():
    y = 1e12 / X[:, 0] + 1e12 / X[:, 1]
    assert MlpEstimator().fit(X, y).predict(X) == pytest.approx(y, rel=0.05)


def test_bilinear_is_exact_for_sums_and_refuses_scattered_runs():
    y = 1e12 / X[:, 0] + 1e12 / X[:, 1]
    between = np.array([[7e8, 5e8, 1.0]])
    expected = 1e12 / 7e8 + 1e12 / 5e8
    assert BilinearEstimator().fit(X, y).predict(between)[0] == pytest.approx(expected)
    with pytest.raises(ProfileError, match="runs do not fill a grid: 8 runs for 3 x 3"):
        BilinearEstimator().fit(X[1:], y[1:])


def test_contexts_in_between_are_linear():
    context = np.repeat([1, 101], 9)
    cpu, gpu = (np.tile(X[:, i], 2).astype(np.int64) for i in (0, 1))
    latency = (1 + context / 100) * (1e12 / cpu + 1e12 / gpu)
    runs = Samples(np.ones(18, dtype=np.int64), context, cpu, gpu, {"latency_us": latency})
    over = OverContext(BilinearEstimator).fit(runs)
    plane = over.predict([5e8, 2e9], [3e8], context=[1, 51, 101])
    assert plane.shape == (3, 2, 1)
    assert plane[1] == pytest.approx((plane[0] + plane[2]) / 2)
