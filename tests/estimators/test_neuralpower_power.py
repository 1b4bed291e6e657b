"""Power against clocks: the board, layers to networks, surfaces from runs, files, tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.neuralpower.boardpower import Load, Voltage, check_power, fit_board
from estimators.neuralpower.idlefile import load_idle, save_idle
from estimators.neuralpower.surface import (
    LayerPower,
    corrected,
    monotone,
    surface_from_runs,
    with_power,
)
from estimators.profiles import BoardInfo, LayerRecord, NetworkRecord, Profile, Samples
from estimators.residual import Array
from estimators.table import LatencyTable, TableHeader

CPU = np.linspace(2e8, 2.2e9, 9).round()
GPU = np.linspace(3e8, 1.3e9, 7).round()
TOP = (float(CPU[-1]), float(GPU[-1]))


def _volts(hz: Array, top: float) -> Array:
    volts: Array = np.interp(hz / top, [0, 0.3, 0.6, 0.8, 1.0], [0.6, 0.62, 0.72, 0.85, 1.0])
    return volts


def _idle_mw(cpu: Array, gpu: Array) -> Array:
    vc, vg = _volts(cpu, TOP[0]), _volts(gpu, TOP[1])
    power: Array = 4000 + 700 * cpu / TOP[0] * vc**2 + 3000 * gpu / TOP[1] * vg**2 + 500 * vg
    return power


def _job(cpu: Array, gpu: Array, work: float) -> tuple[Array, Array, Array]:
    """Host, GPU and total time of a job, us."""
    host, busy = 60 * 2.2e9 / cpu, work * 1.3e9 / gpu
    return host, busy, host + busy


def _load_mw(cpu: Array, gpu: Array, work: float) -> Array:
    host, busy, total = _job(cpu, gpu, work)
    vc, vg = _volts(cpu, TOP[0]), _volts(gpu, TOP[1])
    dynamic = 2500 * cpu / TOP[0] * vc**2 + 4000 * gpu / TOP[1] * vg**2 * busy / total
    power: Array = _idle_mw(cpu, gpu) + dynamic + 15_000 * work * vg**2 / total
    return power


def _samples(cpu: Array, gpu: Array, values: dict[str, Array], emc: int = 0) -> Samples:
    clocks = [np.full(len(cpu), emc), np.zeros(len(cpu)), cpu, gpu]
    axes = [axis.astype(np.int64) for axis in clocks]
    return Samples(*axes, values)


def _pairs(step: int = 1) -> tuple[Array, Array]:
    cpu, gpu = np.meshgrid(CPU[::step], GPU[::step], indexing="ij")
    return cpu.ravel(), gpu.ravel()


def _idle(step: int = 2) -> Samples:
    cpu, gpu = _pairs(step)
    return _samples(cpu, gpu, {"power_mw": _idle_mw(cpu, gpu)})


def _layer(name: float, work: float) -> LayerRecord:
    cpu, gpu = _pairs(3)
    host, busy, total = _job(cpu, gpu, work)
    values = {"cpu_us": host, "gpu_us": busy, "total_us": total}
    values["power_mw"] = _load_mw(cpu, gpu, work)
    return LayerRecord("conv", {"width": name}, _samples(cpu, gpu, values))


LAYERS = [_layer(1, 20.0), _layer(2, 200.0), _layer(3, 900.0)]


def _layered() -> LayerPower:
    return LayerPower(_idle(), LAYERS, top_hz=TOP)


def _runs(step: int) -> Samples:
    cpu, gpu = _pairs(step)
    values = {"latency_us": _job(cpu, gpu, 500.0)[2], "power_mw": _load_mw(cpu, gpu, 500.0)}
    return _samples(cpu, gpu, values)


def _mape(power: Array, true: Array) -> float:
    return 100 * float(np.abs(power / true - 1).mean())


def test_board_separates_idle_from_work() -> None:
    loads = [Load.of("layer", record.samples) for record in LAYERS]
    board = fit_board(Load.of("idle", _idle()), loads, top_hz=TOP)
    cpu, gpu = _pairs()
    assert _mape(board.idle_mw(cpu, gpu), _idle_mw(cpu, gpu)) < 2.0
    assert board.fit["rmspe_in_sample_pct"] < 2.0
    assert (board.coefficients >= 0).all() and (board.work >= 0).all()
    volts = board.gpu(GPU)
    assert volts[-1] == pytest.approx(1.0) and (np.diff(volts) >= 0).all()


def test_layers_foretell_a_network_that_was_never_run() -> None:
    cpu, gpu = CPU[:, None], GPU[None, :]
    order = [LAYERS[0].key, LAYERS[1].key, LAYERS[2].key, LAYERS[1].key]
    jobs = [_job(cpu, gpu, work) for work in (20.0, 200.0, 900.0, 200.0)]
    total = np.sum([job[2] for job in jobs], axis=0)
    energy = np.sum(
        [_load_mw(cpu, gpu, w) * j[2] for w, j in zip((20, 200, 900, 200), jobs, strict=True)],
        axis=0,
    )
    power = _layered().predict(order, CPU, GPU, total)
    assert _mape(power, energy / total) < 3.0
    assert (np.diff(power, axis=0) >= 0).all() and (np.diff(power, axis=1) >= 0).all()


def test_layers_without_power_are_named() -> None:
    with pytest.raises(ProfileError, match="conv\\(width=9\\)"):
        _layered().predict(["conv(width=9)"], CPU, GPU, np.ones((9, 7)))


def test_layers_below_the_resolution_of_the_sensor_are_told() -> None:
    tiny = LayerPower(_idle(), [_layer(4, 0.5), *LAYERS], top_hz=TOP)
    assert "conv(width=4)" in tiny.unresolved_
    assert LAYERS[2].key not in tiny.unresolved_


def test_shares_of_energy_name_the_layer_that_burns_it() -> None:
    shares = _layered().energy_shares([r.key for r in LAYERS], TOP[0], TOP[1])
    assert shares.sum() == pytest.approx(1.0)
    assert shares.argmax() == 2 and shares[2] == pytest.approx(900 / 1120, abs=0.05)


@pytest.mark.parametrize(("step", "rows"), [(1, 63), (3, 9)])
def test_surface_from_runs_alone(step: int, rows: int) -> None:
    runs = _runs(step)
    assert len(runs) == rows
    true = _load_mw(CPU[:, None], GPU[None, :], 500.0)
    total = _job(CPU[:, None], GPU[None, :], 500.0)[2]
    assert _mape(surface_from_runs(runs, CPU, GPU), true) < 5.0
    helped = surface_from_runs(runs, CPU, GPU, idle=_idle(), total_us=total)
    assert _mape(helped, true) < 2.0
    assert (np.diff(helped, axis=0) >= 0).all() and (np.diff(helped, axis=1) >= 0).all()


def test_too_few_runs_are_refused() -> None:
    few = _runs(3).where(np.arange(9) < 8)
    with pytest.raises(ProfileError, match="8 given, 9 needed"):
        surface_from_runs(few, CPU, GPU)


def test_too_few_idle_rows_are_refused() -> None:
    idle = _idle().where(np.arange(len(_idle())) < 3)
    with pytest.raises(ProfileError, match="too few idle rows"):
        LayerPower(idle, LAYERS, top_hz=TOP)
    with pytest.raises(ProfileError, match="no load"):
        LayerPower(_idle(), [], top_hz=TOP)


def test_runs_correct_a_surface_that_is_off() -> None:
    true = _load_mw(CPU[:, None], GPU[None, :], 500.0)
    off = true * 1.1
    assert _mape(corrected(off, CPU, GPU, _runs(3)), true) < 1.0
    few = _runs(3).where(np.arange(9) < 3)
    assert _mape(corrected(off, CPU, GPU, few), true) < 1.0
    strange = replace(_runs(3), cpu_hz=_runs(3).cpu_hz + 7)
    with pytest.raises(ProfileError, match="clock that the table lacks"):
        corrected(off, CPU, GPU, strange)


def test_monotone_leaves_rising_surfaces_alone_and_levels_others() -> None:
    rising = np.arange(12.0).reshape(3, 4)
    assert (monotone(rising) == rising).all()
    levelled = monotone(np.array([[1.0, 3.0, 2.0]]))
    assert levelled.tolist() == [[1.0, 2.5, 2.5]]


def test_watts_given_as_milliwatts_are_caught() -> None:
    with pytest.raises(ProfileError, match="looks like W"):
        check_power("here", np.array([14.5]))
    with pytest.raises(ProfileError, match="row 1"):
        check_power("here", np.array([9000.0, np.nan]))
    with pytest.raises(ProfileError, match="no power was measured"):
        Load.of("here", _samples(CPU, CPU, {}))


def test_voltage_curve_by_hand() -> None:
    curve = Voltage(1000.0, least=0.5, knee=0.5, bend=2.0)
    assert curve(np.array([100.0, 500.0, 750.0, 1000.0])).tolist() == [0.5, 0.5, 0.625, 1.0]


# ---- files and tables ---------------------------------------------------------------------------


def test_idle_file_round_trip_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "idle.csv"
    save_idle(path, _idle())
    read = load_idle(path)
    assert (read.cpu_hz == _idle().cpu_hz).all()
    assert read.values["power_mw"] == pytest.approx(_idle().values["power_mw"])
    path.write_text("cpu_hz,gpu_hz,power_mw\n1,2,3\n")
    with pytest.raises(ProfileError, match="emc_hz"):
        load_idle(path)
    path.write_text("cpu_hz,gpu_hz,emc_hz,power_mw\n1.5,2,0,3000\n")
    with pytest.raises(ProfileError, match="whole numbers"):
        load_idle(path)
    path.write_text("cpu_hz,gpu_hz,emc_hz,power_mw\n")
    with pytest.raises(ProfileError, match="no idle rows"):
        load_idle(path)
    with pytest.raises(ProfileError, match="cannot read"):
        load_idle(tmp_path / "none.csv")
    with pytest.raises(ProfileError, match="cannot write"):
        save_idle(tmp_path / "no" / "idle.csv", _idle())


def _table() -> LatencyTable:
    total = _job(CPU[:, None], GPU[None, :], 500.0)[2]
    zero = np.zeros(1, dtype=np.int64)
    axes = (CPU.astype(np.int64), GPU.astype(np.int64))
    return LatencyTable(TableHeader(model="m"), zero, zero, *axes, total[None, None])


def _profile(*, layers: bool, runs: Samples | None) -> Profile:
    clocks = (tuple(int(f) for f in CPU), tuple(int(f) for f in GPU))
    order = (LAYERS[1].key,) * 2 + (LAYERS[0].key,) * 5 if layers else ()
    records = {record.key: record for record in LAYERS} if layers else {}
    found = {} if runs is None else {"m": runs}
    return Profile(BoardInfo("b", *clocks), {"m": NetworkRecord(order)}, records, found)


def test_table_gets_power_from_the_best_source(tmp_path: Path) -> None:
    made = with_power(_table(), _profile(layers=True, runs=None), _idle())
    assert made.header.fit["power"]["0"]["from"] == "layers"
    both = with_power(_table(), _profile(layers=True, runs=_runs(3)), _idle())
    assert both.header.fit["power"]["0"]["from"] == "layers and runs"
    alone = with_power(_table(), _profile(layers=False, runs=_runs(3)), _idle())
    assert alone.header.fit["power"]["0"] == {"from": "runs", "runs": 9}
    true = _load_mw(CPU[:, None], GPU[None, :], 500.0)
    for table in (both, alone):
        plane = table.slice_mw()
        assert plane is not None and _mape(plane, true) < 3.0
    alone.save(tmp_path / "t.npz")
    read = LatencyTable.load(tmp_path / "t.npz")
    assert read.power_mw is not None and read.header.units["power_mw"] == "mW"


def test_table_at_a_memory_clock_without_layers_is_refused() -> None:
    profile = _profile(layers=True, runs=None)
    table = replace(_table(), emc_hz=np.array([3_199_000_000]))
    with pytest.raises(ProfileError, match="not measured at this memory clock"):
        with_power(table, profile, _idle())


def test_table_without_any_power_is_refused() -> None:
    with pytest.raises(ProfileError, match="no power of 'm'"):
        with_power(_table(), _profile(layers=False, runs=None), _idle())
