"""The counter path: selection, parser, exported trees, and layers that were never profiled."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.flame.parser import CounterParser, select_counters
from estimators.flame.trees import TreeArrays
from estimators.flame.unseen import complete_layers
from estimators.flame.work import static_work
from estimators.profiles import LayerRecord, NetworkRecord, Profile, layer_key
from tests.estimators.streams import BOARD, POINTS, samples

pytestmark = pytest.mark.filterwarnings("ignore:.*:FutureWarning")


def linear(width: int, rng: np.random.Generator) -> LayerRecord:
    """A linear layer whose GPU time follows its weights, with counters good, copied and useless."""
    cpu, gpu = (np.array(column, dtype=float) for column in zip(*POINTS, strict=True))
    macs = width * 512.0
    cpu_us, gpu_us = 6e10 / cpu * np.ones_like(gpu), (macs * 2e6 + 3e9) / gpu
    values = {
        "cpu_us": cpu_us,
        "gpu_us": gpu_us,
        "total_us": np.maximum(cpu_us, gpu_us) + 0.5 * np.minimum(cpu_us, gpu_us),
        "flop": np.full_like(cpu, 2 * macs),
        "flop_again": np.full_like(cpu, 2.02 * macs),
        "cycles": gpu_us * gpu / 1e6,
        "noise": rng.uniform(0, 1e6, len(cpu)),
        "still": np.full_like(cpu, 7.0),
    }
    rows = [(c, g, 0) for c, g in POINTS]
    config = {"in_features": 512.0, "out_features": float(width)}
    return LayerRecord("linear", config, samples(rows, values))


@pytest.fixture
def layers() -> list[LayerRecord]:
    rng = np.random.default_rng(0)
    return [linear(width, rng) for width in (100, 150, 220, 330, 500, 750, 1100, 1600, 2400)]


def test_counters_that_follow_latency_are_kept_once(layers):
    chosen = dict(select_counters(layers, 3))
    assert len({"flop", "flop_again", "cycles"} & chosen.keys()) == 1
    best = max(chosen, key=lambda name: abs(chosen[name]))
    assert best in ("flop", "flop_again", "cycles")
    assert abs(chosen[best]) > 0.99


@pytest.mark.parametrize("inputs", ["config", "counters"])
def test_a_size_between_the_profiled_ones_is_foretold(layers, inputs):
    held = layers[4]
    known = layers[:4] + layers[5:]
    foretold = CounterParser(inputs=inputs).fit(known).predict(held.config)
    for column in ("cpu_us", "gpu_us", "total_us"):
        ratio = foretold.samples.values[column] / held.samples.values[column]
        assert np.abs(ratio - 1).max() < 0.15
    assert foretold.key == held.key


def test_sizes_beyond_the_profiled_ones_extrapolate_by_the_cost_law(layers):
    parser = CounterParser().fit(layers[:-1])
    foretold = parser.predict(layers[-1].config).samples.values["gpu_us"]
    assert np.abs(foretold / layers[-1].samples.values["gpu_us"] - 1).max() < 0.15


def test_counts_are_foretold(layers):
    parser = CounterParser(inputs="counters").fit(layers[:4] + layers[5:])
    counts = parser.counts(layers[4].config)
    name = next(n for n in ("flop", "flop_again", "cycles") if n in counts)
    measured = float(np.median(layers[4].samples.values[name]))
    assert counts[name] == pytest.approx(measured, rel=0.1)


def test_exported_trees_agree_with_xgboost():
    import json

    import xgboost

    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = x[:, 0] * 2 + np.where(x[:, 1] > 0, 5, -5)
    model = xgboost.XGBRegressor(n_estimators=20, max_depth=4, n_jobs=1).fit(x, y)
    arrays = TreeArrays.of_booster(json.loads(bytes(model.get_booster().save_raw("json"))))
    unseen = rng.normal(size=(200, 4)).astype(np.float32)
    assert arrays(unseen) == pytest.approx(model.predict(unseen), abs=1e-4)
    assert TreeArrays.fit(x, np.full(60, 3.0))(unseen) == pytest.approx(np.full(200, 3.0), abs=1e-5)


def test_bad_sets_of_layers_are_refused(layers):
    with pytest.raises(ProfileError, match="linear: too few layers to learn a type from: 2"):
        CounterParser().fit(layers[:2])
    other = replace(layers[0], kind="conv")
    with pytest.raises(ProfileError, match="one layer type: conv, linear"):
        CounterParser().fit([other, *layers[1:]])
    s = layers[0].samples
    shorter = replace(layers[0], samples=s.where(np.arange(len(s)) > 0))
    with pytest.raises(ProfileError, match="profiled at different clocks or contexts"):
        CounterParser().fit([shorter, *layers[1:]])


def test_layers_never_profiled_are_filled_in(layers):
    wanted = layer_key("linear", {"in_features": 512, "out_features": 600})
    known = {record.key: record for record in layers}
    whole = Profile(BOARD, {"new": NetworkRecord((layers[0].key, wanted))}, known)
    found = complete_layers(whole, "new")
    assert found[layers[0].key] is layers[0]
    assert found[wanted].config["out_features"] == 600
    strange = Profile(BOARD, {"new": NetworkRecord(("rnn(width=3)",))}, known)
    with pytest.raises(ProfileError, match="no layer of type 'rnn' was ever profiled"):
        complete_layers(strange, "new")
    garbled = Profile(BOARD, {"new": NetworkRecord(("rnn(width)",))}, known)
    with pytest.raises(ProfileError, match=r"rnn\(width\): not the name of a layer"):
        complete_layers(garbled, "new")


def test_static_work_counts_what_is_known():
    conv = {"in_channels": 64, "out_channels": 128, "in_size": 56, "kernel": 3, "stride": 2}
    work = static_work("conv", conv | {"norm": 1, "act": 1})
    assert work["macs"] == 64 * 128 * 9 * 28**2
    assert work["weights"] == 64 * 128 * 9
    assert work["elementwise"] == 2 * 128 * 28**2
    assert static_work("linear", {"in_features": 3, "out_features": 5})["macs"] == 15
    assert (
        static_work("pool", {"in_channels": 8, "in_size": 4, "kernel": 2, "stride": 2})["macs"]
        == 128
    )
    assert static_work("decoder", {"hidden": 3}) == {}
