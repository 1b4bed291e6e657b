"""The GPU: a devfreq device, known by the name of its device-tree node or, on Thor, its own."""

from governor.boards.clock import ClockFiles, ClockNode, ClockOptions
from governor.boards.cpu import read_table
from governor.boards.node import Files, Node

FOLDER = "sys/class/devfreq"
OF_NAMES = frozenset({"gv11b", "gp10b", "ga10b", "gb10b", "gpu"})
OWN_NAMES = frozenset({"gpu-gpc-0"})

# drivers/devfreq/devfreq.c. target_freq is what devfreq last set; cur_freq is what the hardware
# runs at, which drops while the GPU is powered off between jobs. set_freq reads back the wish.
GPU_FILES = ClockFiles(
    governor="governor",
    governors="available_governors",
    minimum="min_freq",
    maximum="max_freq",
    speed="userspace/set_freq",
    shown=("target_freq", "cur_freq"),
    current="cur_freq",
    table="available_frequencies",
    unit_hz=1,
)


def find_gpu_folder(files: Files) -> str | None:
    """Find the devfreq folder of the GPU; it appears after the GPU was powered once."""
    for directory in files.glob(f"{FOLDER}/*"):
        name = directory.rpartition("/")[2]
        if name in OWN_NAMES:
            return directory
        of_name = files.read_once(f"{directory}/device/of_node/name")
        if of_name in OF_NAMES or (of_name is None and name.partition(".")[2] in OF_NAMES):
            return directory
    return None


def find_gpu(files: Files, directory: str, options: ClockOptions) -> ClockNode:
    """Make the clock of the GPU.

    Raises:
        SysfsError: Its files cannot be read.
        BoardError: It has no list of clocks, or only one.
    """
    available_hz = read_table(files, directory, GPU_FILES)
    return ClockNode(
        files,
        "gpu",
        "gpu",
        directory=directory,
        names=GPU_FILES,
        options=options,
        available_hz=available_hz,
    )


def find_gpu_load(files: Files, directory: str | None) -> Node | None:
    """Find the file that tells the GPU's load in per mille; Thor has none."""
    path = f"{directory}/device/load"
    return files.node(path) if directory and files.exists(path) else None
