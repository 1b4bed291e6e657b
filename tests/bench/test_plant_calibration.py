"""The simulated board against published measurements."""

import argparse
import json

import pytest

from bench import calibration, plant_speed
from bench.calibration_checks import Check, all_checks, governed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return calibration.report(all_checks())


def test_the_bars_of_the_calibration_are_met(result):
    fitted, predicted = result["by_kind"]["fitted"], result["by_kind"]["predicted"]
    assert fitted["mean_abs_error_pct"] <= 8
    assert predicted["count"] >= 8
    assert predicted["mean_abs_error_pct"] <= 15
    assert predicted["worst_abs_error_pct"] <= 30


def test_no_row_is_far_off_without_a_reason(result):
    for row in result["rows"]:
        assert abs(row["error_pct"]) <= 25 or row["note"], row["check"]


def test_every_row_says_what_it_is(result):
    names = [row["check"] for row in result["rows"]]
    assert len(set(names)) == len(names)
    for row in result["rows"]:
        assert list(row) == [
            "check", "engine", "kind", "source", "published", "simulated", "error_pct", "note",
        ]  # fmt: skip
        assert row["kind"] in ("fitted", "predicted")
        assert row["source"]
    json.dumps(result)


def test_errors_count_from_the_nearest_end_and_not_within_a_sensor_step():
    def error(low, high, simulated, step=0.0):
        return Check("x", "-", "fitted", "s", low, high, simulated, step).error_pct

    assert error(10, 10, 11) == pytest.approx(10)
    assert error(10, 12, 11) == 0
    assert error(10, 12, 9) == pytest.approx(-10)
    assert error(4.0, 4.0, 4.3, step=0.4) == 0
    assert error(4.0, 4.0, 4.8, step=0.4) == pytest.approx(20)


def test_the_idle_tax_comes_out_of_the_governors():
    stock, pinned = governed(False, False), governed(True, True)
    assert stock.share_510 > 0.9
    assert pinned.share_510 == 0
    assert 1.4 < stock.median_ms / pinned.median_ms < 1.9


def test_both_verbs_print_json(result, monkeypatch, capsys):
    parser = argparse.ArgumentParser()
    plant_speed.add_arguments(parser)
    assert plant_speed.run(parser.parse_args(["--json", "--seconds", "0.02"])) == 0
    speed = json.loads(capsys.readouterr().out)
    assert speed["resnet50_per_s"] > 0
    assert speed["qwen2_7b_tokens_per_s"] > 0
    monkeypatch.setattr(calibration, "report", lambda _: result)
    parser = argparse.ArgumentParser()
    calibration.add_arguments(parser)
    assert calibration.run(parser.parse_args(["--json"])) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == result["rows"]
    assert calibration.run(parser.parse_args([])) == 0
    assert "predicted:" in capsys.readouterr().out
