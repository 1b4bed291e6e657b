"""``flamegov estimate power``: runtime, power and energy of a network, layer by layer."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from estimators.errors import ProfileError
from estimators.neuralpower.layerfile import load_layers, train
from estimators.neuralpower.networks import BUILT_IN, Network, get_network
from estimators.neuralpower.totals import Totals

HELP = "predict runtime, power and energy of a network by layer, from measured layers"

_BAR = 24  # characters of a full bar
_BLOCKS = " ▏▎▍▌▋▊▉█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    known = ", ".join(BUILT_IN)
    parser.add_argument("network", help=f"{known}, or a file, *.json")
    parser.add_argument(
        "--layers",
        type=Path,
        required=True,
        metavar="CSV",
        help="measured layers of the platform: sizes, runtime_ms, power_w",
    )
    parser.add_argument("--batch", type=int, help="inputs per run (default: the file's own, or 1)")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the bars as a picture")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do it and tell the exit code."""
    network = get_network(args.network, args.batch)
    sets, unknown = load_layers(args.layers)
    if unknown:
        rows = ", ".join(f"{count} of '{kind}'" for kind, count in unknown.items())
        print(f"{args.layers}: rows of unknown types skipped: {rows}", file=sys.stderr)
    totals = train(sets).totals(network.layers, network.skipped)
    if network.skipped:
        names = ", ".join(f"{layer.name} ({layer.kind})" for layer in network.skipped)
        share = 100 * network.skipped_share
        print(f"not modelled, {share:.2g} % of operations: {names}", file=sys.stderr)
    if args.png:
        save_picture(network, totals, args.png)
    print(json.dumps(report(network, totals)) if args.json else text(network, totals))
    return 0


def report(network: Network, totals: Totals) -> dict[str, Any]:
    """All figures, for ``--json``."""
    columns = zip(
        totals.names,
        totals.runtime_ms.tolist(),
        totals.power_w.tolist(),
        totals.energy_mj.tolist(),
        strict=True,
    )
    return {
        "network": network.name,
        "batch": network.batch,
        "runtime_ms": totals.total_ms,
        "power_w": totals.mean_w,
        "energy_mj": totals.total_mj,
        "bottlenecks": totals.bottlenecks,
        "layers": [
            {"name": name, "runtime_ms": time_ms, "power_w": power_w, "energy_mj": energy_mj}
            for name, time_ms, power_w, energy_mj in columns
        ],
        "skipped": [{"name": s.name, "type": s.kind} for s in totals.skipped],
        "skipped_flop_share": network.skipped_share,
    }


def text(network: Network, totals: Totals) -> str:
    """Lay the layers out as a table with a bar of energy for each."""
    width = max(len("layer"), *(len(name) for name in totals.names))
    most = float(totals.energy_mj.max())
    lines = [f"{'layer':<{width}} {'ms':>9} {'W':>8} {'mJ':>9} {'share':>6}  energy"]
    for name, time_ms, power_w, energy_mj in zip(
        totals.names, totals.runtime_ms, totals.power_w, totals.energy_mj, strict=True
    ):
        share = energy_mj / totals.total_mj
        lines.append(
            f"{name:<{width}} {time_ms:9.3f} {power_w:8.2f} {energy_mj:9.2f} {share:6.1%}  "
            f"{_bar(energy_mj / most)}".rstrip()
        )
    lines.append(
        f"{'total':<{width}} {totals.total_ms:9.3f} {totals.mean_w:8.2f} {totals.total_mj:9.2f}"
    )
    named = ", ".join(f"{what} {name}" for what, name in totals.bottlenecks.items())
    lines.append(f"{network.name}, batch {network.batch}; bottlenecks: {named}")
    return "\n".join(lines)


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def save_picture(network: Network, totals: Totals, path: Path) -> None:
    """Draw runtime, power and energy of the layers as bars.

    Raises:
        ProfileError: matplotlib is missing, or the file cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ProfileError(
            "pictures need matplotlib", hint="pip install '.[bench]' in the checkout"
        ) from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    columns = (
        ("runtime, ms", totals.runtime_ms),
        ("power, W", totals.power_w),
        ("energy, mJ", totals.energy_mj),
    )
    size = (10, 1 + 0.25 * len(totals.names))
    figure, axes = plt.subplots(1, 3, figsize=size, sharey=True, layout="constrained")
    for axis, (label, values) in zip(axes, columns, strict=True):
        axis.barh(totals.names, values)
        axis.set_xlabel(label)
    axes[0].invert_yaxis()
    figure.suptitle(f"{network.name}, batch {network.batch}")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ProfileError("cannot write the picture", where=str(path), why=str(error)) from error
    finally:
        plt.close(figure)
