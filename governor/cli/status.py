"""``flamegov status``: what the daemon does, wants and sees."""

import argparse
from typing import Any

from governor.cli.link import add_address, ask, show
from governor.messages import Status
from governor.words import mhz, printable

HELP = "show what the daemon does"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    body = ask(args, Status(v=1, id=1, detail=True))
    print(show(body, None if args.json else _text))
    return 0


def _text(body: dict[str, Any]) -> str:
    board, point = body["board"], body["point"]
    lines = [
        f"flamegov {body['version']}  up {body['uptime_s']:.0f} s  policy {body['policy']}"
        f"  {body['mode']}",
        f"board     {board['model']}  {board['l4t']}",
        f"wanted    CPU {mhz(point['wanted_cpu_hz'])}  GPU {mhz(point['wanted_gpu_hz'])}",
        f"in force  CPU {mhz(point['cpu_hz'])}  GPU {mhz(point['gpu_hz'])}"
        f"  EMC {mhz(point['emc_hz'] or 0)}",
        f"power     {_watts(body['power_mw'])}",
    ]
    lines += [f"error     {text}" for text in body["errors"]]
    if "shadow" in body:
        lines.append(_shadow(body["shadow"]))
    for session in body["sessions"]:
        late = 100 * session["late"] / session["jobs"] if session["jobs"] else 0.0
        lines.append(
            f"session   {session['model']}/{session['phase']} {session['name']}"
            f"  deadline {session['deadline_us'] or 0:.0f} us  jobs {session['jobs']}"
            f"  late {late:.2f} %  {'active' if session['active'] else 'idle'}"
        )
    return "\n".join(map(printable, lines))  # any client may choose a session's name


def _shadow(found: dict[str, Any]) -> str:
    return (
        f"shadow    {found['policy']}  jobs {found['jobs']}  same point {found['same_point']}"
        f"  mean CPU {mhz(found['mean_cpu_hz'] or 0)} (in force"
        f" {mhz(found['in_force_mean_cpu_hz'] or 0)})"
        f"  GPU {mhz(found['mean_gpu_hz'] or 0)} ({mhz(found['in_force_mean_gpu_hz'] or 0)})"
        f"  predicted late {found['predicted_late']} of {found['predicted']}"
    )


def _watts(power_mw: int | None) -> str:
    return "no reading" if power_mw is None else f"{power_mw / 1000:.1f} W"
