"""A board: its clocks, its sensors, its identity, under one root folder."""

import logging
import time
from typing import TYPE_CHECKING

from estimators.errors import FlamegovError
from governor.boards import gpu
from governor.boards.clock import ClockNode, Watch
from governor.boards.emc import HIGHEST_HZ, find_emc
from governor.boards.finder import ClockFinder
from governor.boards.identity import BoardIdentity, identify
from governor.boards.node import Files
from governor.boards.restore import RestoreReport
from governor.boards.sensors import CpuLoad, Meter, Rails, Temperatures
from governor.boards.state import BoardEvent, BoardOptions, BoardState
from governor.errors import BoardError, SysfsError
from policies.base import Attainable, OperatingPoint

if TYPE_CHECKING:  # the journal stands above the boards; they only fill it
    from governor.journal import Journal

_log = logging.getLogger(__name__)


class Board:
    """Drives one board.

    :meth:`ClockNode.set_hz` is called by each clock's writer; :meth:`poll` by one other thread.

    Args:
        files: Its files.
        options: How it is driven.

    Attributes:
        identity: Which board it is.
    """

    def __init__(self, files: Files, options: BoardOptions) -> None:
        self._files = files
        self._finder = ClockFinder(files, options)
        self._finder.look()
        self._journal: Journal | None = None
        self._holding = False
        folder = self._finder.gpu_folder
        self.identity: BoardIdentity = identify(files, f"{folder}/device" if folder else None)
        self._emc = find_emc(files)
        self._gpu_load = gpu.find_gpu_load(files, folder)
        self._rails = Rails(files)
        self._temperatures = Temperatures(files)
        self._cpu_load = CpuLoad(files)
        self._meter = Meter()
        self._seen: dict[str, Watch] = {}
        self._gone: dict[str, str] = {}
        self._attainable = Attainable((), ())
        self._look(self._meter)

    @property
    def clusters(self) -> list[ClockNode]:
        """CPU clocks."""
        return self._finder.clusters

    @property
    def gpu(self) -> ClockNode | None:
        """GPU clock, or None."""
        return self._finder.gpu

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be, one line each."""
        return self._finder.notes

    @property
    def nodes(self) -> tuple[ClockNode, ...]:
        """All clocks; each has its own writer thread. Grows when a clock appears late."""
        return (*self.clusters, *(() if self.gpu is None else (self.gpu,)))

    # -- holding --------------------------------------------------------------------------------

    def acquire(self, journal: "Journal | None") -> None:
        """Save the originals of all clocks and take them.

        A clock whose files refuse is left out, told, and tried again at each :meth:`poll`.

        Args:
            journal: Where originals go before the first write; None only in a dry run.

        Raises:
            BoardError: No clock can be taken, or one cannot be driven as asked: all are put back.
            JournalError: The originals cannot be kept: all are put back.
        """
        if journal is None and self._files.dry_run is None:
            raise BoardError("a journal is needed before the first write")
        self._journal = journal
        try:
            refusals = [why for node in self.nodes if (why := self._take(node)) is not None]
        except FlamegovError:
            self.restore()
            raise
        if len(refusals) == len(self.nodes):
            none = BoardError("no clock of the board can be set", why="; ".join(self.notes))
            raise refusals[0] if refusals else none
        self._holding = True
        self._seen.clear()
        self._look(self._meter)

    def release(self) -> RestoreReport:
        """Hand the clocks back to the board; :meth:`acquire` takes them again."""
        return self.restore()

    def restore(self) -> RestoreReport:
        """Put everything back as found, except what others changed meanwhile.

        Writers must be joined or idle. Never raises for a file that fails: the report tells.
        """
        self._holding = False
        for node in self.nodes:
            node.let_go()
        self._seen.clear()
        self._files.shadow.clear()
        return RestoreReport() if self._journal is None else self._journal.restore()

    def close(self) -> None:
        """Close all descriptors; restores nothing."""
        for node in self.nodes:
            node.let_go()
        self._files.close()

    def _take(self, node: ClockNode) -> FlamegovError | None:
        """Take one clock; tell why not if it is offline or its files refuse."""
        if node.acquired:
            return None  # its journal is our own, not an earlier daemon's
        journal = self._journal
        if journal is not None and journal.owes(node.name):
            # An earlier daemon's pins: they must not be taken for originals.
            report = journal.restore(only=node.name)
            if not report.complete:
                return self._leave_out(node, BoardError(report.left[0]))
        try:
            node.acquire(journal)
        except SysfsError as exc:
            if journal is not None:  # some of its writes may have come through
                journal.restore(only=node.name)
            return self._leave_out(node, exc)
        return None

    def _try_take(self, node: ClockNode) -> None:
        """Take a clock that came late or was left out."""
        try:
            self._take(node)
        except FlamegovError as exc:
            self._leave_out(node, exc)

    @staticmethod
    def _leave_out(node: ClockNode, why: FlamegovError) -> FlamegovError:
        """Note why a clock is not held; the same reason is logged once."""
        if node.unheld != str(why):
            _log.warning("%s is left out for now: %s", node.name, why)
        node.unheld = str(why)
        return why

    # -- looking --------------------------------------------------------------------------------

    def attainable(self) -> Attainable:
        """Clocks that can be asked for, as of the last look; the same object until one moves."""
        return self._attainable

    def poll(self) -> BoardState:
        """Look at everything; takes some ms on a real board. Failing readings become None."""
        meter = self._meter
        meter.missing = {}
        events = [*self._find_new(), *self._look(meter)]
        rails = self._rails.read(meter)
        temps = self._temperatures.read(meter)
        return BoardState(
            at_ns=time.monotonic_ns(),
            attainable=self._attainable,
            point=self._point(),
            emc_hz=self._read_emc(meter),
            rails_mw=rails,
            total_mw=Rails.total_mw(rails),
            cpu_power_mw=Rails.feeding("cpu", rails),
            gpu_power_mw=Rails.feeding("gpu", rails),
            shared_rail=self._rails.shared,
            temps_mc=temps,
            cpu_temp_mc=Temperatures.hottest("cpu", temps),
            gpu_temp_mc=Temperatures.hottest("gpu", temps),
            gpu_load=self._read_load(meter),
            cpu_load=self._cpu_load.read({node.name: node.cpus for node in self.clusters}),
            rejected=meter.rejected,
            missing=meter.missing,
            events=tuple(events),
        )

    def _look(self, meter: Meter) -> list[BoardEvent]:
        """Look at all clocks: refresh the attainable ones and tell what others did."""
        events: list[BoardEvent] = []
        for node in self.nodes:
            try:
                watch = node.watch()
            except SysfsError as exc:
                meter.missing[node.name] = str(exc)
                self._seen.pop(node.name, None)
                if node.name not in self._gone:
                    events.append(BoardEvent("gone", node.name, str(exc)))
                self._gone[node.name] = str(exc)
                continue
            if self._gone.pop(node.name, None) is not None:
                events.append(BoardEvent("back", node.name, f"{node.name} is back"))
            events += self._changes(node, watch)
            self._seen[node.name] = watch
        now = self._cut()
        if now != self._attainable:
            self._attainable = now
        return events

    def _changes(self, node: ClockNode, watch: Watch) -> list[BoardEvent]:
        """Compare a look with the last one."""
        last = self._seen.get(node.name)
        events = []
        wanted = node.wanted_governor or (last.governor if last else watch.governor)
        if watch.governor != wanted and (last is None or watch.governor != last.governor):
            text = f"{node.name}: governor is {watch.governor} now, was {wanted}"
            events.append(BoardEvent("governor", node.name, text))
        if last is None:
            return events
        (low, high), (low_before, high_before) = watch.limits_hz, last.limits_hz
        if high != high_before:
            text = f"{node.name}: upper limit moved from {high_before} to {high} Hz"
            events.append(BoardEvent("cap", node.name, text))
        if low != low_before:
            text = f"{node.name}: lower limit moved from {low_before} to {low} Hz"
            events.append(BoardEvent("limit", node.name, text))
        return events

    def _cut(self) -> Attainable:
        """Clocks that all clusters can have, and those of the GPU."""
        lists = [
            node.attainable_hz(self._seen[node.name].limits_hz)
            for node in self.clusters
            if node.name in self._seen
        ]
        common = sorted(set(lists[0]).intersection(*lists[1:])) if lists else []
        if lists and not common:  # unlike clusters: each rounds up or is cut by its own limits
            common = list(min(lists, key=max))
        gpu_hz: tuple[int, ...] = ()
        if self.gpu is not None and "gpu" in self._seen:
            gpu_hz = self.gpu.attainable_hz(self._seen["gpu"].limits_hz)
        return Attainable(tuple(common), gpu_hz)

    def _point(self) -> OperatingPoint | None:
        """Clocks in force: of the slowest cluster, and the GPU; None when one is not known."""
        cpus = [seen.current_hz for n in self.clusters if (seen := self._seen.get(n.name))]
        known = [hz for hz in cpus if hz is not None]
        cpu_hz = min(known, default=None) if self.clusters else 0
        gpu_hz: int | None = 0
        if self.gpu is not None:
            gpu_hz = self._seen["gpu"].current_hz if "gpu" in self._seen else None
        return None if cpu_hz is None or gpu_hz is None else OperatingPoint(cpu_hz, gpu_hz)

    def _read_emc(self, meter: Meter) -> int | None:
        if self._emc is None:
            meter.missing["emc"] = "the board does not show its memory clock (debugfs, root)"
            return None
        return meter.read("emc", self._emc, 1, HIGHEST_HZ)

    def _read_load(self, meter: Meter) -> float | None:
        if self._gpu_load is None:
            meter.missing["gpu_load"] = "the board does not show the load of its GPU"
            return None
        load = meter.read("gpu_load", self._gpu_load, 0, 1000)
        return None if load is None else load / 1000

    def _find_new(self) -> list[BoardEvent]:
        """Find clocks that appeared since the start; while the board is held, take what is not."""
        fresh = self._finder.look()
        if self.gpu in fresh:
            self._gpu_load = gpu.find_gpu_load(self._files, self._finder.gpu_folder)
        for node in self.nodes:
            if self._holding and not node.acquired:
                self._try_take(node)
        return [BoardEvent("appeared", node.name, f"{node.name} appeared") for node in fresh]
