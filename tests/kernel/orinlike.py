"""The guest's board: its files, its hardware's moods, and how it looks before each test."""

import functools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CPU = Path("/sys/devices/system/cpu")
CPUFREQ = CPU / "cpufreq"
GPU = Path("/sys/class/devfreq/17000000.gpu")
GPU_DRIVER = Path("/sys/bus/platform/drivers/17000000.gpu")
EMC = Path("/sys/kernel/debug/bpmp/debug/clk/emc")
PARAMETERS = Path("/sys/module/orinlike/parameters")
TRANSITIONS = Path("/sys/kernel/debug/orinlike/transitions")
CLUSTERS = {"policy0": (0, 1), "policy2": (2,), "policy3": (3,)}
NOBODY = 65534
SETTLE_S = 3.0

CPU_DELAY_US, GPU_DELAY_US = 1400, 5000
"""What a switch takes on a real board."""

ORIGINALS = {
    "policy0": {
        "scaling_governor": "schedutil",
        "scaling_min_freq": "729600",
        "scaling_max_freq": "2201600",
    },
    "policy2": {
        "scaling_governor": "performance",
        "scaling_min_freq": "115200",
        "scaling_max_freq": "1728000",
    },
    "policy3": {
        "scaling_governor": "powersave",
        "scaling_min_freq": "268800",
        "scaling_max_freq": "1958400",
    },
    "gpu": {"governor": "simple_ondemand", "min_freq": "306000000", "max_freq": "1224000000"},
    "emc": {"mrq_rate_locked": "0"},
}
"""How each test finds the board; no two clusters alike. The vendor's GPU governor is not Debian's:
``simple_ondemand`` stands for it."""

QUIET = ("cpu_errno", "gpu_errno", "cpu_cap_khz", "gpu_cap_hz", "cpu_delay_us", "gpu_delay_us")


def folder(name: str) -> Path:
    """Folder of a clock by its name."""
    return {"gpu": GPU, "emc": EMC}.get(name, CPUFREQ / name)


def get(path: Path) -> str:
    """Read a file."""
    return path.read_text().strip()


def put(path: Path, text: object) -> None:
    """Write a file in one go."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, str(text).encode())
    finally:
        os.close(fd)


def hardware(**values: int) -> None:
    """Set parameters of the module."""
    for name, value in values.items():
        put(PARAMETERS / name, value)


def online(cpu: int, state: bool) -> None:
    """Take a CPU away or bring it back."""
    path = CPU / f"cpu{cpu}" / "online"
    if get(path) != str(int(state)):
        put(path, int(state))


def cool(domain: str, state: int) -> None:
    """Let the thermal framework take the ``state`` highest clocks away."""
    kind = "devfreq-17000000.gpu" if domain == "gpu" else f"cpufreq-cpu{domain[-1]}"
    put(_coolers()[kind] / "cur_state", state)


@functools.cache
def _coolers() -> dict[str, Path]:
    folders = Path("/sys/class/thermal").glob("cooling_device*")
    return {get(folder / "type"): folder for folder in folders}


def load(module: str, *arguments: str) -> None:
    """Load a kernel module."""
    _coolers.cache_clear()
    subprocess.run(["/bin/insmod", f"/modules/{module}.ko", *arguments], check=True)


def unload(module: str) -> None:
    """Unload a kernel module."""
    subprocess.run(["/bin/rmmod", module], check=True)


@contextmanager
def reloaded(*arguments: str) -> Iterator[None]:
    """Have the board's module with other parameters for a while."""
    unload("orinlike")
    load("orinlike", *arguments)
    try:
        yield
    finally:
        unload("orinlike")
        load("orinlike")


def state() -> dict[str, dict[str, str]]:
    """Read all that a governor may change for good."""
    return {
        name: {file: get(folder(name) / file) for file in files}
        for name, files in ORIGINALS.items()
    }


def reset() -> None:
    """Bring the board to :data:`ORIGINALS`, whatever was done to it."""
    hardware(**dict.fromkeys(QUIET, 0))
    for name, cpus in CLUSTERS.items():
        for cpu in cpus[1 if name == "policy0" else 0 :]:
            online(cpu, True)
        cool(name, 0)
    cool("gpu", 0)
    for name, files in ORIGINALS.items():
        for file, text in files.items():
            put(folder(name) / file, text)
    wait_for(lambda: state() == ORIGINALS, "the originals")


def wait_for(true: Callable[[], object], what: str, limit_s: float = SETTLE_S) -> None:
    """Wait: the kernel applies limits some ms after the write, and this guest is slow."""
    limit = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < limit, f"waited {limit_s} s for {what}"
        time.sleep(0.002)


def transitions() -> list[tuple[int, str, int]]:
    """List the newest transitions: CLOCK_MONOTONIC ns, name of the clock, Hz."""
    found = []
    for line in TRANSITIONS.read_text().splitlines():
        ns, first, count = (int(part) for part in line.split())
        found.append((ns, "gpu" if first < 0 else f"policy{first}", count * (1000, 1)[first < 0]))
    return found
