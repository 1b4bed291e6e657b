"""Reading measured grids: what is understood, what is chosen, what is refused."""

from pathlib import Path

import numpy as np
import pytest

from bench.grids import choices_text, load_grid
from estimators.errors import ProfileError

HEADER = "model,cores,cpu_khz,gpu_mhz,latency_ms"


def _write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "grid.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _small(cores: int = 1, model: str = "a", scale: float = 1.0) -> list[str]:
    points = [(1000, 100, 9.0), (1000, 200, 6.0), (2000, 100, 7.0), (2000, 200, 4.0)]
    return [f"{model},{cores},{c},{g},{t * scale}" for c, g, t in points]


def test_clocks_and_units(tmp_path: Path) -> None:
    grid = load_grid(_write(tmp_path, HEADER, *_small()))
    assert grid.cpu_hz.tolist() == [1_000_000, 2_000_000]
    assert grid.gpu_hz.tolist() == [100_000_000, 200_000_000]
    assert grid.centre_us.tolist() == [[9000.0, 6000.0], [7000.0, 4000.0]]
    assert grid.emc_hz == 0 and grid.power_w is None and len(grid.levels) == 0
    assert grid.choices == ()


def test_ambiguity_takes_the_widest_slice_and_names_the_others(tmp_path: Path) -> None:
    lines = [*_small(cores=4)[:2], *_small(cores=1), *_small(cores=2, scale=2.0)]
    grid = load_grid(_write(tmp_path, HEADER, *lines))
    assert grid.labels["cores"] == "2"  # as wide as cores=1, and more cores
    (line,) = choices_text(grid)
    assert "others: 4, 1" in line and "--by cores=VALUE" in line


def test_by_compares_numbers_as_numbers(tmp_path: Path) -> None:
    path = _write(tmp_path, HEADER, *_small(cores=1), *_small(cores=2, scale=2.0))
    assert load_grid(path, by={"cores": "1.0"}).centre_us[0, 0] == 9000.0
    with pytest.raises(ProfileError, match="choose of: 1, 2"):
        load_grid(path, by={"cores": "7"})
    with pytest.raises(ProfileError, match="no column core"):
        load_grid(path, by={"core": "1"})


def test_memory_clock_is_a_choice(tmp_path: Path) -> None:
    lines = [f"{c},{g},{m},{9e3 / c + m}" for c in (10, 20) for g in (5, 6) for m in (800, 1600)]
    grid = load_grid(_write(tmp_path, "cpu_mhz,gpu_mhz,mem_mhz,latency_us", *lines))
    assert grid.emc_hz == 1_600_000_000


def test_quantiles_and_power(tmp_path: Path) -> None:
    head = "cpu_hz,gpu_hz,emc_hz,response_min_ms,response_p50_ms,response_p99_ms,power_mw"
    lines = ["1,10,5,1,2,3,5000", "1,20,5,0.5,1,2,"]
    grid = load_grid(_write(tmp_path, head, *lines))
    assert grid.levels.tolist() == [0.0, 0.5, 0.99]
    assert grid.quantile_us[0, 1].tolist() == [500.0, 1000.0, 2000.0]
    assert grid.power_w is not None
    assert grid.power_w[0, 0] == 5.0 and np.isnan(grid.power_w[0, 1])
    assert grid.latency_column == "response_p50_ms"


def test_unpinned_rows_and_ragged_clocks_are_left_out_and_told(tmp_path: Path) -> None:
    lines = [*_small(), "a,1,,,5.0", "a,1,3000,200,3.0"]
    grid = load_grid(_write(tmp_path, HEADER, *lines))
    assert grid.centre_us.shape == (2, 2)
    assert "1 rows without pinned clocks" in grid.notes[0]
    assert "CPU 3 MHz" in grid.notes[1]


def test_repeats_told_apart_by_another_column(tmp_path: Path) -> None:
    lines = [f"{line},{size}" for size in (320, 640) for line in _small(scale=size / 320)]
    grid = load_grid(_write(tmp_path, f"{HEADER},image", *lines))
    assert grid.choices[0].column == "image" and grid.choices[0].others == ("640",)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([HEADER], ["no rows"]),
        (["model,cores,gpu_mhz,latency_ms", "a,1,1,1"], ["no column cpu_hz"]),
        (["cpu_khz,gpu_mhz,ticks", "1,1,1"], ["no column latency_ms"]),
        ([HEADER, *_small(), "a,1,1500,100,nan"], [":6", "latency_ms", "'nan'"]),
        ([HEADER, *_small(), "a,1,1500,-100,1"], [":6", "gpu_mhz"]),
        ([HEADER, *_small(), "a,1,1500,100,quick"], [":6", "'quick'"]),
        ([HEADER, *_small(), _small()[0]], [":6", "as line 2", "nothing", "same operating point"]),
        ([HEADER, *_small(), "a,1,1000"], [":6", "another number of cells"]),
        ([HEADER, _small()[0]], ["at least two operating points"]),
        (["cpu_hz,gpu_hz,a_min_ms,a_p50_ms,a_max_ms", "1,1,2,1,3", "1,2,1,1,1"], ["no column lat"]),
        (
            [
                "cpu_hz,gpu_hz,latency_min_ms,latency_p50_ms,latency_max_ms",
                "1,1,2,1,3",
                "1,2,1,1,1",
            ],
            ["quantiles", "decrease"],
        ),
    ],
)
def test_bad_grid_is_one_line(tmp_path: Path, lines: list[str], words: list[str]) -> None:
    with pytest.raises(ProfileError) as caught:
        load_grid(_write(tmp_path, *lines))
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No such file"):
        load_grid(tmp_path / "none.csv")
    (tmp_path / "grid.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ProfileError, match="cannot read the grid"):
        load_grid(tmp_path / "grid.csv")


@pytest.mark.timeout(20)
def test_a_diagonal_of_many_clocks_is_refused_in_time(tmp_path: Path) -> None:
    path = _write(tmp_path, HEADER, *(f"a,1,{i},{i},1" for i in range(1, 60_001)))
    with pytest.raises(ProfileError, match="60000 CPU x 60000 GPU clocks, the cap is 40000"):
        load_grid(path)


@pytest.mark.parametrize("value", ["1_00", "ten", "", "-1", "inf", "0"])
def test_what_is_no_number_is_refused_or_left_out(tmp_path: Path, value: str) -> None:
    lines = [*_small(), f"a,1,3000,100,{value}"]
    if not value:
        assert "1 rows without" in load_grid(_write(tmp_path, HEADER, *lines)).notes[0]
        return
    with pytest.raises(ProfileError, match="latency_ms is not a positive number") as found:
        load_grid(_write(tmp_path, HEADER, *lines))
    assert repr(value) in str(found.value)
