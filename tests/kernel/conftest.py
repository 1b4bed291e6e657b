"""Tests of this folder run inside the guest; outside, those marked ``kernel`` are left out."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

IN_GUEST = "FLAMEGOV_GUEST" in os.environ


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if IN_GUEST:
        return
    skip = pytest.mark.skip(reason="needs the guest: make kernel-test")
    for item in items:
        if item.get_closest_marker("kernel"):
            item.add_marker(skip)


@pytest.fixture
def report() -> Callable[[str], None]:
    """Write a line of the report that the host prints at the end."""
    path = Path(os.environ["FLAMEGOV_GUEST"]) / "report"

    def write(line: str) -> None:
        with path.open("a") as file:
            file.write(f"{line}\n")

    return write
