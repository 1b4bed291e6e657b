"""Which board this is: a table made on another one, or with other cores, does not fit."""

import re
from dataclasses import dataclass

from governor.boards.node import Files

_MODEL = ("proc/device-tree/model", "sys/firmware/devicetree/base/model")
_COMPATIBLE = ("proc/device-tree/compatible", "sys/firmware/devicetree/base/compatible")
_RELEASE = re.compile(r"R(\d+).*?REVISION:\s*([\d.]+)")


@dataclass(frozen=True, slots=True)
class BoardIdentity:
    """Identity of a board; empty or None where the board does not tell.

    Attributes:
        model: Model in the device tree.
        soc: SoC, as ``tegra234``.
        module: Module id, as ``p3701-0000``.
        l4t: L4T release, as ``36.4.3``.
        power_mode: Number of the nvpmodel mode in force.
        online_cpus: CPUs online, in order.
        tpc_mask: Mask of switched-off GPU units.
    """

    model: str = ""
    soc: str = ""
    module: str = ""
    l4t: str = ""
    power_mode: int | None = None
    online_cpus: tuple[int, ...] = ()
    tpc_mask: int | None = None


def identify(files: Files, gpu_device: str | None) -> BoardIdentity:
    """Read the identity.

    Args:
        files: The board's files.
        gpu_device: Folder of the GPU's device, or None.
    """
    compatible = (_first(files, _COMPATIBLE) or "").split()
    soc = next((c.partition(",")[2] for c in compatible if c.startswith("nvidia,tegra")), "")
    module = re.search(r"p\d{4}-\d{4}(?=$|[^+]*$)", compatible[0]) if compatible else None
    mode = re.search(r"pmode:(\d+)", files.read_once("var/lib/nvpmodel/status") or "")
    return BoardIdentity(
        model=_first(files, _MODEL) or "",
        soc=soc,
        module=module.group() if module else "",
        l4t=_release(files.read_once("etc/nv_tegra_release") or ""),
        power_mode=int(mode.group(1)) if mode else None,
        online_cpus=online_cpus(files),
        tpc_mask=_mask(files, gpu_device),
    )


def online_cpus(files: Files) -> tuple[int, ...]:
    """CPUs online."""
    return parse_cpus(files.read_once("sys/devices/system/cpu/online") or "")


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a kernel CPU list: ``0-3,6`` or ``0 1 2``; anything else in it is left out."""
    cpus: list[int] = []
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def _first(files: Files, places: tuple[str, ...]) -> str | None:
    return next((text for place in places if (text := files.read_once(place))), None)


def _release(text: str) -> str:
    """``# R36 (release), REVISION: 4.3, ...`` is release 36.4.3; unknown ones are no trouble."""
    match = _RELEASE.search(text)
    return f"{match.group(1)}.{match.group(2)}" if match else ""


def _mask(files: Files, gpu_device: str | None) -> int | None:
    for name in ("tpc_pg_mask", "tpc_fs_mask"):
        text = files.read_once(f"{gpu_device}/{name}") if gpu_device else None
        if text:
            try:
                return int(text.split()[0], 0)
            except ValueError:
                continue  # an unreadable mask is an unknown one
    return None
