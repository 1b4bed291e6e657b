"""What a policy raises or answers wrongly is counted and harms nobody."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from governor.config import Config
from governor.controller import Controller
from governor.errors import TOLD_CHARS, told
from governor.guard import REASON_CHARS, AnswerError, sound
from governor.messages import encode_body
from governor.report import latencies
from governor.shadow import Shadow
from policies.base import BasePolicy, Decision, OperatingPoint

from .fakes import FakeDrive, table
from .test_controller import HIGH, LOW, MIDDLE, begin, end, make, opened

NAN = math.nan
UNSOUND = {
    "tuple": (LOW, 1.0, True, "x"),
    "NoneType": None,
    "int": 5,
    "strings": Decision(OperatingPoint("1000", "2000"), NAN, True, "x"),
    "nones": Decision(OperatingPoint(None, None), NAN, True, "x"),
    "nans": Decision(OperatingPoint(NAN, NAN), NAN, True, "x"),
    "floats": Decision(OperatingPoint(1e9, 1e9), NAN, True, "x"),
    "negative": Decision(OperatingPoint(-5, 6), NAN, True, "x"),
    "huge": Decision(OperatingPoint(10**30, 10**30), NAN, True, "x"),
    "three": Decision((1, 2, 3), NAN, True, "x"),
    "number": Decision(7, NAN, True, "x"),
    "no prediction": Decision(LOW, None, True, "x"),
    "text prediction": Decision(LOW, "a", True, "x"),
    "complex prediction": Decision(LOW, 1j, True, "x"),
    "no bool": Decision(LOW, NAN, "b", "x"),
    "no str": Decision(LOW, NAN, True, 5),
}


class Answers(BasePolicy):
    name = "odd"
    answer = None

    def decide(self, job, view):
        if isinstance(self.answer, BaseException):
            raise self.answer
        if callable(self.answer):
            self.answer()
        return self.answer


class Ticks(Answers):
    name = "ticks"
    scope = "board"

    def tick(self, view):
        return self.decide(None, view)


def answering(answer, base=Answers):
    return type("Odd", (base,), {"answer": answer})


def governed(cls):
    return Controller(Config(), FakeDrive(), {("net", "inference"): table()}, cls)


def played(c):
    session = opened(c, ms=20)
    begin(c, 0)
    end(c, 0)
    return session


@pytest.mark.parametrize("kind", UNSOUND)
def test_an_unsound_answer_counts_as_an_error_of_the_policy(kind):
    c = governed(answering(UNSOUND[kind]))
    session = played(c)
    assert c.drive.sent == [HIGH]
    assert session.decision.reason.startswith("policy failed")
    assert c.policy_errors == 1
    assert c.guard.fault.startswith("policy odd returned ")
    assert c.guard.fault.endswith("; 1 in all since it is in force")
    encode_body({"errors": [c.guard.fault]})


def test_the_kind_of_answer_is_told():
    c = governed(answering((LOW, 1.0, True, "x")))
    played(c)
    assert c.guard.fault.startswith("policy odd returned tuple instead of a Decision; 1 in all")


@pytest.mark.parametrize("kind", UNSOUND)
def test_an_unsound_answer_of_a_shadow_leaves_its_means(kind):
    good = Decision(LOW, 1.0, True, "x")
    cls = answering(good)
    c = make()
    c.shadow = Shadow("odd", cls)
    played(c)
    before = c.shadow.report()
    cls.answer = UNSOUND[kind]
    begin(c, 1)
    end(c, 1)
    assert c.shadow.report() == before | {"errors": 1}
    assert c.shadow.guard.fault.startswith("shadow policy odd returned ")
    assert c.drive.sent == [MIDDLE] and c.policy_errors == 0


class Own(BaseException):
    """Of a plug-in's own."""


@pytest.mark.parametrize("error", [SystemExit(3), Own("x"), MemoryError(), StopIteration()])
def test_any_exception_is_an_error_of_the_policy(error):
    c = governed(answering(error))
    c.shadow = Shadow("odd", answering(error))
    played(c)
    assert c.drive.sent == [HIGH]
    assert (c.policy_errors, c.shadow.guard.errors) == (1, 1)
    assert f"raised {type(error).__name__}" in c.guard.fault


def test_sys_exit_is_one_as_well():
    c = governed(answering(lambda _: sys.exit(3)))
    played(c)
    assert c.guard.fault.startswith(f"policy odd raised SystemExit: 3 ({__file__}:")


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_an_interrupt_is_none(error):
    with pytest.raises(error):
        played(governed(answering(error())))


@pytest.mark.parametrize("answer", [5, SystemExit(), UNSOUND["nans"]])
def test_a_tick_is_looked_at_as_well(answer):
    cls = answering(Decision(LOW, NAN, True, "x"), Ticks)
    c = governed(cls)
    opened(c, ms=20)
    c.state_changed()
    assert c.drive.sent == [LOW] and c.policy_errors == 0
    cls.answer = answer
    c.state_changed()
    assert c.drive.sent == [LOW] and c.policy_errors == 1


def test_sound_answers_get_exact_types():
    odd = Decision(
        [np.int64(10), np.uint8(20)], np.float32(5), np.bool_(True), "\x1b[31mforged\n\ud800"
    )
    found = sound(odd)
    assert found == ((10, 20), 5.0, True, "\\x1b[31mforged\\n\\ud800")
    assert isinstance(found.point, OperatingPoint)
    kinds = [type(field) for field in (*found.point, *found[1:])]
    assert kinds == [int, int, float, bool, str]
    encode_body({"it": list(found)})


def test_sound_answers_stay_as_they_are():
    for answer in (Decision(None, NAN, False, ""), Decision(OperatingPoint(0, 5), 2.5, True, "x")):
        assert sound(answer) == answer
    assert sound(Decision(None, Fraction(5, 2), True, "")).predicted_us == 2.5


def test_a_long_reason_is_cut():
    assert len(sound(Decision(None, NAN, True, "r" * 10**6)).reason) == REASON_CHARS
    assert len(sound(Decision(None, NAN, True, "\n" * 10**6)).reason) == REASON_CHARS


def test_an_answer_whose_repr_raises():
    class Worse(tuple):
        def __repr__(self):
            raise RuntimeError("no repr")

    c = governed(answering(Decision(Worse((1, "2")), NAN, True, "x")))
    played(c)
    assert "raised RuntimeError: no repr" in c.guard.fault and c.drive.sent == [HIGH]


class MuteError(Exception):
    def __str__(self):
        raise ValueError("no str")


def test_a_text_of_an_error_is_one_short_printable_line():
    for error in (
        ValueError("x" * 3_000_000),
        ValueError("boom\nsecond \x1b[31m line"),
        ValueError("\udc80" * 500),
        MuteError(),
        type("E\n\n", (Exception,), {})(),
    ):
        try:
            raise error
        except Exception as caught:
            text = told(caught)
        assert text.isprintable() and len(text) <= TOLD_CHARS
        assert f"({__file__}:" in text
    assert "boom second \\x1b[31m line" in told(ValueError("boom\nsecond \x1b[31m line"))
    assert told(MuteError()) == "MuteError: its text raises ValueError"


class Tells(BasePolicy):
    name = "tells"
    figures = None
    latency = 1.0

    def decide(self, job, view):
        return Decision(LOW, NAN, True, "x")

    def stats(self):
        if isinstance(self.figures, BaseException):
            raise self.figures
        return self.figures

    def predict_us(self, job, point, emc_hz):
        if isinstance(self.latency, BaseException):
            raise self.latency
        return self.latency


@pytest.mark.parametrize("figures", [None, 5, {"a": "b"}, {"a": None}, SystemExit()])
def test_figures_that_are_none(figures):
    c = governed(Tells)
    session = played(c)
    session.policy.figures = {"a\n": np.float32(0.5)}
    assert c.guard.stats(session.policy) == {"a": 0.5} and c.policy_errors == 0
    session.policy.figures = figures
    assert c.guard.stats(session.policy) == {} and c.policy_errors == 1


@pytest.mark.parametrize("latency", [None, "a", SystemExit()])
def test_a_latency_that_is_none(latency):
    c = governed(Tells)
    session = played(c)
    assert latencies(c, session.table, 0, 20_000.0)["points"]["chosen"]["latency_us"] == 1.0
    session.policy.latency = latency
    point = latencies(c, session.table, 0, 20_000.0)["points"]["chosen"]
    assert point["latency_us"] is None and "policy failed" in point["note"]
    assert c.policy_errors == 3


def test_what_is_no_decision_raises_a_type_error():
    with pytest.raises(AnswerError, match="returned dict instead of a Decision"):
        sound({})
