"""The report in a real browser, where one is installed: no console error, every figure visible."""

import shutil
import subprocess

import pytest

from bench.charts import stack
from bench.paper_charts import over_rates
from bench.paper_report import dependence, race, summary
from bench.paper_tables import collect, oracle_ratios, ppw_gains, rows
from bench.report import facts_of, render

from .test_paper import RACE

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

PROBE = """<script>
const figures = [...document.querySelectorAll("svg")];
const seen = figures.filter(svg => svg.getBoundingClientRect().height > 50
  && svg.getBoundingClientRect().right <= window.innerWidth + 1);
const button = document.querySelector("th button");
button.click();
document.title = `figures ${seen.length} of ${figures.length}, ` +
  `sorted ${button.parentElement.getAttribute("aria-sort")}`;
</script></body>"""


def page() -> str:
    board = collect(RACE)
    made = rows(RACE, {"dnn": "fig12+13"})
    gains = ppw_gains(board)
    charts = over_rates("fig12+13", made)
    drawn = [(chart, stack(chart.panels, chart.x_label)) for chart in charts]
    sections = [
        summary(gains, oracle_ratios(board)),
        dependence(board, board, ppw_gains),
        race("fig12+13", made, drawn, ["Words."]),
    ]
    return render("The paper", sections, facts_of(seed=0))


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [390, 1400], ids=["phone", "desk"])
def test_in_a_browser(tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(page().replace("</body>", PROBE), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
            "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "<title>figures 1 of 1, sorted ascending</title>" in done.stdout
    assert "CONSOLE" not in done.stderr
