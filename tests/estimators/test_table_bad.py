"""Every kind of bad table: one line that says which file, which array, and why."""

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import tablefile
from estimators.errors import TableError
from estimators.table import LatencyTable
from estimators.tablecsv import import_csv
from tests.estimators.tables import make_table


def _parts(**changes: Any) -> dict[str, Any]:
    table = make_table()
    names = ("emc_hz", "context", "cpu_hz", "gpu_hz", "latency_us")
    parts: dict[str, Any] = {name: getattr(table, name).copy() for name in names}
    parts["header"] = np.array(json.dumps({"format_version": "1.0", "model": "m"}))
    return {**parts, **changes}


def _fit(value: str) -> str:
    return f'{{"format_version":"1.0","fit":{{"a":{value}}}}}'


def _refusal(path: Path) -> str:
    with pytest.raises(TableError) as caught:
        LatencyTable.load(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert "; " in text, "no next step"
    return text


def _refused(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "t.npz"
    parts = {name: part for name, part in _parts(**changes).items() if part is not None}
    np.savez(path, **parts)
    return _refusal(path)


def _with(value: float) -> Any:
    values = make_table().latency_us.copy()
    values[1, 2, 3, 0] = value
    return values


def test_sound_parts_load(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **_parts())
    assert LatencyTable.load(tmp_path / "t.npz").shape == (2, 3, 4, 3)


def test_missing(tmp_path: Path) -> None:
    assert "cannot read table: No such file or directory" in _refusal(tmp_path / "t.npz")


def test_a_folder(tmp_path: Path) -> None:
    assert "cannot read table: it is not a regular file" in _refusal(tmp_path)


@pytest.mark.timeout(20)
def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.npz")
    assert "it is not a regular file" in _refusal(tmp_path / "t.npz")


def test_a_link_to_an_endless_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "t.npz").symlink_to("/dev/zero")
    assert "it is not a regular file" in _refusal(tmp_path / "t.npz")


def test_a_link_to_a_table_is_followed(tmp_path: Path) -> None:
    make_table().save(tmp_path / "u.npz")
    (tmp_path / "t.npz").symlink_to("u.npz")
    assert LatencyTable.load(tmp_path / "t.npz").shape == (2, 3, 4, 3)


def test_a_huge_file_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "t.npz").open("wb") as sparse:
        sparse.truncate(tablefile.MAX_TABLE_BYTES + 1)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("opened"))
    assert "table too large: the file has" in _refusal(tmp_path / "t.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_packing_that_no_table_has_is_not_unpacked(tmp_path: Path, method: int) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("latency_us.npy", bytes(1000))
    damaged = bytearray(path.read_bytes())
    damaged[60] ^= 0xFF
    path.write_bytes(damaged)
    assert "latency_us: refused: it is neither stored nor deflated" in _refusal(path)


def _npy(head: bytes, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + body


@pytest.mark.parametrize(
    "member",
    [
        _npy(b"{'descr':'<i8','fortran_order':("),  # an open bracket: TokenError
        _npy(b"(" * 255),
        _npy(b"{'descr':'<i8','fortran_order':False,'shape':(True,)}", bytes(8)),  # TypeError
        _npy(b"{'descr':'<i8','fortran_order':False,'shape':(-1,-1)}", bytes(8)),
        _npy(b"{'descr':'V0','fortran_order':False,'shape':(5,)}"),
        _npy(b"-" * 9000 + b"1"),  # RecursionError or MemoryError, as Python pleases
        b"\x93NUMPY\x01\x00\x10",  # ends inside the length
        b"",
    ],
)
def test_an_array_whose_own_header_is_hostile(tmp_path: Path, member: bytes) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cpu_hz.npy", member)
    assert "not a readable table: " in _refusal(path)


def test_a_header_of_impossible_characters(tmp_path: Path) -> None:
    text = np.frombuffer(b"\xff\xff\xff\x7f", dtype="<U1").reshape(())
    assert "not a readable table" in _refused(tmp_path, header=text)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (_fit("[" * 100_000 + "]" * 100_000), "recursion"),
        (_fit("[" * 40 + "]" * 40), "nested more than 32 deep"),
        (_fit("9" * 5000), ""),
        (json.dumps({"format_version": "1" * 5000 + ".0"}), "no format version like 1.0: '111"),
        (json.dumps({"format_version": "1.0", "period_ns": 10**40}), "period_ns"),
        ('{"format_version":"1.0","model":"\\ud800"}', ""),
    ],
    ids=["nested", "nested-a-little", "digits", "version", "period", "surrogate"],
)
def test_a_hostile_header_is_one_short_line(tmp_path: Path, header: str, why: str) -> None:
    text = _refused(tmp_path, header=np.array(header))
    assert why in text and len(text) < 500
    path = tmp_path / "t.csv"
    path.write_text(f"# header: {header}\nlatency_us\n1\n")
    with pytest.raises(TableError) as caught:
        import_csv(path)
    assert why in str(caught.value) and len(str(caught.value)) < 500


def test_garbage(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(b"\x93garbage" * 100)
    assert "not a readable table: File is not a zip file" in _refusal(tmp_path / "t.npz")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(b"")
    assert "not a readable table" in _refusal(tmp_path / "t.npz")


def test_truncated_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    make_table().save(path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        assert "not a readable table" in _refusal(path)


def test_damaged_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    make_table().save(path)
    whole, refused = bytearray(path.read_bytes()), 0
    for at in range(0, len(whole), 11):
        damaged = whole.copy()
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        try:
            loaded = LatencyTable.load(path)
        except TableError:
            refused += 1
        else:  # a byte that says nothing, such as a date in the archive
            np.testing.assert_array_equal(loaded.latency_us, make_table().latency_us)
    assert refused > len(whole) / 11 / 2


def test_pickled_array(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    text = _refused(tmp_path, cpu_hz=np.array([Bomb()], dtype=object))
    assert "t.npz: cpu_hz: refused: it holds pickled objects" in text
    assert not (tmp_path / "ran").exists()


def test_a_pickle_instead_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(pickle.dumps({"latency_us": 1}))
    assert "not a readable table" in _refusal(tmp_path / "t.npz")


def test_oversized_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("latency_us.npy", bytes(tablefile.MAX_TABLE_BYTES + 1))
    assert path.stat().st_size < 100_000, "a bomb is small"
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    text = _refusal(path)
    assert f"table too large: its arrays need {tablefile.MAX_TABLE_BYTES + 1} bytes" in text


def test_a_size_that_lies(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("latency_us.npy", bytes(50_000_000))
        archive.getinfo("latency_us.npy").file_size = 100
    assert "not a readable table" in _refusal(path)


def test_a_shape_that_lies(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}"
        head = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        archive.writestr("latency_us.npy", head + bytes(16))
    text = _refusal(path)
    assert "t.npz: latency_us: damaged: shape (1000000, 1000000) does not fit 16 bytes" in text


def test_newer_version(tmp_path: Path) -> None:
    header = json.dumps({"format_version": "2.0", "model": ["changed"]})
    text = _refused(tmp_path, header=np.array(header))
    assert "header: table of a newer format: it has version 2.0, this flamegov reads 1.x" in text
    assert "update flamegov" in text


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("not json", "malformed"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "no format version"),
        ('{"format_version": "one"}', "no format version like 1.0: 'one'"),
        (
            '{"format_version": "1.0", "period_ns": "20"}',
            "Expected `int`, got `str` - at `$.period_",
        ),
        (
            '{"format_version": "1.0", "phase": "sleep"}',
            "Invalid enum value 'sleep' - at `$.phase`",
        ),
    ],
)
def test_bad_header(tmp_path: Path, header: str, why: str) -> None:
    text = _refused(tmp_path, header=np.array(header))
    assert "t.npz: header: unusable table: " in text
    assert why in text


def test_header_that_is_no_text(tmp_path: Path) -> None:
    assert "header: unusable table: must be one text" in _refused(tmp_path, header=np.arange(3))


@pytest.mark.parametrize("name", ["header", "emc_hz", "context", "cpu_hz", "gpu_hz", "latency_us"])
def test_absent_array(tmp_path: Path, name: str) -> None:
    assert f"t.npz: {name}: unusable table: missing" in _refused(tmp_path, **{name: None})


@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (0.0, "0.0"), (-1.0, "-1.0")]
)
@pytest.mark.parametrize("name", ["latency_us", "power_mw"])
def test_value_that_is_not_positive_and_finite(
    tmp_path: Path, name: str, value: float, shown: str
) -> None:
    text = _refused(tmp_path, **{name: _with(value)})
    assert f"{name}: unusable table: {shown} at [1, 2, 3, 0] is not a positive" in text


def test_value_beyond_float32(tmp_path: Path) -> None:
    values = make_table().latency_us.astype(np.float64)
    values[0, 0, 0, 0] = 1e39
    assert "1e+39 at [0, 0, 0, 0]" in _refused(tmp_path, latency_us=values)


def test_unsorted_axis(tmp_path: Path) -> None:
    text = _refused(tmp_path, cpu_hz=np.array([1, 3, 2, 4]))
    assert "cpu_hz: unusable table: must ascend, but entry 2 is 2 after 3" in text


def test_repeated_clock(tmp_path: Path) -> None:
    assert "gpu_hz: unusable table: must ascend" in _refused(tmp_path, gpu_hz=np.array([1, 1, 2]))


def test_negative_axis(tmp_path: Path) -> None:
    assert "context: unusable table: negative" in _refused(tmp_path, context=np.array([-1, 0, 1]))


def test_clocks_that_are_not_whole(tmp_path: Path) -> None:
    text = _refused(tmp_path, gpu_hz=np.array([1.5, 2.5, 3.5]))
    assert "gpu_hz: unusable table: must be integers, not float64" in text


def test_governed_by_the_board_beside_a_clock(tmp_path: Path) -> None:
    text = _refused(tmp_path, emc_hz=np.array([0, 2_133_000_000]))
    assert "emc_hz: unusable table: 0 (governed by the board) must stand alone" in text


@pytest.mark.parametrize("axis", [np.array(5), np.zeros((2, 2), np.int64), np.zeros(0, np.int64)])
def test_axis_that_is_no_row(tmp_path: Path, axis: Any) -> None:
    assert "cpu_hz: unusable table: must be a row" in _refused(tmp_path, cpu_hz=axis)


def test_wrong_shape(tmp_path: Path) -> None:
    text = _refused(tmp_path, latency_us=np.ones((2, 3, 3, 4), np.float32))
    assert (
        "latency_us: unusable table: shape (2, 3, 3, 4) does not fit the axes (2, 3, 4, 3)" in text
    )


def test_values_that_are_text(tmp_path: Path) -> None:
    assert "must be numbers" in _refused(tmp_path, latency_us=np.full((2, 3, 4, 3), "a"))


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        (None, "tail_ratio: unusable table: tail_ratio and tail_levels come together"),
        (np.array([0.9, 0.5]), "tail_levels: unusable table: must ascend between 0 and 1"),
        (np.array([0.9, 1.0]), "tail_levels: unusable table: must ascend between 0 and 1"),
        (np.array([1, 2]), "tail_levels: unusable table: must be a row of floating"),
        (np.array([0.9]), "tail_ratio: unusable table: shape (2, 2) does not fit the axes (2, 1)"),
    ],
)
def test_bad_tail(tmp_path: Path, levels: Any, why: str) -> None:
    assert why in _refused(tmp_path, tail_ratio=np.ones((2, 2)), tail_levels=levels)
