"""From layers to the network: the paper's three sums, and which layer is the bottleneck.

Layers run in series and do not overlap (section 3): runtime and energy add up, average power is
energy over runtime. On a board whose CPU runs ahead use the timeline of ``clocked`` instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from estimators.errors import ProfileError
from estimators.neuralpower.networks import NamedLayer, Skipped
from estimators.neuralpower.score import Predictor
from estimators.neuralpower.shapes import KINDS, Columns, Kind
from estimators.residual import Array

LEAST_W, MOST_W = 0.05, 2000.0
"""Plausible power of a layer on anything from a microcontroller board to a training GPU, W."""


def check_watts(where: str, power_w: Array) -> None:
    """Refuse power that must be in another unit or is none at all.

    Raises:
        ProfileError: A value is outside what any board or GPU draws.
    """
    values = np.asarray(power_w, dtype=np.float64)
    wrong = ~((values >= LEAST_W) & (values <= MOST_W))  # also true for nan
    if wrong.any():
        row = int(np.argmax(wrong))
        value = float(values.reshape(-1)[row])
        hint = "it looks like mW: divide by 1000" if value > MOST_W else "give it in W"
        raise ProfileError(
            "implausible power",
            where=f"{where}, row {row}",
            why=f"{value:g} W is outside {LEAST_W:g}..{MOST_W:g} W ({int(wrong.sum())} such rows)",
            hint=hint,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """A network and its layers.

    Attributes:
        names: Layers in order.
        runtime_ms: Runtime of each, ``[L]``.
        power_w: Power of each while it runs, ``[L]``.
        skipped: Layers that are not modelled.
    """

    names: tuple[str, ...]
    runtime_ms: Array
    power_w: Array
    skipped: tuple[Skipped, ...] = field(default=())

    def __post_init__(self) -> None:
        """Check lengths and units."""
        if not len(self.names) == len(self.runtime_ms) == len(self.power_w) > 0:
            raise ProfileError(
                "a network needs a runtime and a power for each layer",
                why=f"{len(self.names)} layers, {len(self.runtime_ms)} and {len(self.power_w)}",
            )
        check_watts("power of layers", self.power_w)

    @property
    def energy_mj(self) -> Array:
        """Energy of each layer, mJ, ``[L]``."""
        return self.runtime_ms * self.power_w

    @property
    def total_ms(self) -> float:
        """Runtime of the network: the sum."""
        return float(self.runtime_ms.sum())

    @property
    def total_mj(self) -> float:
        """Energy of the network: the sum, mJ."""
        return float(self.energy_mj.sum())

    @property
    def mean_w(self) -> float:
        """Average power: energy over runtime, W."""
        return self.total_mj / self.total_ms

    @property
    def bottlenecks(self) -> dict[str, str]:
        """Layer that leads in ``"runtime"``, ``"power"`` and ``"energy"``."""
        columns = {"runtime": self.runtime_ms, "power": self.power_w, "energy": self.energy_mj}
        return {what: self.names[int(values.argmax())] for what, values in columns.items()}


@dataclass(frozen=True, slots=True)
class LayerModels:
    """Fitted models of runtime (ms) and power (W) by layer type."""

    runtime: Mapping[Kind, Predictor]
    power: Mapping[Kind, Predictor]

    def totals(self, layers: Sequence[NamedLayer], skipped: Sequence[Skipped] = ()) -> Totals:
        """Predict a network.

        Raises:
            ProfileError: There are no layers, or no model of a type that the network has.
        """
        runtime, power = (np.empty(len(layers)) for _ in range(2))
        for kind in KINDS:
            rows = [i for i, layer in enumerate(layers) if layer.shape.kind == kind]
            if not rows:
                continue
            if kind not in self.runtime or kind not in self.power:
                raise ProfileError(
                    f"no model of {kind} layers",
                    why=f"the network has {len(rows)} of them",
                    hint="add measurements of such layers",
                )
            columns = Columns.of(layers[row].shape for row in rows)
            runtime[rows] = self.runtime[kind].predict(columns)
            power[rows] = self.power[kind].predict(columns)
        return Totals(tuple(layer.name for layer in layers), runtime, power, tuple(skipped))
