"""``flamegov estimate`` and ``flamegov profile`` from end to end."""

import argparse
import json
import sys

import pytest

from estimators.errors import ProfileError
from estimators.profilefile import save_profile
from estimators.table import LatencyTable
from governor.cli import estimate, profile
from governor.errors import UsageError
from tests.estimators.streams import BIG, SINGLE, SMALL, run_set
from tests.estimators.streams import profile as make_profile


def call(verb, *words) -> int:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return verb.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toy.json"
    order = [BIG, SMALL, SINGLE]
    save_profile(make_profile(order, toy=run_set(order)), path)
    return path


@pytest.mark.parametrize("option", [[], ["--zero-run"], ["--end-to-end"], ["--mode", "paper"]])
def test_estimate_writes_a_table_and_tells_its_error(file, tmp_path, capsys, option):
    table = tmp_path / "toy.npz"
    assert call(estimate, file, "-o", table, "--json", *option) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "toy"
    assert LatencyTable.load(table).shape == tuple(report["shape"])


def test_estimate_draws_a_picture_and_speaks_to_people(file, tmp_path, capsys):
    picture = tmp_path / "fit.png"
    assert call(estimate, file, "-o", tmp_path / "t.npz", "--png", picture) == 0
    assert picture.stat().st_size > 1000
    assert "held-out runs" in capsys.readouterr().out
    with pytest.raises(UsageError, match="cannot write the picture"):
        call(estimate, file, "-o", tmp_path / "t.npz", "--png", tmp_path / "no" / "x.png")


def test_estimate_refuses_what_makes_no_sense(file, tmp_path):
    with pytest.raises(UsageError, match=r"let it end in \.npz"):
        call(estimate, file, "-o", tmp_path / "t.csv")
    with pytest.raises(UsageError, match="exclude one another"):
        call(estimate, file, "-o", tmp_path / "t.npz", "--zero-run", "--end-to-end")
    with pytest.raises(ProfileError, match="unknown model 'other'"):
        call(estimate, file, "-o", tmp_path / "t.npz", "--model", "other")
    with pytest.raises(ProfileError, match="context 9: context out of range"):
        call(estimate, file, "-o", tmp_path / "t.npz", "--contexts", "9")


def test_missing_packages_are_named(file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "estimators.maketable", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[build\]' in the checkout"):
        call(estimate, file, "-o", tmp_path / "t.npz")


def test_profiles_are_listed_shown_and_merged(file, tmp_path, capsys):
    assert call(profile, "list", tmp_path) == 0
    assert "toy, 3 layers, toy" in capsys.readouterr().out
    assert call(profile, "list", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["kinds"] == {"op": 3}
    assert call(profile, "show", file) == 0
    assert "3 layers, 0 not measured, 9 runs" in capsys.readouterr().out
    assert call(profile, "show", file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["board"] == "toy"
    merged = tmp_path / "all.json.gz"
    assert call(profile, "merge", file, file, "-o", merged) == 0
    assert "3 layers, 1 models" in capsys.readouterr().out
    assert call(profile, "merge", file, "-o", merged, "--json") == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(merged)


def test_plans_tell_points_and_time(file, capsys):
    assert call(profile, "plan", "--like", file, "--points", "9") == 0
    assert "9 of 121 clock pairs (7.4 %), design geometric" in capsys.readouterr().out
    clocks = ("--cpu-mhz", "100,200", "--gpu-mhz", "300,600")
    assert call(profile, "plan", *clocks, "--points", "4", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["points"][0] == [100_000_000, 300_000_000]
    assert plan["expected_s"] == pytest.approx(400 * 0.02 * (2 + 2 + 2 + 1))
    with pytest.raises(UsageError, match="the GPU clocks are missing"):
        call(profile, "plan", "--cpu-mhz", "100")


def test_a_table_for_several_models_needs_a_choice(file, tmp_path):
    from dataclasses import replace

    two = make_profile([BIG])
    two = replace(two, networks={"a": two.networks["toy"], "b": two.networks["toy"]})
    save_profile(two, tmp_path / "two.json")
    with pytest.raises(UsageError, match="the profile holds 2 models; add --model: a, b"):
        call(estimate, tmp_path / "two.json", "-o", tmp_path / "t.npz")
