"""A picture of how a table fits the runs it was made from, for ``flamegov estimate --png``."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from governor.errors import UsageError

if TYPE_CHECKING:
    from estimators.profiles import Profile
    from estimators.table import LatencyTable


def save_picture(profile: "Profile", model: str, table: "LatencyTable", path: Path) -> None:
    """Draw latency over all pairs with the measured runs, and the runs' relative error.

    Pairs are ordered as in Fig. 9 of the FLAME paper: CPU clocks from low to high, and GPU clocks
    from low to high within each. A run's error is in-sample.

    Raises:
        UsageError: matplotlib is missing, or the file cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UsageError(
            "pictures need matplotlib", hint="pip install '.[bench]' in the checkout"
        ) from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    emc, context = int(table.emc_hz[-1]), int(table.context[-1])
    plane = table.slice_us(emc, context) / 1000
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), height_ratios=(2, 1), sharex=True)
    above.plot(plane.ravel(), lw=1, label="estimated")
    if model in profile.runs:
        runs = profile.runs[model].at(emc_hz=emc)
        estimated = np.array(
            [
                table.latency_at(cpu, gpu, emc_hz=emc, context=tokens)
                for cpu, gpu, tokens in zip(
                    runs.cpu_hz.tolist(), runs.gpu_hz.tolist(), runs.context.tolist(), strict=True
                )
            ]
        )
        rows, columns = plane.shape
        c = np.searchsorted(table.cpu_hz, runs.cpu_hz)
        g = np.searchsorted(table.gpu_hz, runs.gpu_hz)
        place, measured = c * columns + g, runs.values["latency_us"]
        here = runs.context == context
        above.plot(place[here], measured[here] / 1000, "k.", label="measured")
        below.plot(place, (estimated / measured - 1) * 100, "k.")
    above.set(ylabel="latency, ms", yscale="log", title=f"{model}, EMC {emc / 1e6:g} MHz")
    above.legend()
    below.set(ylabel="error of runs, %", xlabel="clock pair (CPU low to high, GPU within)")
    below.axhline(0, lw=0.5)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UsageError("cannot write the picture", where=str(path), why=str(error)) from error
    finally:
        plt.close(figure)
