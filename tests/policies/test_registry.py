"""Plug-ins are real here: a distribution's metadata and modules in a folder on the path."""

import importlib
import math
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from estimators.errors import PolicyError
from policies.constant import FixedPolicy
from policies.flame import FlamePolicy
from policies.registry import (
    OWN,
    available_policies,
    describe_options,
    load_policy,
    load_policy_class,
)

PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar
from policies.base import BasePolicy, Decision

@dataclass(slots=True)
class Nice(BasePolicy):
    """Nice."""
    name: ClassVar[str] = "nice"
    def decide(self, job, view):
        return Decision(None, 0.0, True, "nice")

class Old(Nice):
    api = 0

class Bare:
    api = 1

class Leaver(Nice):
    def __init__(self):
        raise SystemExit(4)

@dataclass
class Fragile(BasePolicy):
    def __post_init__(self):
        raise KeyError("no key")
'''


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that brings policies good and bad."""
    info = tmp_path / "thirdparty-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.2\n")
    names = {
        "nice": "tp_policies:Nice",
        "old": "tp_policies:Old",
        "bare": "tp_policies:Bare",
        "fragile": "tp_policies:Fragile",
        "broken": "tp_broken:Policy",
        "absent": "tp_absent:Policy",
        "classless": "tp_policies:Nope",
        "quitter": "tp_quitter:Policy",
        "leaver": "tp_policies:Leaver",
    }
    lines = "".join(f"{name} = {target}\n" for name, target in names.items())
    (info / "entry_points.txt").write_text(f"[flamegov.policies]\n{lines}")
    (tmp_path / "tp_policies.py").write_text(PLUGIN)
    (tmp_path / "tp_broken.py").write_text("1 / 0\n")
    (tmp_path / "tp_quitter.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "tp_policies", raising=False)


def _refusal(name: str, options: dict[str, Any] | None = None) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policy(name, options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_shipped_policies_are_listed() -> None:
    listed = {info.name: info for info in available_policies()}
    assert {"flame", "max", "powersave", "fixed"} <= set(listed)
    assert listed["flame"].target == "policies.flame:FlamePolicy"
    assert listed["flame"].distribution.startswith("flamegov ")


@pytest.mark.parametrize("name", ["flame", "max", "powersave", "fixed"])
def test_each_shipped_policy_loads_under_its_own_name(name: str) -> None:
    assert load_policy(name)().name == name


def test_a_factory_makes_separate_instances_with_the_options() -> None:
    factory = load_policy("flame", {"margin": 0, "corrector": "self", "window": 4})
    one, two = factory(), factory()
    assert one is not two
    assert isinstance(one, FlamePolicy)
    assert (one.margin, one.corrector, one.window) == (0.0, "self", 4)


def test_options_are_copied() -> None:
    options = {"cpu_hz": 5}
    factory = load_policy("fixed", options)
    options["cpu_hz"] = 6
    assert factory() == FixedPolicy(cpu_hz=5)


def test_unknown_policy() -> None:
    text = _refusal("flmae")
    names = ", ".join(info.name for info in available_policies())
    assert text.startswith(f"unknown policy 'flmae': installed are {names}")
    assert {"fixed", "flame", "max", "powersave"} <= set(names.split(", "))
    assert text.endswith("did you mean flame?")
    assert "did you mean" not in _refusal("zzz")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("flame", {"margn": 1}, ["policy flame: unknown option 'margn'", "did you mean margin?"]),
        ("flame", {"_grid": None}, ["unknown option '_grid'"]),
        ("flame", {"api": 1}, ["unknown option 'api'"]),
        ("max", {"x": 1}, ["policy max: unknown option 'x': it has no options"]),
        (
            "flame",
            {"margin": "wide"},
            ["option margin cannot be 'wide'", "give float: such as 0.05"],
        ),
        ("flame", {"window": 2.5}, ["option window cannot be 2.5", "give int: such as 10"]),
        ("flame", {"window": True}, ["option window cannot be True"]),
        ("flame", {"correction": 1}, ["option correction cannot be 1", "give bool"]),
        ("flame", {"corrector": "mean"}, ["give raw | cumulative | self: such as 'raw'"]),
        ("flame", {"alpha": None}, ["option alpha cannot be None"]),
        ("flame", {"window": 0}, ["window must be at least 1"]),
        ("flame", {"margin": math.nan}, ["option margin must be 0 to 1"]),
        ("flame", {"margin": 7}, ["option margin must be 0 to 1: it is 7.0"]),
        ("fixed", {"cpu_hz": -1}, ["option cpu_hz must be 0 or more"]),
    ],
)
def test_bad_options(name: str, options: dict[str, Any], words: list[str]) -> None:
    text = _refusal(name, options)
    for part in words:
        assert part in text


def test_options_are_described() -> None:
    margin, correction, corrector, window, alpha = describe_options(FlamePolicy)
    assert (margin.name, margin.type, margin.default, margin.unit) == (
        "margin",
        "float",
        0.05,
        "ratio",
    )
    assert (correction.name, correction.type, correction.default) == ("correction", "bool", True)
    assert corrector.type == "raw | cumulative | self"
    assert (window.default, window.unit, alpha.default) == (10, "jobs", 0.6)
    for info in (margin, correction, corrector, window, alpha):
        assert info.help


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_is_found() -> None:
    (info,) = [item for item in available_policies() if item.name == "nice"]
    assert info.distribution == "thirdparty 1.2"
    assert load_policy("nice")().name == "nice"


@pytest.mark.usefixtures("plugins")
def test_listing_and_naming_one_imports_no_other() -> None:
    available_policies()
    load_policy("max")
    assert "tp_policies" not in sys.modules
    assert "tp_broken" not in sys.modules


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", "cannot be imported: ZeroDivisionError: division by zero"),
        ("absent", "cannot be imported: ModuleNotFoundError: No module named 'tp_absent'"),
        ("classless", "cannot be imported: AttributeError:"),
        ("quitter", "cannot be imported: SystemExit: 3"),
        ("old", "written for contract 0, not 1"),
    ],
)
def test_a_bad_plug_in_is_named_with_its_package(name: str, why: str) -> None:
    text = _refusal(name)
    assert text.startswith(f"policy {name} of thirdparty 1.2: {why}")
    assert "; " in text, "no next step"


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_that_cannot_be_made() -> None:
    assert _refusal("fragile").startswith("policy fragile: cannot be made: KeyError: 'no key'")
    assert _refusal("leaver").startswith("policy leaver: cannot be made: SystemExit: 4")


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_that_is_no_dataclass_has_no_options() -> None:
    assert describe_options(load_policy_class("bare")) == []
    assert "it has no options" in _refusal("bare", {"x": 1})


def test_the_daemons_share_stays_light() -> None:
    code = (
        "import sys, policies.flame, policies.registry, policies.constant, estimators.tablestore\n"
        "policies.registry.load_policy('flame')\n"
        "heavy = {'sklearn', 'xgboost', 'matplotlib', 'scipy', 'torch', 'joblib', 'dask'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_our_own_policies_are_the_entry_points_of_our_distribution() -> None:
    ours = {
        point.name: point.value
        for point in entry_points(group="flamegov.policies")
        if point.dist is not None and point.dist.name == "flamegov"
    }
    assert ours == OWN
