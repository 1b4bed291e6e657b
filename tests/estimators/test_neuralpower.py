"""Layer models: features, fits, baselines, the network's arithmetic, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.neuralpower import published
from estimators.neuralpower.epr import Candidate, energy_precision, winners
from estimators.neuralpower.features import log_features, monomials, paper_features
from estimators.neuralpower.lasso import FlopModel, LogModel, PaperModel, SparseRegression
from estimators.neuralpower.networks import BUILT_IN, get_network
from estimators.neuralpower.paleo import Device, get_device, paleo_ms
from estimators.neuralpower.process import DefaultModel, GaussianProcess, fit_roofline
from estimators.neuralpower.score import grouped_folds, groups_of, held_out, rmse, rmspe
from estimators.neuralpower.shapes import Columns, LayerShape
from estimators.neuralpower.totals import LayerModels, Totals
from estimators.residual import Array


def _convs(count: int, seed: int = 0) -> Columns:
    rng = np.random.default_rng(seed)
    shapes = []
    for _ in range(count):
        kernel, size = int(rng.choice([1, 3, 5])), int(rng.integers(7, 64))
        batch, in_c, out_c = (int(2**k) for k in rng.integers((0, 3, 3), (5, 9, 9)))
        pad, stride = kernel // 2, int(rng.choice([1, 2]))
        shapes.append(
            LayerShape.conv(
                batch,
                in_c,
                (size, size),
                out_c,
                (kernel, kernel),
                stride=(stride, stride),
                pad=(pad, pad),
            )
        )
    return Columns.of(shapes)


def _fcs(count: int) -> Columns:
    rng = np.random.default_rng(1)
    return Columns.of(
        LayerShape.fc(int(n), int(i), int(o)) for n, i, o in rng.integers(1, 4096, (count, 3))
    )


def _pools(count: int) -> Columns:
    rng = np.random.default_rng(2)
    return Columns.of(
        LayerShape.pool(int(n), int(c), (int(s), int(s)), (2, 2), stride=(2, 2))
        for n, c, s in rng.integers(8, 64, (count, 3))
    )


def _roofline_ms(layers: Columns) -> Array:
    moved = layers["in_elements"] + layers["out_elements"] + layers["weights"]
    time_ms: Array = 0.01 + layers["flop"] / 4e9 + moved / 5e7
    return time_ms


# ---- layers and networks ------------------------------------------------------------------------


def test_shape_counts() -> None:
    conv = LayerShape.conv(2, 3, (224, 224), 64, (7, 7), stride=(2, 2), pad=(3, 3))
    assert (conv.out_h, conv.out_w) == (112, 112)
    assert conv.weights == 64 * 3 * 49
    assert conv.flop == 2 * 2 * 112 * 112 * 64 * 3 * 49
    fc = LayerShape.fc(4, 256, 4096, size=(5, 5))
    assert fc.flop == 2 * 4 * 256 * 25 * 4096 and fc.in_elements == 4 * 256 * 25


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: LayerShape.fc(0, 4, 4), "batch"),
        (lambda: LayerShape.conv(1, 3, (5, 5), 8, (7, 7)), "out_h"),
        (lambda: LayerShape.conv(1, 3, (5, 5), 8, (3, 3), stride=(0, 1)), "stride"),
        (lambda: LayerShape.conv(1, 3, (5, 5), 8, (3, 3), pad=(-1, 0)), "pad_h"),
        (lambda: LayerShape(kind="lrn", batch=1, in_c=1, out_c=1), "lrn"),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_sizes_that_no_logarithm_can_be_taken_of_are_refused(make: object, word: str) -> None:
    with pytest.raises(ProfileError, match=word):
        make()  # type: ignore[operator]  # a lambda of the table above


def test_zero_padding_is_not_put_under_a_logarithm() -> None:
    layers = _convs(12)
    assert np.isfinite(log_features(layers)).all()
    assert np.isfinite(paper_features(layers, "power")).all()


@pytest.mark.parametrize(
    ("name", "mmacs", "mweights"),
    [("vgg16", 15_470, 138.3), ("alexnet", 737, 50.3), ("nin", 970, 7.6)],
)
def test_built_in_networks_have_the_known_size(name: str, mmacs: float, mweights: float) -> None:
    network = get_network(name)
    weights = sum(layer.shape.weights for layer in network.layers)
    assert network.flop / 2e6 == pytest.approx(mmacs, rel=0.01)
    assert weights / 1e6 == pytest.approx(mweights, rel=0.01)
    assert get_network(name, batch=8).flop == 8 * network.flop


def _write_net(tmp_path: Path, layers: dict[str, object]) -> str:
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"name": "mine", "layers": layers}))
    return str(path)


def test_network_file_with_unknown_layer_tells_its_share(tmp_path: Path) -> None:
    conv = {"type": "Convolution", "strides": [1, 1, 1, 1]}
    layers: dict[str, object] = {
        "data": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]},
        "c1": {**conv, "parents": ["data"], "filter": [3, 3, 3, 16], "padding": "SAME"},
        "lrn": {"type": "LRN", "parents": ["c1"]},
        "c2": {**conv, "parents": ["lrn"], "filter": [1, 1, 16, 8], "padding": "VALID"},
        "p": {
            "type": "Pooling",
            "parents": ["c2"],
            "ksize": [1, 2, 2, 1],
            "strides": [1, 2, 2, 1],
            "padding": [0, 0],
        },
        "both": {"type": "Concatenate", "parents": ["p", "p"]},
        "fc": {**conv, "parents": ["both"], "filter": [4, 4, 16, 10], "padding": "VALID"},
    }
    network = get_network(_write_net(tmp_path, layers))
    kinds = [layer.shape.kind for layer in network.layers]
    assert kinds == ["conv", "conv", "pool", "fc"]
    assert [layer.name for layer in network.skipped] == ["lrn", "both"]
    assert network.skipped[0].flop == 2 * 16 * 64
    assert 0 < network.skipped_share < 0.05
    assert network.batch == 2 and get_network(_write_net(tmp_path, layers), 4).batch == 4


@pytest.mark.parametrize(
    "layers",
    [
        {"c1": {"type": "Convolution", "parents": ["nowhere"]}},
        {"data": {"type": "Input", "parents": [], "tensor": [1, 8, 8, 3]}},
        {"data": {"type": "Input", "parents": [], "tensor": [1, 8, 3]}},
        [],
    ],
)
def test_bad_network_files_are_refused(tmp_path: Path, layers: dict[str, object]) -> None:
    with pytest.raises(ProfileError, match="net.json"):
        get_network(_write_net(tmp_path, layers))


def test_unknown_network_lists_the_known() -> None:
    with pytest.raises(ProfileError, match="alexnet"):
        get_network("alexnett")


# ---- the paper ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "runtime", "power"), [(_convs(8), 127, 127), (_fcs(8), 21, 65), (_pools(8), 86, 93)]
)
def test_paper_feature_counts(layers: Columns, runtime: int, power: int) -> None:
    assert paper_features(layers, "runtime").shape == (8, runtime)
    assert paper_features(layers, "power").shape == (8, power)


def test_monomials_by_hand() -> None:
    assert monomials(np.array([[2.0, 3.0]]), 2).tolist() == [[2.0, 3.0, 4.0, 6.0, 9.0]]


def test_published_network_errors_follow_from_the_published_rows() -> None:
    errors = published.network_errors()  # recalled numbers
    assert errors["runtime_rmspe_pct"] == pytest.approx(11.76, abs=0.01)
    assert errors["power_rmspe_pct"] == pytest.approx(11.66, abs=0.01)
    assert errors["energy_rmspe_pct"] == pytest.approx(2.79, abs=0.01)


def test_published_energy_is_power_times_runtime_but_for_one_row() -> None:
    for row in published.NETWORKS:
        measured = row.measured_ms * row.measured_w / 1e3
        predicted = row.predicted_ms * row.predicted_w / 1e3
        assert measured == pytest.approx(row.measured_j, rel=1e-3)
        fits = predicted == pytest.approx(row.predicted_j, rel=1e-3)
        assert fits != (row.name == published.INCONSISTENT)


def test_published_energy_precision_table() -> None:
    ratio = energy_precision(published.candidates(), published.ALPHAS)
    assert np.round(ratio, 3).tolist() == [
        [86.062, 6.283, 0.459, 0.033],
        [10.086, 1.715, 0.291, 0.050],
        [18.093, 3.655, 0.738, 0.149],
    ]
    best = winners(published.candidates(), published.ALPHAS)
    assert best == ["AlexNet", "AlexNet", "AlexNet", "VGG-16"]


def test_energy_precision_refuses_percent_and_nonsense() -> None:
    with pytest.raises(ProfileError, match="not percent"):
        Candidate("a", 17.0, 59.0)
    with pytest.raises(ProfileError, match="positive"):
        Candidate("a", 0.17, float("nan"))
    with pytest.raises(ProfileError, match="needs networks"):
        energy_precision([], [1])


def test_paper_model_recovers_a_polynomial_and_counts_its_terms() -> None:
    layers = _convs(150)
    time_ms = 0.2 + layers["flop"] / 2e9
    model = PaperModel(degrees=(1, 2)).fit(layers, time_ms)
    fresh = _convs(40, seed=9)
    assert model.degree_ in (1, 2) and set(model.cv_rmse_) == {1, 2}
    assert model.size_ < 12
    assert rmspe(model.predict(fresh), 0.2 + fresh["flop"] / 2e9) < 10.0
    assert model.rmse_ == pytest.approx(rmse(model.predict(layers), time_ms))


def test_paper_model_never_predicts_below_the_fastest_layer_seen() -> None:
    layers = _convs(60)
    model = PaperModel().fit(layers, _roofline_ms(layers))
    assert model.predict(_convs(200, seed=3)).min() >= _roofline_ms(layers).min()


def test_constant_columns_and_few_rows_are_fitted() -> None:
    x = np.column_stack([np.ones(7), np.arange(7.0)])
    model = SparseRegression().fit(x, 3.0 + 2.0 * np.arange(7.0))
    assert model.predict(np.array([[1.0, 10.0]]))[0] == pytest.approx(23.0, rel=0.02)
    assert model.size_ == 2


# ---- models -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [_convs(48), _fcs(40), _pools(40)])
def test_default_model_beats_one_variable_out_of_sample(layers: Columns) -> None:
    time_ms, groups = _roofline_ms(layers), groups_of(layers.shapes)
    ours = rmspe(held_out(DefaultModel, layers, time_ms, groups=groups, folds=3), time_ms)
    one = rmspe(held_out(FlopModel, layers, time_ms, groups=groups, folds=3), time_ms)
    assert ours < 10.0
    assert ours < 0.5 * one


def test_log_model_is_sparse() -> None:
    layers = _convs(80)
    time_ms = 1e-8 * layers["flop"] ** 0.9
    model = LogModel().fit(layers, time_ms)
    assert model.size_ <= 10
    assert rmspe(model.predict(layers), time_ms) < 10.0


def test_gradient_of_the_marginal_likelihood() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    process = GaussianProcess().fit(x, y)
    logs = process._prior + 0.3
    _, gradient = process._cost(logs, x, y)
    for i in range(len(logs)):
        step = np.zeros(len(logs))
        step[i] = 1e-5
        slope = (process._cost(logs + step, x, y)[0] - process._cost(logs - step, x, y)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_spread_grows_away_from_the_training_rows() -> None:
    layers = _convs(60)
    rng = np.random.default_rng(0)
    noisy = _roofline_ms(layers) * np.exp(0.05 * rng.normal(size=60))
    model = DefaultModel().fit(layers, noisy)
    far = Columns.of([LayerShape.conv(1, 40_000, (1, 1), 40_000, (1, 1))])
    assert model.spread(far)[0] > 1.5 * np.median(model.spread(layers))


def test_roofline_has_no_negative_term() -> None:
    terms = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert fit_roofline(terms, np.array([1.0, 2.0, 3.0])) == pytest.approx([0.0, 1.0], abs=1e-9)
    absent = np.column_stack([terms, np.zeros(3)])  # such as: all layers are of Winograd's kind
    assert np.isfinite(fit_roofline(absent, np.array([1.0, 2.0, 3.0]))).all()


def test_groups_never_straddle_a_fold() -> None:
    layers = [LayerShape.fc(batch, size, 8) for size in range(1, 8) for batch in (1, 2)]
    groups = groups_of(layers)
    assert groups.max() == 6
    tests = []
    for train, test in grouped_folds(groups, 10):
        assert not set(groups[train]) & set(groups[test])
        tests += test.tolist()
    assert sorted(tests) == list(range(14))


def test_bad_measurements_are_refused() -> None:
    layers = _fcs(8)
    with pytest.raises(ProfileError, match="row 3"):
        FlopModel().fit(layers, np.array([1, 1, 1, 0, 1, 1, 1, 1.0]))
    with pytest.raises(ProfileError, match="3 rows, 6 needed"):
        DefaultModel().fit(layers.take(np.arange(3)), np.ones(3))
    with pytest.raises(ProfileError, match="one value per layer"):
        LogModel().fit(layers, np.ones(3))
    with pytest.raises(ProfileError, match="one type"):
        Columns.of([LayerShape.fc(1, 1, 1), LayerShape.pool(1, 1, (2, 2), (2, 2))])


# ---- Paleo and totals ---------------------------------------------------------------------------


def test_paleo_by_hand() -> None:
    device = Device(1000, 1000, 100)
    shape = LayerShape.conv(1, 8, (16, 16), 8, (3, 3), pad=(1, 1))
    time_ms = paleo_ms(Columns.of([shape]), device, 0.5)[0]
    moved = 4 * (8 * 18 * 18 + shape.weights + shape.out_elements)
    wanted = shape.flop / 1e9 / 1000 * 1e3 / 0.5 + moved / 2**30 / 100 * 1e3 / 0.5
    assert time_ms == pytest.approx(wanted, rel=0.03)  # the arithmetic is below a clock's worth
    assert paleo_ms(Columns.of([LayerShape.fc(1, 1, 1)]), device)[0] == pytest.approx(2e-6)
    with pytest.raises(ProfileError, match="percent of peak"):
        paleo_ms(Columns.of([shape]), device, 0.0)
    with pytest.raises(ProfileError, match="titan-x"):
        get_device("abacus")


def test_totals_and_bottlenecks() -> None:
    totals = Totals(("a", "b"), np.array([1.0, 3.0]), np.array([200.0, 100.0]))
    assert totals.total_ms == 4.0 and totals.total_mj == 500.0 and totals.mean_w == 125.0
    assert totals.bottlenecks == {"runtime": "b", "power": "a", "energy": "b"}


def test_milliwatts_given_as_watts_are_caught() -> None:
    with pytest.raises(ProfileError, match="looks like mW"):
        Totals(("a",), np.array([1.0]), np.array([14_500.0]))
    with pytest.raises(ProfileError, match="implausible"):
        Totals(("a",), np.array([1.0]), np.array([float("nan")]))


def test_network_prediction_needs_a_model_for_each_type() -> None:
    layers = _convs(20)
    model = FlopModel().fit(layers, _roofline_ms(layers))
    power = FlopModel().fit(layers, np.full(20, 9.0))
    models = LayerModels({"conv": model}, {"conv": power})
    convs = [layer for layer in get_network("nin").layers if layer.shape.kind == "conv"]
    assert models.totals(convs).mean_w == pytest.approx(9.0)
    with pytest.raises(ProfileError, match="no model of pool"):
        models.totals(get_network("nin").layers)


def test_every_built_in_network_is_read() -> None:
    assert all(get_network(name).layers for name in BUILT_IN)
