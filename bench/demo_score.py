"""From what the demo recorded to its figures, its table and its report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from bench.charts import Panel, Series, stack
from bench.demo_plan import RunRecord, Step
from bench.oracle import DEFINITION, Best
from bench.qos import ppw, score
from bench.report import Figure, Section, Table, Text

HEADINGS = (
    "policy", "QoS run %", "QoS job %", "late %", "mean W", "PPW", "W / oracle", "jobs"
)  # fmt: skip


class Bars(NamedTuple):
    """What the oracle would hold in each step of a run.

    Attributes:
        tail: Late on at most 1 % of jobs.
        mean: Noise-free latency within the deadline.
    """

    tail: Sequence[Best]
    mean: Sequence[Best]


def figures(run: RunRecord, steps: Sequence[Step], bars: Bars) -> dict[str, Any]:
    """Score one policy's run.

    Returns:
        The figures of ``demo --json`` for this policy, powers in W.
    """
    deadlines_us = [steps[job.step].deadline_us for job in run.jobs]
    got = score([job.latency_us for job in run.jobs], deadlines_us)
    seconds = sum(step.end_ns - step.start_ns for step in run.steps) / 1e9
    watts = sum(step.energy_mj for step in run.steps) / 1e3 / seconds
    return {
        "qos_run_pct": got.qos_run_pct,
        "qos_job_pct": got.qos_job_pct,
        "miss_pct": got.miss_pct,
        "mean_power_w": watts,
        "power_vs_oracle": watts / mean_power_w(run, bars.tail),
        "power_vs_mean_latency_oracle": watts / mean_power_w(run, bars.mean),
        "ppw": ppw(got.qos_run_pct, watts),
        "jobs": got.jobs,
        "late_jobs": round(got.miss_pct * got.jobs / 100),
        "longest_miss_run": got.longest_miss_run,
        "lateness_us": got.lateness_us,
        "messages_dropped": run.dropped,
        "seconds": seconds,
        "required_seconds": sum(step.jobs * step.deadline_us for step in steps) / 1e6,
    }


def mean_power_w(run: RunRecord, best: Sequence[Best]) -> float:
    """Average the oracle's power over the steps of a run, each as long as it really was, W."""
    span = np.array([step.end_ns - step.start_ns for step in run.steps], dtype=np.float64)
    power = np.array([point.power_mw for point in best])
    return float((span * power).sum() / span.sum() / 1e3)


def summary_rows(results: Mapping[str, Mapping[str, Any]]) -> list[list[Any]]:
    """Lay out the figures under :data:`HEADINGS`."""
    keys = ("qos_run_pct", "qos_job_pct", "miss_pct", "mean_power_w", "ppw", "power_vs_oracle")
    return [
        [name, *(result[key] for key in keys), result["jobs"]] for name, result in results.items()
    ]


def sections(
    runs: Sequence[RunRecord],
    steps: Sequence[Step],
    bars: Sequence[Bars],
    results: Mapping[str, Mapping[str, Any]],
) -> list[Section]:
    """Make the parts of the report."""
    summary = Section(
        "Deadlines kept and power drawn",
        [
            Text(
                "A simulated Jetson AGX Orin runs the same jobs under each policy; deadlines "
                "tighten step by step. All figures are simulated; power is the true mean power of "
                "the board, idle time included."
            ),
            Table(HEADINGS, summary_rows(results), digits=3),
            Text(
                "QoS is the ratio of achieved to required rate, capped at 100 %: over the whole "
                "run, and as a mean over jobs. It hides lateness, so the share of late jobs "
                "stands beside it. PPW is QoS per watt."
            ),
            Text(
                f"Oracle: {DEFINITION}. It draws {mean_power_w(runs[0], bars[0].tail):.2f} W. "
                "Judged by the noise-free latency alone it would draw "
                f"{mean_power_w(runs[0], bars[0].mean):.2f} W."
            ),
        ],
    )
    parts = [summary]
    for model, group in groupby(range(len(steps)), key=lambda i: steps[i].model):
        indices = list(group)
        caption = f"{model}: rate, clocks and power over time; dashed is what is required or least"
        parts.append(
            Section(
                model,
                [
                    Figure(_chart(runs, steps, bars, indices), caption),
                    Table(_STEP_HEADINGS, _step_rows(runs, steps, bars, indices), digits=2),
                ],
            )
        )
    return parts


_STEP_HEADINGS = (
    "policy", "deadline ms", "late jobs", "jobs", "CPU MHz", "GPU MHz", "W",
    "oracle W", "oracle CPU MHz", "oracle GPU MHz",
)  # fmt: skip


def _step_rows(
    runs: Sequence[RunRecord], steps: Sequence[Step], bars: Sequence[Bars], indices: Sequence[int]
) -> list[list[Any]]:
    rows = []
    for run, bar in zip(runs, bars, strict=True):
        for i in indices:
            jobs = [job for job in run.jobs if job.step == i]
            (cpu_hz, gpu_hz), _ = Counter((j.cpu_hz, j.gpu_hz) for j in jobs).most_common(1)[0]
            record, best = run.steps[i], bar.tail[i]
            watts = record.energy_mj / (record.end_ns - record.start_ns) * 1e6
            late = sum(job.latency_us > steps[i].deadline_us for job in jobs)
            held = [cpu_hz / 1e6, gpu_hz / 1e6, watts]
            ideal = [best.power_mw / 1e3, best.cpu_hz / 1e6, best.gpu_hz / 1e6]
            rows.append([run.policy, steps[i].deadline_us / 1e3, late, len(jobs), *held, *ideal])
    return rows


def _chart(
    runs: Sequence[RunRecord], steps: Sequence[Step], bars: Sequence[Bars], indices: Sequence[int]
) -> str:
    """Rate, CPU clock, GPU clock and power of all policies over the time of one model."""
    rate: list[Series] = []
    cpu: list[Series] = []
    gpu: list[Series] = []
    power: list[Series] = []
    for colour, run in enumerate(runs, 1):
        jobs = [job for job in run.jobs if job.step in set(indices)]
        start_ns = run.steps[indices[0]].start_ns
        at = [(job.start_ns - start_ns) / 1e9 for job in jobs]
        rate.append(Series(run.policy, at, [1e6 / j.latency_us for j in jobs], colour=colour))
        cpu.append(_held(run.policy, at, [j.cpu_hz / 1e6 for j in jobs], colour))
        gpu.append(_held(run.policy, at, [j.gpu_hz / 1e6 for j in jobs], colour))
        power.append(_power(run, start_ns, run.steps[indices[-1]].end_ns, colour))
    wanted = [1e6 / steps[i].deadline_us for i in indices]
    least = [bars[0].tail[i].power_mw / 1e3 for i in indices]
    edges = np.cumsum([0.0, *(steps[i].jobs * steps[i].deadline_us / 1e6 for i in indices)])
    x = np.repeat(edges, 2)[1:-1].tolist()
    rate.append(Series("required", x, np.repeat(wanted, 2).tolist(), dashed=True, colour=0))
    power.append(Series("oracle", x, np.repeat(least, 2).tolist(), dashed=True, colour=0))
    panels = [Panel("jobs/s", rate), Panel("CPU MHz", cpu), Panel("GPU MHz", gpu)]
    return stack([*panels, Panel("power, W", power)], "time, s").svg


def _held(label: str, x: Sequence[float], y: Sequence[float], colour: int) -> Series:
    return Series(label, x, y, step=True, colour=colour)


def _power(run: RunRecord, start_ns: int, end_ns: int, colour: int) -> Series:
    mine = [p for p in run.power if start_ns <= p.since_ns and p.until_ns <= end_ns]
    at = [((p.since_ns + p.until_ns) / 2 - start_ns) / 1e9 for p in mine]
    return Series(run.policy, at, [p.power_w for p in mine], colour=colour)
