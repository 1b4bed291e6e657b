"""Durations as people write them."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.durations import format_ns, parse_ns


@pytest.mark.parametrize(
    ("value", "duration_ns"),
    [
        ("20ms", 20_000_000),
        (" 1.5 s ", 1_500_000_000),
        ("120us", 120_000),
        ("120\N{MICRO SIGN}s", 120_000),
        ("120\N{GREEK SMALL LETTER MU}s", 120_000),
        ("7ns", 7),
        ("0.1us", 100),
        (".5ms", 500_000),
        ("2.ms", 2_000_000),
        ("1min", 60_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1.0000000005 s", 1_000_000_000),
        (20_000_000, 20_000_000),
        (0, 0),
        (timedelta(milliseconds=20), 20_000_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001_000),
        (timedelta(microseconds=-1), -1_000),
    ],
)
def test_durations(value: Any, duration_ns: int) -> None:
    assert parse_ns(value) == duration_ns


@pytest.mark.parametrize(
    "text",
    ["", "20", "ms", "20 m", "-1ms", "1e3ms", "nan s", "20 parsecs", "1,5s", "1ms2us", "٣ms"],
)
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="write a number and one of ns, us, ms"):
        parse_ns(text)


@pytest.mark.parametrize("value", [0.02, None, True, [1]])
def test_types_without_a_unit_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="'20ms'"):
        parse_ns(value)


@given(st.integers(0, 10**15 - 1))
def test_written_durations_read_back(duration_ns: int) -> None:
    assert parse_ns(f"{duration_ns}ns") == duration_ns
    if duration_ns < 10**13:
        assert parse_ns(format_ns(duration_ns)) == pytest.approx(duration_ns, rel=1e-3)


def test_written_durations() -> None:
    assert [format_ns(ns) for ns in (0, 999, 20_000_000, 1_500_000_000)] == [
        "0 ns",
        "999 ns",
        "20 ms",
        "1.5 s",
    ]
