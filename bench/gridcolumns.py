"""Tell the columns of a measured grid apart by their names.

Understood are:

- clocks ``cpu_*``, ``gpu_*`` and, optional, ``emc_*`` or ``mem_*`` in hz, khz, mhz or ghz;
- latency: one plain column (``latency_ms``), or quantiles of one family (``response_p50_ms``,
  ``response_p99_ms``, ``response_max_ms`` ...), in ns, us, ms or s;
- power, optional: ``power_w`` or ``power_mw``;
- anything else labels the rows.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from estimators.errors import ProfileError

FAMILIES = ("response", "latency", "e2e", "inference", "compute", "runtime", "time", "")
"""Names of latency columns, the one nearest to what an application sees first."""

_CLOCK = re.compile(r"(cpu|gpu|emc|mem)_(?:freq_|clock_)?(hz|khz|mhz|ghz)")
_POWER = re.compile(r"(?:total_|module_|mean_|avg_)?power(?:_mean|_avg)?_(w|mw)")
_STAT = re.compile(r"(?:(\w+?)_)?(p\d{2,5}|median|mean|min|max)_(ns|us|ms|s)")
_PLAIN = re.compile(r"(\w+?)_(ns|us|ms|s)")
_HZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_W = {"w": 1.0, "mw": 1e-3}


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what; a scale turns a cell into Hz, us or W.

    Attributes:
        clocks: Domain (``cpu``, ``gpu``, ``emc``) to column and scale.
        latency: Family of the latency columns.
        centre: Column and scale of the median, else the mean, else the plain latency.
        quantiles: Level (0 = minimum, 1 = maximum) to column and scale; empty for a grid of means.
        power: Column and scale of the power, or None.
    """

    clocks: Mapping[str, tuple[str, float]]
    latency: str
    centre: tuple[str, float]
    quantiles: Mapping[float, tuple[str, float]]
    power: tuple[str, float] | None


def find_columns(path: Path, header: Sequence[str], wanted: str = "") -> Columns:
    """Tell the columns apart by their names.

    Raises:
        ProfileError: A needed column is missing.
    """
    clocks: dict[str, tuple[str, float]] = {}
    power = None
    for name in header:
        if clock := _CLOCK.fullmatch(name):
            domain = "emc" if clock[1] == "mem" else clock[1]
            clocks.setdefault(domain, (name, _HZ[clock[2]]))
        elif power is None and (watts := _POWER.fullmatch(name)):
            power = (name, _W[watts[1]])
    for domain in ("cpu", "gpu"):
        if domain not in clocks:
            raise missing_column(path, header, f"{domain}_hz (or {domain}_khz, {domain}_mhz)")
    families = [wanted] if wanted else list(FAMILIES)
    for family in families:
        if found := _latency(header, family):
            return Columns(clocks, family, found[0], found[1], power)
    raise missing_column(
        path, header, wanted or "latency_ms (or response_p50_ms and other quantiles)"
    )


def _latency(
    header: Sequence[str], family: str
) -> tuple[tuple[str, float], dict[float, tuple[str, float]]] | None:
    """Find the centre and the quantiles of one family, or the column of that very name."""
    quantiles: dict[float, tuple[str, float]] = {}
    mean = plain = None
    for name in header:
        stat = _STAT.fullmatch(name)
        if stat and (stat[1] or "") == family:
            if stat[2] == "mean":
                mean = (name, _US[stat[3]])
            else:
                quantiles.setdefault(_level(stat[2]), (name, _US[stat[3]]))
        elif (match := _PLAIN.fullmatch(name)) and family in {match[1], name}:
            plain = (name, _US[match[2]])
    centre = quantiles.get(0.5) or mean or plain
    if centre is None:
        return None
    return centre, quantiles if len(quantiles) >= 3 else {}


def _level(stat: str) -> float:
    named = {"min": 0.0, "median": 0.5, "max": 1.0}
    return named[stat] if stat in named else int(stat[1:]) / 10 ** (len(stat) - 1)


def missing_column(path: Path, header: Sequence[str], name: str) -> ProfileError:
    """Make the error about a column that a file lacks."""
    why = f"columns: {', '.join(header[:12])}{', ...' if len(header) > 12 else ''}"
    hint = "rename the column, or name the latency with --column"
    return ProfileError(f"no column {name}", where=str(path), why=why, hint=hint)


def plain_number(text: str) -> float:
    """Read a number as spreadsheets write it; nan if it is none (Python reads 1_00 as 100)."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
