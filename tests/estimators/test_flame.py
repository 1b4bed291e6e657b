"""The FLAME estimator against a tiny in-order stream that shares no formula with it."""

import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.flame import FlameEstimator, timeline
from estimators.flame.interaction import Delta, Paths
from estimators.flame.layers import Knot
from estimators.flame.processor import ProcessorTime, fit_nonnegative
from estimators.flame.timeline import LayerTimes
from tests.estimators.streams import (
    BIG,
    CPU_HZ,
    EMC_HZ,
    GPU_HZ,
    POINTS,
    SINGLE,
    SMALL,
    layer,
    profile,
    run_set,
    samples,
    truth,
)

MIXED = [SMALL] * 6 + [BIG] * 3 + [SMALL] * 8 + [SINGLE] * 4
LAST = [SMALL] * 12 + [BIG] * 6  # GPU-heavy layers last


def error_pct(estimator: FlameEstimator, order, contexts=(0,), host=0.0):
    estimate = estimator.predict(CPU_HZ, GPU_HZ, context=contexts)
    return np.abs(estimate / truth(order, contexts, host) - 1) * 100


@pytest.mark.parametrize("order", [MIXED, LAST], ids=["mixed", "gpu-heavy last"])
def test_maxplus_matches_an_in_order_stream_without_any_run(order):
    error = error_pct(FlameEstimator().fit(profile(order), "toy"), order)
    assert error.mean() < 1.0
    assert error.max() < 5.0


def test_paper_reading_with_maximum_is_close_and_the_literal_one_forgets_gpu_work():
    p = profile(MIXED)
    paper = error_pct(FlameEstimator(mode="paper").fit(p, "toy"), MIXED)
    literal = error_pct(FlameEstimator(mode="paper-literal").fit(p, "toy"), MIXED)
    assert paper.mean() < 8.14
    assert literal.mean() > paper.mean()
    # At the highest CPU clock and the lowest GPU clock, the GPU is the bottleneck.
    assert literal[0, -1, 0] > 10 > paper[0, -1, 0]


def test_ablations_are_worse_than_half_again():
    p = profile(MIXED)
    full = error_pct(FlameEstimator().fit(p, "toy"), MIXED).mean()
    for mode in ("no-module", "no-aggregation"):
        assert error_pct(FlameEstimator(mode=mode).fit(p, "toy"), MIXED).mean() > 2 * full


def test_runs_restore_what_isolation_biased():
    order, host = MIXED, 400.0
    p = profile(order, toy=run_set(order, host_kcycles=host))
    for record in p.layers.values():
        record.samples.values["cpu_us"] *= 1.08
        record.samples.values["gpu_us"] *= 1.03
        record.samples.values["total_us"] *= 1.05
    zero = error_pct(FlameEstimator(anchor=False).fit(p, "toy"), order, host=host)
    anchored = FlameEstimator().fit(p, "toy")
    assert zero.mean() > 2 > 2 * error_pct(anchored, order, host=host).mean()
    assert zero.max() > 5
    assert anchored.anchors_[EMC_HZ].cpu_factor < 1


def test_heldout_runs_are_predicted_from_the_others():
    p = profile(MIXED, toy=run_set(MIXED))
    ratio = FlameEstimator().fit(p, "toy").heldout(p, "toy")[EMC_HZ]
    assert len(ratio) == 9
    assert np.abs(ratio - 1).max() < 0.05


def test_contexts_are_interpolated_between_the_profiled_ones():
    contexts = (1, 300, 600, 1000)
    p = profile(MIXED, contexts)
    estimator = FlameEstimator().fit(p, "toy")
    assert estimator.longest_ == 1000
    assert error_pct(estimator, MIXED, (1, 150, 450, 999)).mean() < 1.5
    with pytest.raises(ProfileError, match="context 1001: context out of range"):
        estimator.predict(CPU_HZ, GPU_HZ, context=[1001])
    with pytest.raises(ProfileError, match="out of range"):
        estimator.predict(CPU_HZ, GPU_HZ, context=[])


def test_light_layers_can_be_neglected_as_in_the_paper():
    p = profile(MIXED)
    light = layer("relu", SMALL)
    light = type(light)("relu", light.config, light.samples)
    keys = tuple(k for key in p.networks["toy"].layers for k in (key, light.key))
    p.layers[light.key] = light
    p.networks["toy"] = type(p.networks["toy"])(keys)
    order = [s for shape in MIXED for s in (shape, SMALL)]
    full = error_pct(FlameEstimator().fit(p, "toy"), order)
    neglecting = error_pct(FlameEstimator(ignore_light_layers=True).fit(p, "toy"), order)
    assert full.mean() < 1.0
    assert neglecting.mean() > 10


def test_in_situ_mode_needs_places_and_is_accurate_with_them():
    p = profile([BIG, SMALL, SMALL])
    with pytest.raises(ProfileError, match="no layers seen in place"):
        FlameEstimator(mode="paper-insitu").fit(p, "toy")
    order = [BIG, SMALL, SMALL]
    rows, position, delta = [], [], []
    for cpu, gpu in POINTS:
        host = end = 0.0
        for at, shape in enumerate(order):
            from tests.estimators.streams import LAUNCH_US, kernels

            starts = []
            for launch, duration in kernels(shape, cpu, gpu):
                host += launch
                start = max(host + LAUNCH_US, end)
                starts.append(start)
                end = start + duration
            rows.append((cpu, gpu, 0))
            position.append(float(at))
            delta.append(starts[0] - host)
    p.places["toy"] = samples(rows, {"position": np.array(position), "delta_us": np.array(delta)})
    error = error_pct(FlameEstimator(mode="paper-insitu").fit(p, "toy"), order)
    assert error.mean() < 12


def test_unknown_mode_model_layer_and_memory_clock_are_named():
    with pytest.raises(ProfileError, match="unknown mode 'best'; choose from maxplus"):
        FlameEstimator(mode="best")  # type: ignore[arg-type]  # that is the test
    p = profile(MIXED)
    with pytest.raises(ProfileError, match="unknown model 'other'; the profile holds: toy"):
        FlameEstimator().fit(p, "other")
    with pytest.raises(ProfileError, match="memory clock 5 Hz was not profiled"):
        FlameEstimator().fit(p, "toy").predict(CPU_HZ, GPU_HZ, emc_hz=5)
    del p.layers["op(big=1)"]
    with pytest.raises(ProfileError, match="1 of 3 layers of 'toy' were not measured: op"):
        FlameEstimator().fit(p, "toy")


def test_one_clock_only_is_refused():
    p = profile([SINGLE])
    one = [(CPU_HZ[0], g) for g in GPU_HZ]
    p.layers["op(single=1)"] = layer("single", SINGLE, points=one)
    with pytest.raises(ProfileError, match="column cpu_hz: measured at one clock only: all 11"):
        FlameEstimator().fit(p, "toy")
    p.layers["op(single=1)"] = layer("single", SINGLE, points=POINTS[:3])
    with pytest.raises(ProfileError, match="too few measurements: 3 rows, 4 needed"):
        FlameEstimator().fit(p, "toy")


def test_processor_time_finds_work_knee_and_constant():
    f = np.array(GPU_HZ, dtype=float)
    line = ProcessorTime.fit(f, 2e11 / f + 7)
    assert line.k == pytest.approx(2e11, rel=1e-6)
    assert line.b == pytest.approx(7, rel=1e-4)
    bent = np.maximum(5e11 / f, 700.0)
    soft = ProcessorTime.fit(f, bent, saturates=True)(f) / bent - 1
    straight = ProcessorTime.fit(f, bent)(f) / bent - 1
    assert np.abs(soft).max() < np.abs(straight).max() / 4
    rising = ProcessorTime.fit(f, f / 1e8)
    assert np.all(np.diff(rising(f)) <= 0)
    assert ProcessorTime.fit(f, np.zeros_like(f))(f).max() == 0


def test_nonnegative_fit_agrees_with_nnls():
    from scipy.optimize import nnls

    rng = np.random.default_rng(0)
    for _ in range(50):
        rows, target = rng.normal(size=(12, 3)), rng.uniform(0.5, 2, 12)
        mine = fit_nonnegative(rows, target)
        theirs = nnls(rows / target[:, None], np.ones(12))[0]
        assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("threshold", ["cpu", "ratio"])
def test_breakpoint_of_eq4_is_found_where_it_is(threshold):
    cpu, gpu = (np.array(column, dtype=float) for column in zip(*POINTS, strict=True))
    x = cpu if threshold == "cpu" else cpu / gpu
    edge = 7e8 if threshold == "cpu" else 1.5
    delta = np.where(x <= edge, 1e10 / cpu + 5, -2e10 / gpu - 10)
    fitted = Delta.fit(cpu, gpu, delta, np.full_like(cpu, 500.0), threshold)
    assert fitted(cpu, gpu) == pytest.approx(delta, abs=1e-6)
    assert np.sum(x <= fitted.breakpoint) == np.sum(x <= edge)


def test_isolated_total_is_matched_on_clocks_never_profiled():
    record = layer("big", BIG)
    knot = Knot.fit("toy", record.samples, saturates=True, threshold="cpu")
    whole = layer("big", BIG, points=[(c, g) for c in CPU_HZ for g in GPU_HZ])
    s = whole.samples
    estimate = knot.total(s.cpu_hz.astype(float), s.gpu_hz.astype(float))
    error = np.abs(estimate / s.values["total_us"] - 1) * 100
    assert error.mean() < 1.5


def test_a_path_without_points_adds_nothing():
    cpu = np.array([1e9, 2e9, 1e9, 2e9])
    c, g = 1e12 / cpu, np.full(4, 1.0)
    paths = Paths.fit(cpu, c, g, c + g + 5)
    assert paths.lead.tolist() == [0, 0, 0]
    assert paths(cpu, c, g) == pytest.approx(c + g + 5, rel=1e-6)


def test_timelines_of_two_layers_by_hand():
    ten, five = np.array(10.0), np.array(5.0)
    # Two layers, CPU 5 and GPU 10 each, isolated total 16: Delta = 1.
    by_total, by_delta = LayerTimes(five, ten, np.array(16.0)), LayerTimes(five, ten, np.array(1.0))
    assert timeline.maxplus([by_total] * 2) == 26
    assert timeline.paper([by_delta] * 2) == 26
    assert timeline.paper_literal([by_delta] * 2) == 26
    early = LayerTimes(five, ten, np.array(-1.0))
    assert timeline.paper([early] * 2) == 24
    assert timeline.paper_literal([early] * 2) == 19
    assert timeline.sum_of_layers([by_delta] * 2) == 32
    assert timeline.sum_of_processors([by_delta] * 2) == 30
    assert timeline.longer_processor([by_delta] * 2) == 20
    slow_host = LayerTimes(np.array(50.0), np.array(1.0), np.array(30.0))
    assert timeline.maxplus([slow_host]) == 50
