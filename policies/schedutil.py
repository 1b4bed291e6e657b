"""The commercial baseline: the board's own governors.

The policy itself sets no clock. On a real board, and on a live simulated one, an operating point of
None leaves the clocks to whoever had them before, which restores ``schedutil`` and
``nvhost_podgov``; the bench runs its emulation of the same governors in virtual time.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from policies.base import BasePolicy, BoardView, Decision, Job


@dataclass(slots=True)
class SchedutilPolicy(BasePolicy):
    """Leaves CPU and GPU to the kernel (DVFS-Com of the FLAME paper)."""

    name: ClassVar[str] = "schedutil"

    def decide(self, job: Job, view: BoardView) -> Decision:
        """Leave the clocks to the board; nothing is promised."""
        return Decision(None, math.nan, False, "left to the board's governors")


@dataclass(slots=True)
class SimpleOndemandPolicy(SchedutilPolicy):
    """Leaves the CPU to ``schedutil`` and the GPU to ``simple_ondemand``; in the bench only.

    On a board it leaves the clocks to whatever governors are set, as ``schedutil`` does: choosing
    kernel governors is the operator's business.
    """

    name: ClassVar[str] = "simple_ondemand"
