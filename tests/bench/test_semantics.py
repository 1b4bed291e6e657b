"""The simulated kernel against a transcript of a real one (Linux 6.1, cpufreq and devfreq core)."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.plant.board import load_board
from bench.plant.cooling import Cooling
from bench.plant.errors import KernelError, PlantError
from bench.plant.kfile import parse_unsigned, scan_unsigned
from bench.plant.semantics import Kernel

AGX = load_board("agx-orin")
CPU = "sys/devices/system/cpu/cpufreq/policy0/"
CPU4 = "sys/devices/system/cpu/cpufreq/policy4/"
GPU = "sys/devices/platform/17000000.gpu/devfreq/17000000.gpu/"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc/"
OK = 0
EINVAL, ERANGE, EBUSY, EIO = errno.EINVAL, errno.ERANGE, errno.EBUSY, errno.EIO


class Board:
    """A kernel whose clocks follow at once."""

    def __init__(self, **options):
        self.kernel = Kernel(AGX, **options)

    def write(self, path, text):
        """Write; returns the errno, 0 for success."""
        data = text if isinstance(text, bytes) else text.encode()
        try:
            self.kernel.write(path, data)
        except KernelError as error:
            return error.errno
        finally:
            self.kernel.settle()
        return OK

    def read(self, path):
        return self.kernel.read(path).strip()


@pytest.fixture
def board():
    board = Board()
    board.write(CPU + "scaling_min_freq", "115200")
    board.write(CPU + "scaling_governor", "userspace")
    board.write(CPU + "scaling_setspeed", "1036800")
    board.write(GPU + "governor", "userspace")
    board.write(GPU + "userspace/set_freq", "816000000")
    return board


@pytest.mark.parametrize("governor", ["performance", "schedutil", "powersave", "ondemand"])
def test_setspeed_unsupported_elsewhere(board, governor):
    assert board.write(CPU + "scaling_governor", governor) == OK
    assert board.read(CPU + "scaling_setspeed") == "<unsupported>"
    assert board.write(CPU + "scaling_setspeed", "1036800") == EINVAL


SETSPEED = [
    ("1036800", OK, 1036800),
    ("1036800\n", OK, 1036800),
    ("1036801", OK, 1113600),
    ("1036799", OK, 1036800),
    ("1", OK, 115200),
    ("0", OK, 115200),
    ("2201601", OK, 2201600),
    ("9999999", OK, 2201600),
    ("4294967295", OK, 2201600),
    ("4294967296", OK, 115200),
    ("18446744073709551616", OK, 115200),
    ("-1", EINVAL, 1036800),
    ("abc", EINVAL, 1036800),
    ("", OK, 1036800),
    ("\n", EINVAL, 1036800),
    (" ", EINVAL, 1036800),
    ("  1190400", OK, 1190400),
    ("+1190400", EINVAL, 1036800),
    ("1190400abc", OK, 1190400),
    ("1190400 1344000", OK, 1190400),
    ("1190400.9", OK, 1190400),
    ("1.1904e6", OK, 115200),
    ("0x122a00", OK, 115200),
    ("010", OK, 115200),
    ("1_190_400", OK, 115200),
    ("１１９０４００", EINVAL, 1036800),
    (b"1190400\0", OK, 1190400),
    (b"\0", EINVAL, 1036800),
]


@pytest.mark.parametrize(("text", "code", "khz"), SETSPEED)
def test_setspeed_values(board, text, code, khz):
    assert board.write(CPU + "scaling_setspeed", text) == code
    assert board.read(CPU + "scaling_setspeed") == str(khz)
    assert board.read(CPU + "scaling_cur_freq") == str(khz)
    assert board.read(CPU + "cpuinfo_cur_freq") == str(khz)


LIMITS = [
    ("min", "1000000", OK, 1036800, 2201600, 1036800),
    ("min", "1036801", OK, 1113600, 2201600, 1113600),
    ("max", "1000000", OK, 115200, 960000, 960000),
    ("max", "1036799", OK, 115200, 960000, 960000),
    ("min", "1190400", OK, 1190400, 2201600, 1190400),
    ("min", "0", OK, 115200, 2201600, 1036800),
    ("min", "9999999", OK, 2201600, 2201600, 2201600),
    ("max", "0", OK, 115200, 115200, 115200),
    ("max", "1", OK, 115200, 115200, 115200),
    ("max", "9999999", OK, 115200, 2201600, 1036800),
    ("max", "115199", OK, 115200, 115200, 115200),
    ("min", "abc", EINVAL, 115200, 2201600, 1036800),
    ("min", "", OK, 115200, 2201600, 1036800),
    ("min", "-1", EINVAL, 115200, 2201600, 1036800),
    ("min", "1190400abc", OK, 1190400, 2201600, 1190400),
    ("min", " 1190400", OK, 1190400, 2201600, 1190400),
    ("min", "+1190400", EINVAL, 115200, 2201600, 1036800),
    ("min", "0x122a00", OK, 115200, 2201600, 1036800),
    ("max", "4294967296", OK, 115200, 115200, 115200),
    ("max", "2147483647", OK, 115200, 2201600, 1036800),
    ("max", "2147483648", EINVAL, 115200, 2201600, 1036800),
    ("max", "4294967295", OK, 115200, 2201600, 1036800),
]


@pytest.mark.parametrize(("which", "text", "code", "low", "high", "cur"), LIMITS)
def test_cpu_limit_values(board, which, text, code, low, high, cur):
    assert board.write(f"{CPU}scaling_{which}_freq", text) == code
    assert board.read(CPU + "scaling_min_freq") == str(low)
    assert board.read(CPU + "scaling_max_freq") == str(high)
    assert board.read(CPU + "scaling_cur_freq") == str(cur)


def test_cpu_min_above_max_is_kept_as_a_wish(board):
    steps = [
        ("max", 1036800, 115200, 1036800, 1036800),
        ("min", 1497600, 1036800, 1036800, 1036800),
        ("max", 2201600, 1497600, 2201600, 1497600),
        ("min", 115200, 115200, 2201600, 1036800),
        ("min", 1497600, 1497600, 2201600, 1497600),
        ("max", 1036800, 1036800, 1036800, 1036800),
        ("min", 115200, 115200, 1036800, 1036800),
        ("max", 2201600, 115200, 2201600, 1036800),
    ]
    for which, value, low, high, cur in steps:
        assert board.write(f"{CPU}scaling_{which}_freq", str(value)) == OK
        seen = tuple(
            int(board.read(CPU + name))
            for name in ("scaling_min_freq", "scaling_max_freq", "scaling_cur_freq")
        )
        assert seen == (low, high, cur)


def test_cpu_window_without_a_step(board):
    board.write(CPU + "scaling_min_freq", "1000000")
    board.write(CPU + "scaling_max_freq", "1020000")
    assert board.read(CPU + "scaling_min_freq") == "1036800"
    assert board.read(CPU + "scaling_max_freq") == "1036800"


def test_speed_is_remembered_under_a_cap(board):
    board.write(CPU + "scaling_setspeed", "2201600")
    board.write(CPU + "scaling_max_freq", "1036800")
    assert board.read(CPU + "scaling_setspeed") == "1036800"
    board.write(CPU + "scaling_setspeed", "1900000")
    assert board.read(CPU + "scaling_setspeed") == "1036800"
    board.write(CPU + "scaling_max_freq", "2201600")
    assert board.read(CPU + "scaling_setspeed") == "1958400"
    board.write(CPU + "scaling_min_freq", "1497600")
    board.write(CPU + "scaling_setspeed", "115200")
    assert board.read(CPU + "scaling_cur_freq") == "1497600"
    board.write(CPU + "scaling_min_freq", "115200")
    assert board.read(CPU + "scaling_cur_freq") == "115200"


GOVERNORS = [
    ("userspace\n", OK, "userspace"),
    ("UserSpace", OK, "userspace"),
    ("userspace extra", OK, "userspace"),
    (" userspace", OK, "userspace"),
    ("nosuch", EINVAL, "performance"),
    ("userspacexxxxxxxxxxxxxxxxx", EINVAL, "performance"),
    ("", OK, "performance"),
    ("\n", EINVAL, "performance"),
]


@pytest.mark.parametrize(("text", "code", "after"), GOVERNORS)
def test_cpu_governor_names(board, text, code, after):
    board.write(CPU + "scaling_governor", "performance")
    assert board.write(CPU + "scaling_governor", text) == code
    assert board.read(CPU + "scaling_governor") == after


def test_userspace_starts_from_the_clock_it_finds(board):
    board.write(CPU + "scaling_governor", "performance")
    assert board.read(CPU + "scaling_cur_freq") == "2201600"
    board.write(CPU + "scaling_governor", "userspace")
    assert board.read(CPU + "scaling_setspeed") == "2201600"
    board.write(CPU + "scaling_governor", "powersave")
    board.write(CPU + "scaling_governor", "userspace")
    assert board.read(CPU + "scaling_setspeed") == "115200"


def test_cpu_driver_failure_is_swallowed(board):
    board.kernel.policies[0].driver_errno = EIO
    assert board.write(CPU + "scaling_setspeed", "1344000") == OK
    assert board.read(CPU + "scaling_cur_freq") == "1036800"
    assert board.write(CPU + "scaling_max_freq", "576000") == OK
    assert board.read(CPU + "scaling_max_freq") == "576000"
    assert board.read(CPU + "scaling_cur_freq") == "1036800"
    board.kernel.policies[0].driver_errno = 0
    assert board.write(CPU + "scaling_setspeed", "1344000") == OK
    assert board.read(CPU + "scaling_cur_freq") == "576000"


def test_cpu_hardware_throttle_shows_in_one_file_only(board):
    board.kernel.policies[0].hardware_cap_khz = 806400
    board.write(CPU + "scaling_setspeed", "2112000")
    assert board.read(CPU + "scaling_cur_freq") == "2112000"
    assert board.read(CPU + "cpuinfo_cur_freq") == "806400"


def _offline(board, *cpus):
    for cpu in cpus:
        assert board.write(f"sys/devices/system/cpu/cpu{cpu}/online", "0") == OK


def test_part_of_a_cluster_offline(board):
    _offline(board, 1)
    assert board.read(CPU + "affected_cpus") == "0 2 3"
    assert board.read(CPU + "related_cpus") == "0 1 2 3"
    assert board.write(CPU + "scaling_setspeed", "1190400") == OK
    assert board.read("sys/devices/system/cpu/online") == "0,2-11"
    assert board.read("sys/devices/system/cpu/offline") == "1"


def test_cluster_offline_answers_ebusy_and_comes_back(board):
    board.write(CPU4 + "scaling_governor", "userspace")
    board.write(CPU4 + "scaling_setspeed", "1036800")
    _offline(board, 4, 5, 6, 7)
    for name in ("affected_cpus", "scaling_cur_freq", "scaling_governor", "scaling_driver"):
        with pytest.raises(KernelError) as caught:
            board.read(CPU4 + name)
        assert caught.value.errno == EBUSY
    for name in ("scaling_setspeed", "scaling_max_freq", "scaling_governor"):
        assert board.write(CPU4 + name, "1190400") == EBUSY
    assert board.write("sys/devices/system/cpu/cpu4/online", "1") == OK
    assert board.read(CPU4 + "affected_cpus") == "4"
    assert board.read(CPU4 + "scaling_governor") == "userspace"
    assert board.read(CPU4 + "scaling_setspeed") == "1036800"


def test_cluster_offline_on_5_10():
    board = Board(jetpack=5)
    _offline(board, 4, 5, 6, 7)
    assert board.read(CPU4 + "scaling_governor") == "schedutil"
    assert board.read(CPU4 + "affected_cpus") == ""
    assert board.write(CPU4 + "scaling_max_freq", "1190400") == EINVAL


def test_cpu0_stays(board):
    assert board.write("sys/devices/system/cpu/cpu0/online", "0") == errno.ENOENT
    assert board.write("sys/devices/system/cpu/cpu1/online", "maybe") == EINVAL


def test_unsnapped_limits_read_back_as_written_on_5_10():
    board = Board(jetpack=5)
    board.write(CPU + "scaling_max_freq", "1000000")
    assert board.read(CPU + "scaling_max_freq") == "1000000"


def test_read_only_and_missing_files(board):
    assert board.write(CPU + "scaling_cur_freq", "1") == errno.EACCES
    assert board.write(GPU + "cur_freq", "1") == errno.EACCES
    assert board.write(CPU + "nosuch", "1") == errno.ENOENT


def test_schedutil_knobs_live_only_while_used(board):
    knob = "sys/devices/system/cpu/cpufreq/schedutil/rate_limit_us"
    assert board.read(knob) == "10000"
    assert board.write(knob, "500") == OK
    for policy in (CPU, CPU4, CPU.replace("policy0", "policy8")):
        board.write(policy + "scaling_governor", "userspace")
    assert board.write(knob, "1") == errno.ENOENT


GPU_GOVERNORS = [
    ("userspace\n", OK, "userspace"),
    ("UserSpace", EINVAL, "performance"),
    ("userspace ", OK, "userspace"),
    ("nosuch", EINVAL, "performance"),
    ("", OK, "performance"),
    ("\n", EINVAL, "performance"),
    ("tegra_wmark", EINVAL, "performance"),
]


@pytest.mark.parametrize(("text", "code", "after"), GPU_GOVERNORS)
def test_gpu_governor_names(board, text, code, after):
    board.write(GPU + "governor", "performance")
    assert board.write(GPU + "governor", text) == code
    assert board.read(GPU + "governor") == after


def test_userspace_folder_comes_and_goes(board):
    board.write(GPU + "governor", "performance")
    assert board.write(GPU + "userspace/set_freq", "816000000") == errno.ENOENT
    board.write(GPU + "governor", "userspace")
    assert board.read(GPU + "userspace/set_freq") == "undefined"
    assert board.read(GPU + "cur_freq") == "1300500000"
    board.write(GPU + "userspace/set_freq", "816000000")
    board.write(GPU + "governor", "userspace")
    assert board.read(GPU + "userspace/set_freq") == "816000000"
    board.write(GPU + "governor", "nvhost_podgov")
    board.write(GPU + "governor", "userspace")
    assert board.read(GPU + "userspace/set_freq") == "undefined"


SET_FREQ = [
    ("816000001", OK, "816000001", 918000000),
    ("815999999", OK, "815999999", 816000000),
    ("850000000", OK, "850000000", 918000000),
    ("0", OK, "0", 306000000),
    ("1", OK, "1", 306000000),
    ("1300500001", OK, "1300500001", 1300500000),
    ("18446744073709551615", OK, "18446744073709551615", 1300500000),
    ("18446744073709551616", ERANGE, "816000000", 816000000),
    ("-1", EINVAL, "816000000", 816000000),
    ("abc", EINVAL, "816000000", 816000000),
    ("", OK, "816000000", 816000000),
    ("\n", EINVAL, "816000000", 816000000),
    ("714000000abc", EINVAL, "816000000", 816000000),
    ("714000000 ", EINVAL, "816000000", 816000000),
    (" 714000000", EINVAL, "816000000", 816000000),
    ("+714000000", OK, "714000000", 714000000),
    ("0x2a8eb600", OK, "713995776", 714000000),
    ("714000000.5", EINVAL, "816000000", 816000000),
]


@pytest.mark.parametrize(("text", "code", "wish", "cur"), SET_FREQ)
def test_set_freq_values(board, text, code, wish, cur):
    assert board.write(GPU + "userspace/set_freq", text) == code
    assert board.read(GPU + "userspace/set_freq") == wish
    assert board.read(GPU + "cur_freq") == str(cur)
    assert board.read(GPU + "target_freq") == str(cur)


GPU_LIMITS = [
    ("min", "1020000000", OK, 1020000000, 1300500000, 1020000000),
    ("min", "1000000001", OK, 1000000000, 1300500000, 1020000000),
    ("min", "1020000999", OK, 1020000000, 1300500000, 1020000000),
    ("max", "510000000", OK, 306000000, 510000000, 510000000),
    ("max", "600000000", OK, 306000000, 600000000, 510000000),
    ("max", "600000999", OK, 306000000, 600001000, 510000000),
    ("min", "0", OK, 306000000, 1300500000, 816000000),
    ("max", "0", OK, 306000000, 1300500000, 816000000),
    ("max", "1", OK, 1000, 1000, 306000000),
    ("max", "999", OK, 1000, 1000, 306000000),
    ("max", "305999999", OK, 306000000, 306000000, 306000000),
    ("min", "9999999999", OK, 1300500000, 1300500000, 1300500000),
    ("min", "-1", EINVAL, 306000000, 1300500000, 816000000),
    ("min", "abc", EINVAL, 306000000, 1300500000, 816000000),
    ("min", "1020000000abc", OK, 1020000000, 1300500000, 1020000000),
    ("min", "0x3ccbf700", OK, 306000000, 1300500000, 816000000),
    ("max", "18446744073709551615", OK, 0, 0, 306000000),
    ("max", "18446744073709551616", OK, 306000000, 1300500000, 816000000),
    ("min", "4398046511104000", OK, 306000000, 1300500000, 816000000),
    ("min", "2147483648000", OK, 1300500000, 1300500000, 1300500000),
]


@pytest.mark.parametrize(("which", "text", "code", "low", "high", "cur"), GPU_LIMITS)
def test_gpu_limit_values(board, which, text, code, low, high, cur):
    assert board.write(f"{GPU}{which}_freq", text) == code
    seen = tuple(int(board.read(GPU + name)) for name in ("min_freq", "max_freq", "cur_freq"))
    assert seen == (low, high, cur)


def test_gpu_limits_in_both_orders_and_back(board):
    steps = [
        ("max", 612000000, 306000000, 612000000, 612000000),
        ("min", 1020000000, 612000000, 612000000, 612000000),
        ("max", 1300500000, 1020000000, 1300500000, 1020000000),
        ("min", 306000000, 306000000, 1300500000, 816000000),
        ("min", 1020000000, 1020000000, 1300500000, 1020000000),
        ("max", 612000000, 612000000, 612000000, 612000000),
        ("min", 306000000, 306000000, 612000000, 612000000),
        ("max", 0, 306000000, 1300500000, 816000000),
        ("min", 620000000, 620000000, 1300500000, 816000000),
        ("max", 700000000, 620000000, 700000000, 612000000),
    ]
    for which, value, low, high, cur in steps:
        assert board.write(f"{GPU}{which}_freq", str(value)) == OK
        seen = tuple(int(board.read(GPU + name)) for name in ("min_freq", "max_freq", "cur_freq"))
        assert seen == (low, high, cur)
    board.write(GPU + "userspace/set_freq", "650000000")
    assert board.read(GPU + "cur_freq") == "714000000"


def test_set_freq_wish_outlives_limits(board):
    board.write(GPU + "max_freq", "918000000")
    board.write(GPU + "userspace/set_freq", "1224000000")
    assert board.read(GPU + "cur_freq") == "918000000"
    assert board.read(GPU + "userspace/set_freq") == "1224000000"
    board.write(GPU + "max_freq", "1300500000")
    assert board.read(GPU + "cur_freq") == "1224000000"


def test_gpu_driver_failure(board):
    board.kernel.gpu.driver_errno = EIO
    assert board.write(GPU + "userspace/set_freq", "1020000000") == EIO
    assert board.read(GPU + "userspace/set_freq") == "1020000000"
    assert board.read(GPU + "cur_freq") == "816000000"
    assert board.write(GPU + "max_freq", "510000000") == OK
    assert board.read(GPU + "cur_freq") == "816000000"
    assert board.write(GPU + "governor", "performance") == OK
    assert board.read(GPU + "governor") == "userspace"
    assert board.read(GPU + "userspace/set_freq") == "undefined"
    board.kernel.gpu.driver_errno = 0
    board.write(GPU + "userspace/set_freq", "612000000")
    assert board.read(GPU + "cur_freq") == "510000000"


def test_polling_files_follow_the_governor(board):
    assert board.write(GPU + "polling_interval", "20") == errno.ENOENT
    board.write(GPU + "governor", "nvhost_podgov")
    assert board.read(GPU + "polling_interval") == "25"
    assert board.write(GPU + "polling_interval", "x") == EINVAL
    assert board.write(GPU + "timer", "nosuch") == EINVAL
    assert board.write(GPU + "timer", "delayed") == OK
    assert board.read(GPU + "timer") == "delayed"


def test_several_requesters_and_their_release(board):
    policy = board.kernel.policies[0]
    board.write(CPU + "scaling_setspeed", "2201600")
    policy.request_max("thermal", 1420800)
    board.write(CPU + "scaling_max_freq", "1728000")
    assert board.read(CPU + "scaling_max_freq") == "1420800"
    policy.request_max("thermal", 2201600)
    assert board.read(CPU + "scaling_max_freq") == "1728000"
    board.write(CPU + "scaling_min_freq", "1958400")
    assert board.read(CPU + "scaling_min_freq") == "1728000"  # the maximum wins


def test_cooling_device_caps_its_clock(board):
    cooling = next(c for c in board.kernel.cooling if "devfreq" in c.kind)
    assert board.write(cooling.where + "/cur_state", "3") == OK
    assert board.read(GPU + "max_freq") == "1020000000"
    assert board.write(cooling.where + "/cur_state", "11") == EINVAL
    assert board.write(cooling.where + "/cur_state", "0") == OK
    assert board.read(GPU + "max_freq") == "1300500000"
    assert isinstance(cooling, Cooling)


def test_emc_moves_only_where_it_may(board):
    assert board.write(EMC + "rate", "665600000") == OK
    assert board.read(EMC + "rate") == "3199000000"  # not locked
    board.write(EMC + "mrq_rate_locked", "1")
    board.write(EMC + "rate", "2000000000")
    assert board.read(EMC + "rate") == "2133000000"
    assert board.write(EMC + "rate", "9999000000") == OK  # out of range: silently ignored
    assert board.read(EMC + "rate") == "2133000000"
    assert board.read(EMC + "pto_counter") == str(2133000000 * 3191887872 // 3199000000)
    board.write("sys/kernel/nvpmodel_clk_cap/emc", "665600000")
    assert board.read(EMC + "rate") == board.read(EMC + "max_rate") == "665600000"
    board.write("sys/kernel/nvpmodel_clk_cap/emc", "0")
    board.write(EMC + "mrq_rate_locked", "0")
    assert board.read(EMC + "rate") == "3199000000"


def test_power_mode_sets_limits_and_cores():
    board = Board(mode="15W")
    assert board.read("sys/devices/system/cpu/online") == "0-3"
    assert board.read(CPU + "scaling_max_freq") == "1113600"
    assert board.read(CPU + "scaling_min_freq") == "729600"
    assert board.read(GPU + "max_freq") == "408000000"
    assert board.read(EMC + "max_rate") == "2133000000"
    board.kernel.set_mode(AGX.mode("MAXN"))
    board.kernel.settle()
    assert board.read("sys/devices/system/cpu/online") == "0-11"
    assert board.read(GPU + "max_freq") == "1300500000"


def test_a_request_is_not_in_force_before_it_settles():
    kernel = Kernel(AGX, cpu_governor="userspace")
    kernel.write(CPU + "scaling_setspeed", b"2201600")
    assert kernel.read(CPU + "scaling_cur_freq") == "729600\n"
    assert kernel.read(CPU + "scaling_setspeed") == "2201600\n"
    kernel.settle()
    assert kernel.read(CPU + "scaling_cur_freq") == "2201600\n"


def test_unknown_names_are_refused_with_a_hint():
    with pytest.raises(PlantError, match="choose from agx-orin"):
        load_board("toaster")
    with pytest.raises(PlantError, match="MAXN"):
        Kernel(AGX, mode="45W")
    with pytest.raises(PlantError, match="JetPack 4"):
        Kernel(AGX, jetpack=4)


def test_number_parsers():
    assert scan_unsigned(b"12abc", 32) == 12
    assert parse_unsigned(b"010\n") == 8
    with pytest.raises(KernelError):
        parse_unsigned(b"08")


_TEXTS = st.one_of(
    st.integers(0, 3_000_000).map(str),
    st.integers(0, 1 << 66).map(str),
    st.sampled_from(["userspace", "schedutil", "performance", "nvhost_podgov", "0", "1", "-1", ""]),
    st.text(max_size=6),
)
_PATHS = st.sampled_from(sorted(path for path, attr in Kernel(AGX).files() if attr.mode & 0o200))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_PATHS, _TEXTS), max_size=25))
def test_no_write_leads_to_an_impossible_state(writes):
    board = Board()
    for path, text in writes:
        board.write(path, text)
        for policy in board.kernel.policies:
            low, high = policy.range_khz()
            assert low <= high
            assert policy.cur_khz in policy.table
            assert low <= policy.cur_khz <= high or not policy.online
        low, high = board.kernel.gpu.range_hz()
        assert low <= high
        assert board.kernel.gpu.cur_hz in AGX.gpu_hz
        assert board.kernel.emc.cur_hz in AGX.emc_hz
        assert 0 in board.kernel.hotplug.online
