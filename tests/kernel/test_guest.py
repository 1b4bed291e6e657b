"""The host's side of the kernel tests: what is missing is told in one line, what is shared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel import __main__ as guest
from tests.kernel.initramfs import Archive

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(("required", "code"), [("", 0), ("required", 1)])
def test_a_machine_without_qemu_is_told_what_to_install(
    tmp_path: Path, required: str, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel"],
        cwd=PROJECT,
        env={**os.environ, "PATH": str(tmp_path), "FLAMEGOV_KERNEL_TEST": required},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert "install qemu-system-x86 " in done.stderr


def test_nothing_but_one_folder_is_writable_from_the_guest(tmp_path: Path) -> None:
    shared = guest.shares(tmp_path)
    assert [folder for mode, folder in shared if mode != "ro"] == [tmp_path]
    line = guest.command("6.1", tmp_path / "image", shared)
    writable = [word for word in line if word.startswith("local,") and "readonly=on" not in word]
    assert len(writable) == 1
    assert line[line.index("-accel") + 1].startswith("tcg")


def test_the_archive_is_one_that_cpio_reads() -> None:
    archive = Archive()
    archive.add("folder", 0o40755)
    archive.add("folder/file", 0o100644, b"hello")
    data = archive.bytes()
    assert data.startswith(b"070701")
    assert len(data) % 4 == 0
    name = data.index(b"folder/file\0")
    end = name + len(b"folder/file\0")
    start = end + -(110 + end - name) % 4
    assert data[start : start + 5] == b"hello"
    assert b"TRAILER!!!\0" in data
