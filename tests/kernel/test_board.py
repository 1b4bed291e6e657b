"""The board code on the kernel's own files: finding, taking, setting, giving back, and mishaps."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from governor.boards import Board, BoardOptions, LostControlError, discover
from governor.boards.clock import Mode
from governor.errors import SysfsBusyError, SysfsError
from governor.journal import Journal, restore_from
from tests.kernel import orinlike
from tests.kernel.orinlike import CPUFREQ, GPU, ORIGINALS, get, put, wait_for
from tests.kernel.semantics import CPU_KHZ, GPU_HZ

pytestmark = pytest.mark.kernel
MODES: tuple[Mode, Mode] = ("userspace", "pin")
GHZ, MHZ = 1_000_000_000, 1_000_000
ROOT = Path("/")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    orinlike.reset()
    yield
    orinlike.reset()


class Held:
    """A board in our hands; at the end it must be as it was found."""

    def __init__(self, run: Path, options: BoardOptions) -> None:
        self.writes: list[str] = []
        self.board: Board = discover(ROOT, options=options, on_write=self._note)
        self.board.acquire(Journal.create(run, ROOT))
        self.gpu = self.board.gpu
        assert self.gpu is not None
        self.cpu, self.far, self.last = self.board.clusters

    def _note(self, path: Path, _: int) -> None:
        self.writes.append(path.name)

    def events(self) -> list[tuple[str, str]]:
        return [(event.kind, event.node) for event in self.board.poll().events]

    def give_back(self, **unlike: dict[str, str]) -> None:
        """Restore; only what another writer set may differ from the originals."""
        assert self.board.restore().complete
        self.board.close()
        expected = {name: {**files, **unlike.get(name, {})} for name, files in ORIGINALS.items()}
        wait_for(lambda: orinlike.state() == expected, f"{expected}, got {orinlike.state()}")


@pytest.fixture
def hold(tmp_path: Path) -> Callable[..., Held]:
    return lambda **options: Held(tmp_path / "run", BoardOptions(**options))


def test_the_clocks_are_found() -> None:
    board = discover(ROOT)
    assert [node.name for node in board.nodes] == ["policy0", "policy2", "policy3", "gpu"]
    assert [node.cpus for node in board.clusters] == list(orinlike.CLUSTERS.values())
    assert board.clusters[0].available_hz == tuple(khz * 1000 for khz in CPU_KHZ)
    assert board.gpu is not None
    assert board.gpu.available_hz == GPU_HZ
    assert board.notes == ()
    state = board.poll()
    assert state.emc_hz == 3_199_000_000
    assert state.gpu_load == 0.5
    board.close()
    assert orinlike.state() == ORIGINALS, "looking changes nothing"


def test_a_file_that_cannot_be_read_at_a_position_is_read_all_the_same() -> None:
    board = discover(ROOT)
    node = board._files.node("sys/kernel/debug/bpmp/debug/clk/emc/pto_counter")  # as T210's clocks
    assert [node.read_int() for _ in range(3)] == [3_191_887_872] * 3
    board.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delays", [False, True])
def test_clocks_follow_and_are_given_back(
    hold: Callable[..., Held], mode: Mode, delays: bool
) -> None:
    if delays:
        orinlike.hardware(cpu_delay_us=orinlike.CPU_DELAY_US, gpu_delay_us=orinlike.GPU_DELAY_US)
    held = hold(cpu_mode=mode, gpu_mode=mode)
    for cpu_hz, gpu_hz in ((1190_400_000, 408 * MHZ), (960_000_000, 1122 * MHZ)):
        for node in held.board.clusters:
            assert node.set_hz(cpu_hz) == cpu_hz
            assert get(CPUFREQ / node.name / "cpuinfo_cur_freq") == str(cpu_hz // 1000)
        assert held.gpu.set_hz(gpu_hz) == gpu_hz
        assert get(GPU / "cur_freq") == str(gpu_hz)
        state = held.board.poll()
        assert state.point == (cpu_hz, gpu_hz)
        assert state.events == ()
    held.writes.clear()
    for node in held.board.nodes:
        node.set_hz(cpu_hz if node.domain == "cpu" else gpu_hz)
    assert held.writes == [], "nothing is written when nothing changes"
    held.give_back()


def test_a_pin_moves_the_far_limit_first(hold: Callable[..., Held]) -> None:
    held = hold(gpu_mode="pin", cpu_mode="pin")
    for hz, names in ((408, ["min", "max"]), (1020, ["max", "min"]), (510, ["min", "max"])):
        held.writes.clear()
        assert held.gpu.set_hz(hz * MHZ) == hz * MHZ
        assert held.writes == [f"{name}_freq" for name in names]
    assert get(GPU / "governor") == "simple_ondemand", "a pin leaves the governor alone"
    held.give_back()


def test_the_maximum_found_is_never_exceeded(hold: Callable[..., Held]) -> None:
    for mode in MODES:
        held = hold(cpu_mode=mode, gpu_mode=mode)
        assert held.far.set_hz(2201_600_000) == 1728_000_000
        assert held.gpu.set_hz(1300_500_000) == 1224 * MHZ
        assert max(held.board.attainable().cpu_hz) == 1728_000_000
        assert max(held.board.attainable().gpu_hz) == 1224 * MHZ
        held.give_back()


def test_a_failing_cpu_driver_is_noticed_by_reading_back(hold: Callable[..., Held]) -> None:
    held = hold()
    assert held.cpu.set_hz(1036_800_000) == 1036_800_000
    orinlike.hardware(cpu_errno=errno.EIO)
    assert held.cpu.set_hz(1344_000_000) == 1036_800_000, "the kernel said yes to the write"
    orinlike.hardware(cpu_errno=0)
    assert held.cpu.set_hz(1344_000_000) == 1344_000_000, "the same wish is written again"
    held.give_back()


def test_a_failing_gpu_driver_is_told(hold: Callable[..., Held]) -> None:
    held = hold()
    held.gpu.set_hz(408 * MHZ)
    orinlike.hardware(gpu_errno=errno.EIO)
    with pytest.raises(SysfsError, match="EIO") as caught:
        held.gpu.set_hz(1020 * MHZ)
    assert "see dmesg" in str(caught.value)
    orinlike.hardware(gpu_errno=0)
    assert held.gpu.set_hz(1020 * MHZ) == 1020 * MHZ
    held.give_back()


def test_a_gpu_pin_whose_driver_fails_is_noticed(hold: Callable[..., Held]) -> None:
    held = hold(gpu_mode="pin")
    held.gpu.set_hz(408 * MHZ)
    orinlike.hardware(gpu_errno=errno.EIO)
    assert held.gpu.set_hz(1020 * MHZ) == 408 * MHZ
    orinlike.hardware(gpu_errno=0)
    held.gpu.set_hz(918 * MHZ)
    assert get(GPU / "cur_freq") == str(918 * MHZ)
    held.give_back()


def test_a_failing_driver_at_the_start_is_refused_in_one_line(tmp_path: Path) -> None:
    orinlike.hardware(gpu_errno=errno.EIO)
    orinlike.put(GPU / "governor", "simple_ondemand")
    board = discover(ROOT)
    board.acquire(Journal.create(tmp_path / "run", ROOT))
    with pytest.raises(SysfsError):
        board.gpu.set_hz(408 * MHZ)
    orinlike.hardware(gpu_errno=0)
    assert board.restore().complete
    board.close()
    wait_for(lambda: orinlike.state() == ORIGINALS, "the originals")


def test_a_cluster_goes_offline_and_comes_back(hold: Callable[..., Held]) -> None:
    held = hold()
    held.far.set_hz(960_000_000)
    orinlike.online(2, False)
    with pytest.raises(SysfsBusyError):
        held.far.set_hz(1190_400_000)
    assert held.events() == [("gone", "policy2")]
    assert held.cpu.set_hz(1190_400_000) == 1190_400_000, "the others go on"
    orinlike.online(2, True)
    assert ("back", "policy2") in held.events()
    assert held.far.set_hz(1190_400_000) == 1190_400_000
    assert get(CPUFREQ / "policy2/scaling_cur_freq") == "1190400"
    held.give_back()


def test_part_of_a_cluster_goes_offline_and_comes_back(hold: Callable[..., Held]) -> None:
    held = hold()
    held.cpu.set_hz(960_000_000)
    orinlike.online(1, False)
    assert held.cpu.set_hz(1190_400_000) == 1190_400_000
    orinlike.online(1, True)
    assert held.cpu.set_hz(1190_400_000) == 1190_400_000
    assert get(CPUFREQ / "policy0/scaling_cur_freq") == "1190400"
    held.give_back()


def test_restore_with_a_cluster_offline_completes_when_it_returns(tmp_path: Path) -> None:
    run = tmp_path / "run"
    held = Held(run, BoardOptions())
    for node in held.board.clusters:
        node.set_hz(960_000_000)
    orinlike.online(2, False)
    report = held.board.restore()
    assert not report.complete
    assert ["policy2" in line for line in report.left] == [True] * len(report.left)
    held.board.close()
    assert [path.name for path in run.iterdir()] == ["policy2.journal"]
    orinlike.online(2, True)
    assert get(CPUFREQ / "policy2/scaling_governor") == "userspace"
    assert restore_from(Journal.open(run, ROOT), ROOT).complete
    wait_for(lambda: orinlike.state() == ORIGINALS, "the originals")


def test_a_governor_switched_by_somebody_is_taken_again_and_theirs_restored(
    hold: Callable[..., Held],
) -> None:
    held = hold()
    held.gpu.set_hz(408 * MHZ)
    held.cpu.set_hz(960_000_000)
    put(GPU / "governor", "performance")  # the descriptor of set_freq is dead from here on
    put(CPUFREQ / "policy0/scaling_governor", "ondemand")
    assert {("governor", "gpu"), ("governor", "policy0")} <= set(held.events())
    assert held.gpu.set_hz(510 * MHZ) == 510 * MHZ
    assert held.cpu.set_hz(1190_400_000) == 1190_400_000
    held.give_back(gpu={"governor": "performance"}, policy0={"scaling_governor": "ondemand"})


def test_a_governor_switched_by_somebody_is_left_to_them_if_so_configured(
    hold: Callable[..., Held],
) -> None:
    held = hold(retake=False)
    held.gpu.set_hz(408 * MHZ)
    put(GPU / "governor", "performance")
    with pytest.raises(LostControlError, match="performance"):
        held.gpu.set_hz(510 * MHZ)
    held.give_back(gpu={"governor": "performance"})


@pytest.mark.parametrize("mode", MODES)
def test_limits_of_another_writer_are_obeyed_and_stay(
    hold: Callable[..., Held], mode: Mode
) -> None:
    held = hold(cpu_mode=mode, gpu_mode=mode)
    held.cpu.set_hz(1958_400_000)
    held.gpu.set_hz(1122 * MHZ)
    held.board.poll()
    put(CPUFREQ / "policy0/scaling_max_freq", "1190400")  # nvpmodel writes the same files
    put(GPU / "max_freq", 612 * MHZ)
    wait_for(lambda: get(CPUFREQ / "policy0/scaling_cur_freq") == "1190400", "the limit")
    assert {("cap", "policy0"), ("cap", "gpu")} <= set(held.events())
    assert held.cpu.set_hz(1958_400_000) == 1190_400_000
    assert held.gpu.set_hz(1122 * MHZ) == 612 * MHZ
    assert max(held.board.attainable().gpu_hz) == 612 * MHZ
    held.give_back(policy0={"scaling_max_freq": "1190400"}, gpu={"max_freq": "612000000"})


@pytest.mark.parametrize("mode", MODES)
def test_a_thermal_cap_arrives_and_leaves(hold: Callable[..., Held], mode: Mode) -> None:
    held = hold(cpu_mode=mode, gpu_mode=mode)
    held.cpu.set_hz(1958_400_000)
    held.gpu.set_hz(1122 * MHZ)
    held.board.poll()
    orinlike.cool("policy0", 10)
    orinlike.cool("gpu", 7)
    capped = CPU_KHZ[-11]
    wait_for(lambda: get(CPUFREQ / "policy0/scaling_cur_freq") == str(capped), "the cap")
    assert {("cap", "policy0"), ("cap", "gpu")} <= set(held.events())
    assert held.cpu.set_hz(1958_400_000) == capped * 1000
    assert held.gpu.set_hz(1122 * MHZ) == 612 * MHZ
    orinlike.cool("policy0", 0)
    orinlike.cool("gpu", 0)
    wait_for(lambda: get(CPUFREQ / "policy0/scaling_max_freq") != str(capped), "the end of the cap")
    held.events()
    assert held.cpu.set_hz(1958_400_000) == 1958_400_000
    assert held.gpu.set_hz(1122 * MHZ) == 1122 * MHZ
    held.give_back()


@pytest.mark.parametrize("mode", MODES)
def test_limits_that_settle_late_never_let_a_clock_above(
    hold: Callable[..., Held], mode: Mode
) -> None:
    held = hold(cpu_mode=mode, gpu_mode=mode)
    for turn in range(20):
        khz = (1190400, 1958400)[turn % 2]
        put(CPUFREQ / "policy0/scaling_max_freq", khz)
        put(GPU / "max_freq", (612, 1020)[turn % 2] * MHZ)
        held.cpu.set_hz(2201_600_000)
        held.gpu.set_hz(1122 * MHZ)
        wait_for(lambda khz=khz: int(get(CPUFREQ / "policy0/scaling_cur_freq")) <= khz, "the limit")
        assert int(get(GPU / "cur_freq")) <= (612, 1020)[turn % 2] * MHZ
    held.give_back(policy0={"scaling_max_freq": "1958400"}, gpu={"max_freq": "1020000000"})


def test_the_driver_is_unloaded_and_loaded_again(hold: Callable[..., Held]) -> None:
    held = hold()
    held.cpu.set_hz(960_000_000)
    held.gpu.set_hz(408 * MHZ)
    held.board.poll()
    orinlike.unload("orinlike")
    assert sorted(held.events()) == [
        ("gone", name) for name in ("gpu", "policy0", "policy2", "policy3")
    ]
    for node in held.board.nodes:
        with pytest.raises(SysfsError, match=r"ENODEV|ENOENT"):
            node.set_hz(node.available_hz[3])
    orinlike.load("orinlike")
    events = held.events()
    assert {("back", "gpu"), ("back", "policy0")} <= set(events)
    assert held.cpu.set_hz(1190_400_000) == 1190_400_000
    assert held.gpu.set_hz(510 * MHZ) == 510 * MHZ
    fresh = {"scaling_governor": "schedutil", "scaling_min_freq": "115200"}
    fresh["scaling_max_freq"] = "2201600"
    held.give_back(policy0=fresh, policy2=fresh, policy3=fresh, gpu={"max_freq": "1300500000"})


def test_without_root_it_is_refused_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:-1]:
        folder.chmod(0o755)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(orinlike.NOBODY)
            os.setuid(orinlike.NOBODY)
            discover(ROOT).acquire(Journal.create(tmp_path / "run", ROOT))
        except Exception as error:
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert said.startswith("SysfsError: "), said
    assert "EACCES" in said
    assert "run as root" in said
    assert "\n" not in said
    assert orinlike.state() == ORIGINALS


def test_time_of_a_change(hold: Callable[..., Held], report: Callable[[str], None]) -> None:
    """Report how long a change takes, with a switch that takes no time and one as on a board."""
    for delays in ((0, 0), (orinlike.CPU_DELAY_US, orinlike.GPU_DELAY_US)):
        orinlike.hardware(cpu_delay_us=delays[0], gpu_delay_us=delays[1])
        for mode in MODES:
            held = hold(cpu_mode=mode, gpu_mode=mode)
            for node, steps in ((held.cpu, (10, 20)), (held.gpu, (2, 6))):
                times = []
                for turn in range(20):
                    start = time.monotonic_ns()
                    node.set_hz(node.available_hz[steps[turn % 2]])
                    times.append((time.monotonic_ns() - start) / 1e6)
                least = delays[node is held.gpu] / 1e3
                assert min(times) >= least
                median = sorted(times)[len(times) // 2]
                report(f"set_hz {node.domain} {mode}, switch {least} ms: median {median:.2f} ms")
            held.give_back()
