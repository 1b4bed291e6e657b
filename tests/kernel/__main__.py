"""Boots Debian's kernel under QEMU and runs the tests of this folder inside: ``make kernel-test``.

Nothing of the host's kernel is touched: no module is loaded into it and its ``/sys`` is not
written. Where something is missing it says what to install and ends well, unless
``FLAMEGOV_KERNEL_TEST=required``.
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kernel import initramfs

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
WORK = PROJECT / ".cache" / "kernel"
NEEDS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "/bin/busybox": "busybox-static",
    "gcc": "gcc",
    "make": "make",
    "apt-get": "apt (Debian's kernel is used)",
    "dpkg-deb": "dpkg",
    "xz": "xz-utils",
}
LIMIT_S = 600  # for a guest that hangs
GUESTS = {
    "lives": "tests/kernel/test_restore.py",
    "rest": "tests/kernel --ignore=tests/kernel/test_restore.py",
}
"""Two guests side by side: an emulated CPU is one thread, and interpreting Python keeps it busy."""
APPEND = "console=ttyS0 panic=-1 loglevel=1 mitigations=off rcupdate.rcu_expedited=1"
CPU = "max,-erms"  # an emulator copies byte by byte what this bit promises to be fast
GUEST_CPUS = 4
GUEST_MIB = 384


def missing() -> str:
    """Tell what is missing on this machine, in one line; empty when all is there."""
    packages = [package for program, package in NEEDS.items() if not shutil.which(program)]
    return f"install {' '.join(packages)}" if packages else ""


def prepare() -> str:
    """Get the kernel and build the modules.

    Returns:
        What went wrong, in one line; empty if all went well.
    """
    done = subprocess.run(
        [str(HERE / "build.sh"), str(WORK)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no word why"])[-1]
        return f"cannot make the guest's kernel modules: {why}"
    return ""


def shares(out: Path) -> list[tuple[str, Path]]:
    """List what the guest sees of the host: programs, interpreter, checkout, and one folder."""
    folders = [Path("/usr"), Path(sys.base_prefix).resolve(), PROJECT]
    inside = [f for f in folders if not any(f != g and f.is_relative_to(g) for g in folders)]
    return [*(("ro", folder) for folder in dict.fromkeys(inside)), ("rw", out)]


def environment(out: Path, tests: str) -> str:
    """Write the shell text that the guest's first process reads."""
    return "\n".join(
        (
            f"export PROJECT={PROJECT} PYTHON={sys.executable} OUT={out} FLAMEGOV_GUEST={out}",
            f"export LD_LIBRARY_PATH={Path(sys.base_prefix).resolve()}/lib",
            "export PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1",
            "export OPENBLAS_NUM_THREADS=1",
            f'TESTS="-p pytest_timeout -m kernel --color=no --durations=12 {tests}"',
            "",
        )
    )


def command(version: str, image: Path, shared: list[tuple[str, Path]]) -> list[str]:
    """Write the command line of the guest; always without KVM, so that it runs anywhere."""
    line = ["qemu-system-x86_64", "-M", "q35", "-cpu", CPU, "-accel", "tcg,thread=multi"]
    line += ["-smp", str(GUEST_CPUS), "-m", str(GUEST_MIB), "-nographic", "-no-reboot"]
    line += ["-nic", "none", "-kernel", str(WORK / "boot" / f"vmlinuz-{version}")]
    line += ["-initrd", str(image), "-append", APPEND]
    for index, (mode, folder) in enumerate(shared):
        readonly = ",readonly=on" if mode == "ro" else ""
        share = f"local,id=f{index},path={folder},security_model=none,multidevs=remap{readonly}"
        line += ["-fsdev", share]
        line += ["-device", f"virtio-9p-pci,fsdev=f{index},mount_tag=t{index}"]
    return line


def boot(name: str, tests: str) -> tuple[int, str]:
    """Boot a guest and run tests in it.

    Args:
        name: Name of the guest.
        tests: Arguments for pytest there.

    Returns:
        Their exit status, 1 if the guest ended without one; and what it printed.
    """
    out = WORK / f"out-{name}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    version = (WORK / "KERNEL").read_text().strip()
    shared = shares(out)
    table = "".join(
        f"t{index} {mode}{',cache=loose' if mode == 'ro' else ''} {folder}\n"
        for index, (mode, folder) in enumerate(shared)
    )
    files = {"shares": table, "environment": environment(out, tests)}
    image = WORK / f"initramfs-{name}.cpio"
    image.write_bytes(initramfs.build(WORK, HERE / "init", files))
    log = WORK / f"{name}.log"
    ended = ""
    with log.open("wb") as console:
        try:
            subprocess.run(
                command(version, image, shared),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            ended = f"the guest was stopped after {LIMIT_S} s\n"
    text = f"guest '{name}'\n{log.read_text(encoding='utf-8', errors='replace')}{ended}"
    report, status = out / "report", out / "status"
    if report.exists():
        text += f"measured in the guest, whose time is an emulator's:\n{report.read_text()}"
    return int(status.read_text()) if status.exists() else 1, text


def run_guests(arguments: list[str]) -> int:
    """Run all tests in guests side by side, or what the arguments name in one."""
    guests = {"chosen": " ".join(arguments)} if arguments else GUESTS
    with ThreadPoolExecutor(len(guests)) as pool:
        results = list(pool.map(boot, guests.keys(), guests.values()))
    for _, text in results:
        print(text, end="")
    version = (WORK / "KERNEL").read_text().strip()
    if version not in (HERE.parent / "README.md").read_text(encoding="utf-8"):
        print(f"tests/README.md names another kernel than {version}: its table holds for this too")
    return max(status for status, _ in results)


def main(arguments: list[str]) -> int:
    """Run the tests in the guest; further arguments go to pytest there."""
    began = time.monotonic()
    problem = missing() or prepare()
    if problem:
        required = os.environ.get("FLAMEGOV_KERNEL_TEST") == "required"
        print(f"kernel tests {'failed' if required else 'skipped'}: {problem}", file=sys.stderr)
        return int(required)
    status = run_guests(arguments)
    print(f"kernel tests: exit status {status}, {time.monotonic() - began:.0f} s in all")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
