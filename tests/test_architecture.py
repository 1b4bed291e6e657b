"""The rules of the house, checked: who imports whom, what the daemon loads, how long things are."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("estimators", "policies", "governor", "bench")
MODULE_CAP = 500
FUNCTION_CAP = 50
HEAVY = ("sklearn", "xgboost", "torch", "matplotlib", "jtop", "scipy", "asyncio", "pandas")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_one_way(path):
    floor = FLOORS.index(path.relative_to(ROOT).parts[0])
    above = set(FLOORS[floor + 1 :])
    upward = {name for name in imports(path) if name.split(".")[0] in above}
    assert upward == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MODULE_CAP
    too_long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= FUNCTION_CAP
    }
    assert too_long == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_why_it_exists(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_every_room_has_a_readme():
    rooms = {path.parent for path in MODULES}
    major = {room for room in rooms if room.parent == ROOT} | {ROOT / "bench" / "plant"}
    assert [str(room) for room in sorted(major) if not (room / "README.md").exists()] == []


def test_the_daemon_loads_nothing_heavy():
    code = (
        "import sys; import governor.cli.run, governor.daemon; "
        "from policies.registry import load_policy; load_policy('flame')(); "
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_no_wall_clock_in_the_daemon():
    for floor in ("policies", "governor"):
        for path in (ROOT / floor).rglob("*.py"):
            assert "time.time(" not in path.read_text(encoding="utf-8"), path
