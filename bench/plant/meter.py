"""True energy of a live board, and what its sensors make of it."""

from collections.abc import Mapping

from bench.plant.tree import BoardFiles
from bench.plant.types import Rails

_NS = 1_000_000_000


class Meter:
    """Adds up true energy per rail and shows it through the power monitors.

    Attributes:
        energy_mj: Energy of each rail since the start, mJ, by label.
        total_mj: Energy of the module since the start, mJ.
    """

    def __init__(self, files: BoardFiles, now_ns: int) -> None:
        self._files = files
        labels = [rail.label for rail in files.kernel.board.rails]
        self.energy_mj = dict.fromkeys(labels, 0.0)
        self.total_mj = 0.0
        self._shown_mj = dict(self.energy_mj)
        self._shown_ns = now_ns

    @property
    def due_ns(self) -> int:
        """When the monitors end their averaging interval."""
        return self._shown_ns + self._files.monitors[0].interval_ms * 1_000_000

    def add(self, rails: Rails, ns: int) -> None:
        """Add constant power over a while."""
        seconds = ns / _NS
        for label in self.energy_mj:
            self.energy_mj[label] += rails.power_mw.get(label, 0.0) * seconds
        self.total_mj += rails.total_mw * seconds

    def show(self, now_ns: int) -> Mapping[str, float]:
        """Put the mean power of the interval into the monitors; returns it, mW by label."""
        seconds = max(now_ns - self._shown_ns, 1) / _NS
        mean = {
            label: (energy - self._shown_mj[label]) / seconds
            for label, energy in self.energy_mj.items()
        }
        for monitor in self._files.monitors:
            monitor.show(mean)
        self._shown_mj, self._shown_ns = dict(self.energy_mj), now_ns
        return mean
