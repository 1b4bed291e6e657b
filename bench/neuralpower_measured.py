"""Layer models on layers that were measured: DeepBench's convolutions and matrix products.

Every device and precision is a data set of its own. Held-out folds keep one layer together at all
batch sizes, so that no model has seen the layer it predicts.
"""

import csv
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from estimators.errors import ProfileError
from estimators.neuralpower.lasso import FlopModel, LogModel, PaperModel
from estimators.neuralpower.paleo import PERCENT_OF_PEAK, get_device, paleo_ms
from estimators.neuralpower.process import DefaultModel
from estimators.neuralpower.score import MIN_ROWS, Predictor, groups_of, held_out, rmspe
from estimators.neuralpower.shapes import Columns, LayerShape
from estimators.residual import Array

CONV_FILE, GEMM_FILE = "layers/deepbench_conv.csv", "layers/deepbench_gemm.csv"

_DEVICES = {
    "1080ti": "gtx-1080-ti",
    "1070": "gtx-1070",
    "m40": "m40",
    "p100": "p100",
    "titanxpascal": "titan-x-pascal",
    "titanx": "titan-x",
    "v100": "v100",
    "t4": "t4",
    "2080ti": "rtx-2080-ti",
    "jetsontx1": "jetson-tx1",
    "tx1": "jetson-tx1",
    "jetsontx2": "jetson-tx2",
    "tx2": "jetson-tx2",
}
"""Names in measured files, without maker and punctuation, to data sheets of ``paleo``."""

_SIZES = ("batch", "in_c", "in_h", "in_w", "out_c", "out_h", "out_w", "k_h", "k_w")
_WINDOW = ("pad_h", "pad_w", "stride_h", "stride_w")


@dataclass(frozen=True, slots=True)
class Measured:
    """Layers of one type on one device in one precision.

    Attributes:
        device: As the file names it.
        precision: Numeric precision.
        layers: The layers.
        time_ms: Forward time, ms, ``[n]``.
    """

    device: str
    precision: str
    layers: Columns
    time_ms: Array

    @property
    def key(self) -> str:
        """``DEVICE-PRECISION``."""
        return f"{self.device}-{self.precision}"


def data_folder() -> Path:
    """Folder of measured data: ``FLAMEGOV_DATA``, by default beside the project."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("FLAMEGOV_DATA", default))


def load_convs(path: Path) -> list[Measured]:
    """Read convolutions with the columns of ``deepbench_conv.csv``."""

    def shape(row: Mapping[str, str]) -> LayerShape:
        sizes = {name: int(float(row[name])) for name in (*_SIZES, *_WINDOW)}
        return LayerShape(kind="conv", **sizes)

    return _load(path, shape, "fwd_ms")


def load_gemms(path: Path) -> list[Measured]:
    """Read matrix products with the columns of ``deepbench_gemm.csv`` as fully connected layers.

    ``m x k`` are the weights, ``n`` inputs run at once.
    """

    def shape(row: Mapping[str, str]) -> LayerShape:
        out_c, batch, in_c = (int(float(row[name])) for name in ("m", "n", "k"))
        return LayerShape.fc(batch, in_c, out_c)

    return _load(path, shape, "time_ms")


def _load(
    path: Path, shape: Callable[[Mapping[str, str]], LayerShape], column: str
) -> list[Measured]:
    groups: dict[tuple[str, str], list[tuple[LayerShape, float]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            for number, row in enumerate(csv.DictReader(stream), start=2):
                key, value = _parse(path, number, row, shape, column)
                groups.setdefault(key, []).append(value)
    except OSError as error:
        raise ProfileError(
            "cannot read layers", where=str(path), why=error.strerror or str(error)
        ) from error
    return [
        Measured(*key, Columns.of(s for s, _ in rows), np.array([time for _, time in rows]))
        for key, rows in groups.items()
    ]


def _parse(
    path: Path,
    number: int,
    row: Mapping[str, str],
    shape: Callable[[Mapping[str, str]], LayerShape],
    column: str,
) -> tuple[tuple[str, str], tuple[LayerShape, float]]:
    where = f"{path}: row {number}"
    try:
        return (row["device"], row["precision"]), (shape(row), float(row[column]))
    except KeyError as error:
        raise ProfileError(f"no column {error}", where=str(path)) from error
    except (ValueError, TypeError) as error:
        raise ProfileError("not a number", where=where, why=str(error)) from error
    except ProfileError as error:
        raise ProfileError(
            error.what, where=f"{where}, {error.where}", why=error.why, hint=error.hint
        ) from error


def score(measured: Measured) -> dict[str, Any]:
    """RMSPE of every model on one data set, %; None where a model does not apply."""
    layers, time_ms = measured.layers, measured.time_ms
    result: dict[str, Any] = {"n": len(layers)}
    if len(layers) < MIN_ROWS:
        return result
    groups = groups_of(layers.shapes)
    paper = PaperModel().fit(layers, time_ms)

    def grouped(make: Callable[[], Predictor]) -> float:
        return _rounded(rmspe(held_out(make, layers, time_ms, groups=groups), time_ms))

    result |= {
        "paper_in_sample": _rounded(rmspe(paper.predict(layers), time_ms)),
        "paper_size": paper.size_,
        "paper_kfold": _rounded(rmspe(held_out(PaperModel, layers, time_ms), time_ms)),
        "log_kfold": _rounded(rmspe(held_out(LogModel, layers, time_ms), time_ms)),
        "default_grouped": grouped(DefaultModel),
        "log_flop": grouped(FlopModel),
    }
    return result | _paleo(measured)


def _paleo(measured: Measured) -> dict[str, float | None]:
    """Paleo at its two percents of peak; it knows single precision and listed devices only."""
    name = "".join(c for c in measured.device.lower() if c.isalnum()).removeprefix("nv")
    if name not in _DEVICES or measured.precision != "fp32":
        return {"paleo_062": None, "paleo_100": None}
    device = get_device(_DEVICES[name])
    return {
        label: _rounded(rmspe(paleo_ms(measured.layers, device, percent), measured.time_ms))
        for label, percent in (("paleo_062", PERCENT_OF_PEAK), ("paleo_100", 1.0))
    }


def score_all(sets: Iterable[Measured]) -> dict[str, dict[str, Any]]:
    """Score every data set, by its key."""
    return {measured.key: score(measured) for measured in sets}


def _rounded(value: float) -> float:
    return round(value, 2)
