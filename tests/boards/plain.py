"""A sysfs tree of plain files: it takes everything, as no kernel does."""

from pathlib import Path

CPU_KHZ = tuple(range(115200, 2188801, 76800)) + (2201600,)
GPU_HZ = (
    *range(306_000_000, 1_224_000_001, 102_000_000),
    1_300_500_000,
)
CPUFREQ = "sys/devices/system/cpu/cpufreq"
GPU = "sys/class/devfreq/17000000.gpu"


def put(root: Path, path: str, text: object) -> Path:
    """Write one file below the root, as a kernel would show it."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file


def get(root: Path, path: str) -> str:
    """First line of a file below the root."""
    return (root / path).read_text().partition("\n")[0]


def follow(root: Path, path: str, target: str) -> None:
    """Make a file follow another at once, as far as plain files can."""
    (root / path).symlink_to(target)


def add_cluster(
    root: Path,
    first: int,
    *,
    governor: str = "schedutil",
    low: int = 729600,
    high: int = 2201600,
    governors: str = "powersave ondemand userspace performance schedutil",
    khz: tuple[int, ...] = CPU_KHZ,
) -> None:
    """Add one cpufreq policy of four CPUs."""
    speed = "1190400" if governor == "userspace" else "<unsupported>"
    values = {
        "affected_cpus": " ".join(str(first + n) for n in range(4)),
        "scaling_governor": governor,
        "scaling_available_governors": governors,
        "scaling_min_freq": low,
        "scaling_max_freq": high,
        "scaling_setspeed": speed,
        "scaling_available_frequencies": " ".join(map(str, khz)),
    }
    for name, value in values.items():
        put(root, f"{CPUFREQ}/policy{first}/{name}", value)
    target = "scaling_setspeed" if "userspace" in governors else "scaling_max_freq"
    follow(root, f"{CPUFREQ}/policy{first}/scaling_cur_freq", target)


def add_gpu(
    root: Path,
    *,
    folder: str = GPU,
    governor: str = "nvhost_podgov",
    governors: str = "userspace tegra_wmark nvhost_podgov performance simple_ondemand",
    low: int = GPU_HZ[0],
    high: int = GPU_HZ[-1],
    of_name: str | None = "gpu",
    load: int | None = 500,
) -> None:
    """Add one devfreq GPU."""
    values = {
        "governor": governor,
        "available_governors": governors,
        "available_frequencies": " ".join(map(str, GPU_HZ)),
        "min_freq": low,
        "max_freq": high,
    }
    for name, value in values.items():
        put(root, f"{folder}/{name}", value)
    if "userspace" in governors:
        put(root, f"{folder}/userspace/set_freq", GPU_HZ[0])
    target = "userspace/set_freq" if "userspace" in governors else "max_freq"
    follow(root, f"{folder}/target_freq", target)
    follow(root, f"{folder}/cur_freq", target)
    if of_name is not None:
        put(root, f"{folder}/device/of_node/name", f"{of_name}\0")
    if load is not None:
        put(root, f"{folder}/device/load", load)


def orin(root: Path) -> Path:
    """Build an AGX Orin whose clusters start unlike one another."""
    add_cluster(root, 0)
    add_cluster(root, 4, governor="performance", low=115200)
    add_cluster(root, 8, governor="ondemand", high=1958400)
    add_gpu(root)
    put(root, "sys/devices/system/cpu/online", "0-11")
    return root


def knobs(root: Path) -> dict[str, bytes]:
    """Content of every file that a governor may change for good."""
    names = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
    paths = [p for name in names for p in root.glob(f"{CPUFREQ}/policy*/{name}")]
    paths += [root / GPU / name for name in ("governor", "min_freq", "max_freq")]
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(paths) if p.exists()}
