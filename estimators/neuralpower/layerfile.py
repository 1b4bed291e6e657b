"""Measured layers as CSV: one row per layer, its sizes, its runtime and its power.

Columns are those of :class:`LayerShape` with ``type`` for the kind, then ``runtime_ms`` and
``power_w``. Sizes that a type does not have may be left empty.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from estimators.errors import ProfileError
from estimators.neuralpower.process import DefaultModel
from estimators.neuralpower.score import MIN_ROWS
from estimators.neuralpower.shapes import KINDS, Columns, Kind, LayerShape
from estimators.neuralpower.totals import LayerModels, check_watts
from estimators.residual import Array

SIZES = (
    *("batch", "in_c", "in_h", "in_w", "out_c", "out_h", "out_w"),
    *("k_h", "k_w", "pad_h", "pad_w", "stride_h", "stride_w", "groups"),
)
_PADDING = frozenset({"pad_h", "pad_w"})


@dataclass(frozen=True, slots=True)
class MeasuredLayers:
    """Rows of a file.

    Attributes:
        layers: Layers of one type.
        runtime_ms: Runtime, ms, ``[n]``.
        power_w: Power, W, ``[n]``.
    """

    layers: Columns
    runtime_ms: Array
    power_w: Array


def load_layers(path: Path) -> tuple[dict[Kind, MeasuredLayers], dict[str, int]]:
    """Read measured layers.

    Returns:
        Layers by type, and how many rows of each unknown type were skipped.

    Raises:
        ProfileError: The file cannot be read, or a value is unusable; names row and column.
    """
    rows: dict[Kind, list[tuple[LayerShape, float, float]]] = {}
    skipped: dict[str, int] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            for number, row in enumerate(csv.DictReader(stream), start=2):
                where, kind = f"{path}: row {number}", (row.get("type") or "").strip()
                known = next((k for k in KINDS if k == kind), None)
                if known is None:
                    skipped[kind] = skipped.get(kind, 0) + 1
                else:
                    rows.setdefault(known, []).append(_row(where, known, row))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError("cannot read layers", where=str(path), why=reason) from error
    if not rows:
        raise ProfileError(
            "no measured layers",
            where=str(path),
            why=f"known types are {', '.join(KINDS)}",
            hint="the column is called type",
        )
    found = {}
    for kind, values in rows.items():
        time_ms, power_w = np.array([value[1:] for value in values]).T
        check_watts(f"{path}: {kind} layers, column power_w", power_w)
        found[kind] = MeasuredLayers(Columns.of(v[0] for v in values), time_ms, power_w)
    return found, skipped


def _row(where: str, kind: Kind, row: Mapping[str, str]) -> tuple[LayerShape, float, float]:
    sizes = {}
    for name in SIZES:
        text = (row.get(name) or "").strip()
        if text:
            value = _number(where, name, text)
            sizes[name] = value if name in _PADDING else _whole(where, name, value)
    for name in ("batch", "in_c", "out_c"):
        if name not in sizes:
            raise ProfileError("a size is missing", where=f"{where}, column {name}")
    try:
        shape = LayerShape(kind=kind, **sizes)  # type: ignore[arg-type]  # whole but for padding
    except ProfileError as error:
        raise ProfileError(
            error.what, where=f"{where}, {error.where}", why=error.why, hint=error.hint
        ) from error
    time_ms, power_w = (_number(where, n, row.get(n) or "") for n in ("runtime_ms", "power_w"))
    return shape, time_ms, power_w


def _number(where: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ProfileError(
            "not a number", where=f"{where}, column {name}", why=repr(text)
        ) from None


def _whole(where: str, name: str, value: float) -> int:
    if not value.is_integer():
        raise ProfileError("not a whole number", where=f"{where}, column {name}", why=f"{value:g}")
    return int(value)


def save_layers(path: Path, sets: Mapping[Kind, MeasuredLayers]) -> None:
    """Write measured layers.

    Raises:
        ProfileError: The file cannot be written.
    """
    try:
        with path.open("w", newline="", encoding="utf-8") as stream:
            out = csv.writer(stream)
            out.writerow(("type", *SIZES, "runtime_ms", "power_w"))
            for kind, measured in sets.items():
                for shape, time_ms, power_w in zip(
                    measured.layers.shapes, measured.runtime_ms, measured.power_w, strict=True
                ):
                    sizes = (getattr(shape, name) for name in SIZES)
                    out.writerow((kind, *sizes, f"{time_ms:.6g}", f"{power_w:.6g}"))
    except OSError as error:
        raise ProfileError(
            "cannot write layers", where=str(path), why=error.strerror or str(error)
        ) from error


def train(sets: Mapping[Kind, MeasuredLayers]) -> LayerModels:
    """Fit the default models of every type that has enough rows."""
    enough = {kind: rows for kind, rows in sets.items() if len(rows.layers) >= MIN_ROWS}
    return LayerModels(
        {k: DefaultModel().fit(s.layers, s.runtime_ms) for k, s in enough.items()},
        {k: DefaultModel(roofline=False).fit(s.layers, s.power_w) for k, s in enough.items()},
    )
