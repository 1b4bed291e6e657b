"""The room's documents against its files."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "governor/README.md",
    "governor/PROTOCOL.md",
    "governor/boards/README.md",
    "policies/README.md",
    "estimators/README.md",
    "deploy/README.md",
    "CONTRIBUTING.md",
)


def test_every_module_and_verb_of_the_governor_is_told() -> None:
    text = (ROOT / "governor/README.md").read_text()
    modules = {path.name for path in (ROOT / "governor").glob("*.py")} - {"__init__.py"}
    verbs = {path for path in (ROOT / "governor/cli").glob("*.py") if "HELP =" in path.read_text()}
    assert len(verbs) == 12
    named = [f"`{name}`" for name in sorted(modules | {path.stem for path in verbs})]
    assert [name for name in named if name not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_lines_can_be_read_in_a_terminal(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert [line for line in lines if len(line) > 110 and not line.startswith("|")] == []


def test_the_protocol_tells_of_swaps_and_faults() -> None:
    text = " ".join((ROOT / "governor/PROTOCOL.md").read_text().split())
    assert "those of earlier requests are forgotten" in text
    assert "what the policy in force raised last" in text
