"""The report: complete in itself, escaped, and free of colours that a dark page would swallow."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench.charts import COLOURS, Panel, Series, stack
from bench.report import Figure, Part, Section, Table, Text, facts_of, render, write
from estimators.errors import FlamegovError


class _Reader(HTMLParser):
    """Collects tags, addresses and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "path", "use", "rect", "line"}:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href"}:
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"meta", "path", "use", "rect", "line"}:
            assert self.open.pop() == tag


def _svg() -> str:
    lines = [Series("required", [0, 1, 2], [50, 50, 80], step=True, dashed=True)]
    lines.append(Series("achieved", [0, 1, 2], [52, 51, 79]))
    return stack(
        [Panel("1/s", lines), Panel("W", [Series("flame", [0, 2], [10, 12])])], "time, s"
    ).svg


def _page() -> str:
    table = Table(["policy", "W"], [["a<b", 1.25], ["none", None]], "Power")
    parts: list[Part] = [
        Text("5 < 6 & so on"),
        table,
        Figure(_svg(), "Rate"),
        Figure(_svg(), "Again"),
    ]
    return render("Title <x>", [Section("Main", parts)], facts_of(seed=7, clock="real & true"))


def test_page_is_well_formed_and_loads_nothing() -> None:
    reader = _Reader()
    page = _page()
    reader.feed(page)
    assert reader.open == []
    assert all(address.startswith("#") for address in reader.addresses)
    assert "@import" not in page and "url(http" not in page


def test_text_is_escaped() -> None:
    page = _page()
    assert "Title &lt;x&gt;" in page and "5 &lt; 6 &amp; so on" in page and "a&lt;b" in page
    assert "real &amp; true" in page


def test_chart_takes_every_colour_from_the_page() -> None:
    svg = _svg()
    assert not any(colour in svg for colour in COLOURS)
    assert "var(--ink)" in svg and "var(--series-2)" in svg
    assert not re.search(r"(?:fill|stroke): #[0-9a-f]{6}", svg)
    for variable in set(re.findall(r"var\((--[a-z0-9-]+)\)", svg)):
        assert f"{variable}:" in _page()


def test_chart_is_the_same_every_time() -> None:
    assert _svg() == _svg()


def test_figures_sort_by_value_and_a_missing_one_is_a_dash() -> None:
    page = _page()
    assert '<td class="number" data-value="1.25">1.25</td>' in page
    assert "<td>-</td>" in page


def test_facts_name_seed_versions_and_machine() -> None:
    facts = facts_of(seed=7, policies="flame")
    assert facts["seed"] == "7" and facts["policies"] == "flame"
    assert "Python" in facts["versions"] and facts["machine"]
    assert facts["command"].startswith("flamegov")


def test_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write(path, "one")
    write(path, "two")
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_unwritable_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FlamegovError, match="cannot write the report") as caught:
        write(tmp_path / "file" / "report.html", "x")
    assert "\n" not in str(caught.value)
