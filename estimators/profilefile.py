"""Profiles as files: one JSON document, columns of numbers under each layer and model.

JSON, because a shared repository of profiles is read by people and compared line by line; columns,
because a name per number would triple the size. A name that ends in ``.gz`` is compressed. History
of
versions: 1.0 first.
"""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from estimators.errors import ProfileError
from estimators.profiles import (
    AXES,
    BoardInfo,
    LayerRecord,
    NetworkRecord,
    Profile,
    Samples,
    check_profile,
    layer_key,
)

FORMAT = "flamegov-profile"
FORMAT_VERSION = "1.0"
MAX_BYTES = 256 << 20
"""Larger files are refused: a profile of every model here is a hundred times smaller."""

_HINT = "make it again with flamegov profile, or get a sound copy"


class _Layer(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    config: dict[str, float]
    samples: dict[str, list[float]]


class _Network(msgspec.Struct, forbid_unknown_fields=True):
    layers: list[str]
    phase: str = "inference"
    longest: int = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    format_version: str
    board: BoardInfo
    networks: dict[str, _Network] = {}
    layers: list[_Layer] = []
    runs: dict[str, dict[str, list[float]]] = {}
    places: dict[str, dict[str, list[float]]] = {}
    provenance: dict[str, str] = {}


def load_profile(path: str | Path) -> Profile:
    """Read and check a profile.

    Raises:
        ProfileError: The file cannot be read, is newer than this program, or holds an unusable
            value.
    """
    path = Path(path)
    document = _parse(path, _read(path))
    _check_version(path, document)
    try:
        data = msgspec.convert(document, _File, strict=True)
    except msgspec.ValidationError as error:
        raise ProfileError("not a profile", where=str(path), why=str(error), hint=_HINT) from error
    layers = {}
    for i, layer in enumerate(data.layers):
        key = layer_key(layer.type, layer.config)
        if key in layers:
            raise ProfileError("a layer stands twice", where=f"{path}: layers[{i}]", why=key)
        samples = _samples(f"{path}: layer {key}", layer.samples)
        layers[key] = LayerRecord(layer.type, layer.config, samples)
    networks = {
        name: NetworkRecord(tuple(n.layers), _phase(path, name, n.phase), n.longest)
        for name, n in data.networks.items()
    }
    runs = {m: _samples(f"{path}: runs of {m}", s) for m, s in data.runs.items()}
    places = {m: _samples(f"{path}: places of {m}", s) for m, s in data.places.items()}
    return check_profile(
        Profile(data.board, networks, layers, runs, places, data.provenance, str(path))
    )


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile, replacing what was there in one step.

    Raises:
        ProfileError: The file cannot be written.
    """
    path = Path(path)
    document = _File(
        FORMAT,
        FORMAT_VERSION,
        profile.board,
        {k: _Network(list(n.layers), n.phase, n.longest) for k, n in profile.networks.items()},
        [_Layer(r.kind, r.config, _columns(r.samples)) for r in profile.layers.values()],
        {model: _columns(s) for model, s in profile.runs.items()},
        {model: _columns(s) for model, s in profile.places.items()},
        profile.provenance,
    )
    content = msgspec.json.encode(document)
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o644)  # profiles are made to be shared
        Path(file.name).replace(path)
    except OSError as error:
        raise ProfileError(
            "cannot write the profile", where=str(path), why=str(error.strerror or error)
        ) from error


def _read(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError("cannot read the profile", where=str(path), why=reason) from error
    if len(content) > MAX_BYTES:
        raise ProfileError("profile too large", where=str(path), why=f"over {MAX_BYTES >> 20} MiB")
    return content


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    # The standard library, as it lets NaN through: check_profile can then name the row and column.
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProfileError("not a profile", where=str(path), why=str(error), hint=_HINT) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProfileError(
            "not a profile", where=str(path), why=f"no format '{FORMAT}'", hint=_HINT
        )
    return document


def _check_version(path: Path, document: dict[str, Any]) -> None:
    version = str(document.get("format_version", ""))
    major = version.partition(".")[0]
    if not major.isdigit():
        raise ProfileError("not a profile", where=f"{path}: format_version", why=repr(version))
    if int(major) > int(FORMAT_VERSION.partition(".")[0]):
        raise ProfileError(
            "profile of a newer format",
            where=str(path),
            why=f"version {version}, known up to {FORMAT_VERSION}",
            hint="upgrade flamegov",
        )


def _phase(path: Path, model: str, phase: str) -> Any:
    if phase not in ("inference", "decode", "prefill"):
        raise ProfileError("unknown phase", where=f"{path}: networks.{model}.phase", why=phase)
    return phase


def _samples(where: str, columns: dict[str, list[float]]) -> Samples:
    arrays = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in arrays.items()}
    for name in ("cpu_hz", "gpu_hz"):
        if name not in arrays:
            raise ProfileError("a column is missing", where=f"{where}, column {name}")
    rows = lengths["cpu_hz"]
    for name, length in lengths.items():
        if length != rows:
            raise ProfileError(
                "columns of different length",
                where=f"{where}, column {name}",
                why=f"{length} rows, cpu_hz has {rows}",
            )
    axes = {
        name: _integers(where, name, arrays.pop(name, np.zeros(rows, dtype=np.float64)))
        for name in AXES
    }
    return Samples(values=arrays, **axes)


def _integers(where: str, name: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
    wrong = ~(np.isfinite(values) & (np.abs(values) < 2**53) & (values == np.rint(values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ProfileError(
            "unusable measurement",
            where=f"{where}, row {row}, column {name}",
            why=f"{values[row]} is not a whole number",
            hint="measure again or drop the row",
        )
    return values.astype(np.int64)


def _columns(samples: Samples) -> dict[str, list[float]]:
    axes = {name: getattr(samples, name).tolist() for name in AXES}
    return axes | {name: values.tolist() for name, values in samples.values.items()}
