"""Experiments as data files: what is read, and what is refused."""

import os
from pathlib import Path

import pytest

from bench.harness_load import experiment_names, load_experiment
from bench.harness_plan import units
from governor.errors import UsageError

GOOD = """
title = "t"
board = "agx-orin"
seconds = 2
seeds = 2
models = { vgg16 = [20, 40] }
[[policies]]
name = "max"
[[policies]]
name = "ztt"
seeds = 1
learn_s = 3
mode = "30W"
models = ["vgg16"]
[quick]
seeds = 1
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_reads_cells_and_units(tmp_path):
    experiment = load_experiment(write(tmp_path, GOOD))
    found = list(units("mine", experiment))
    assert [(u.cell.rate_hz, u.policy.name, u.seeds, u.cell.mode) for u in found] == [
        (20.0, "max", 2, ""),
        (20.0, "ztt", 1, "30W"),
        (40.0, "max", 2, ""),
        (40.0, "ztt", 1, "30W"),
    ]
    assert load_experiment(write(tmp_path, GOOD), quick=True).seeds == 1


@pytest.mark.parametrize("quick", [False, True])
def test_all_that_come_with_the_package_are_good(quick):
    names = experiment_names()
    assert {"dnn", "slm", "closed", "nx", "deadlines", "concurrent", "strategies"} <= set(names)
    for name in names:
        assert list(units(name, load_experiment(name, quick=quick)))


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('title = "t"', 'title = "t"\nsedes = 3', "sedes"),
        ('name = "max"', 'name = "max"\noption = {}', "option"),
        ('"agx-orin"', '"agx-apple"', "agx-apple"),
        ("vgg16 =", "vgg61 =", "vgg61"),
        ("[20, 40]", "[]", "rates must be"),
        ("[20, 40]", "[20, -1]", "rates must be"),
        ("[20, 40]", "[20, nan]", "rates must be"),
        ("seeds = 2", "seeds = 0", "seeds and seconds"),
        ("seconds = 2", "seconds = inf", "seeds and seconds"),
        ("models = { vgg16 = [20, 40] }", "", "neither models nor schedule"),
        (
            "models = { vgg16 = [20, 40] }",
            "schedule = { vgg16 = [{ deadline_ms = 0, jobs = 3 }] }",
            "deadline_ms above 0",
        ),
        (
            "models = { vgg16 = [20, 40] }",
            "schedule = { vgg16 = [{ deadline_ms = 9 }] }",
            "number of jobs",
        ),
        (
            "models = { vgg16 = [20, 40] }",
            'schedule = { vgg16 = [{ deadline_ms = 9, jobs = 1, world = "mars" }] }',
            "mars",
        ),
        ('name = "ztt"', 'name = "max"', "stands there twice"),
        ("[quick]", "[quick]\nsedes = 4", "sedes"),
        ('title = "t"', 'title = "t"\nbase = "dmn"', "unknown experiment 'dmn'"),
        ("[quick]\nseeds = 1", "quick = 3", "quick"),
        ('name = "max"', 'name = "mox"', "unknown policy 'mox'"),
        ('name = "max"', 'name = "max"\noptions = { speed = 1 }', "speed"),
        ('mode = "30W"', 'mode = "31W"', "no power mode '31W'"),
        ('mode = "30W"', "jetpack = 3", "JetPack 3"),
        ('models = ["vgg16"]', 'models = ["vgg"]', "vgg"),
        ('"agx-orin"', '"agx-thor"', "choose from agx-orin, orin-nano, orin-nx"),
        ("seeds = 2", "seeds = 100000000", "seeds up to"),
        ("seconds = 2", "seconds = 1e300", "more than 10000000 jobs"),
        ("[20, 40]", "[20, 20]", "stands there twice"),
        ("learn_s = 3", "learn_s = -1", "learn_s in"),
        ("learn_s = 3", "learn_s = nan", "learn_s in"),
        ("seeds = 1\nlearn_s", "seeds = -1\nlearn_s", "seeds must be in"),
        ('models = ["vgg16"]', 'models = ["resnet50"]', "none of its models"),
        ("seeds = 2", "seeds = 2\nrelease = []", "release must name"),
        ("seeds = 2", "seeds = 2\nprompt = -5", "prompt and answer"),
        ("seeds = 2", "seeds = 2\nanswer = 0", "prompt and answer"),
        ("seeds = 2", 'seeds = 2\nfigures = ["a/b"]', "figures must be numbers"),
        ("seeds = 2", "x = " + "[" * 5000, "cannot read"),
        ("title", "title title", "cannot read"),
    ],
)
def test_refuses(tmp_path, old, new, word):
    assert old in GOOD
    with pytest.raises(UsageError, match=word):
        load_experiment(write(tmp_path, GOOD.replace(old, new)))


@pytest.mark.parametrize("kind", ["folder", "fifo", "large"])
def test_what_is_no_file_of_a_sane_size_is_refused(tmp_path, kind):
    path = tmp_path / "mine.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("#" * 2_000_000, encoding="utf-8")
    with pytest.raises(UsageError, match="cannot read the experiment: it is no regular file"):
        load_experiment(str(path))


def test_takes_what_is_not_given_from_another(tmp_path):
    mine = load_experiment(write(tmp_path, 'title = "t"\nbase = "dnn"\nseeds = 3'))
    base = load_experiment("dnn")
    assert (mine.title, mine.seeds) == ("t", 3)
    assert (mine.policies, mine.models, mine.quick) == (base.policies, base.models, base.quick)


def test_unknown_name_suggests_a_known_one():
    with pytest.raises(UsageError, match=r"unknown experiment 'dnm'.*dnn"):
        load_experiment("dnm")
