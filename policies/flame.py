"""The deadline-aware policy of the FLAME paper, section IV: the least GPU clock, then CPU clock."""

import math
from array import array
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from estimators.corrector import Corrector, CorrectorMode
from estimators.errors import PolicyError, TableError
from estimators.table import LatencyTable
from policies.base import (
    Attainable,
    BasePolicy,
    BoardView,
    Decision,
    Job,
    OperatingPoint,
    Outcome,
    option,
)

_ROUNDING = 1.0 + 1e-9
"""Slack for comparing interpolated bounds with interpolated values."""

_LONGEST_WINDOW = 10_000
"""Most jobs per correction: 100 s of them at 100 a second; a longer window is a slip."""


class _Axis:
    """One clock axis of a table, with those clocks marked that the board can be asked for.

    A domain that the table does not know, or that the board does not have, is read at the table's
    only, or else its lowest, clock, and asked for 0 ("not ours to set").

    Attributes:
        ask_hz: For each clock of the table what to ask for, Hz.
        usable: Whether each one is attainable.
        indices: Those that are, ascending.
        top: Index of the highest clock of the table that the board's limit allows.
    """

    __slots__ = ("ask_hz", "indices", "top", "usable")

    def __init__(self, table_hz: list[int], attainable_hz: tuple[int, ...]) -> None:
        if not attainable_hz or table_hz == [0]:
            self.ask_hz = [0] * len(table_hz)
            self.usable = [True, *[False] * (len(table_hz) - 1)]
            self.top = 0
        else:
            self.ask_hz = table_hz
            self.usable = [hz in attainable_hz for hz in table_hz]
            limit_hz = attainable_hz[-1]
            self.top = max((i for i, hz in enumerate(table_hz) if hz <= limit_hz), default=0)
        self.indices = [i for i, usable in enumerate(self.usable) if usable]


class _Grid:
    """One table and what of it is attainable, ready to be searched."""

    def __init__(self, table: LatencyTable, attainable: Attainable) -> None:
        self.table, self.attainable = table, attainable
        _, self._contexts, _, self._gpus = table.shape
        self._cpu = cpu = _Axis(table.cpu_hz.tolist(), attainable.cpu_hz)
        self._gpu = gpu = _Axis(table.gpu_hz.tolist(), attainable.gpu_hz)
        self._points = [[OperatingPoint(c, g) for c in cpu.ask_hz] for g in gpu.ask_hz]
        self._cpu_lines, self._gpu_lines = table.cpu_lines, table.gpu_lines(cpu.top)
        # Least value of each line of attainable CPU clocks: bounds what lies between two contexts.
        floors = table.latency_us[:, :, cpu.indices].min(axis=2, initial=np.inf)
        self._floors = array("f", floors.tobytes())
        self._emc_hz, self._emc = -1, (0, False)
        self._fastest_key: tuple[int, int, float] | None = None
        self._fastest = (OperatingPoint(0, 0), math.nan)

    def __bool__(self) -> bool:
        """Tell whether the table and the board have any point in common."""
        return bool(self._cpu.indices and self._gpu.indices)

    def locate(self, emc_hz: int, context: int) -> tuple[int, int, float, str]:
        """Find what to read for a memory clock and a context.

        Returns:
            ``(low, high, weight, note)``: the two ``[C, G]`` planes, the share of the second, and
            a remark for people if the table does not hold just that clock and context.
        """
        if emc_hz != self._emc_hz:
            self._emc_hz, self._emc = emc_hz, self.table.emc_index(emc_hz)
        low, high, weight, clamped = self.table.context_weight(context)
        emc, exact = self._emc
        note = "" if exact else ", memory clock not in table"
        if clamped:
            note += ", context outside table"
        first = emc * self._contexts
        return first + low, first + high, weight, note

    def search(
        self, low: int, high: int, weight: float, limit_us: float
    ) -> tuple[OperatingPoint, float] | None:
        """Solve Eqs. 13 and 14 exactly, assuming no order among the values.

        ``f_c^max`` of Eq. 13 is the highest clock of the table that the board's limit allows. It
        need not be in the board's list, so Eq. 14 may come out empty: then f_g is raised.

        Args:
            low: First plane.
            high: Second plane.
            weight: Share of the second.
            limit_us: Time allowed in the table's own (uncorrected) us; nan allows none.

        Returns:
            The point and the table's value there, us; None if there is no solution.
        """
        begin = 0
        while hit := self._gpu_lines.first(
            low, high, weight, limit_us, usable=self._gpu.usable, begin=begin
        ):
            g = hit[0]
            row, next_row = low * self._gpus + g, high * self._gpus + g
            found = self._cpu_lines.first(row, next_row, weight, limit_us, usable=self._cpu.usable)
            if found:
                return self._points[g][found[0]], found[1]
            begin = g + 1
        return None

    def fastest(self, low: int, high: int, weight: float) -> tuple[OperatingPoint, float]:
        """Find the fastest point and the table's value there, us; the last answer is kept.

        Among equally fast points it is the one with the lowest GPU clock, then CPU clock.
        """
        key = (low, high, weight)
        if key != self._fastest_key:
            self._fastest_key, self._fastest = key, self._find_fastest(low, high, weight)
        return self._fastest

    def _find_fastest(self, low: int, high: int, weight: float) -> tuple[OperatingPoint, float]:
        lines, usable, gpus = self._cpu_lines, self._cpu.usable, self._gpus
        lower = self._floors[low * gpus : low * gpus + gpus]
        upper = self._floors[high * gpus : high * gpus + gpus]
        floors = [a + (b - a) * weight for a, b in zip(lower, upper, strict=True)]
        best, cpu, least_us = gpus, 0, math.inf
        for g in sorted(self._gpu.indices, key=floors.__getitem__):
            if floors[g] > least_us * _ROUNDING:
                break
            row, next_row = low * gpus + g, high * gpus + g
            if best == gpus:  # the highest clock is about the fastest: look below it only
                top = lines.first(
                    row, next_row, weight, math.inf, usable=usable, begin=self._cpu.indices[-1]
                )
                least_us = top[1] if top else math.inf
            hit = lines.least(row, next_row, weight, least_us, usable=usable)
            if hit and (hit[1] < least_us or g < best):
                best, (cpu, least_us) = g, hit
        return self._points[best][cpu], least_us


@dataclass(slots=True)
class FlamePolicy(BasePolicy):
    """Eq. 13, then Eq. 14, on the table corrected by Eqs. 10 and 11.

    If nothing is in time it chooses the fastest attainable point *of the table*, which on a table
    that is not monotone need not be the one with the highest clocks.
    """

    name: ClassVar[str] = "flame"

    margin: float = option(
        0.05, "Share added to every prediction before it is compared with the deadline", "ratio"
    )
    correction: bool = option(True, "Correct the table online by what jobs took")
    corrector: CorrectorMode = option(
        "raw", "Reading of Eqs. 10-11: raw, cumulative, or self (learns half the bias)"
    )
    window: int = option(10, "Jobs per correction (w + 1 in Eq. 10)", "jobs")
    alpha: float = option(0.6, "Weight of the newest window in the correction", "ratio")

    _learned: Corrector = field(init=False, repr=False)
    _table: LatencyTable | None = field(init=False, repr=False, default=None)
    _grid: _Grid | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            PolicyError: An option is out of its range.
        """
        if not 0.0 <= self.margin <= 1.0:
            raise PolicyError("option margin must be 0 to 1", why=f"it is {self.margin}")
        if self.window > _LONGEST_WINDOW:
            why = f"it is {self.window}"
            raise PolicyError(f"option window must be {_LONGEST_WINDOW} jobs or fewer", why=why)
        try:
            self._learned = Corrector(self.corrector, window=self.window, alpha=self.alpha)
        except ValueError as exc:
            raise PolicyError("option out of range", where=self.name, why=str(exc)) from exc

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Choose the least clocks that are in time; see the class."""
        grid = self._grid
        if grid is None or grid.table is not job.table or grid.attainable is not view.attainable:
            grid = self._bind(job.table, view.attainable)
        if not grid:
            return Decision(None, math.nan, False, "no attainable clock is in the table")
        low, high, weight, note = grid.locate(view.emc_hz, job.context)
        limit_us = self._learned.raw_limit_us(job.deadline_us / (1.0 + self.margin))
        found = grid.search(low, high, weight, limit_us)
        if found is not None:
            return Decision(found[0], self._learned.apply(found[1]), True, "greedy" + note)
        point, raw_us = grid.fastest(low, high, weight)
        in_time = raw_us <= limit_us
        reason = "fastest point" if in_time else "infeasible: fastest point"
        return Decision(point, self._learned.apply(raw_us), in_time, reason + note)

    def observe(self, outcome: Outcome) -> bool:
        """Let the corrector learn, unless a clock moved or the point is not in the table."""
        if not self.correction or outcome.mixed:
            return False
        self._follow(outcome.job.table)
        raw_us = self._raw_us(outcome.job, outcome.point, outcome.emc_hz)
        return self._learned.observe(raw_us, outcome.latency_us)

    def predict_us(self, job: Job, point: OperatingPoint, emc_hz: int) -> float:
        """Predict a job's latency at any point, us, corrected, without margin; nan if unknown."""
        raw_us = self._raw_us(job, point, emc_hz)
        return self._learned.apply(raw_us) if job.table is self._table else raw_us

    def stats(self) -> dict[str, float]:
        """Tell the shift in force, us."""
        return {"offset_us": self._learned.offset_us}

    def _bind(self, table: LatencyTable, attainable: Attainable) -> _Grid:
        self._follow(table)
        self._grid = _Grid(table, attainable)
        return self._grid

    def _follow(self, table: LatencyTable) -> None:
        """Forget what was learned about another table."""
        if table is not self._table:
            self._table = table
            self._learned.reset()

    @staticmethod
    def _raw_us(job: Job, point: OperatingPoint, emc_hz: int) -> float:
        try:
            return job.table.latency_at(*point, emc_hz=emc_hz, context=job.context)
        except TableError:  # a clock that somebody else set: nothing is known of it
            return math.nan
