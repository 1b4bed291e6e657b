"""What the report says in words follows from its rows."""

from bench.paper_words import words_on


def row(policy, variant="", *, model="vgg16", rate_hz=50.0, release="periodic", **figures):
    known = {
        "qos_run_pct": 100.0, "miss_pct": 0.0, "mean_power_w": 10.0, "ppw": 10.0, "stretch": 0,
        "deadline_ms": 1e3 / rate_hz,
    }  # fmt: skip
    return {"policy": policy, "variant": variant, "model": model, "rate_hz": rate_hz,
            "release": release, **known, **figures}  # fmt: skip


def text(figures, rows):
    return "\n".join(words_on(figures, rows))


def test_commercial_governor_beside_the_paper():
    rows = [
        row("schedutil", "30W", qos_run_pct=81.3, miss_pct=100.0),
        row("schedutil", "MAXN"),
        row("schedutil", "30W", rate_hz=20.0, qos_run_pct=55.5),
    ]
    found = text(["12", "13"], rows)
    assert "the paper has 77.93 % QoS" in found
    assert "30W: 81.30 % (100.0 % late); MAXN: 100.00 % (0.0 % late)" in found
    assert "55.50" not in found  # another rate
    assert found.count("DVFS-Com on vgg16") == 1  # once for both figures


def test_lead_by_rate_ties_and_late_cells():
    rows = [
        row("flame", "no margin", ppw=9.0, miss_pct=12.0),
        row("flame", "margin 5 %", ppw=8.0),
        row("max", ppw=4.0),
        row("oracle", ppw=9.0),
        row("flame", "no margin", rate_hz=20.0, ppw=10.0),
        row("flame", "margin 5 %", rate_hz=20.0, ppw=10.0),
        row("max", rate_hz=20.0, ppw=8.0),
        row("oracle", rate_hz=20.0, ppw=12.0),
    ]
    found = text(["12"], rows)
    assert "over max, by rate: vgg16 +25 % at 20/s, +100 % at 50/s." in found
    assert "In 1 of 2 cells (vgg16 50/s)" in found
    assert "more than 1 % of jobs in: vgg16 50/s (12.0 %)." in found


def test_language_models_of_the_commercial_governor():
    on_time = [row("schedutil", "MAXN", model="gpt2-large")]
    assert "ours does so in no mode" in text(["14"], on_time)
    late = [*on_time, row("schedutil", "30W", model="gpt2-large", miss_pct=40.0)]
    assert "only in the modes 30W" in text(["15"], late)


def test_stretches_are_told_in_order():
    rows = [
        row("flame", "margin 5 %, beside background", stretch=2, qos_run_pct=89.1, miss_pct=58.4),
        row("flame", "margin 5 %", stretch=1),
        row("flame", "no margin", stretch=1, qos_run_pct=98.0, miss_pct=3.0),
        row("max", stretch=1),
    ]
    found = text(["21"], rows)
    assert "vgg16, margin 5 %: QoS % (late %) by phase: 100.0 (0.0), 89.1 (58.4)." in found
    found = text(["20"], rows)
    assert "vgg16, no margin: QoS at least 98.0 % in all stretches; at most 3.0 %" in found
    assert "58.4 % of jobs late (at 20 ms)" in found


def test_back_to_back_jobs_have_words_of_their_own():
    (found,) = words_on(["12", "13", "14", "15"], [row("flame", release="closed")])
    assert found.startswith("The same governors")


def test_an_experiment_of_no_figure_has_no_words():
    assert words_on([], [row("flame")]) == []
