"""Writing clocks, on plain files and against the simulated kernel's answers."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.plant.board import load_board
from bench.plant.tree import build_tree
from governor.boards import Board, BoardOptions, LostControlError, discover
from governor.errors import BoardError, SysfsBusyError, SysfsError
from governor.journal import Journal
from tests.boards import plain
from tests.boards.kernel_os import KernelOs

PIN = BoardOptions(cpu_mode="pin", gpu_mode="pin")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelOs:
    fake = KernelOs(build_tree(tmp_path / "root", load_board("agx-orin"), mode="MAXN"))
    fake.install(monkeypatch)
    return fake


def held(root: Path, options: BoardOptions | None = None) -> Board:
    board = discover(root, options=options)
    board.acquire(Journal.create(root.parent / f"{root.name}-run", root))
    return board


@pytest.fixture
def board(kernel: KernelOs) -> Iterator[Board]:
    board = held(kernel.tree.root)
    kernel.writes.clear()
    yield board
    board.close()


@pytest.fixture
def pinned(kernel: KernelOs) -> Iterator[Board]:
    board = held(kernel.tree.root, PIN)
    kernel.writes.clear()
    yield board
    board.close()


def gpu_writes(kernel: KernelOs) -> list[tuple[str, str]]:
    return [(path.rpartition("/")[2], text) for path, text in kernel.writes]


@pytest.mark.parametrize("text", ["-5", "9" * 5000, str(2**64 - 1), "+5", "1_000", "<unknown>"])
def test_a_clock_whose_limit_is_no_number_of_64_bits_is_left_out(tmp_path: Path, text: str) -> None:
    root = plain.orin(tmp_path / "root")
    board = discover(root, options=PIN)
    before = plain.knobs(root)
    plain.put(root, f"{plain.GPU}/max_freq", text)
    board.acquire(Journal.create(tmp_path / "run", root))
    assert board.gpu is not None
    with pytest.raises(SysfsBusyError, match=r"max_freq.*not a number"):
        board.gpu.set_hz(plain.GPU_HZ[3])
    assert board.restore().complete
    plain.put(root, f"{plain.GPU}/max_freq", plain.GPU_HZ[-1])
    assert plain.knobs(root) == before
    board.close()


@pytest.mark.parametrize("text", ["-5", "9" * 5000, str(2**64 - 1)])
def test_a_limit_that_turns_into_nonsense_while_held_is_a_sysfs_error(
    tmp_path: Path, text: str
) -> None:
    root = plain.orin(tmp_path / "root")
    board = held(root, PIN)
    assert board.gpu is not None
    board.gpu.set_hz(plain.GPU_HZ[3])
    plain.put(root, f"{plain.GPU}/max_freq", text)
    with pytest.raises(SysfsError, match=r"max_freq.*not a number"):
        board.gpu.set_hz(plain.GPU_HZ[5])
    assert [event.kind for event in board.poll().events] == ["gone"]
    report = board.restore()
    assert len(report.left) == 1
    plain.put(root, f"{plain.GPU}/max_freq", plain.GPU_HZ[3])
    assert board.restore().complete
    assert plain.get(root, f"{plain.GPU}/max_freq") == str(plain.GPU_HZ[-1])


def test_acquire_switches_each_governor_once_and_nothing_else(kernel: KernelOs) -> None:
    board = held(kernel.tree.root)
    assert [text for _, text in kernel.writes] == ["userspace"] * 4
    board.close()


def test_set_hz_writes_the_target_and_tells_the_clock_in_force(
    kernel: KernelOs, board: Board
) -> None:
    assert board.clusters[1].set_hz(1_190_400_000) == 1_190_400_000
    assert board.gpu is not None
    assert board.gpu.set_hz(612_000_000) == 612_000_000
    assert gpu_writes(kernel) == [("scaling_setspeed", "1190400"), ("set_freq", "612000000")]
    assert kernel.kernel.policies[1].cur_khz == 1_190_400
    assert kernel.kernel.gpu.cur_hz == 612_000_000
    assert board.clusters[1].last_written_hz == 1_190_400_000


@pytest.mark.parametrize("options", [None, PIN])
def test_nothing_is_written_when_nothing_changes(
    kernel: KernelOs, options: BoardOptions | None
) -> None:
    board = held(kernel.tree.root, options)
    for node in board.nodes:
        assert node.set_hz(node.available_hz[9]) == node.available_hz[9]
    kernel.writes.clear()
    for node in board.nodes:
        assert node.set_hz(node.available_hz[9]) == node.available_hz[9]
    assert kernel.writes == []
    board.close()


def test_a_cap_below_the_wish_is_told_and_not_written_again(kernel: KernelOs, board: Board) -> None:
    policy = kernel.kernel.policies[0]
    policy.request_max("thermal", 1_036_800)
    assert board.clusters[0].set_hz(2_201_600_000) == 1_036_800_000
    kernel.writes.clear()
    assert board.clusters[0].set_hz(2_201_600_000) == 1_036_800_000
    assert kernel.writes == []
    policy.request_max("thermal", 2_201_600)
    assert board.clusters[0].set_hz(2_201_600_000) == 2_201_600_000, "the wish came back by itself"


def test_a_driver_failure_that_the_kernel_hides_is_seen_by_reading_back(
    kernel: KernelOs, board: Board
) -> None:
    before = board.clusters[0].set_hz(1_190_400_000)
    kernel.kernel.policies[0].driver_errno = errno.EIO
    assert board.clusters[0].set_hz(1_728_000_000) == before
    kernel.kernel.policies[0].driver_errno = 0
    assert board.clusters[0].set_hz(1_728_000_000) == 1_728_000_000


def test_a_driver_failure_of_the_gpu_is_raised(kernel: KernelOs, board: Board) -> None:
    assert board.gpu is not None
    kernel.kernel.gpu.driver_errno = errno.EIO
    with pytest.raises(SysfsError, match=r"set_freq: cannot write: EIO .*dmesg"):
        board.gpu.set_hz(612_000_000)
    kernel.kernel.gpu.driver_errno = 0
    assert board.gpu.set_hz(612_000_000) == 612_000_000


def test_pin_going_up_moves_the_maximum_first_and_down_the_minimum(
    kernel: KernelOs, pinned: Board
) -> None:
    assert pinned.gpu is not None
    pinned.gpu.set_hz(612_000_000)
    kernel.writes.clear()
    assert pinned.gpu.set_hz(918_000_000) == 918_000_000
    assert gpu_writes(kernel) == [("max_freq", "918000000"), ("min_freq", "918000000")]
    kernel.writes.clear()
    assert pinned.gpu.set_hz(408_000_000) == 408_000_000
    assert gpu_writes(kernel) == [("min_freq", "408000000"), ("max_freq", "408000000")]
    assert kernel.kernel.gpu.governor == "nvhost_podgov"


def test_pin_of_a_cpu_follows_the_same_order(kernel: KernelOs, pinned: Board) -> None:
    node = pinned.clusters[2]
    node.set_hz(1_190_400_000)
    kernel.writes.clear()
    assert node.set_hz(1_728_000_000) == 1_728_000_000
    assert gpu_writes(kernel) == [
        ("scaling_max_freq", "1728000"),
        ("scaling_min_freq", "1728000"),
    ]
    assert kernel.kernel.policies[2].governor == "schedutil"


def test_the_first_pin_never_passes_through_a_minimum_above_the_maximum(
    kernel: KernelOs, pinned: Board
) -> None:
    assert pinned.gpu is not None
    pinned.gpu.set_hz(612_000_000)
    assert gpu_writes(kernel) == [("min_freq", "612000000"), ("max_freq", "612000000")]


def test_a_pin_hides_no_limit_of_others(kernel: KernelOs, pinned: Board) -> None:
    assert pinned.gpu is not None
    pinned.gpu.set_hz(408_000_000)
    pinned.poll()
    assert pinned.attainable().gpu_hz == pinned.gpu.available_hz
    kernel.kernel.gpu.store("max_freq", "816000000")  # as nvpmodel does, above our pin
    events = pinned.poll().events
    assert [(e.kind, e.node) for e in events] == [("cap", "gpu")]
    assert pinned.attainable().gpu_hz[-1] == 816_000_000
    assert pinned.gpu.set_hz(1_300_500_000) == 816_000_000, "never above their maximum"
    assert pinned.restore().complete
    assert kernel.kernel.read(f"{kernel.kernel.gpu.where}/devfreq/17000000.gpu/max_freq") == (
        "816000000\n"
    )


@pytest.mark.parametrize("reads", range(1, 7))
def test_a_pin_that_settles_late_is_not_taken_for_another_writers(
    kernel: KernelOs, pinned: Board, reads: int
) -> None:
    assert pinned.gpu is not None
    pinned.gpu.set_hz(408_000_000)
    kernel.stale = {"max_freq": reads, "min_freq": reads}
    pinned.gpu.set_hz(918_000_000)
    kernel.stale = {}
    assert pinned.gpu.set_hz(1_020_000_000) == 1_020_000_000
    assert pinned.gpu.set_hz(306_000_000) == 306_000_000
    pinned.poll()
    assert pinned.attainable().gpu_hz == pinned.gpu.available_hz
    assert pinned.restore().complete
    assert kernel.kernel.gpu.range_hz() == (306_000_000, 1_300_500_000)


def test_a_thermal_cap_under_a_pin_is_not_taken_for_a_new_maximum(
    kernel: KernelOs, pinned: Board
) -> None:
    gpu = kernel.kernel.gpu
    assert pinned.gpu is not None
    pinned.gpu.set_hz(918_000_000)
    cooling = kernel.kernel.cooling[-1]
    cooling.set_state(8)
    kernel.tree.sync()
    report = pinned.restore()
    assert not report.complete, "whose maximum it is cannot be told while the cap hides it"
    assert "thermal" in report.left[0]
    cooling.set_state(0)
    kernel.tree.sync()
    assert pinned.restore().complete
    assert gpu.range_hz() == (306_000_000, 1_300_500_000)


def test_a_pin_under_a_thermal_cap_leaves_the_maximum_found_behind(
    kernel: KernelOs, pinned: Board
) -> None:
    gpu, cooling = kernel.kernel.gpu, kernel.kernel.cooling[-1]
    assert pinned.gpu is not None
    pinned.gpu.set_hz(918_000_000)
    cooling.set_state(8)
    kernel.tree.sync()
    capped = gpu.range_hz()[1]
    assert pinned.gpu.set_hz(1_122_000_000) == capped < 918_000_000
    assert pinned.restore().complete
    assert gpu.range_hz() == (306_000_000, capped), "the cap itself is not lifted"
    cooling.set_state(0)
    assert gpu.range_hz() == (306_000_000, 1_300_500_000)


def test_a_governor_switched_by_someone_is_retaken_once_and_theirs_is_restored(
    kernel: KernelOs, board: Board
) -> None:
    assert board.gpu is not None
    board.gpu.set_hz(612_000_000)
    kernel.kernel.gpu.store("governor", "performance")
    kernel.tree.sync()
    assert [(e.kind, e.node) for e in board.poll().events] == [("governor", "gpu")]
    assert board.poll().events == (), "told once"
    assert board.gpu.set_hz(612_000_000) == 612_000_000
    kernel.kernel.gpu.store("governor", "nvhost_podgov")
    kernel.tree.sync()
    with pytest.raises(LostControlError, match="it was set to nvhost_podgov"):
        board.gpu.set_hz(714_000_000)
    kernel.kernel.gpu.store("governor", "userspace")
    kernel.tree.sync()
    assert board.gpu.set_hz(714_000_000) == 714_000_000
    assert board.restore().complete
    assert kernel.kernel.gpu.governor == "performance"


def test_without_retake_a_switched_governor_is_left_to_its_owner(kernel: KernelOs) -> None:
    board = held(kernel.tree.root, BoardOptions(retake=False))
    kernel.kernel.write(f"{kernel.kernel.policies[0].where}/scaling_governor", b"performance\n")
    with pytest.raises(LostControlError):
        board.clusters[0].set_hz(1_190_400_000)
    assert board.clusters[1].set_hz(1_190_400_000) == 1_190_400_000
    assert board.restore().complete
    assert kernel.kernel.policies[0].governor == "performance"
    board.close()


def test_the_target_file_that_vanished_with_its_governor_is_opened_again(
    kernel: KernelOs, board: Board
) -> None:
    assert board.gpu is not None
    board.gpu.set_hz(612_000_000)
    for name in ("performance", "userspace"):
        kernel.kernel.gpu.store("governor", name)
        kernel.tree.sync()
    kernel.fail[("read", "target_freq")] = errno.ENODEV
    with pytest.raises(SysfsError, match="ENODEV"):
        board.gpu.set_hz(714_000_000)
    kernel.fail.clear()
    assert board.gpu.set_hz(714_000_000) == 714_000_000


def test_an_offline_cluster_is_busy_gone_and_back(kernel: KernelOs, board: Board) -> None:
    node = board.clusters[2]
    node.set_hz(1_190_400_000)
    for cpu in node.cpus:
        kernel.kernel.hotplug.set_online(cpu, False)
    with pytest.raises(SysfsBusyError, match=r"EBUSY.*offline"):
        node.set_hz(1_728_000_000)
    state = board.poll()
    assert [(e.kind, e.node) for e in state.events] == [("gone", "policy8")]
    assert "policy8" in state.missing
    assert board.poll().events == ()
    for cpu in node.cpus:
        kernel.kernel.hotplug.set_online(cpu, True)
    assert [(e.kind, e.node) for e in board.poll().events] == [("back", "policy8")]
    assert node.set_hz(1_728_000_000) == 1_728_000_000


def test_a_cluster_offline_from_the_start_is_taken_when_it_returns(kernel: KernelOs) -> None:
    for cpu in range(8, 12):
        kernel.kernel.hotplug.set_online(cpu, False)
    board = held(kernel.tree.root)
    assert [node.name for node in board.clusters] == ["policy0", "policy4"]
    assert any("EBUSY" in note for note in board.notes)
    for cpu in range(8, 12):
        kernel.kernel.hotplug.set_online(cpu, True)
    assert ("appeared", "policy8") in [(e.kind, e.node) for e in board.poll().events]
    assert kernel.kernel.policies[2].governor == "userspace"
    assert board.clusters[2].set_hz(1_190_400_000) == 1_190_400_000
    assert board.restore().complete
    assert kernel.kernel.policies[2].governor == "schedutil"
    board.close()


def test_a_cluster_that_left_after_it_was_found_joins_later(kernel: KernelOs) -> None:
    board = discover(kernel.tree.root)
    for cpu in range(4, 8):
        kernel.kernel.hotplug.set_online(cpu, False)
    board.acquire(Journal.create(kernel.tree.root.parent / "run", kernel.tree.root))
    with pytest.raises(SysfsBusyError, match="not held"):
        board.clusters[1].set_hz(1_190_400_000)
    for cpu in range(4, 8):
        kernel.kernel.hotplug.set_online(cpu, True)
    board.poll()
    assert board.clusters[1].set_hz(1_190_400_000) == 1_190_400_000
    board.close()


@pytest.mark.parametrize(
    ("code", "hint"),
    [(errno.EACCES, "run as root"), (errno.EROFS, "read-only"), (errno.EPERM, "run as root")],
)
def test_a_tree_that_cannot_be_written_is_refused_before_any_write(
    kernel: KernelOs, code: int, hint: str
) -> None:
    board = discover(kernel.tree.root)
    kernel.fail[("open", "governor")] = code
    with pytest.raises(BoardError, match=hint):
        board.acquire(Journal.create(kernel.tree.root.parent / "run", kernel.tree.root))
    kernel.fail.clear()
    assert {policy.governor for policy in kernel.kernel.policies} == {"schedutil"}, "put back"
    assert not list((kernel.tree.root.parent / "run").iterdir())


@pytest.mark.parametrize("op", ["open", "write"])
def test_a_clock_that_cannot_be_written_is_left_out_told_once_and_taken_later(
    kernel: KernelOs, caplog: pytest.LogCaptureFixture, op: str
) -> None:
    board = discover(kernel.tree.root)
    run = kernel.tree.root.parent / "run"
    kernel.fail[(op, "17000000.gpu/governor")] = errno.EROFS
    board.acquire(Journal.create(run, kernel.tree.root))
    for _ in range(3):
        board.poll()
    assert [node.name for node in board.nodes if node.acquired] == ["policy0", "policy4", "policy8"]
    assert [m for m in caplog.messages if "left out" in m and "EROFS" in m] == caplog.messages
    assert len(caplog.messages) == 1
    assert board.clusters[0].set_hz(1_190_400_000) == 1_190_400_000, "the others go on"
    assert board.gpu is not None
    with pytest.raises(SysfsBusyError, match=r"not held.*EROFS"):  # as the status shows it
        board.gpu.set_hz(612_000_000)
    kernel.fail.clear()
    board.poll()
    assert board.gpu.set_hz(612_000_000) == 612_000_000
    assert board.restore().complete
    assert not list(run.iterdir())
    board.close()


def test_a_driver_that_refuses_the_governor_silently_is_noticed(kernel: KernelOs) -> None:
    board = discover(kernel.tree.root)
    policy = kernel.kernel.policies[0]
    policy._stores["scaling_governor"] = lambda data: None
    with pytest.raises(BoardError, match="did not change"):
        board.acquire(Journal.create(kernel.tree.root.parent / "run", kernel.tree.root))
    assert policy.governor == "schedutil"


def test_lower_min_is_written_at_acquire_and_restored(kernel: KernelOs) -> None:
    policy = kernel.kernel.policies[0]
    assert policy.range_khz()[0] == 729_600
    board = held(kernel.tree.root, BoardOptions(lower_min=True))
    assert policy.range_khz()[0] == 115_200
    assert board.clusters[0].set_hz(115_200_000) == 115_200_000
    assert board.attainable().cpu_hz[0] == 115_200_000
    assert board.restore().complete
    assert policy.range_khz()[0] == 729_600
    board.close()


def test_dry_run_writes_nothing_and_goes_on_as_if(kernel: KernelOs) -> None:
    told: list[tuple[Path, str]] = []
    board = discover(kernel.tree.root, dry_run=lambda path, text: told.append((path, text)))
    board.acquire(None)
    assert board.clusters[0].set_hz(1_190_400_000) == 1_190_400_000
    assert board.gpu is not None
    assert board.gpu.set_hz(612_000_000) == 612_000_000
    point = board.poll().point
    assert point is not None
    assert point.gpu_hz == 612_000_000
    assert kernel.writes == []
    assert [path.name for path, _ in told[-2:]] == ["scaling_setspeed", "set_freq"]
    assert board.restore().complete


def test_dry_run_of_a_pin_goes_on_as_if(kernel: KernelOs) -> None:
    told: list[str] = []
    board = discover(
        kernel.tree.root, options=PIN, dry_run=lambda path, text: told.append(path.name)
    )
    board.acquire(None)
    assert board.gpu is not None
    assert board.gpu.set_hz(612_000_000) == 612_000_000
    assert told == ["min_freq", "max_freq"]
    assert kernel.writes == []


def test_a_real_run_without_a_journal_is_refused(kernel: KernelOs) -> None:
    with pytest.raises(BoardError, match="journal"):
        discover(kernel.tree.root).acquire(None)
    assert kernel.writes == []


def test_on_write_tells_the_moment_before_each_write(tmp_path: Path) -> None:
    seen: list[tuple[Path, int]] = []
    root = plain.orin(tmp_path / "root")
    board = discover(root, on_write=lambda path, ns: seen.append((path, ns)))
    board.acquire(Journal.create(tmp_path / "run", root))
    seen.clear()
    before = time.monotonic_ns()
    board.clusters[0].set_hz(1_190_400_000)
    assert [path.name for path, _ in seen] == ["scaling_setspeed"]
    assert before <= seen[0][1] <= time.monotonic_ns()
    board.close()


def test_a_cpu_without_the_userspace_governor_is_pinned(tmp_path: Path) -> None:
    root = tmp_path / "root"
    plain.add_cluster(root, 0, governors="performance schedutil")
    before = plain.knobs(root)
    board = held(root)
    assert board.clusters[0].set_hz(1_190_400_000) == 1_190_400_000
    assert plain.get(root, f"{plain.CPUFREQ}/policy0/scaling_min_freq") == "1190400"
    assert plain.get(root, f"{plain.CPUFREQ}/policy0/scaling_max_freq") == "1190400"
    assert board.restore().complete
    assert plain.knobs(root) == before
    board.close()


def test_a_pin_asked_below_the_minimum_found_stays_there(tmp_path: Path) -> None:
    root = tmp_path / "root"
    plain.add_cluster(root, 0, governors="performance schedutil")
    board = held(root)
    assert board.clusters[0].set_hz(115_200_000) == 729_600_000
    board.close()


def test_a_shorter_value_leaves_no_tail_of_a_longer_one(tmp_path: Path) -> None:
    root = plain.orin(tmp_path / "root")
    board = held(root)
    board.clusters[0].set_hz(1_190_400_000)
    board.clusters[0].set_hz(729_600_000)
    speed = root / f"{plain.CPUFREQ}/policy0/scaling_setspeed"
    assert speed.read_bytes() == b"729600\n"
    board.close()


def test_a_file_caught_empty_while_others_rewrite_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = discover(plain.orin(tmp_path))
    assert board.gpu is not None
    real, empty = os.pread, [b"", b""]

    def caught(fd: int, size: int, at: int) -> bytes:
        return empty.pop() if fd >= 0 and empty else real(fd, size, at)

    monkeypatch.setattr(os, "pread", caught)
    assert board.gpu.limits_hz() == (306_000_000, 1_300_500_000)
    assert empty == []


def test_a_file_that_stays_empty_is_busy_and_not_zero(tmp_path: Path) -> None:
    board = discover(plain.orin(tmp_path))
    assert board.gpu is not None
    (tmp_path / plain.GPU / "max_freq").write_text("")
    with pytest.raises(SysfsBusyError, match="it is empty"):
        board.gpu.limits_hz()


def test_different_clocks_are_set_at_the_same_time(kernel: KernelOs, board: Board) -> None:
    errors: list[Exception] = []

    def run(index: int) -> None:
        node = board.nodes[index]
        try:
            for step in range(60):
                hz = node.available_hz[9 + (step + index) % 2]
                assert node.set_hz(hz) == hz
        except Exception as exc:  # noqa: BLE001 - carried to the main thread
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(index,)) for index in (0, 3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        board.poll()
    for thread in threads:
        thread.join()
    assert errors == []


def test_descriptors_are_closed(tmp_path: Path) -> None:
    root = plain.orin(tmp_path / "root")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for turn in range(3):
        board = discover(root)
        board.acquire(Journal.create(tmp_path / f"run{turn}", root))
        for node in board.nodes:
            node.set_hz(node.available_hz[9])
        board.poll()
        assert board.restore().complete
        board.close()
        del board
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
