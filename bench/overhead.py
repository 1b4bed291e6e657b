"""What the governor itself costs: decision, round trip, hint to write, memory, start, CPU.

Every figure of a path through ZeroMQ is a ratio to a bare socket pair measured in alternating
blocks of the same run, because the absolute times say more about the machine than about us.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import overhead_rig as rig
from bench.estimators_profile import Subject, full_profile
from bench.plant.board import load_board
from estimators.flame import FlameEstimator
from policies.base import Attainable, BoardView, Job
from policies.flame import FlamePolicy

HELP = "measure what the governor itself costs"

BLOCK = 25
HZ = 100
BLOCKS_PER_ROUND = 4
ROUNDS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of the round-trip part")


def run(args: argparse.Namespace) -> int:
    """Measure everything and print it."""
    say = (lambda text: print(text, file=sys.stderr)) if sys.stderr.isatty() else lambda text: None
    result = measure(rounds=max(5, args.rounds), say=say)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        _print(result)
    return 0


def measure(*, rounds: int, say: Any) -> dict[str, Any]:
    """Run all parts, about 45 s."""
    say("decision time")
    result: dict[str, Any] = {"decide_us": decide_us(), "estimate_us": estimate_us()}
    with tempfile.TemporaryDirectory(prefix="flamegov-") as folder:
        with rig.Rig(Path(folder)) as ready:
            say("round trips")
            result |= round_trips(ready, rounds)
            say("one-way sends")
            result["oneway_block_ratio"] = oneway(ready)
            say("CPU share at 100 jobs/s")
            result |= jobs(ready)
            result["daemon_rss_mib"] = round(ready.daemon.rss_mib(), 1)
            say("sustained messages")
            result |= sustained(ready)
        say("start-up")
        result["start_s"] = round(statistics.median(rig.start_seconds(Path(folder))), 3)
    result["machine"] = machine()
    result["pacing"] = (
        f"round trips and one-way sends at {HZ} Hz in alternating blocks of {BLOCK}; decisions "
        "back to back"
    )
    return result


def decide_us(calls: int = 20_000) -> dict[str, float]:
    """Time ``FlamePolicy.decide`` on 29 x 11 x 64 contexts, back to back."""
    table = rig.probe_table()
    policy = FlamePolicy()
    view = BoardView(
        Attainable(tuple(map(int, table.cpu_hz)), tuple(map(int, table.gpu_hz))), emc_hz=0
    )
    rng = np.random.default_rng(1)
    low, high = float(table.latency_us.min()), float(table.latency_us.max())
    jobs = [
        Job(table, float(deadline), int(context))
        for deadline, context in zip(
            rng.uniform(low * 0.9, high, calls), rng.integers(0, 1024, calls), strict=True
        )
    ]
    times = np.empty(calls)
    for i, job in enumerate(jobs):
        start = time.perf_counter_ns()
        policy.decide(job, view)
        times[i] = time.perf_counter_ns() - start
    return _quantiles(times / 1e3)


def estimate_us(calls: int = 100) -> dict[str, float]:
    """Time one full grid, 29 x 11 pairs, of the FLAME estimator for ResNet50, back to back.

    The paper gives 3.32 ms for its estimation.
    """
    subject = Subject("resnet50")
    model = FlameEstimator().fit(full_profile(subject), "resnet50")
    spec = load_board("agx-orin")
    times = np.empty(calls)
    for i in range(calls):
        start = time.perf_counter_ns()
        model.predict(spec.cpu_hz, spec.gpu_hz)
        times[i] = time.perf_counter_ns() - start
    return _quantiles(times / 1e3)


def round_trips(ready: rig.Rig, rounds: int) -> dict[str, Any]:
    """Compare ``begin`` with ``ack`` to a bare echo of the same bytes, in alternating blocks."""
    kinds = ("echo", "daemon", "control")
    samples: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
    sent_ns: list[int] = []
    ready.session.open()
    for number in range(rounds * BLOCKS_PER_ROUND + 1):
        order = kinds[number % 3 :] + kinds[: number % 3]
        for kind in order:
            block, stamps = ready.block(kind, BLOCK, 1 / HZ)
            if number:  # the first one warms up
                samples[kind].append(block)
                sent_ns += stamps if kind == "daemon" else []
    changed, _ = ready.hint_to_write_us(sent_ns)
    return {
        "rtt_us": _quantiles(np.concatenate(samples["daemon"])),
        "bare_rtt_us": _quantiles(np.concatenate(samples["echo"])),
        "rtt_ratio": _ratios(samples["daemon"], samples["echo"]),
        "rtt_ratio_control": _ratios(samples["control"], samples["echo"]),
        "hints_that_changed_the_point_pct": round(100 * changed / max(1, len(sent_ns)), 1),
        "rounds": rounds,
        "samples_per_kind": rounds * BLOCKS_PER_ROUND * BLOCK,
    }


def oneway(ready: rig.Rig, blocks: int = 16) -> dict[str, float]:
    """Compare the client's time in a one-way ``begin`` to a bare DEALER send."""
    client: list[float] = []
    bare: list[float] = []
    for number in range(blocks + 1):
        for kind in ("client", "bare") if number % 2 else ("bare", "client"):
            block = ready.oneway_block(kind, BLOCK, 1 / HZ)
            if number:
                (client if kind == "client" else bare).extend(block)
    ours, theirs = _quantiles(np.array(client)), _quantiles(np.array(bare))
    return {
        "p50": round(ours["p50"] / theirs["p50"], 3),
        "client_us_p50": ours["p50"],
        "bare_us_p50": theirs["p50"],
    }


def jobs(ready: rig.Rig, seconds: float = 6.0) -> dict[str, Any]:
    """Do 100 jobs/s, two one-way messages each, points changing.

    Returns:
        The daemon's share of one core, that of a bare echo server which only takes two such
        messages per job, and the time from the client's send to the entry of the first write.
    """
    count = int(seconds * HZ)
    before, start = ready.daemon.cpu_seconds(), time.monotonic()
    sent_ns = ready.jobs(count, 1 / HZ)
    ours = (ready.daemon.cpu_seconds() - before) / (time.monotonic() - start)
    before, start = ready.echo_cpu_seconds(), time.monotonic()
    ready.oneway_block("bare", count // 2, 1 / HZ)
    bare = (ready.echo_cpu_seconds() - before) / (time.monotonic() - start)
    _, to_write = ready.hint_to_write_us(sent_ns)
    return {
        "cpu_percent": round(100 * ours, 2),
        "cpu_percent_bare_echo": round(100 * bare, 2),
        "hint_to_write_us": to_write,
    }


def sustained(ready: rig.Rig, seconds: float = 3.0, clients: int = 4) -> dict[str, Any]:
    """Let four processes send as fast as back-pressure lets them; count what arrived."""
    time.sleep(0.3)  # let the last messages of the part before arrive
    before = ready.served()
    start = time.monotonic()
    sent = rig.flood(ready.folder, ready.hints, clients, seconds)
    ready.wait_served(before + sent, timeout_s=10)
    elapsed = time.monotonic() - start
    arrived = ready.served() - before
    return {"msgs_per_s": round(arrived / elapsed), "msgs_lost": sent - arrived}


def machine() -> dict[str, Any]:
    """Tell what the figures were measured on."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}


def _ratios(ours: list[list[float]], bare: list[list[float]]) -> dict[str, float]:
    """Median over rounds of the ratio of quantiles; a round is some blocks of each kind."""
    ratios: dict[str, list[float]] = {"p50": [], "p99": []}
    for first in range(0, len(ours), BLOCKS_PER_ROUND):
        rounds = [np.concatenate(x[first : first + BLOCKS_PER_ROUND]) for x in (ours, bare)]
        mine, theirs = (_quantiles(values) for values in rounds)
        for level, values in ratios.items():
            values.append(mine[level] / theirs[level])
    return {level: round(statistics.median(values), 3) for level, values in ratios.items()}


def _print(result: dict[str, Any]) -> None:
    for key, value in result.items():
        text = "  ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{key:34} {text}")
