"""The evaluation of the paper: gains, rows, report and bad input."""

import argparse
import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from bench import paper
from bench.estimators_measured import Slice
from bench.harness import Result
from bench.harness_plan import Cell, PolicyEntry, Segment, Unit
from bench.paper_charts import over_jobs, over_rates
from bench.paper_extra import Top, top_of
from bench.paper_front import BEGIN, END, main_table, put
from bench.paper_tables import (
    Contestant,
    collect,
    gain,
    matched,
    oracle_ratios,
    ppw_gains,
    rows,
)
from estimators.errors import FlamegovError
from governor.errors import UsageError
from policies.constant import MaxPolicy

MINE = """
title = "Mine"
board = "agx-orin"
seconds = 1
seeds = 2
models = { vgg16 = [40, 50] }
[[policies]]
name = "flame"
variant = "no margin"
options = { margin = 0.0 }
[[policies]]
name = "flame"
variant = "margin 5 %"
[[policies]]
name = "max"
[[policies]]
name = "oracle"
"""


def metrics(watts, miss=0.0, qos=100.0):
    return {
        "jobs": 10, "seconds": 1.0, "qos_run_pct": qos, "qos_job_pct": qos, "miss_pct": miss,
        "miss_from_release_pct": miss,
        "longest_miss_run": 0, "mean_power_w": watts, "ppw": qos / watts,
        "energy_mj_per_job": 100.0 * watts, "energy_mj_per_on_time_job": None,
        "lateness_us": {"p50": -1.0, "p99": 2.0, "p99.9": 3.0}, "switches_per_s": 0.0,
        "mean_cpu_hz": 1e9, "mean_gpu_hz": 1e9,
    }  # fmt: skip


def result(policy, variant, runs, model="vgg16", learn_s=0.0, error=None):
    cell = Cell("agx-orin", model, (Segment(20.0),), "periodic", 1.0, "", 64, 200)
    unit = Unit("dnn", cell, PolicyEntry(policy, variant=variant, learn_s=learn_s), len(runs))
    entries = [
        {"seed": i, "scored": run, "all": run | {"miss_pct": 50.0}, "segments": []}
        for i, run in enumerate(runs)
    ]
    return Result(unit, entries, None, error)


RACE = [
    result("flame", "no margin", [metrics(10.0, miss=4.0)] * 2),
    result("flame", "margin 5 %", [metrics(12.5)] * 2),
    result("ztt", "a", [metrics(15.0, miss=1.0)] * 2, learn_s=1.0),
    result("max", "", [metrics(25.0)] * 2),
    result("schedutil", "MAXN", [metrics(20.0, miss=9.0)]),
    result("schedutil", "30W", [metrics(8.0, miss=100.0, qos=80.0)]),
    result("oracle", "", [metrics(12.0, miss=0.5)] * 2),
]


def test_flame_is_matched_by_lateness():
    (cell,) = collect(RACE).values()
    plain, careful = Contestant("flame", "no margin"), Contestant("flame", "margin 5 %")
    assert matched(cell, Contestant("ztt", "a")) == careful
    assert matched(cell, Contestant("ztt", "a", "all")) == plain
    assert matched(cell, Contestant("schedutil", "MAXN")) == plain
    del cell[careful], cell[plain]
    assert matched(cell, Contestant("max", "")) is None


def test_gains_by_hand():
    gains = ppw_gains(collect(RACE))
    after, every = gains["ztt"]["a; after learning"], gains["ztt"]["a; all decisions"]
    assert after["dnn"] == pytest.approx(100 * (15.0 / 12.5 - 1))
    assert after["slm"] is None
    assert after["mean"] == pytest.approx(after["dnn"])
    assert after["no_margin"] == pytest.approx(50.0)
    assert (after["flame_miss_pct"], after["miss_pct"]) == (0.0, 1.0)
    assert every["mean"] == pytest.approx(50.0)
    assert gains["max"]["mean"] == pytest.approx(100.0)
    assert gains["schedutil"]["mean"] == pytest.approx(100.0)
    by_mode = gains["schedutil"]["by_mode"]["30W"]
    assert by_mode["mean"] == pytest.approx(0.0)
    assert by_mode["qos_gain_pct"] == pytest.approx(25.0)


def test_language_models_are_told_apart():
    slm = [result(r.unit.policy.name, r.unit.policy.variant, [metrics(10.0)] * 2, "gpt2-large")
           for r in RACE[1:4]]  # fmt: skip
    found = gain(collect([*RACE, *slm]), Contestant("max", ""))
    assert (found["dnn"], found["slm"]) == (pytest.approx(100.0), pytest.approx(0.0))
    assert found["mean"] == pytest.approx(50.0)
    assert found["cells"] == 2


def test_oracle_ratios_leave_infeasible_deadlines_out():
    ratios = oracle_ratios(collect(RACE))
    assert ratios["ppw_vs_oracle"]["margin_0"] == pytest.approx(1.2)
    assert ratios["ppw_vs_oracle"]["margin_default"] == pytest.approx(12.0 / 12.5)
    assert ratios["miss_pct"] == {"margin_0": 4.0, "margin_default": 0.0}
    late = [*RACE[:-1], result("oracle", "", [metrics(30.0, miss=100.0)] * 2)]
    assert oracle_ratios(collect(late))["cells"] == 0


def test_rows_and_a_failed_run():
    made = rows([*RACE, result("fixed", "", [], error="Traceback ...")], {"dnn": "fig12+13"})
    assert len(made) == 8  # two windows of zTT; the failed one has no row
    row = next(r for r in made if r["policy"] == "max")
    assert row["figure"] == "fig12+13"
    assert (row["deadline_ms"], row["rate_hz"], row["release"]) == (20.0, 50.0, "periodic")
    assert row["ppw_vs_oracle"] == pytest.approx(12.0 / 25.0)
    assert row["energy_mj_per_on_time_job"] is None
    assert made == sorted(made, key=lambda r: (r["policy"], r["variant"]))


def test_charts_of_few_policies_draw_all():
    mine = [result("mine", "", [metrics(9.0)] * 2), result("flame", "", [metrics(8.0)] * 2)]
    (chart,) = over_rates("x", rows(mine, {"dnn": "x"}))
    assert [series.label for series in chart.panels[0].series] == ["flame", "mine"]


def test_charts_draw_what_there_is():
    (chart,) = over_rates("fig12+13", rows(RACE, {"dnn": "fig12+13"}))
    assert [panel.y_label for panel in chart.panels] == ["QoS, %", "late jobs, %", "PPW, %/W"]
    labels = [series.label for series in chart.panels[0].series]
    assert labels[:2] == ["flame, no margin", "flame, margin 5 %"]
    assert labels[2:] == ["max", "schedutil, MAXN", "oracle", "schedutil, 30W"]
    assert over_jobs("fig20", RACE) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["fig12"], ["dnn"]),
        (["12,fig15"], ["dnn", "slm"]),
        (["Fig.20"], ["deadlines"]),
        (["ztt"], ["dnn", "slm", "closed"]),
        (["table1", "overhead"], ["profiling", "overhead"]),
    ],
)
def test_only(words, parts):
    assert paper.parse_only(words, quick=False) == parts


def test_only_of_an_unknown_figure():
    with pytest.raises(UsageError, match=r"unknown figure 'fig9'.*fig10"):
        paper.parse_only(["fig9"], quick=False)


def test_quick_leaves_the_slow_parts_out():
    whole, quick = (paper.parse_only(None, quick=q) for q in (False, True))
    assert set(whole) - set(quick) == set(paper.SLOW)
    assert set(paper.EXPERIMENTS) <= set(quick)


def arguments(tmp_path: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    paper.add_arguments(parser)
    return parser.parse_args(
        ["--report", str(tmp_path / "p.html"), "--results", str(tmp_path / "runs"),
         "--workers", "1", *words]
    )  # fmt: skip


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    return str(path)


def test_own_experiment_to_report_json_csv_and_png(mine, tmp_path, capsys):
    assert paper.run(arguments(tmp_path, "--experiment", mine, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"rows", "ppw_gain_pct", "flame_ppw_vs_oracle", "flame_miss_pct", "report"} <= set(found)
    assert {row["policy"] for row in found["rows"]} == {"flame", "max", "oracle"}
    assert set(found["flame_ppw_vs_oracle"]) == {"margin_0", "margin_default"}
    assert {"ztt", "max", "schedutil"} <= set(found["ppw_gain_pct"])
    assert found["ppw_gain_pct"]["max"]["dnn"] > 0
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert "<svg" in page and "seeds" in page
    assert not re.search(r'(src|href)="?https?:', page)
    with (tmp_path / "p.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(found["rows"])
    assert float(table[0]["ppw"]) == pytest.approx(found["rows"][0]["ppw"])
    (picture,) = tmp_path.glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_same_seeds_same_bytes(mine, tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paper.run(arguments(tmp_path / name, "--experiment", mine))
    assert (tmp_path / "a/p.csv").read_bytes() == (tmp_path / "b/p.csv").read_bytes()
    assert "Simulated" in capsys.readouterr().out


def test_a_policy_that_fails_is_told_and_the_exit_code_says_so(mine, tmp_path, capsys, monkeypatch):
    def decide(self, job, view):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(MaxPolicy, "decide", decide)
    assert paper.run(arguments(tmp_path, "--experiment", mine, "--json")) == 1
    found = json.loads(capsys.readouterr().out)
    assert {f["policy"] for f in found["failed"]} == {"max"}
    assert "in decide" in found["failed"][0]["error"]  # a traceback
    assert found["rows"]
    assert "Runs that failed" in (tmp_path / "p.html").read_text(encoding="utf-8")
    assert paper.run(arguments(tmp_path, "--experiment", mine)) == 1
    out, err = capsys.readouterr()
    assert "failed: max on vgg16: ZeroDivisionError: by zero" in err
    assert "flame" in out and "Simulated. Report:" in out


def test_no_place_for_the_report(mine, tmp_path):
    args = arguments(tmp_path, "--experiment", mine)
    args.report = tmp_path / "folder.html"
    args.report.mkdir()
    with pytest.raises(FlamegovError, match="cannot write the report"):
        paper.run(args)


def test_negative_workers(mine, tmp_path):
    with pytest.raises(UsageError, match="--workers"):
        paper.run(arguments(tmp_path, "--workers", "-1"))


def test_a_run_over_jobs_has_a_row_per_stretch(tmp_path, capsys):
    path = tmp_path / "steps.toml"
    path.write_text(
        'title = "t"\nboard = "agx-orin"\nseeds = 1\n'
        "schedule = { resnet50 = [{ deadline_ms = 20, jobs = 5 }, "
        '{ deadline_ms = 12, jobs = 6, world = "background", options = { correction = false } }] }'
        '\n[[policies]]\nname = "flame"\n[[policies]]\nname = "oracle"\n',
        encoding="utf-8",
    )
    assert paper.run(arguments(tmp_path, "--experiment", str(path), "--json")) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    mine = [row for row in found if row["policy"] == "flame"]
    assert [(row["stretch"], row["deadline_ms"]) for row in mine] == [(1, 20.0), (2, 12.0)]
    assert mine[1]["variant"] == "beside background, correction False"


def test_flame_with_a_worse_table_is_shown_but_not_compared():
    worse = PolicyEntry("flame", variant="margin 5 %, interpolated table", table="interpolated")
    found = result("flame", "", [metrics(9.0)] * 2)
    found = found._replace(unit=found.unit._replace(policy=worse))
    (cell,) = collect([*RACE, found]).values()
    assert matched(cell, Contestant("max", "")).table == "estimated"
    assert any("interpolated" in row["variant"] for row in rows([found], {"dnn": "fig12+13"}))


def test_policies_are_compared_in_the_same_power_mode():
    def capped(found):
        unit = found.unit
        return found._replace(unit=unit._replace(cell=unit.cell._replace(mode="30W")))

    com = capped(result("schedutil", "30W", [metrics(8.0, miss=100.0)] * 2))
    ours = capped(result("flame", "no margin, 30W", [metrics(9.0, miss=100.0)] * 2))
    gains = ppw_gains(collect([*RACE[:2], com, ours]))["schedutil"]["by_mode"]["30W"]
    assert gains["mean"] == pytest.approx(100 * (8.0 / 9.0 - 1))
    assert gains["no_margin"] == pytest.approx(gains["mean"])
    assert gains["cells_flame_later"] == 0
    assert ppw_gains(collect([*RACE[:2], com]))["schedutil"]["by_mode"]["30W"]["mean"] is None


def test_highest_clocks_by_hand():
    x_hz = np.array([[1, 1, 1], [1, 2, 1], [2, 1, 1], [2, 2, 1]], dtype=float)
    parts = [
        Slice("falls", x_hz, np.array([8.0, 4.0, 4.0, 2.0])),
        Slice("rises at the end", x_hz, np.array([8.0, 4.0, 4.0, 5.0])),
        Slice("no highest point", x_hz[:3], np.array([8.0, 4.0, 4.0])),
    ]
    assert top_of("board", parts) == Top("board", 2, 1, pytest.approx(25.0), "rises at the end")
    assert top_of("board", parts[:1]) == Top("board", 1, 0, 0.0, "")


def test_tables_of_the_report_are_in_the_json(tmp_path, capsys):
    assert paper.run(arguments(tmp_path, "--only", "max", "--json")) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"].values()
    assert table[0]["grid"] == "agx-orin, simulated" and table[0]["cases"] == 9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--report", "x.csv"], "--report must end in .html"),
        (["--experiment", "a/m.toml", "b/m.toml"], "two files alike"),
        (["--experiment", "m.toml", "--only", "fig12"], "--only chooses"),
        (["--experiment", "m.toml", "--readme", "R.md"], "--readme needs all"),
        (["--only", "fig12", "--readme", "R.md"], "--readme needs all"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, words, said):
    with pytest.raises(UsageError, match=said):
        paper.run(arguments(tmp_path, *words))


def test_the_table_goes_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "R.md"
    page.write_bytes(f"a\r\n{BEGIN}\r\nold\r\n{END}\r\nz".encode())
    page.chmod(0o640)
    put(page, "new\nlines")
    assert page.read_bytes() == f"a\r\n{BEGIN}\r\nnew\r\nlines\r\n{END}\r\nz".encode()
    assert page.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("text", [None, "", BEGIN, f"{END} {BEGIN}"])
def test_a_page_without_marks_is_refused_before_the_run(tmp_path, text):
    page = tmp_path / "R.md"
    if text is not None:
        page.write_text(text, encoding="utf-8")
    with pytest.raises(FlamegovError, match=r"no page to put|nowhere to put"):
        paper.run(arguments(tmp_path, "--quick", "--readme", str(page)))


def test_main_table_has_the_rows_and_the_command():
    board = collect(RACE)
    text = main_table(ppw_gains(board), oracle_ratios(board), "flamegov bench paper --quick")
    assert text.startswith("`flamegov bench paper --quick`, simulated:")
    assert "| `max` | +100.0 |  | +100.0 (+100.0..+100.0) | 0.0 %, 0.0 % |  |" in text
    assert "1.200 of the oracle's with no margin (4.00 % of jobs late)" in text


def test_the_readme_shows_what_is_kept_beside_it():
    root = Path(paper.__file__).resolve().parents[1]
    readme = (root / "README.md").read_text(encoding="utf-8")
    with (root / "bench/results/quick.csv").open(encoding="utf-8", newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["release"] == "periodic"]
    ratios = [
        float(row["ppw_vs_oracle"])
        for row in kept
        if (row["policy"], row["variant"]) == ("flame", "margin 5 %")
        and row["ppw_vs_oracle"]
        and row["figure"] in ("fig12+13", "fig14+15")
    ]
    assert f"{sum(ratios) / len(ratios):.3f} of the oracle's with the default" in readme
    assert (root / "bench/results/quick-fig20-resnet50.png").stat().st_size > 10_000
    assert "bench/results/quick-fig20-resnet50.png" in readme
