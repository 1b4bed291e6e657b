"""Numbers of the NeuralPower paper that its arithmetic can be checked on.

Recalled from the published tables 4-6 and the energy-precision table (Titan X, TensorFlow) and
cross-checked by arithmetic: actual power times runtime gives actual energy to a part in a thousand
in all five rows, and the published errors follow from the rows.

One row does not fit itself: for CIFAR10-6conv predicted power times predicted runtime is 8.453 J,
but the table has 8.938 J, and the published energy error of 2.79 % needs the latter.
"""

from dataclasses import dataclass

import numpy as np

from estimators.neuralpower.epr import Candidate
from estimators.neuralpower.score import rmspe


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One network of tables 4-6: predicted and measured.

    Attributes:
        name: Network.
        batch: Inputs per run; 0 where not recalled.
        paleo_ms: Runtime by Paleo.
        predicted_ms: Runtime by NeuralPower.
        measured_ms: Runtime measured.
        predicted_w: Power by NeuralPower.
        measured_w: Power measured.
        predicted_j: Energy by NeuralPower, as printed.
        measured_j: Energy measured, as printed.
    """

    name: str
    batch: int
    paleo_ms: float
    predicted_ms: float
    measured_ms: float
    predicted_w: float
    measured_w: float
    predicted_j: float
    measured_j: float


NETWORKS = (
    PublishedRow("VGG-16", 64, 345.83, 373.82, 368.42, 206.88, 204.80, 77.312, 75.452),
    PublishedRow("AlexNet", 128, 33.16, 43.41, 39.02, 174.25, 194.62, 7.565, 7.594),
    PublishedRow("NIN", 128, 45.68, 62.62, 50.66, 179.98, 226.34, 11.269, 11.465),
    PublishedRow("Overfeat", 0, 114.71, 195.21, 197.99, 172.20, 172.30, 33.616, 34.113),
    PublishedRow("CIFAR10-6conv", 0, 28.75, 51.13, 50.09, 165.33, 188.34, 8.938, 9.433),
)
INCONSISTENT = "CIFAR10-6conv"
"""The row whose predicted energy is not its predicted power times its predicted runtime."""

TOP5_ERROR = {"VGG-16": 0.073, "AlexNet": 0.17, "NIN": 0.202}
ALPHAS = (1, 2, 3, 4)


def network_errors() -> dict[str, float]:
    """RMSPE over the five networks by the printed rows, %; published are 11.76, 11.66, 2.79."""
    pairs = {
        "runtime_rmspe_pct": [(row.predicted_ms, row.measured_ms) for row in NETWORKS],
        "power_rmspe_pct": [(row.predicted_w, row.measured_w) for row in NETWORKS],
        "energy_rmspe_pct": [(row.predicted_j, row.measured_j) for row in NETWORKS],
    }
    return {name: rmspe(*np.array(rows).T) for name, rows in pairs.items()}


def candidates() -> list[Candidate]:
    """Inputs of the published energy-precision table: energy per input from the measured run."""
    return [
        Candidate(row.name, TOP5_ERROR[row.name], row.measured_j * 1e3 / row.batch)
        for row in NETWORKS
        if row.name in TOP5_ERROR
    ]
