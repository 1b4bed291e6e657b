"""``flamegov bench neuralpower``: layer models on published, measured and simulated layers.

Measured figures come from the DeepBench files (``FLAMEGOV_DATA``); everything under ``plant`` and
``studies`` is simulated. Held-out and in-sample errors have different names.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import neuralpower_measured as measured
from estimators.neuralpower import published
from estimators.neuralpower.epr import energy_precision, winners

HELP = "layer runtime and power models on published, measured and simulated layers"

PARTS = ("measured", "plant", "studies")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--layers", type=Path, metavar="CSV", help="measured convolutions instead of DeepBench's"
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run (default: all)"
    )
    parser.add_argument(
        "--write-layers",
        type=Path,
        metavar="CSV",
        help="write the simulated layers for flamegov estimate power --layers, and stop",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    if args.write_layers:
        return _write_layers(args.write_layers)
    parts = ["measured"] if args.layers else args.only
    result = measure(parts, layers=args.layers, say=_say)
    print(json.dumps(result, indent=2) if args.json else text(result))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def measure(parts: list[str], *, layers: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the parts asked for; the published arithmetic always runs."""
    result: dict[str, Any] = {
        "published": {name: round(v, 3) for name, v in published.network_errors().items()},
        "epr": epr_rows(),
        "measured": {},
        "measured_fc": {},
        "plant": {},
        "studies": {},
        "times_s": {},
    }
    start = time.perf_counter()
    if "measured" in parts:
        say("measured layers")
        result |= measured_part(layers)
        result["times_s"]["measured"] = round(time.perf_counter() - start, 1)
    if "plant" in parts or "studies" in parts:
        say("simulated layers")
        result |= _simulated(parts, result["times_s"], say)
    return result


def _simulated(
    parts: list[str], times: dict[str, float], say: Callable[[str], None]
) -> dict[str, Any]:
    from bench import neuralpower_plant as plant
    from bench import neuralpower_studies as studies
    from bench.estimators_profile import Subject

    trained = plant.train(Subject("vgg16"))
    times |= trained.times_s | {"predict_network_ms": round(plant.predict_ms(trained.models), 2)}
    found: dict[str, Any] = {}
    if "plant" in parts:
        say("networks and bottlenecks")
        found["plant"] = plant.layer_errors(trained) | plant.network_errors(trained)
        found["plant"]["bottlenecks"] = plant.bottlenecks(trained)
        say("power tables")
        found["plant"] |= plant.power_tables()
    if "studies" in parts:
        say("studies")
        found["studies"] = studies.all_studies(trained)
    return found


def measured_part(layers: Path | None) -> dict[str, Any]:
    """Score measured layers: the file given, or DeepBench's if the data is there."""
    if layers is not None:
        return {"measured": measured.score_all(measured.load_convs(layers))}
    folder = measured.data_folder()
    found: dict[str, Any] = {}
    for name, file, load in (
        ("measured", measured.CONV_FILE, measured.load_convs),
        ("measured_fc", measured.GEMM_FILE, measured.load_gemms),
    ):
        path = folder / file
        if path.is_file():
            found[name] = measured.score_all(load(path))
        else:
            print(f"{path}: not there, skipped; set FLAMEGOV_DATA", file=sys.stderr)
    return found


def epr_rows() -> list[dict[str, Any]]:
    """Energy-precision table of the published networks."""
    candidates, alphas = published.candidates(), published.ALPHAS
    best = winners(candidates, alphas)
    return [
        {
            "name": candidate.name,
            "error": candidate.error,
            "energy_mj": round(candidate.energy_mj, 1),
            "ratio": [round(value, 3) for value in row.tolist()],
            "best_at_alpha": [
                a for a, name in zip(alphas, best, strict=True) if name == candidate.name
            ],
        }
        for candidate, row in zip(candidates, energy_precision(candidates, alphas), strict=True)
    ]


def _write_layers(path: Path) -> int:
    from bench.estimators_profile import Subject
    from bench.neuralpower_layers import COUNTS, measure_layers
    from bench.neuralpower_rig import PowerMeter
    from estimators.neuralpower.layerfile import save_layers

    subject = Subject("vgg16")
    meter = PowerMeter(subject.spec)
    save_layers(path, {k: measure_layers(subject, meter, k, n) for k, n in COUNTS.items()})
    print(f"{path}: {sum(COUNTS.values())} simulated layers", file=sys.stderr)
    return 0


def text(result: dict[str, Any]) -> str:
    """Lay the result out for reading."""
    lines = [f"published   {result['published']} (recalled numbers)"]
    for part in ("measured", "measured_fc"):
        rows = result[part]
        if rows:
            columns = list(dict.fromkeys(name for row in rows.values() for name in row))
            lines += [f"\n{part}, RMSPE %", " ".join([f"{'':22}", *(f"{c:>15}" for c in columns)])]
            for key, row in rows.items():
                cells = (f"{'-' if row.get(c) is None else row[c]!s:>15}" for c in columns)
                lines.append(" ".join([f"{key:22}", *cells]))
    for part in ("plant", "studies", "times_s"):
        if result[part]:
            lines.append(f"\n{part}{'' if part == 'times_s' else ' (simulated)'}")
            lines += [f"  {name}: {value}" for name, value in result[part].items()]
    return "\n".join(lines)
