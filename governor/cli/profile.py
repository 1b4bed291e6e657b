"""``flamegov profile``: plan what to measure; look at, check and merge what was measured."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from governor.errors import UsageError

if TYPE_CHECKING:
    from estimators.profiles import Profile

HELP = "plan, list, show and merge profiles"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    _add_plan(verbs.add_parser("plan", help="tell which clocks to measure and how long it takes"))
    listing = verbs.add_parser("list", help="one line for each profile in files or folders")
    listing.add_argument("profiles", type=Path, nargs="+", metavar="PROFILE")
    show = verbs.add_parser("show", help="tell what a profile holds")
    show.add_argument("profile", type=Path)
    merge = verbs.add_parser("merge", help="put profiles of one board together")
    merge.add_argument("profiles", type=Path, nargs="+", metavar="PROFILE")
    merge.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    for verb in verbs.choices.values():
        verb.add_argument("--json", action="store_true", help="print JSON")


def _add_plan(verb: argparse.ArgumentParser) -> None:
    clocks = verb.add_mutually_exclusive_group(required=True)
    clocks.add_argument("--like", type=Path, metavar="PROFILE", help="take its board's clocks")
    clocks.add_argument("--cpu-mhz", type=_clocks, metavar="N,N,...", help="CPU clocks")
    verb.add_argument("--gpu-mhz", type=_clocks, metavar="N,N,...", help="GPU clocks")
    verb.add_argument("--design", choices=("geometric", "interval", "spread"), default="geometric")
    verb.add_argument("--points", type=int, default=24, help="clock pairs wanted (24)")
    verb.add_argument("--interval", type=int, default=4, help="step of design 'interval' (4)")
    verb.add_argument("--longest", type=int, default=0, metavar="N", help="longest context, tokens")
    verb.add_argument("--context-interval", type=int, default=90, metavar="N", help="tokens (90)")
    verb.add_argument("--iterations", type=int, default=400, help="repetitions (400)")
    verb.add_argument(
        "--fastest-ms", type=float, default=20.0, help="latency at the highest clocks, ms (20)"
    )


def run(args: argparse.Namespace) -> int:
    """Do it and tell the exit code."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "plan": _plan,
        "list": _list,
        "show": _show,
        "merge": _merge,
    }
    return actions[args.action](args)


def _clocks(text: str) -> list[int]:
    return sorted(round(float(part) * 1e6) for part in text.split(","))


def _plan(args: argparse.Namespace) -> int:
    from estimators.profilefile import load_profile
    from estimators.sampling import context_levels, make_plan

    if args.like is not None:
        board = load_profile(args.like).board
        cpu_hz, gpu_hz = list(board.cpu_hz), list(board.gpu_hz)
    elif args.gpu_mhz:
        cpu_hz, gpu_hz = args.cpu_mhz, args.gpu_mhz
    else:
        raise UsageError("the GPU clocks are missing", hint="add --gpu-mhz")
    plan = make_plan(
        cpu_hz,
        gpu_hz,
        design=args.design,
        points=args.points,
        interval=args.interval,
        context=context_levels(args.longest, args.context_interval),
        iterations=args.iterations,
    )
    expected_s = plan.expected_s(args.fastest_ms * 1000)
    if args.json:
        print(
            json.dumps({"points": plan.points, "context": plan.context, "expected_s": expected_s})
        )
        return 0
    share = 100 * len(plan.points) / plan.total
    print(
        f"{len(plan.points)} of {plan.total} clock pairs ({share:.1f} %), design {plan.design};"
        f" {len(plan.context)} contexts; at most {expected_s / 60:.1f} min"
    )
    for cpu, gpu in plan.points:
        print(f"  CPU {cpu / 1e6:7.1f} MHz   GPU {gpu / 1e6:7.1f} MHz")
    return 0


def _list(args: argparse.Namespace) -> int:
    from estimators.profilefile import load_profile

    summaries = [_summary(load_profile(path)) for path in _files(args.profiles)]
    if args.json:
        print(json.dumps(summaries))
        return 0
    for s in summaries:
        models = ", ".join(sorted(s["models"])) or "no models"
        print(f"{s['file']}: {s['board']}, {s['layers']} layers, {models}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from estimators.profilefile import load_profile

    summary = _summary(load_profile(args.profile))
    if args.json:
        print(json.dumps(summary))
        return 0
    print(f"{summary['file']}: {summary['board']} {summary['engine']} {summary['precision']}")
    for model, parts in sorted(summary["models"].items()):
        print(
            f"  {model} ({parts['phase']}): {parts['layers']} layers, {parts['missing']} not"
            f" measured, {parts['runs']} runs"
        )
    for kind, count in sorted(summary["kinds"].items()):
        print(f"  {count} layers of type {kind}")
    return 0


def _merge(args: argparse.Namespace) -> int:
    from estimators.profilefile import load_profile, save_profile
    from estimators.profiles import merge_profiles

    merged = merge_profiles(load_profile(path) for path in args.profiles)
    save_profile(merged, args.output)
    summary = _summary(replace(merged, source=str(args.output)))
    print(
        json.dumps(summary)
        if args.json
        else f"{args.output}: {summary['layers']} layers, {len(summary['models'])} models"
    )
    return 0


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.json*")) if path.is_dir() else [path]
    return files


def _summary(profile: "Profile") -> dict[str, Any]:
    kinds: dict[str, int] = {}
    for record in profile.layers.values():
        kinds[record.kind] = kinds.get(record.kind, 0) + 1
    return {
        "file": profile.source,
        "board": profile.board.name,
        "engine": profile.board.engine,
        "precision": profile.board.precision,
        "layers": len(profile.layers),
        "kinds": kinds,
        "models": {
            name: {
                "phase": network.phase,
                "layers": len(network.layers),
                "missing": len(set(network.layers) - profile.layers.keys()),
                "runs": len(profile.runs[name]) if name in profile.runs else 0,
            }
            for name, network in profile.networks.items()
        },
    }
