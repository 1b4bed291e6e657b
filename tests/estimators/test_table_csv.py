from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from estimators import tablecsv
from estimators.errors import TableError
from estimators.table import TableHeader
from estimators.tablecsv import export_csv, import_csv
from tests.estimators.tables import make_table


def _refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TableError) as caught:
        import_csv(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_export_and_import_keep_all_but_tails(tmp_path: Path) -> None:
    table = make_table(
        header=TableHeader(model='a "quoted", name', online_cpus=(0, 3), provenance={"n": [1]}),
        power_mw=np.random.default_rng(1).uniform(1e3, 5e4, (2, 3, 4, 3)),
        latency_us=np.random.default_rng(2).uniform(1e-3, 1e7, (2, 3, 4, 3)),
    )
    export_csv(table, tmp_path / "t.csv")
    back = import_csv(tmp_path / "t.csv")
    assert back.header == table.header
    for name in ("emc_hz", "context", "cpu_hz", "gpu_hz", "latency_us", "power_mw"):
        np.testing.assert_array_equal(getattr(back, name), getattr(table, name))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
@given(st.data())
def test_rows_may_come_in_any_order(tmp_path: Path, data: st.DataObject) -> None:
    table = make_table()
    lines = list(tablecsv.csv_lines(table))
    rows = data.draw(st.permutations(lines[2:]))
    (tmp_path / "t.csv").write_text("".join([*lines[:2], *rows]))
    np.testing.assert_array_equal(import_csv(tmp_path / "t.csv").latency_us, table.latency_us)


def test_measurements_as_a_spreadsheet_writes_them(tmp_path: Path) -> None:
    text = "\ufefflatency_us, gpu_hz ,cpu_hz\r\n# remark, comma\r\n\r\n20.5,1.02e9,729600000.0\r\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    table = import_csv(tmp_path / "t.csv", TableHeader(model="m"))
    assert table.latency_at(729_600_000, 1_020_000_000, emc_hz=5) == 20.5
    assert table.header.model == "m"
    assert table.shape == (1, 1, 1, 1)


def test_columns_left_out_are_governed_by_the_board(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("cpu_hz,latency_us\n1e8,9\n2e8,5\n")
    table = import_csv(tmp_path / "t.csv")
    assert table.gpu_hz.tolist() == [0]
    assert table.emc_index(12345) == (0, True)
    assert table.latency_at(200_000_000, 1_300_500_000) == 5.0


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"t\.csv: cannot read CSV: No such file"):
        import_csv(tmp_path / "t.csv")


def test_unwritable(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"t\.csv: cannot write CSV: No such file"):
        export_csv(make_table(), tmp_path / "nowhere" / "t.csv")


HEAD = "cpu_hz,gpu_hz,latency_us\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": unusable CSV: no column latency_us"),
        ("cpu_hz,gpu_hz\n1,2\n", ": unusable CSV: no column latency_us"),
        (
            "cpu_khz,latency_us\n1,2\n",
            ": unusable CSV: unknown column 'cpu_khz'; known are emc_hz,",
        ),
        ("latency_us,latency_us\n1,2\n", ": unusable CSV: column latency_us stands twice"),
        (HEAD, ": unusable CSV: no rows"),
        (HEAD + "1e8,2\n", ": row 2: unusable CSV: 2 fields, but 3 columns"),
        (
            HEAD + "1e8,2e8,3\n# x\n4e8,2e8,x\n",
            ": row 4, column latency_us: unusable CSV: 'x' is not a number",
        ),
        (
            HEAD + "1e8,2e8,nan\n",
            ": row 2, column latency_us: unusable CSV: 'nan' is not a positive",
        ),
        (
            HEAD + "1e8,2e8,inf\n",
            ": row 2, column latency_us: unusable CSV: 'inf' is not a positive",
        ),
        (HEAD + "1e8,2e8,0\n", ": row 2, column latency_us: unusable CSV: '0' is not a positive"),
        (HEAD + "1e8,2e8,-5\n", ": row 2, column latency_us: unusable CSV: '-5' is not a positive"),
        (
            HEAD + "1e8,2e8,1e39\n",
            ": row 2, column latency_us: unusable CSV: '1e39' is not a positive",
        ),
        (HEAD + "1e8,2e8,\n", ": row 2, column latency_us: unusable CSV: '' is not a number"),
        (HEAD + "1.5,2e8,3\n", ": row 2, column cpu_hz: unusable CSV: '1.5' is not a whole number"),
        (HEAD + "1_00,2e8,3\n", ": row 2, column cpu_hz: unusable CSV: '1_00' is not a number"),
        (HEAD + "1e8,2e8,3_0\n", ": row 2, column latency_us: unusable CSV: '3_0' is not a number"),
        (HEAD + "1e8,nan,3\n", ": row 2, column gpu_hz: unusable CSV: 'nan' is not a whole number"),
        (HEAD + "1e8,-2,3\n", ": row 2, column gpu_hz: unusable CSV: '-2' is not a whole number"),
        (HEAD + "1e8,1e300,3\n", ": row 2, column gpu_hz: unusable CSV: '1e300' is not a whole"),
        (
            HEAD + "1e8,2e8,3\n1e8,2e8,3\n",
            ": row 3: unusable CSV: a duplicate of row 2: emc_hz=0 context=0 cpu_hz=100000000 ",
        ),
        (
            HEAD + "1e8,2e8,3\n4e8,2e8,3\n1e8,2e8,9\n",
            ": row 4: unusable CSV: in conflict with row 2: emc_hz=0",
        ),
        (
            HEAD + "1e8,2e8,3\n1e8,4e8,3\n5e8,2e8,3\n",
            ": unusable CSV: 1 of 4 cells missing, first emc_hz=0 context=0 cpu_hz=500000000 ",
        ),
        (
            HEAD + "0,2e8,3\n7e8,2e8,3\n",
            ": cpu_hz: unusable table: 0 (governed by the board) must stand",
        ),
        ("latency_us\n" + "x" * 200_000 + "\n", ": unusable CSV: field larger than field limit"),
        ("# header: {}\n" + HEAD + "1e8,2e8,3\n", ": header: unusable table: no format version"),
        ("latency_us\n\0\n", ": "),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, message: str) -> None:
    assert _refusal(tmp_path, text).startswith(message)


@pytest.mark.parametrize(
    ("row", "column", "unit", "hz"),
    [
        ("1020e6,306", "gpu_hz", "MHz", 306_000_000),
        ("729600,306e6", "cpu_hz", "kHz", 729_600_000),
        ("2201600.0,306e6", "cpu_hz", "kHz", 2_201_600_000),
        ("1,306e6", "cpu_hz", "MHz", 1_000_000),
    ],
)
def test_mhz_and_khz_taken_for_hz(
    tmp_path: Path, row: str, column: str, unit: str, hz: int
) -> None:
    text = _refusal(tmp_path, f"{HEAD}{row},9\n")
    assert text.startswith(f": row 2, column {column}: unusable CSV: ") and "\n" not in text
    assert f" must be {unit}, " in text and f"give Hz, here {hz};" in text


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"latency_us\n\xff\xfe\n")
    with pytest.raises(TableError, match="unusable CSV: 'utf-8' codec"):
        import_csv(tmp_path / "t.csv")


def test_scattered_points_do_not_blow_up(tmp_path: Path) -> None:
    rows = "".join(f"{i}e7,{i},{i}e7,{i}e7,1\n" for i in range(1, 2001))
    text = "emc_hz,context,cpu_hz,gpu_hz,latency_us\n" + rows
    assert f"{2000**4 - 2000} of {2000**4} cells missing" in _refusal(tmp_path, text)


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablecsv, "MAX_ROWS", 2)
    text = HEAD + "1e8,2e8,3\n2e8,2e8,3\n3e8,2e8,3\n"
    assert _refusal(tmp_path, text).startswith(": row 4: unusable CSV: more than 2 rows")
