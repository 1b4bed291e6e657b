"""``flamegov demo``: a simulated board, the daemon and an application, each a process of its own.

Watch the governor follow deadlines that tighten step by step (Fig. 20a of the FLAME paper), then
read what it saved, and what it cost in late jobs, beside full speed and beside an oracle.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from bench.charts import check_matplotlib
from bench.demo_plan import (
    JobRecord,
    Order,
    PowerSample,
    Record,
    RunRecord,
    Step,
    StepRecord,
    paper_steps,
)
from bench.demo_score import HEADINGS, Bars, figures, mean_power_w, sections, summary_rows
from bench.demo_table import measure_table
from bench.oracle import DEFINITION, Basis, Best, Oracle
from bench.plant.board import load_board
from bench.plant.engine import Engine
from bench.plant.liveclient import LiveBoard, spawn_board
from bench.plant.power import PowerModel
from bench.plant.workload import get_workload
from bench.pretty import live_line, table_text
from bench.report import check_place, facts_of, render, write
from estimators.errors import FlamegovError
from governor.boards import BoardState, discover
from governor.client import connect
from governor.errors import UsageError
from policies.registry import load_policy

HELP = "watch the governor hold deadlines on a simulated board"

BOARD = "agx-orin"
CONTEXTS = (32, 256)
"""Context lengths at which a language model's table is measured; latency is near linear between."""

_LEGEND = (
    "Simulated. QoS hides lateness: read it with the late jobs. "
    "Power: true mean power of the board, idle time included."
)

BASES: tuple[Basis, ...] = ("tail", "mean")
SAMPLE_NS = 100_000_000
START_S = 20.0
STOP_S = 5.0

_records: "msgspec.json.Decoder[Record]" = msgspec.json.Decoder(Record)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--policies", default="flame,max", help="in order (default: %(default)s)")
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("results/demo.html"),
        metavar="PATH",
        help="where to write the HTML report (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all noise (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Play the demo and print its figures; returns the exit code."""
    policies = list(dict.fromkeys(filter(None, args.policies.split(","))))
    if not policies:
        raise UsageError("--policies names none", hint="e.g. --policies flame,max")
    if args.seed < 0:
        raise UsageError("--seed must not be negative", why=f"it is {args.seed}")
    for name in policies:
        load_policy(name)  # what is wrong is told before anything starts
    check_place(args.report)
    check_matplotlib()
    steps = paper_steps()
    with _sigterm_unwinds(), tempfile.TemporaryDirectory(prefix="flamegov-") as folder:
        runs, state = play(Path(folder), policies, steps, args.seed)
    bars = oracle_bars(steps, runs, state, args.seed)
    results = {run.policy: figures(run, steps, b) for run, b in zip(runs, bars, strict=True)}
    facts = facts_of(seed=args.seed, board=f"{BOARD} (simulated)", policies=", ".join(policies))
    page = render("flamegov demo", sections(runs, steps, bars, results), facts)
    write(args.report, page)
    if args.json:
        oracle = {
            "definition": DEFINITION,
            "mean_power_w": mean_power_w(runs[0], bars[0].tail),
            "mean_power_w_by_mean_latency": mean_power_w(runs[0], bars[0].mean),
            "points": [best._asdict() for best in bars[0].tail],
        }
        print(json.dumps({"policies": results, "report": str(args.report), "oracle": oracle}))
    else:
        print(table_text(HEADINGS, summary_rows(results), digits=3))
        print(f"\n{_LEGEND}\nOracle: {DEFINITION}.\nReport: {args.report}")
    return 0


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Turn SIGTERM into an exit that ends the demo's other processes on the way."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def play(
    folder: Path, policies: Sequence[str], steps: Sequence[Step], seed: int
) -> tuple[list[RunRecord], BoardState]:
    """Run all steps under each policy, every time on a fresh board with the same seed.

    Returns:
        What was recorded, and the board as it was found before the first daemon.
    """
    tables = folder / "tables"
    tables.mkdir()
    runs: list[RunRecord] = []
    found: BoardState | None = None
    for name in policies:
        place = folder / str(len(runs))
        place.mkdir()
        with ExitStack() as stack:
            board = stack.enter_context(spawn_board(place / "board", board=BOARD, seed=seed))
            if found is None:
                found = _look(board)
                _measure(tables, steps, found, seed)
            address = stack.enter_context(daemon(place, board.root, tables, name))
            show = stack.enter_context(live_line(time.monotonic))
            runs.append(application(address, board, steps, name, show))
    assert found is not None  # there is at least one policy
    return runs, found


def _look(board: LiveBoard) -> BoardState:
    found = discover(board.root)
    try:
        return found.poll()
    finally:
        found.close()


def _measure(tables: Path, steps: Sequence[Step], found: BoardState, seed: int) -> None:
    """Profile each model and leave its table where the daemon looks."""
    for index, (model, phase) in enumerate(dict.fromkeys((s.model, s.phase) for s in steps)):
        engine = Engine(load_board(BOARD), get_workload(model), seed=seed * 1000 + 1 + index)
        contexts = (0,) if phase == "inference" else CONTEXTS
        table = measure_table(engine, emc_hz=found.emc_hz or 0, contexts=contexts, phase=phase)
        table.save(tables / f"{model}.npz")


@contextmanager
def daemon(place: Path, root: Path, tables: Path, policy: str) -> Iterator[str]:
    """Run the daemon on a board; yields the endpoint for applications once it answers.

    Raises:
        FlamegovError: It does not start.
    """
    address = f"ipc://{place / 'hints.sock'}"
    config = place / "flamegov.toml"
    config.write_text(
        f'policy = "{policy}"\nstate_dir = "{place / "state"}"\n'
        f'[sockets]\nhints = "{address}"\nadmin = "ipc://{place / "admin.sock"}"\ngroup = ""\n'
        f'[tables]\ndir = "{tables}"\n[board]\nroot = "{root}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-I", "-m", "governor.cli", "run", "--config", str(config)]
    log = place / "daemon.log"
    with (
        log.open("w") as words,
        subprocess.Popen(command, stdout=words, stderr=words) as process,
    ):
        try:
            _await_answer(address, process, log)
            yield address
        finally:
            _end(process)


def _await_answer(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end_s:
        with connect(address, timeout="100ms") as gov:
            if gov.ping():
                return
        time.sleep(0.02)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise FlamegovError("the daemon does not start", why=lines[-1] if lines else "no word from it")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def application(
    address: str,
    board: LiveBoard,
    steps: Sequence[Step],
    policy: str,
    show: Callable[[str], None],
) -> RunRecord:
    """Run the application to its end and collect what it tells.

    Raises:
        FlamegovError: It ends early.
    """
    order = msgspec.json.encode(Order(address, str(board.path), list(steps)))
    command = [sys.executable, "-I", "-m", "bench.demo_app"]
    run = RunRecord(policy, [], [], [])
    board.energy()  # the first sample begins here
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr  # all are pipes
        try:
            with suppress(BrokenPipeError):  # it has ended; why is told below
                process.stdin.write(order)
                process.stdin.close()
            for line in process.stdout:
                record = _records.decode(line)
                if isinstance(record, JobRecord):
                    run.jobs.append(record)
                    _sample(board, run)
                    show(_line(steps, run))
                elif isinstance(record, StepRecord):
                    run.steps.append(record)
                else:
                    return msgspec.structs.replace(run, dropped=record.dropped)
            words = process.stderr.read().decode(errors="replace").strip().splitlines()
        finally:
            _end(process)
    why = words[-1] if words else f"exit status {process.returncode}"
    raise FlamegovError("the demo's application ended early", why=why, hint="run it again")


def _sample(board: LiveBoard, run: RunRecord) -> None:
    """Note the power since the last sample, ten times a second."""
    if run.power and time.monotonic_ns() - run.power[-1].until_ns < SAMPLE_NS:
        return
    spent = board.energy()
    seconds = (spent.now_ns - spent.since_ns) / 1e9
    watts = spent.since_total_mj / 1e3 / seconds
    run.power.append(PowerSample(spent.since_ns, spent.now_ns, watts))


def _line(steps: Sequence[Step], run: RunRecord) -> str:
    """Tell where the run is: the newest job, its clocks, the power of the last moments."""
    job, step = run.jobs[-1], steps[run.jobs[-1].step]
    late = sum(j.latency_us > steps[j.step].deadline_us for j in run.jobs)
    return (
        f"{run.policy:<5} {step.model:<10} {step.deadline_us / 1e3:3.0f} ms: "
        f"{job.latency_us / 1e3:5.1f} ms  CPU {job.cpu_hz / 1e6:4.0f} GPU "
        f"{job.gpu_hz / 1e6:4.0f} MHz {run.power[-1].power_w:5.1f} W  late {late}/{len(run.jobs)}"
    )


def oracle_bars(
    steps: Sequence[Step], runs: Sequence[RunRecord], found: BoardState, seed: int
) -> list[Bars]:
    """Find what the oracle would hold in each step of each run.

    It releases jobs as often as the run really did, and is as warm as the first run was.
    """
    spec = load_board(BOARD)
    temp_c = sum(step.temp_c for step in runs[0].steps) / len(steps)
    oracles = {
        model: Oracle(
            Engine(spec, get_workload(model)),
            PowerModel(spec),
            cpu_hz=found.attainable.cpu_hz,
            gpu_hz=found.attainable.gpu_hz,
            emc_hz=found.emc_hz or spec.emc_hz[-1],
            temp_c=temp_c,
            seed=seed + 10_000,
        )
        for model in dict.fromkeys(step.model for step in steps)
    }
    return [Bars(*(_bar(oracles, steps, run, basis) for basis in BASES)) for run in runs]


def _bar(
    oracles: Mapping[str, Oracle], steps: Sequence[Step], run: RunRecord, basis: Basis
) -> list[Best]:
    return [
        oracles[step.model].best(
            step.deadline_us,
            context=step.context_of(step.jobs // 2),
            basis=basis,
            period_us=(record.end_ns - record.start_ns) / 1e3 / step.jobs,
        )
        for step, record in zip(steps, run.steps, strict=True)
    ]
