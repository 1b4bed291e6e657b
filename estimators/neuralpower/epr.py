"""Energy-precision ratio: which network trades error for energy best (section 4.3).

``M = error^alpha * energy per input``; lower is better, and alpha says how much error counts. With
the published inputs, top-5 error in percent and energy in joule, the published table comes out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimators.errors import ProfileError
from estimators.residual import Array


@dataclass(frozen=True, slots=True)
class Candidate:
    """A network to choose from.

    Attributes:
        name: Its name.
        error: Error rate, 0..1.
        energy_mj: Energy per input, mJ.

    Raises:
        ProfileError: The error is not within 0..1, or the energy is not positive.
    """

    name: str
    error: float
    energy_mj: float

    def __post_init__(self) -> None:
        """Check both numbers."""
        if not 0.0 < self.error <= 1.0:
            raise ProfileError(
                "error rate must be over 0 and up to 1",
                where=self.name,
                why=f"{self.error:g}",
                hint="give a share, not percent",
            )
        if not (np.isfinite(self.energy_mj) and self.energy_mj > 0):
            raise ProfileError(
                "energy must be positive", where=self.name, why=f"{self.energy_mj:g} mJ"
            )


def energy_precision(candidates: Sequence[Candidate], alphas: Sequence[float]) -> Array:
    """Ratio of each network at each alpha, mJ, ``[networks, alphas]``."""
    if not candidates or not alphas:
        raise ProfileError("energy-precision ratio needs networks and alphas")
    error = np.array([candidate.error for candidate in candidates])[:, None]
    energy_mj = np.array([candidate.energy_mj for candidate in candidates])[:, None]
    ratio: Array = error ** np.asarray(alphas, dtype=np.float64) * energy_mj
    return ratio


def winners(candidates: Sequence[Candidate], alphas: Sequence[float]) -> list[str]:
    """Name of the best network at each alpha."""
    return [candidates[int(i)].name for i in energy_precision(candidates, alphas).argmin(axis=0)]
