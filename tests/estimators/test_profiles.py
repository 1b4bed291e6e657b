"""Profiles: the schema, its files, and every way in which they can be bad."""

import json
from dataclasses import replace

import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.profilefile import load_profile, save_profile
from estimators.profiles import check_profile, layer_key, merge_profiles
from tests.estimators.streams import BIG, CPU_HZ, SINGLE, SMALL, profile, run_set


@pytest.fixture
def document(tmp_path):
    """A sound profile as its JSON document, and a writer for spoilt ones."""
    path = tmp_path / "toy.json"
    save_profile(profile([BIG, SMALL, BIG], toy=run_set([BIG, SMALL, BIG])), path)
    return json.loads(path.read_text()), path


def load_spoilt(document, spoil):
    data, path = document
    spoil(data)
    path.write_text(json.dumps(data))
    return load_profile(path)


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_files_bring_back_what_was_saved(tmp_path, name):
    before = profile([BIG, SMALL, SINGLE], (1, 500), toy=run_set([BIG], (1, 500)))
    save_profile(before, tmp_path / name)
    after = load_profile(tmp_path / name)
    assert after.board == before.board
    assert after.networks == before.networks
    for key, record in before.layers.items():
        assert after.layers[key].config == record.config
        for column, values in record.samples.values.items():
            assert after.layers[key].samples.values[column].tolist() == values.tolist()
    assert after.runs["toy"].context.tolist() == before.runs["toy"].context.tolist()


def set_value(column, row, value):
    def spoil(data):
        data["layers"][0]["samples"][column][row] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (set_value("cpu_us", 3, float("nan")), r"row 3, column cpu_us.*nan is not a finite"),
        (set_value("gpu_us", 2, -1.0), r"row 2, column gpu_us.*is negative"),
        (set_value("total_us", 1, 0.0), r"row 1, column total_us.*is not positive"),
        (set_value("cpu_hz", 5, 123), r"row 5, column cpu_hz.*123 is not a clock of toy"),
        (set_value("cpu_hz", 5, 0.5), r"row 5, column cpu_hz.*not a whole number"),
        (set_value("context", 4, 77), r"row 4, column context.*77 is outside 0\.\.0"),
        (lambda d: d["layers"][0]["samples"].pop("gpu_us"), "column gpu_us: a column is missing"),
        (lambda d: d["layers"][0]["samples"].pop("gpu_hz"), "column gpu_hz: a column is missing"),
        (lambda d: d["layers"][0]["samples"]["cpu_us"].pop(), "column cpu_us: columns of diff"),
        (lambda d: d["layers"].append(d["layers"][0]), r"layers\[2\]: a layer stands twice"),
        (lambda d: d.update(format_version="2.0"), "profile of a newer format: version 2.0"),
        (lambda d: d.update(format_version="x"), "format_version: not a profile"),
        (lambda d: d.update(format="other"), "not a profile: no format 'flamegov-profile'"),
        (lambda d: d.update(extra=1), "not a profile: .*extra"),
        (lambda d: d["networks"]["toy"].update(phase="dream"), "unknown phase: dream"),
        (lambda d: d["board"].update(cpu_hz=[3, 2]), "board.cpu_hz: clocks of the board"),
        (lambda d: d["layers"][0]["samples"]["cpu_us"].__setitem__(0, "a"), "not a profile: Exp"),
    ],
)
def test_bad_profiles_are_refused_by_name(document, spoil, message):
    with pytest.raises(ProfileError, match=message):
        load_spoilt(document, spoil)


def test_conflicting_rows_are_refused_and_equal_ones_dropped(document):
    def twice(data):
        for column in data["layers"][0]["samples"].values():
            column.append(column[0])

    def conflict(data):
        data["layers"][0]["samples"]["gpu_us"][-1] += 1.0

    rows = len(document[0]["layers"][0]["samples"]["cpu_hz"])
    loaded = load_spoilt(document, twice)
    assert all(len(record.samples) == rows for record in loaded.layers.values())
    with pytest.raises(ProfileError, match=rf"rows 0 and {rows}, column gpu_us: two rows of"):
        load_spoilt(document, conflict)


@pytest.mark.parametrize("content", [b"", b"garbage", b"[1]", b"{", b"\xff\xfe"])
def test_corrupt_files_are_refused(tmp_path, content):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"p\.json: not a profile"):
        load_profile(path)


def test_unreadable_and_unwritable_files_are_named(tmp_path):
    with pytest.raises(ProfileError, match="cannot read the profile: No such file"):
        load_profile(tmp_path / "none.json")
    (tmp_path / "bad.json.gz").write_bytes(b"not gzip")
    with pytest.raises(ProfileError, match="cannot read the profile"):
        load_profile(tmp_path / "bad.json.gz")
    with pytest.raises(ProfileError, match="cannot write the profile"):
        save_profile(profile([BIG]), tmp_path / "no" / "p.json")


def test_merging_fills_in_layers_and_refuses_conflicts():
    one, other = profile([BIG, SMALL]), profile([SINGLE])
    other = replace(other, networks={"more": other.networks["toy"]})
    merged = merge_profiles([one, other])
    assert set(merged.layers) == {"op(big=1)", "op(small=1)", "op(single=1)"}
    assert set(merged.networks) == {"toy", "more"}
    assert merge_profiles([one, one]).layers.keys() == one.layers.keys()
    again = profile([BIG, SMALL])
    again.layers["op(big=1)"].samples.values["cpu_us"] *= 1.1
    mean = merge_profiles([one, again]).layers["op(big=1)"].samples.values["cpu_us"]
    assert mean.sum() == pytest.approx(
        1.05 * one.layers["op(big=1)"].samples.values["cpu_us"].sum()
    )
    changed = profile([BIG, SMALL])
    changed.layers["op(big=1)"].samples.values["cpu_us"][0] *= 2
    with pytest.raises(ProfileError, match=r"layer op\(big=1\), row 0, column cpu_us"):
        merge_profiles([one, changed])
    with pytest.raises(ProfileError, match=r"networks.toy: two models of one name differ"):
        merge_profiles([one, profile([SMALL])])
    foreign = replace(one, board=replace(one.board, power_mode="15W"))
    with pytest.raises(ProfileError, match="board.power_mode: profiles of different boards"):
        merge_profiles([one, foreign])


def test_runs_and_places_are_checked_too():
    p = profile([BIG], toy=run_set([BIG]))
    p.runs["toy"].values["latency_us"][2] = np.inf
    with pytest.raises(ProfileError, match="runs of toy, row 2, column latency_us"):
        check_profile(p)


def test_layers_are_known_by_what_they_are():
    assert layer_key("conv", {"k": 3, "c": 64.0}) == "conv(c=64,k=3)"
    assert len(CPU_HZ) == 11
