import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.errors import FlamegovError, TableError
from estimators.table import LatencyTable
from governor.cli import heatmap
from governor.cli import table as verb
from governor.errors import UsageError
from tests.estimators.tables import make_table


def _run(*words: object) -> int:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return verb.run(parser.parse_args([str(word) for word in words]))


def _run_json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    _run(*words, "--json")
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "t.npz"
    make_table(power_mw=np.full((2, 3, 4, 3), 7000.0)).save(path)
    return path


def test_export_then_import_gives_the_same_table(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("export", saved, tmp_path / "t.csv") == 0
    assert "72 rows" in capsys.readouterr().out
    report = _run_json(capsys, "import", tmp_path / "t.csv", tmp_path / "u.npz")
    assert report["shape"] == [2, 3, 4, 3]
    before, after = LatencyTable.load(saved), LatencyTable.load(tmp_path / "u.npz")
    assert after.header == before.header
    np.testing.assert_array_equal(after.latency_us, before.latency_us)
    np.testing.assert_array_equal(after.power_mw, before.power_mw)


def test_export_to_standard_output_is_what_the_file_gets(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("export", saved, tmp_path / "t.csv")
    capsys.readouterr()
    _run("export", saved)
    assert capsys.readouterr().out == (tmp_path / "t.csv").read_text()
    whole = _run_json(capsys, "export", saved)
    assert whole["latency_us"][0][0][0][0] == 1000.0
    assert whole["tail_ratio"] is None


def test_import_fills_the_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("cpu_hz,latency_us\n1e8,9\n2e8,5\n")
    with pytest.raises(UsageError, match="no model's name; add --model"):
        _run("import", tmp_path / "t.csv", tmp_path / "t.npz")
    with pytest.raises(UsageError, match=r"let it end in \.npz"):
        _run("import", tmp_path / "t.csv", tmp_path / "t.table", "--model", "m")
    words = ("--model", "m", "--phase", "decode", "--power-mode", "30W")
    assert _run("import", tmp_path / "t.csv", tmp_path / "t.npz", *words) == 0
    assert "1 EMC x 1 context x 2 CPU x 1 GPU" in capsys.readouterr().out
    header = LatencyTable.load(tmp_path / "t.npz").header
    assert (header.model, header.phase, header.power_mode) == ("m", "decode", "30W")


def test_show_draws_the_highest_cpu_clock_on_top(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("show", saved, "--emc", 2_133_000_000, "--context", 91) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert "resnet50 on orin (inference), ms; memory 2133 MHz; context 91 tokens" in title
    assert head.split() == ["CPU", "\\", "GPU", "MHz", "306", "816", "1300.5"]
    table = LatencyTable.load(saved)
    top = [float(text.rstrip("░▒▓█")) for text in rows[0].split()]
    assert top == pytest.approx([2201.6, *(table.latency_us[1, 1, 3] / 1000.0)], abs=1e-3)
    assert [row.split()[0] for row in rows] == ["2201.6", "1420.8", "729.6", "115.2"]


def test_show_says_what_it_had_to_bend(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run("show", saved, "--emc", 999_000_000, "--context", 5000)
    text = capsys.readouterr().out
    assert "memory 665.6 MHz (nearest slower); context 5000 tokens (clamped)" in text
    report = _run_json(capsys, "show", saved, "--emc", 999_000_000, "--power")
    assert (report["emc_hz"], report["emc_exact"], report["unit"]) == (665_600_000, False, "W")
    assert report["values"] == [[7.0] * 3] * 4


def test_show_power_of_a_table_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_table().save(tmp_path / "t.npz")
    with pytest.raises(TableError, match=r"t\.npz: the table has no power"):
        _run("show", tmp_path / "t.npz", "--power")
    assert capsys.readouterr().out == ""


def test_show_png(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    _run("show", saved, "--png", tmp_path / "t.png")
    capsys.readouterr()
    assert (tmp_path / "t.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(FlamegovError, match="cannot write picture: No such file"):
        _run("show", saved, "--png", tmp_path / "nowhere" / "t.png")


def test_show_png_without_matplotlib(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FlamegovError, match=r"pip install '\.\[bench\]' in the checkout"):
        _run("show", saved, "--png", tmp_path / "t.png")


def test_check_tells_each_and_fails_if_one_is_bad(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("check", tmp_path) == 0
    assert "ok   " in capsys.readouterr().out
    (tmp_path / "a.npz").write_bytes(b"no")
    assert _run("check", tmp_path) == TableError.exit_code == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"bad  {tmp_path / 'a.npz'}: not a readable table")
    assert lines[1] == f"ok   {saved}: resnet50 (inference), 2 x 3 x 4 x 3"
    report = _run_json(capsys, "check", saved, tmp_path / "a.npz")
    assert [item["ok"] for item in report["tables"]] == [True, False]
    assert report["ok"] is False


def test_check_remarks_on_rising_latency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = make_table().latency_us.copy()
    values[0, 0, 2, 1] = 5000.0
    make_table(latency_us=values).save(tmp_path / "t.npz")
    (report,) = _run_json(capsys, "check", tmp_path)["tables"]
    assert any("latency rises with the CPU clock in 1 of 54 steps" in r for r in report["remarks"])
    assert any("latency rises with the GPU clock in 1 of 48 steps" in r for r in report["remarks"])


def test_check_of_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no tables"):
        _run("check", tmp_path)


class _Terminal:
    def __init__(self, encoding: str, *, tty: bool) -> None:
        self.encoding, self._tty = encoding, tty

    def isatty(self) -> bool:
        return self._tty


def _draw(
    monkeypatch: pytest.MonkeyPatch, *, tty: bool, encoding: str = "utf-8", **env: str
) -> str:
    for name in ("NO_COLOR", "COLUMNS", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    values = np.geomspace(1.0, 100.0, 12).reshape(2, 6)
    stream: Any = _Terminal(encoding, tty=tty)
    return heatmap.draw(values, ["a", "b"], list("uvwxyz"), corner="c", stream=stream)


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[48;5;" in _draw(monkeypatch, tty=True, TERM="xterm")
    for text in (
        _draw(monkeypatch, tty=True, TERM="xterm", NO_COLOR="1"),
        _draw(monkeypatch, tty=True, TERM="dumb"),
        _draw(monkeypatch, tty=False, TERM="xterm"),
    ):
        assert "\x1b" not in text
        assert "█" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-codec"])
def test_plain_shades_where_blocks_cannot_be_shown(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    text = _draw(monkeypatch, tty=False, encoding=encoding)
    assert text.isascii()
    assert "#" in text


def test_a_narrow_terminal_keeps_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _draw(monkeypatch, tty=True, TERM="dumb", COLUMNS="24")
    head = text.splitlines()[0].split()
    assert (head[1], head[-1]) == ("u", "z")
    assert len(head) < 7
    assert "of 6 columns" in text
    assert max(len(line) for line in text.splitlines()[:-1]) <= 24


def test_one_equal_value(monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = _Terminal("utf-8", tty=False)
    assert "5" in heatmap.draw(np.full((1, 1), 5.0), ["a"], ["b"], corner="c", stream=stream)


def test_the_command_prints_one_line_and_the_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "governor.cli", "table", "check", str(tmp_path / "no.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout.startswith(f"bad  {tmp_path / 'no.npz'}: cannot read table")
    done = subprocess.run(
        [sys.executable, "-m", "governor.cli", "table", "show", str(tmp_path / "no.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
