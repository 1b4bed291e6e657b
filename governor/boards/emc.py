"""The memory clock. It is read, not set: it belongs to the board's bandwidth manager."""

from governor.boards.node import Files, Node

# Tegra186 to 234 show it in BPMP's debugfs, Tegra210 in its clock tree, Thor as a devfreq device.
_PLACES = (
    "sys/kernel/debug/bpmp/debug/clk/emc/rate",
    "sys/kernel/debug/clk/emc/clk_rate",
    "sys/class/devfreq/bwmgr/cur_freq",
)

HIGHEST_HZ = 20_000_000_000
"""No memory clock is above; a larger reading is an artefact."""


def find_emc(files: Files) -> Node | None:
    """Find the file that tells the memory clock in Hz; an access takes 0.5-0.9 ms on Orin."""
    for place in _PLACES:
        if files.exists(place):
            return files.node(place)
    return None
