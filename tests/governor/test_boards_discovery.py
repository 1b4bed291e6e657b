"""What is found on which tree, and what is said when something is missing."""

import errno
import os
from pathlib import Path

import pytest

from bench.plant.board import load_board
from bench.plant.tree import build_tree
from governor.boards import BoardOptions, discover
from governor.errors import BoardError
from governor.journal import Journal
from tests.boards import plain


def test_an_orin_has_three_clusters_and_a_gpu(tmp_path: Path) -> None:
    board = discover(plain.orin(tmp_path))
    assert [node.name for node in board.nodes] == ["policy0", "policy4", "policy8", "gpu"]
    assert [node.domain for node in board.nodes] == ["cpu", "cpu", "cpu", "gpu"]
    assert board.clusters[1].cpus == (4, 5, 6, 7)
    assert board.gpu is not None
    assert board.gpu.available_hz == plain.GPU_HZ
    assert board.notes == ()


def test_attainable_is_what_all_clusters_and_limits_allow(tmp_path: Path) -> None:
    board = discover(plain.orin(tmp_path))
    attainable = board.attainable()
    assert (attainable.cpu_hz[0], attainable.cpu_hz[-1]) == (729_600_000, 1_958_400_000)
    assert attainable.gpu_hz == plain.GPU_HZ
    board.poll()
    assert board.attainable() is attainable, "the same object until a limit moves"
    plain.put(tmp_path, f"{plain.GPU}/max_freq", 612_000_000)
    board.poll()
    assert board.attainable().gpu_hz == (306_000_000, 408_000_000, 510_000_000, 612_000_000)


def test_lower_min_opens_the_low_end_of_the_list(tmp_path: Path) -> None:
    board = discover(plain.orin(tmp_path), options=BoardOptions(lower_min=True))
    assert board.attainable().cpu_hz[0] == 115_200_000


def test_a_window_without_a_step_leaves_one_clock(tmp_path: Path) -> None:
    plain.add_gpu(tmp_path, low=620_000_000, high=700_000_000)
    assert discover(tmp_path).attainable().gpu_hz == (612_000_000,)


def test_unlike_clusters_without_a_common_clock_follow_the_slowest(tmp_path: Path) -> None:
    plain.add_cluster(tmp_path, 0, low=1000, high=3000, khz=(1000, 2000, 3000))
    plain.add_cluster(tmp_path, 4, low=1000, high=3000, khz=(1500, 2500))
    assert discover(tmp_path).attainable().cpu_hz == (1_500_000, 2_500_000)


def test_no_gpu_is_said_and_not_fatal(tmp_path: Path) -> None:
    plain.add_cluster(tmp_path, 0)
    board = discover(tmp_path)
    assert board.gpu is None
    assert board.notes == ("no GPU clock can be set: the GPU is left to the board",)
    assert board.attainable().gpu_hz == ()
    state = board.poll()
    assert state.point is None, "scaling_setspeed of another governor is no clock"


def test_no_cpufreq_is_said_and_not_fatal(tmp_path: Path) -> None:
    plain.add_gpu(tmp_path)
    board = discover(tmp_path)
    assert board.clusters == []
    assert "CPU clocks are left to the board" in board.notes[0]
    point = board.poll().point
    assert point is not None
    assert (point.cpu_hz, point.gpu_hz) == (0, 306_000_000)


@pytest.mark.parametrize(
    ("khz", "words"), [((), "it offers no clocks"), ((1_190_400,), "it offers one clock")]
)
def test_a_cluster_without_a_choice_is_left_alone(
    tmp_path: Path, khz: tuple[int, ...], words: str
) -> None:
    plain.add_cluster(tmp_path, 0, khz=khz)
    plain.add_gpu(tmp_path)
    board = discover(tmp_path)
    assert board.clusters == []
    assert any(words in note and "left alone" in note for note in board.notes)


def test_an_empty_tree_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BoardError) as caught:
        discover(tmp_path)
    text = str(caught.value)
    assert "no clock can be set here" in text
    assert "no CPU clock" in text
    assert "\n" not in text


def test_userspace_mode_is_refused_where_not_offered(tmp_path: Path) -> None:
    plain.add_gpu(tmp_path, governors="nvhost_podgov performance")
    board = discover(tmp_path, options=BoardOptions(gpu_mode="userspace"))
    with pytest.raises(BoardError, match=r"not offered.*nvhost_podgov.*auto"):
        board.acquire(Journal.create(tmp_path / "run", tmp_path))


@pytest.mark.parametrize(
    ("folder", "of_name", "found"),
    [
        ("sys/class/devfreq/17000000.ga10b", "ga10b", True),
        ("sys/class/devfreq/gpu-gpc-0", None, True),
        ("sys/class/devfreq/17000000.gv11b", None, True),
        ("sys/class/devfreq/bwmgr", None, False),
        ("sys/class/devfreq/15340000.vic", "vic", False),
    ],
)
def test_the_gpu_is_known_by_its_node_name(
    tmp_path: Path, folder: str, of_name: str | None, found: bool
) -> None:
    plain.add_cluster(tmp_path, 0)
    plain.add_gpu(tmp_path, folder=folder, of_name=of_name)
    assert (discover(tmp_path).gpu is not None) is found


def test_a_gpu_that_appears_late_is_found_by_a_look(tmp_path: Path) -> None:
    plain.add_cluster(tmp_path, 0)
    board = discover(tmp_path)
    assert board.poll().events == ()
    plain.add_gpu(tmp_path)
    assert [(e.kind, e.node) for e in board.poll().events] == [("appeared", "gpu")]
    assert board.gpu is not None
    assert board.notes == ()
    assert board.attainable().gpu_hz == plain.GPU_HZ


@pytest.mark.parametrize("jetpack", [5, 6, 7])
def test_the_simulated_orin_is_found_as_it_is(tmp_path: Path, jetpack: int) -> None:
    spec = load_board("agx-orin")
    build_tree(tmp_path, spec, jetpack=jetpack, mode="MAXN")
    board = discover(tmp_path)
    assert len(board.clusters) == 3
    assert board.gpu is not None
    assert board.gpu.available_hz == tuple(spec.gpu_hz)
    assert board.clusters[0].available_hz == tuple(spec.cpu_hz)
    identity = board.identity
    assert identity.model == spec.model
    assert identity.soc == "tegra234"
    assert identity.l4t.startswith({5: "35", 6: "36", 7: "38"}[jetpack])
    assert identity.power_mode == 0
    assert identity.online_cpus == tuple(range(12))


def test_a_thor_without_cpufreq_nor_load_is_driven_by_its_gpu(tmp_path: Path) -> None:
    plain.add_gpu(tmp_path, folder="sys/class/devfreq/gpu-gpc-0", of_name=None, load=None)
    board = discover(tmp_path)
    assert [node.name for node in board.nodes] == ["gpu"]
    state = board.poll()
    assert state.gpu_load is None
    assert "does not show the load" in state.missing["gpu_load"]


def test_the_simulated_thor_with_one_clock_is_refused(tmp_path: Path) -> None:
    build_tree(tmp_path, load_board("agx-thor"), jetpack=7)
    with pytest.raises(BoardError, match="it offers one clock"):
        discover(tmp_path)


def test_a_gpu_without_cur_freq_is_driven_all_the_same(tmp_path: Path) -> None:
    plain.add_gpu(tmp_path)
    for name in ("cur_freq", "target_freq"):
        (tmp_path / plain.GPU / name).unlink()
    board = discover(tmp_path)
    board.acquire(Journal.create(tmp_path / "run", tmp_path))
    assert board.gpu is not None
    assert board.gpu.set_hz(612_000_000) == 612_000_000
    assert board.poll().point is None


def test_the_memory_clock_is_read_where_debugfs_has_no_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plain.orin(tmp_path)
    plain.put(root, "sys/kernel/debug/clk/emc/clk_rate", 1_600_000_000)
    real = os.pread

    def no_positions(fd: int, size: int, at: int) -> bytes:
        if "debug" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ESPIPE, "Illegal seek")
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", no_positions)
    board = discover(root)
    assert [board.poll().emc_hz for _ in range(2)] == [1_600_000_000] * 2


def test_a_debugfs_closed_to_us_is_a_missing_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plain.orin(tmp_path)
    real = Path.exists

    def closed(path: Path) -> bool:
        if "debug" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "exists", closed)
    assert "root" in discover(root).poll().missing["emc"]
