"""Named references: what operators do without a governor."""

from dataclasses import dataclass
from typing import ClassVar

from policies.constant import MaxPolicy


@dataclass(slots=True)
class JetsonClocksPolicy(MaxPolicy):
    """``jetson_clocks``: the highest clocks of the power mode.

    The tool pins the memory clock as well; this policy cannot, so run the tool's memory part beside
    it. In the bench the memory clock is at its highest throughout.
    """

    name: ClassVar[str] = "jetson_clocks"
