"""How fast the simulated board runs: jobs per second of wall time, plain world, one core.

Each figure is the best of five windows.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from bench.plant.board import load_board
from bench.plant.engine import Engine
from bench.plant.types import Clocks
from bench.plant.workload import get_workload
from bench.pretty import table_text

HELP = "measure how fast the simulated board runs"

_WINDOWS = 5
_CHUNK = 200
"""Jobs of one call in a run of many, as a bench asks for them between two decisions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time for each figure (default 1)"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    result = measure(seconds=args.seconds)
    rows = [(name, value) for name, value in result.items()]
    print(json.dumps(result) if args.json else table_text(("figure", "per second"), rows, 0))
    return 0


def measure(*, seconds: float) -> dict[str, Any]:
    """Measure all figures.

    ``*_per_s`` runs jobs in calls of 200, ``*_one_by_one_per_s`` in calls of one;
    ``truth_cells_per_s`` is the noise-free latency over all pairs of clocks and many contexts.

    Args:
        seconds: Wall time for each figure.
    """
    board = load_board("agx-orin")
    top = Clocks(board.cpu_hz[-1], board.gpu_hz[-1], board.emc_hz[-1])
    vision = Engine(board, get_workload("resnet50"))
    language = Engine(board, get_workload("qwen2-7b"))
    contexts = range(1, 1024, 64)
    cells = len(contexts) * len(board.cpu_hz) * len(board.gpu_hz)

    def grid() -> object:
        return language.truth_us(board.cpu_hz, board.gpu_hz, top.emc_hz, contexts)

    def tokens(n: int) -> Callable[[], object]:
        return lambda: language.run(top, context=512, n=n)

    return {
        "resnet50_per_s": _rate(lambda: vision.run(top, n=_CHUNK), _CHUNK, seconds),
        "qwen2_7b_tokens_per_s": _rate(tokens(_CHUNK), _CHUNK, seconds),
        "resnet50_one_by_one_per_s": _rate(lambda: vision.run(top), 1, seconds),
        "qwen2_7b_one_by_one_per_s": _rate(tokens(1), 1, seconds),
        "truth_cells_per_s": _rate(grid, cells, seconds),
    }


def _rate(call: Callable[[], object], per_call: int, seconds: float) -> float:
    """Count what is done per second of wall time; the first call only warms up.

    The best of some windows counts: other programs on the machine can only make it slower.
    """
    call()
    return max(_window(call, per_call, seconds / _WINDOWS) for _ in range(_WINDOWS))


def _window(call: Callable[[], object], per_call: int, seconds: float) -> float:
    calls, spent = 0, 0.0
    began = time.perf_counter()
    while not calls or spent < seconds:
        call()
        calls += 1
        spent = time.perf_counter() - began
    return calls * per_call / spent
