"""The overhead bench: what it reports is there, and its ratios mean what they say."""

import json
import math

import pytest

from bench import overhead
from bench.overhead_rig import DEADLINES_NS, Rig
from governor.cli import main

QUANTILES = ("decide_us", "estimate_us", "rtt_us", "bare_rtt_us", "rtt_ratio", "hint_to_write_us")
SINGLE = ("daemon_rss_mib", "start_s", "cpu_percent", "msgs_per_s", "msgs_lost")


def test_a_ratio_is_the_median_over_rounds_of_ratios_of_quantiles():
    bare = [[100.0] * 25] * 8
    ours = [[110.0] * 25] * 4 + [[130.0] * 25] * 4
    assert overhead._ratios(ours, bare) == {"p50": 1.2, "p99": 1.2}


def test_the_deadlines_of_the_rig_ask_for_different_clocks(tmp_path):
    with Rig(tmp_path) as rig:
        rig.session.open()
        _, sent = rig.block("daemon", 20, 0.01)
        changed, levels = rig.hint_to_write_us(sent)
        before = rig.served()
        rig.jobs(20, 0.005)
        rig.wait_served(before + 40, timeout_s=5)
        assert rig.served() - before == 40
    assert changed >= 15
    assert 0 < levels["cpu"]["p50"] < 100_000
    assert 0 < levels["gpu"]["p50"] < 100_000
    assert len(set(DEADLINES_NS)) == 2


@pytest.mark.slow
def test_the_whole_bench_prints_every_figure(capsys):
    assert main(["bench", "overhead", "--json", "--rounds", "5"]) == 0
    result = json.loads(capsys.readouterr().out)
    for name in QUANTILES:
        assert {"p50", "p99"} <= result[name].keys()
        assert all(math.isfinite(result[name][level]) for level in ("p50", "p99"))
    assert math.isfinite(result["oneway_block_ratio"]["p50"])
    assert all(math.isfinite(result[name]) for name in SINGLE)
    assert result["msgs_lost"] == 0
    assert result["hints_that_changed_the_point_pct"] >= 50
    assert {"cpu", "cores", "python"} <= result["machine"].keys()
