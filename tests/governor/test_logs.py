"""What the log holds back, and what it must not."""

import logging

from governor.logs import RepeatFilter


def passes(held_back: RepeatFilter, text: str, *args: object) -> bool:
    record = logging.LogRecord("governor", logging.WARNING, __file__, 1, text, args, None)
    return held_back.filter(record)


def test_the_same_warning_passes_once() -> None:
    held_back = RepeatFilter()
    assert [passes(held_back, "%s fails", "gpu") for _ in range(3)] == [True, False, False]


def test_the_same_trouble_of_each_clock_is_told() -> None:
    held_back = RepeatFilter()
    names = ("policy0", "policy4", "gpu")
    assert [passes(held_back, "%s fails", name) for name in names] == [True] * 3
    assert [passes(held_back, "%s fails", name) for name in names] == [False] * 3


def test_a_client_that_varies_its_mistake_does_not_fill_the_log() -> None:
    held_back = RepeatFilter(alike=16)
    assert sum(passes(held_back, "%s is refused", n) for n in range(1000)) == 16


def test_what_was_held_back_is_counted_when_it_may_pass_again() -> None:
    held_back = RepeatFilter(every_s=0.0)
    assert passes(held_back, "late")
    held_back.every_s = 60.0
    assert not passes(held_back, "late")
    held_back.every_s = 0.0
    record = logging.LogRecord("governor", logging.WARNING, __file__, 1, "late", (), None)
    assert held_back.filter(record)
    assert record.getMessage() == "late (1 like it held back)"
