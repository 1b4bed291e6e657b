from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.errors import TableError
from estimators.table import FORMAT_VERSION, LatencyTable, TableHeader
from tests.estimators.tables import CPU_HZ, GPU_HZ, make_table


def test_save_and_load_keep_everything(tmp_path: Path) -> None:
    header = TableHeader(
        board="Jetson AGX Orin",
        soc="tegra234",
        l4t="36.4.3",
        power_mode="MAXN",
        online_cpus=(0, 1, 4),
        gpu_tpc_mask=0x3,
        engine="tensorrt 10.3",
        precision="fp16",
        model="réseau",
        period_ns=20_000_000,
        phase="decode",
        provenance={"runs": ["a.csv"], "n": 3},
        fit={"mape": 0.02},
    )
    table = make_table(
        header=header,
        power_mw=np.full((2, 3, 4, 3), 7000.0),
        tail_ratio=np.array([[1.1, 1.5], [1.2, 1.6]]),
        tail_levels=np.array([0.9, 0.999]),
    )
    table.save(tmp_path / "t.npz")
    loaded = LatencyTable.load(tmp_path / "t.npz")
    assert loaded.header == header
    for name in ("emc_hz", "context", "cpu_hz", "gpu_hz", "latency_us", "power_mw"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(table, name))
    np.testing.assert_array_equal(loaded.tail_ratio, table.tail_ratio)
    np.testing.assert_array_equal(loaded.tail_levels, table.tail_levels)
    assert loaded.cpu_hz.dtype == np.int64
    assert loaded.latency_us.dtype == np.float32


def test_numpy_alone_can_read_a_table(tmp_path: Path) -> None:
    make_table().save(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz", allow_pickle=False) as file:
        assert '"model":"resnet50"' in str(file["header"])
        assert file["latency_us"].shape == (2, 3, 4, 3)


def test_numpy_alone_can_write_a_table(tmp_path: Path) -> None:
    table = make_table()
    np.savez(
        tmp_path / "t.npz",
        header=np.array('{"format_version": "1.3", "model": "m", "from_a_newer_minor": 1}'),
        emc_hz=table.emc_hz.astype(np.int32),
        context=table.context.astype(np.uint16),
        cpu_hz=table.cpu_hz,
        gpu_hz=table.gpu_hz,
        latency_us=np.asfortranarray(table.latency_us.astype(np.float64)),
        other=np.array([object()], dtype=object),
    )
    loaded = LatencyTable.load(tmp_path / "t.npz")
    assert loaded.header.model == "m"
    np.testing.assert_array_equal(loaded.latency_us, table.latency_us)
    loaded.save(tmp_path / "u.npz")
    assert LatencyTable.load(tmp_path / "u.npz").header.format_version == FORMAT_VERSION


def test_a_failed_save_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.npz"
    make_table().save(path)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(TableError, match=r"t\.npz: cannot write table: No space left on device"):
        make_table().save(path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["t.npz"]


def test_save_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="cannot write table: No such file"):
        make_table().save(tmp_path / "nowhere" / "t.npz")


def test_arrays_are_read_only_copies() -> None:
    values = np.full((2, 3, 4, 3), 5.0, dtype=np.float32)
    table = make_table(latency_us=values)
    values[:] = 7.0
    assert table.latency_us[0, 0, 0, 0] == 5.0
    with pytest.raises(ValueError, match="read-only"):
        table.latency_us[0, 0, 0, 0] = 1.0


def test_latency_at_a_cell() -> None:
    table = make_table()
    for e, emc_hz in enumerate(table.emc_hz.tolist()):
        for k, context in enumerate(table.context.tolist()):
            for c, cpu_hz in enumerate(CPU_HZ):
                for g, gpu_hz in enumerate(GPU_HZ):
                    found = table.latency_at(cpu_hz, gpu_hz, emc_hz=emc_hz, context=context)
                    assert found == table.latency_us[e, k, c, g]


def test_context_is_linear_between_knots_and_clamped_outside() -> None:
    table = make_table()
    assert table.context_weight(91) == (1, 1, 0.0, False)
    assert table.context_weight(46) == (0, 1, 0.5, False)
    assert table.context_weight(0) == (0, 0, 0.0, True)
    assert table.context_weight(182) == (2, 2, 0.0, True)
    at_1, at_91 = (table.latency_at(CPU_HZ[0], GPU_HZ[0], context=n) for n in (1, 91))
    assert table.latency_at(CPU_HZ[0], GPU_HZ[0], context=28) == at_1 + 0.3 * (at_91 - at_1)
    np.testing.assert_array_equal(
        table.slice_us(0, 46), (table.latency_us[0, 0] + table.latency_us[0, 1]) / 2
    )


def test_a_model_without_context_is_never_clamped() -> None:
    table = make_table(context=np.array([0]), latency_us=np.ones((2, 1, 4, 3)))
    assert table.context_weight(5) == (0, 0, 0.0, False)


def test_emc_takes_the_slower_neighbour_and_says_so() -> None:
    table = make_table()
    assert table.emc_index(665_600_000) == (0, True)
    assert table.emc_index(2_133_000_000) == (1, True)
    assert table.emc_index(2_000_000_000) == (0, False)
    assert table.emc_index(3_199_000_000) == (1, False)
    assert table.emc_index(204_000_000) == (0, False)
    assert table.emc_index(0) == (0, False), "an unknown clock may be the lowest"


def test_emc_governed_by_the_board_is_always_exact() -> None:
    table = make_table(emc_hz=np.array([0]), latency_us=np.ones((1, 3, 4, 3)))
    assert table.emc_index(0) == (0, True)
    assert table.emc_index(3_199_000_000) == (0, True)


def test_unknown_clock() -> None:
    with pytest.raises(TableError, match="gpu_hz: unusable table: the table has no 5 Hz"):
        make_table().latency_at(CPU_HZ[0], 5)
    with pytest.raises(TableError, match="cpu_hz: unusable table: the table has no 9999999999 Hz"):
        make_table().latency_at(9_999_999_999, GPU_HZ[0])


def test_power() -> None:
    assert make_table().slice_mw() is None
    power = make_table(power_mw=np.full((2, 3, 4, 3), 7.0)).slice_mw()
    assert power is not None
    assert power.shape == (4, 3)


def _check(made: TableHeader, **here: object) -> tuple[str, ...]:
    facts: dict[str, object] = {"online_cpus": (0, 1), "gpu_tpc_mask": 1, "board": "orin"}
    return make_table(header=made).check_board(**{**facts, **here})


MADE = TableHeader(model="m", board="orin", online_cpus=(1, 0), gpu_tpc_mask=1)


def test_check_board_accepts_the_same_and_the_unknown() -> None:
    assert _check(MADE) == ()
    assert _check(TableHeader(), board="nx", online_cpus=range(12), gpu_tpc_mask=7) == ()
    assert _check(MADE, board="", online_cpus=(), gpu_tpc_mask=None) == ()


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ({"online_cpus": (0, 1, 2)}, "online CPUs '0,1' in the table, '0,1,2' here"),
        ({"gpu_tpc_mask": 0}, "GPU TPC mask '0x1' in the table, '0x0' here"),
        ({"board": "nx"}, "board 'orin' in the table, 'nx' here"),
    ],
)
def test_check_board_refuses_what_differs_unless_forced(
    here: dict[str, object], words: str
) -> None:
    with pytest.raises(TableError) as caught:
        _check(MADE, **here)
    assert words in str(caught.value)
    assert "force" in str(caught.value)
    assert _check(MADE, **here, force=True) == (words,)


def test_check_board_tells_all_differences_at_once() -> None:
    found = _check(replace(MADE, gpu_tpc_mask=3), online_cpus=(5,), force=True)
    assert len(found) == 2
