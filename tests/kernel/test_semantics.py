"""The table of semantics against the kernel, and the simulated board against the same table."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.plant.fusetree import fuse_missing
from tests.kernel.backends import Backend, simulated
from tests.kernel.semantics import START, TABLE, Row, markdown

BACKENDS = [
    pytest.param("kernel", marks=pytest.mark.kernel),
    "plain files",
    pytest.param("fuse", marks=pytest.mark.skipif(bool(fuse_missing()), reason=fuse_missing())),
]
ROWS = [pytest.param(row, id=row.act) for rows in TABLE.values() for row in rows]


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    yield from opened(request.param, tmp_path_factory)


def opened(kind: str, folders: pytest.TempPathFactory) -> Iterator[Backend]:
    if kind == "kernel":
        yield Backend(Path("/"))
        return
    with simulated(folders.mktemp("board"), fuse=kind == "fuse") as made:
        yield made


@pytest.mark.parametrize("row", ROWS)
def test_semantics(backend: Backend, row: Row) -> None:
    backend.run(START)
    backend.run(row.steps)


def test_the_readme_shows_this_table() -> None:
    readme = Path(__file__).parents[1] / "README.md"
    assert markdown() in readme.read_text(encoding="utf-8")
