"""``flamegov bench profile``: profile a model on the simulated board as on a device."""

import argparse
import json
from pathlib import Path

from bench.estimators_profile import Subject, full_profile
from bench.plant.workload import WORKLOADS
from bench.plant.worlds import WORLDS, get_world
from estimators.profilefile import save_profile

HELP = "profile a model on the simulated board"

BOARDS = ("agx-orin", "orin-nx", "orin-nano")
"""Those with physics."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "model", choices=sorted(WORKLOADS), metavar="MODEL", help="such as resnet50"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="file: .json or .json.gz")
    parser.add_argument("--board", default="agx-orin", choices=BOARDS, help="simulated board")
    parser.add_argument(
        "--world",
        default="plain",
        choices=sorted(WORLDS),
        help="how the board departs from the plain one",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all noise")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Profile and save."""
    subject = Subject(args.model, args.board, world=get_world(args.world), seed=args.seed)
    profile = full_profile(subject)
    save_profile(profile, args.output)
    if args.json:
        print(json.dumps({"profile": str(args.output), "layers": len(profile.layers)}))
    else:
        print(f"{args.output}: {len(profile.layers)} unique layers (simulated)")
    return 0
