"""The guest's first file system: busybox, the kernel modules in the order of their needs, init."""

import lzma
import re
import stat
from collections.abc import Iterable
from pathlib import Path

FROM_DEBIAN = (
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "cpufreq_userspace",
    "cpufreq_powersave",
    "cpufreq_ondemand",
    "cpufreq_conservative",
    "governor_simpleondemand",
)
OWN = ("governor_userspace", "governor_performance", "orinlike", "orinlike_emc")
_FOLDERS = ("bin", "sbin", "dev", "proc", "sys", "run", "tmp", "modules")
_LINKS = {"sbin/modprobe": "/bin/busybox", "lib": "usr/lib", "lib64": "usr/lib64"}


class Archive:
    """A cpio archive in the ``newc`` form that the kernel unpacks."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, name: str, mode: int, data: bytes = b"") -> None:
        """Add one entry: a file, a folder, or a link whose target is the data."""
        self._count += 1
        path = name.encode() + b"\0"
        fields = (self._count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields)
        for part in (head + path, data):
            self._parts.append(part + bytes(-len(part) % 4))

    def bytes(self) -> bytes:
        """Finish it."""
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def modules(roots: Iterable[Path]) -> dict[str, bytes]:
    """Collect the modules wanted and what they depend on, in the order of loading."""
    found = {
        path.name.partition(".")[0].replace("-", "_"): path
        for root in roots
        for path in root.rglob("*.ko*")
        if path.name.endswith((".ko", ".ko.xz"))
    }
    ordered: dict[str, bytes] = {}

    def need(name: str) -> None:
        if name in ordered or name not in found:  # what is not there is built in
            return
        data = found[name].read_bytes()
        if found[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)", data)
        for other in (depends[1] if depends else b"").decode().split(","):
            need(other.replace("-", "_"))
        ordered[name] = data

    for name in (*FROM_DEBIAN, *OWN):
        need(name)
    return ordered


def build(work: Path, init: Path, files: dict[str, str]) -> bytes:
    """Make the archive.

    Args:
        work: Folder that ``build.sh`` filled.
        init: Program that runs first.
        files: Text files to add, by path.

    Raises:
        FileNotFoundError: Busybox is missing, or ``build.sh`` has not been run.
    """
    archive = Archive()
    for folder in _FOLDERS:
        archive.add(folder, stat.S_IFDIR | 0o755)
    archive.add("bin/busybox", stat.S_IFREG | 0o755, Path("/bin/busybox").read_bytes())
    for link, target in _LINKS.items():
        archive.add(link, stat.S_IFLNK | 0o777, target.encode())
    archive.add("init", stat.S_IFREG | 0o755, init.read_bytes())
    kernel_modules = modules((work / "lib", work / "module"))
    for name, data in kernel_modules.items():
        archive.add(f"modules/{name}.ko", stat.S_IFREG | 0o644, data)
    for path, text in {**files, "modules/order": "\n".join(kernel_modules) + "\n"}.items():
        archive.add(path, stat.S_IFREG | 0o644, text.encode())
    return archive.bytes()
