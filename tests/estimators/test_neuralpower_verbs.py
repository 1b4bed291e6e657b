"""The verbs ``estimate power`` and ``estimate epr``, and the file of measured layers."""

import json
from pathlib import Path

import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.neuralpower.layerfile import MeasuredLayers, load_layers, save_layers, train
from estimators.neuralpower.shapes import Columns, Kind, LayerShape
from governor.cli import main


def _sets(rows: int = 24) -> dict[Kind, MeasuredLayers]:
    rng = np.random.default_rng(0)
    shapes: dict[Kind, list[LayerShape]] = {"conv": [], "fc": [], "pool": []}
    for _ in range(rows):
        batch, size, in_c, out_c = (int(2**k) for k in rng.uniform((0, 3, 3, 3), (5, 8, 9, 9)))
        pad = int(rng.integers(2))
        conv = LayerShape.conv(batch, in_c, (size, size), out_c, (3, 3), pad=(pad, pad))
        shapes["conv"].append(conv)
        shapes["fc"].append(LayerShape.fc(batch, in_c * 16, out_c * 8))
        shapes["pool"].append(LayerShape.pool(batch, in_c, (size, size), (2, 2), stride=(2, 2)))
    sets = {}
    for kind, made in shapes.items():
        layers = Columns.of(made)
        time_ms = 0.05 + layers["flop"] / 1e9 + layers["out_elements"] / 1e8
        sets[kind] = MeasuredLayers(layers, time_ms, 12.0 + 20 * (1 - 0.05 / time_ms))
    return sets


@pytest.fixture(scope="module")
def layers_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layers") / "layers.csv"
    save_layers(path, _sets())
    return path


def test_layer_file_round_trip(layers_csv: Path) -> None:
    sets, skipped = load_layers(layers_csv)
    assert not skipped and set(sets) == {"conv", "fc", "pool"}
    for kind, wanted in _sets().items():
        assert sets[kind].layers.shapes == wanted.layers.shapes
        assert sets[kind].runtime_ms == pytest.approx(wanted.runtime_ms, rel=1e-5)


def test_unknown_types_are_counted_and_milliwatts_caught(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "type,batch,in_c,out_c,runtime_ms,power_w\nlrn,1,1,1,1,9\nlrn,1,1,1,1,9\nfc,1,2,3,1,9\n"
    )
    sets, skipped = load_layers(path)
    assert skipped == {"lrn": 2} and len(sets["fc"].layers) == 1
    assert not train(sets).runtime  # one row is too few to learn from
    path.write_text("type,batch,in_c,out_c,runtime_ms,power_w\nfc,1,2,3,1,9000\n")
    with pytest.raises(ProfileError, match="looks like mW"):
        load_layers(path)


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("fc,0,2,3,1,9", "batch"),
        ("fc,,2,3,1,9", "size is missing"),
        ("fc,1.5,2,3,1,9", "whole number"),
        ("fc,1,2,3,fast,9", "runtime_ms"),
        ("lrn,1,2,3,1,9", "no measured layers"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, row: str, word: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"type,batch,in_c,out_c,runtime_ms,power_w\n{row}\n")
    with pytest.raises(ProfileError, match=word):
        load_layers(path)


def test_power_of_a_network(layers_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "power", "vgg16", "--layers", str(layers_csv), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    energy = sum(layer["energy_mj"] for layer in report["layers"])
    assert report["energy_mj"] == pytest.approx(energy)
    assert report["power_w"] == pytest.approx(energy / report["runtime_ms"])
    named = max(report["layers"], key=lambda layer: layer["energy_mj"])["name"]
    assert report["bottlenecks"]["energy"] == named


def test_power_as_text_and_picture(
    layers_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = tmp_path / "bars.png"
    call = ["estimate", "power", "alexnet", "--batch", "4", "--layers", str(layers_csv)]
    assert main([*call, "--png", str(png)]) == 0
    out = capsys.readouterr().out
    assert "conv3" in out and "bottlenecks: runtime" in out and "█" in out
    assert png.stat().st_size > 1000


def test_skipped_layers_and_their_share_are_told(
    layers_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = tmp_path / "net.json"
    layers = {
        "data": {"type": "Input", "parents": [], "tensor": [1, 8, 8, 3]},
        "odd": {"type": "Swish", "parents": ["data"]},
        "fc": {"type": "InnerProduct", "parents": ["odd"], "num_outputs": 10},
    }
    net.write_text(json.dumps({"name": "n", "layers": layers}))
    assert main(["estimate", "power", str(net), "--layers", str(layers_csv)]) == 0
    captured = capsys.readouterr()
    assert "odd (Swish)" in captured.err and "% of operations" in captured.err


def test_published_energy_precision_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "epr"]) == 0
    assert "86.062" in capsys.readouterr().out
    assert main(["estimate", "epr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == ["AlexNet"] * 3 + ["VGG-16"]


def test_own_networks_in_energy_precision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nets.csv"
    path.write_text("name,error,energy_mj\na,0.5,1\nb,0.1,10\n")
    assert main(["estimate", "epr", str(path), "--alpha", "0", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["best"] == ["a", "b"]
    assert report["networks"][1]["ratio"] == pytest.approx([10.0, 0.1])
    path.write_text("name,error\na,0.5\n")
    assert main(["estimate", "epr", str(path)]) == 3
    assert "energy_mj" in capsys.readouterr().err
