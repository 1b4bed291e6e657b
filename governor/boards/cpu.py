"""CPU clusters: one cpufreq policy each."""

from governor.boards.clock import ClockFiles, ClockNode, ClockOptions
from governor.boards.identity import parse_cpus
from governor.boards.node import Files
from governor.errors import BoardError, SysfsError

FOLDER = "sys/devices/system/cpu/cpufreq"

# drivers/cpufreq/cpufreq.c. Under userspace, scaling_setspeed reads the clock that was set;
# cpuinfo_cur_freq is never read: each read keeps a core busy and may set the clock again.
CPU_FILES = ClockFiles(
    governor="scaling_governor",
    governors="scaling_available_governors",
    minimum="scaling_min_freq",
    maximum="scaling_max_freq",
    speed="scaling_setspeed",
    shown=("scaling_setspeed",),
    current="scaling_cur_freq",
    table="scaling_available_frequencies",
    unit_hz=1000,
)


def policies(files: Files) -> list[str]:
    """Folders of all policies, online or not."""
    return files.glob(f"{FOLDER}/policy[0-9]*")


def find_cluster(files: Files, directory: str, options: ClockOptions) -> ClockNode:
    """Make the clock of a policy.

    Raises:
        SysfsError: Its files cannot be read: SysfsBusyError while its CPUs are offline.
        BoardError: It has no list of clocks, or only one.
    """
    node = files.node(f"{directory}/affected_cpus")
    try:
        cpus = parse_cpus(node.read_text())
    finally:
        node.close()
    if not cpus:
        raise BoardError("all its CPUs are offline", where=directory)
    available_hz = read_table(files, directory, CPU_FILES)
    name = directory.rpartition("/")[2]
    return ClockNode(
        files,
        name,
        "cpu",
        directory=directory,
        names=CPU_FILES,
        options=options,
        available_hz=available_hz,
        cpus=cpus,
    )


def read_table(files: Files, directory: str, names: ClockFiles) -> tuple[int, ...]:
    """Read a list of clocks, ascending, Hz.

    Raises:
        SysfsError: It cannot be read.
        BoardError: It holds fewer than two clocks: there is nothing to choose.
    """
    node = files.node(f"{directory}/{names.table}")
    try:
        text = node.read_text()
    except SysfsError as exc:
        if exc.code:
            raise
        text = ""
    finally:
        node.close()
    steps = sorted({int(part) * names.unit_hz for part in text.split() if part.isdecimal()})
    if len(steps) < 2:
        many = "one clock" if steps else "no clocks"
        raise BoardError(f"it offers {many}", where=str(node.path), hint="it is left alone")
    return tuple(steps)
