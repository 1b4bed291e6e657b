"""What the kernel answers on the files that a board drives, as data: one table, three backends.

Each row is a short script. It is run against a real kernel (in the guest), against the simulated
board's plain files and, where ``/dev/fuse`` exists, against the simulated board through FUSE.
``tests/README.md`` shows it. Before each row the clocks are at :data:`START`.
"""

import errno
from dataclasses import dataclass, field
from typing import NamedTuple

OK = 0
EINVAL, EIO, EBUSY, ENODEV = errno.EINVAL, errno.EIO, errno.EBUSY, errno.ENODEV
ENOENT, ERANGE = errno.ENOENT, errno.ERANGE

CPU_KHZ = (*range(115200, 2188801, 76800), 2201600)
GPU_HZ = (*range(306_000_000, 1_224_000_001, 102_000_000), 1_300_500_000)


class Write(NamedTuple):
    """A write, and the errno that it fails with (0: it succeeds)."""

    file: str
    text: str
    errno: int = OK


class Read(NamedTuple):
    """A reading: the text, or the errno that it fails with."""

    file: str
    shows: str | int


class Hold(NamedTuple):
    """Open a file and keep the descriptor."""

    file: str


class WriteHeld(NamedTuple):
    """A write to the descriptor kept."""

    text: str
    errno: int = OK


class Break(NamedTuple):
    """The hardware's part: what the driver fails with, and a clock it does not exceed (Hz)."""

    domain: str
    errno: int = 0
    cap_hz: int = 0


class Cpus(NamedTuple):
    """Take all CPUs of a cluster but some away, or bring them back."""

    cluster: str
    online: bool


Step = Write | Read | Hold | WriteHeld | Break | Cpus

START: tuple[Step, ...] = (
    Break("cpu"),
    Break("gpu"),
    Cpus("far", True),
    *(Write(f"{domain}cool", "0") for domain in ("cpu:", "gpu:")),
    *(
        step
        for cluster in ("cpu", "far")
        for step in (
            Write(f"{cluster}:scaling_min_freq", "115200"),
            Write(f"{cluster}:scaling_max_freq", "2201600"),
            Write(f"{cluster}:scaling_governor", "userspace"),
            Write(f"{cluster}:scaling_setspeed", "1036800"),
            Read(f"{cluster}:scaling_cur_freq", "1036800"),
        )
    ),
    Write("gpu:max_freq", "1300500000"),
    Write("gpu:min_freq", "306000000"),
    Write("gpu:governor", "performance"),
    Write("gpu:governor", "userspace"),
    Write("gpu:userspace/set_freq", "816000000"),
    Read("gpu:cur_freq", "816000000"),
    Write("emc:mrq_rate_locked", "0"),
)
"""Clusters under ``userspace`` at 1036.8 MHz, the GPU at 816 MHz, all limits open, EMC unlocked."""


@dataclass(frozen=True)
class Row:
    """One fact.

    Attributes:
        act: What is done, for people.
        answer: What the kernel answers, for people.
        steps: The same as a script.
        unlike: Where a backend answers something else: its name and what it does instead.
    """

    act: str
    answer: str
    steps: tuple[Step, ...]
    unlike: dict[str, str] = field(default_factory=dict)


PLAIN = "plain files"
REFUSALS = "a refused write succeeds, and the old value is shown again"
BUSY = "files of an offline cluster read empty"
BLANK = "the file stays blank until its value changes: blank writes are left out there"


def _speed(text: str, code: int, khz: int) -> tuple[Step, ...]:
    return (
        Write("cpu:scaling_setspeed", text, code),
        Read("cpu:scaling_setspeed", str(khz)),
        Read("cpu:scaling_cur_freq", str(khz)),
    )


def _limits(domain: str, low: int, high: int, now: int) -> tuple[Step, ...]:
    names = ("scaling_min_freq", "scaling_max_freq", "scaling_cur_freq")
    if domain == "gpu":
        names = ("min_freq", "max_freq", "cur_freq")
    values = zip(names, (low, high, now), strict=True)
    return tuple(Read(f"{domain}:{name}", str(value)) for name, value in values)


def _target(text: str, code: int, wish: str, hz: int) -> tuple[Step, ...]:
    return (
        Write("gpu:userspace/set_freq", text, code),
        Read("gpu:userspace/set_freq", wish),
        Read("gpu:target_freq", str(hz)),
        Read("gpu:cur_freq", str(hz)),
    )


CPU_ROWS = (
    Row(
        "read `scaling_setspeed` under another governor",
        "`<unsupported>`",
        (
            Write("cpu:scaling_governor", "performance"),
            Read("cpu:scaling_setspeed", "<unsupported>"),
        ),
    ),
    Row(
        "write `scaling_setspeed` under another governor",
        "EINVAL",
        (
            Write("cpu:scaling_governor", "performance"),
            Write("cpu:scaling_setspeed", "1190400", EINVAL),
            Read("cpu:scaling_cur_freq", "2201600"),
        ),
    ),
    Row("setspeed is no step", "the next step above", _speed("1036801", OK, 1113600)),
    Row(
        "setspeed beyond the limits",
        "clamped to `scaling_min_freq`, `scaling_max_freq`",
        (
            Write("cpu:scaling_max_freq", "1728000"),
            Write("cpu:scaling_min_freq", "729600"),
            *_speed("2112000", OK, 1728000),
            *_speed("115200", OK, 729600),
        ),
    ),
    Row(
        "the maximum drops below setspeed and rises again",
        "the wish comes back by itself",
        (
            *_speed("1958400", OK, 1958400),
            Write("cpu:scaling_max_freq", "1036800"),
            Read("cpu:scaling_cur_freq", "1036800"),
            Write("cpu:scaling_max_freq", "2201600"),
            Read("cpu:scaling_cur_freq", "1958400"),
        ),
    ),
    Row(
        "setspeed `abc`, `-1`, `+1190400`",
        "EINVAL",
        tuple(step for text in ("abc", "-1", "+1190400") for step in _speed(text, EINVAL, 1036800)),
    ),
    Row(
        "setspeed a blank, a newline",
        "EINVAL",
        tuple(step for text in (" ", "\n") for step in _speed(text, EINVAL, 1036800)),
        {PLAIN: BLANK},
    ),
    Row(
        "setspeed `1190400abc`, `1190400.9`, leading blanks",
        "taken as 1190400",
        tuple(
            step
            for text in ("1190400abc", "1190400.9", "  1190400")
            for step in _speed(text, OK, 1190400)
        ),
    ),
    Row(
        "setspeed `0x122a00`, `1.1904e6`, 4294967296",
        "the lowest step",
        tuple(
            step
            for text in ("0x122a00", "1.1904e6", "4294967296")
            for step in _speed(text, OK, 115200)
        ),
    ),
    Row("a write of no bytes", "succeeds, changes nothing", _speed("", OK, 1036800)),
    Row(
        "the driver fails (EIO) in setspeed",
        "the write succeeds, the clock stays: only reading back tells",
        (
            Break("cpu", EIO),
            *_speed("1344000", OK, 1036800),
            Break("cpu"),
            *_speed("1344000", OK, 1344000),
        ),
    ),
    Row(
        "the driver fails in `scaling_max_freq`",
        "the limit reads as set, the clock stays until the next setspeed",
        (
            Break("cpu", EIO),
            Write("cpu:scaling_max_freq", "576000"),
            Read("cpu:scaling_max_freq", "576000"),
            Read("cpu:scaling_cur_freq", "1036800"),
            Break("cpu"),
            *_speed("1344000", OK, 576000),
        ),
    ),
    Row(
        "minimum above maximum",
        "both read as the maximum; the minimum comes back with it",
        (
            Write("cpu:scaling_max_freq", "1036800"),
            Write("cpu:scaling_min_freq", "1497600"),
            *_limits("cpu", 1036800, 1036800, 1036800),
            Write("cpu:scaling_max_freq", "2201600"),
            *_limits("cpu", 1497600, 2201600, 1497600),
        ),
    ),
    Row(
        "limits that are no steps",
        "the minimum goes up, the maximum down, and so they read",
        (
            Write("cpu:scaling_min_freq", "1000000"),
            *_limits("cpu", 1036800, 2201600, 1036800),
            Write("cpu:scaling_max_freq", "1200000"),
            *_limits("cpu", 1036800, 1190400, 1036800),
        ),
    ),
    Row(
        "a window without a step (1000000..1020000)",
        "1036800, above the maximum asked for (6.12: 960000)",
        (
            Write("cpu:scaling_min_freq", "1000000"),
            Write("cpu:scaling_max_freq", "1020000"),
            *_limits("cpu", 1036800, 1036800, 1036800),
        ),
    ),
    Row(
        "`scaling_max_freq` 0",
        "pinned to the lowest step",
        (Write("cpu:scaling_max_freq", "0"), *_limits("cpu", 115200, 115200, 115200)),
    ),
    Row(
        "`scaling_max_freq` 2147483648, `-1`, `abc`",
        "EINVAL",
        tuple(
            step
            for text in ("2147483648", "-1", "abc")
            for step in (
                Write("cpu:scaling_max_freq", text, EINVAL),
                *_limits("cpu", 115200, 2201600, 1036800),
            )
        ),
    ),
    Row(
        "hardware throttles below the clock set",
        "`cpuinfo_cur_freq` tells, the others keep showing the wish",
        (
            *_speed("2112000", OK, 2112000),
            Break("cpu", cap_hz=806_400_000),
            Read("cpu:scaling_cur_freq", "2112000"),
            Read("cpu:cpuinfo_cur_freq", "806400"),
        ),
    ),
    Row(
        "governor `UserSpace`, ` userspace`, `userspace extra`",
        "accepted",
        tuple(
            step
            for text in ("UserSpace", " userspace", "userspace extra")
            for step in (
                Write("cpu:scaling_governor", "powersave"),
                Write("cpu:scaling_governor", text),
                Read("cpu:scaling_governor", "userspace"),
            )
        ),
    ),
    Row(
        "an unknown governor",
        "EINVAL",
        (
            Write("cpu:scaling_governor", "nosuch", EINVAL),
            Read("cpu:scaling_governor", "userspace"),
        ),
    ),
    Row(
        "a switch to `userspace`",
        "setspeed starts at the clock in force",
        (
            Write("cpu:scaling_governor", "performance"),
            Read("cpu:scaling_cur_freq", "2201600"),
            Write("cpu:scaling_governor", "userspace"),
            Read("cpu:scaling_setspeed", "2201600"),
        ),
    ),
    Row(
        "all CPUs of a cluster offline",
        "the files stay; EBUSY on every read and write; all is back when one CPU returns",
        (
            Write("far:scaling_max_freq", "1728000"),
            Read("far:scaling_max_freq", "1728000"),
            Cpus("far", False),
            Read("far:scaling_governor", EBUSY),
            Read("far:scaling_setspeed", EBUSY),
            Read("far:affected_cpus", EBUSY),
            Write("far:scaling_setspeed", "1190400", EBUSY),
            Write("far:scaling_max_freq", "1190400", EBUSY),
            Write("far:scaling_governor", "performance", EBUSY),
            Cpus("far", True),
            Read("far:scaling_governor", "userspace"),
            Read("far:scaling_setspeed", "1036800"),
            Read("far:scaling_max_freq", "1728000"),
        ),
        {PLAIN: BUSY},
    ),
    Row(
        "a descriptor held while its cluster is offline",
        "EBUSY, and it works again afterwards",
        (
            Hold("far:scaling_setspeed"),
            Cpus("far", False),
            WriteHeld("1190400", EBUSY),
            Cpus("far", True),
            WriteHeld("1190400"),
            Read("far:scaling_setspeed", "1190400"),
        ),
    ),
    Row(
        "a thermal cap arrives and leaves",
        "`scaling_max_freq` shows it, our own request stays behind it",
        (
            *_speed("2201600", OK, 2201600),
            Write("cpu:cool", "10"),
            *_limits("cpu", 115200, CPU_KHZ[-11], CPU_KHZ[-11]),
            Write("cpu:scaling_max_freq", "1728000"),
            Read("cpu:scaling_max_freq", str(CPU_KHZ[-11])),
            Write("cpu:cool", "0"),
            *_limits("cpu", 115200, 1728000, 1728000),
        ),
    ),
)

GPU_ROWS = (
    Row(
        "`userspace/`",
        "there under that governor alone; reads `undefined` until written",
        (
            Write("gpu:governor", "performance"),
            Read("gpu:userspace/set_freq", ENOENT),
            Write("gpu:userspace/set_freq", "816000000", ENOENT),
            Write("gpu:governor", "userspace"),
            Read("gpu:userspace/set_freq", "undefined"),
        ),
    ),
    Row(
        "a descriptor of `set_freq` held over a switch of governors",
        "ENODEV for good, even under `userspace` again",
        (
            Hold("gpu:userspace/set_freq"),
            Write("gpu:governor", "performance"),
            WriteHeld("510000000", ENODEV),
            Write("gpu:governor", "userspace"),
            WriteHeld("510000000", ENODEV),
            Read("gpu:cur_freq", "1300500000"),
        ),
        {PLAIN: "the write succeeds, into a file that nobody sees any more"},
    ),
    Row(
        "set_freq is no step",
        "the next one above; it reads back the wish, `target_freq` the clock",
        _target("850000000", OK, "850000000", 918000000),
    ),
    Row(
        "set_freq beyond the limits",
        "clamped; the wish is kept and returns with the limit",
        (
            Write("gpu:max_freq", "918000000"),
            *_target("1224000000", OK, "1224000000", 918000000),
            Write("gpu:max_freq", "1300500000"),
            Read("gpu:cur_freq", "1224000000"),
        ),
    ),
    Row(
        "set_freq `abc`, `-1`, `714000000 `",
        "EINVAL (5.10: some are taken as any clock)",
        tuple(
            step
            for text in ("abc", "-1", "714000000 ")
            for step in _target(text, EINVAL, "816000000", 816000000)
        ),
    ),
    Row(
        "set_freq a newline",
        "EINVAL",
        _target("\n", EINVAL, "816000000", 816000000),
        {PLAIN: BLANK},
    ),
    Row(
        "set_freq 18446744073709551616",
        "ERANGE",
        _target("18446744073709551616", ERANGE, "816000000", 816000000),
    ),
    Row(
        "set_freq `0x2a8eb600`, `+714000000`",
        "taken as numbers",
        (
            *_target("0x2a8eb600", OK, "713995776", 714000000),
            *_target("+714000000", OK, "714000000", 714000000),
        ),
    ),
    Row(
        "the driver fails (EIO) in set_freq",
        "EIO; it reads back the failed wish",
        (Break("gpu", EIO), *_target("1020000000", EIO, "1020000000", 816000000)),
    ),
    Row(
        "the driver fails in `max_freq`",
        "the write succeeds, the limit reads as set, the clock stays",
        (
            Break("gpu", EIO),
            Write("gpu:max_freq", "510000000"),
            Read("gpu:max_freq", "510000000"),
            Read("gpu:cur_freq", "816000000"),
        ),
    ),
    Row(
        "the driver fails at a change of governor",
        "the write succeeds, the old governor stays, set_freq is `undefined`",
        (
            Break("gpu", EIO),
            Write("gpu:governor", "performance"),
            Read("gpu:governor", "userspace"),
            Read("gpu:userspace/set_freq", "undefined"),
            Read("gpu:cur_freq", "816000000"),
        ),
    ),
    Row(
        "minimum above maximum, either order",
        "succeeds (5.3 and later); both read as the maximum, the minimum comes back with it",
        (
            Write("gpu:max_freq", "612000000"),
            Write("gpu:min_freq", "1020000000"),
            *_limits("gpu", 612000000, 612000000, 612000000),
            Write("gpu:max_freq", "1300500000"),
            *_limits("gpu", 1020000000, 1300500000, 1020000000),
            Write("gpu:max_freq", "510000000"),
            *_limits("gpu", 510000000, 510000000, 510000000),
        ),
    ),
    Row(
        "limits that are no steps",
        "whole kHz, the minimum down and the maximum up; not rounded to steps",
        (
            Write("gpu:min_freq", "500000999"),
            *_limits("gpu", 500000000, 1300500000, 816000000),
            Write("gpu:max_freq", "600000999"),
            *_limits("gpu", 500000000, 600001000, 510000000),
        ),
    ),
    Row(
        "a window without a step (620..700 MHz)",
        "612 MHz, below the minimum; after set_freq 714 MHz, above the maximum",
        (
            Write("gpu:min_freq", "620000000"),
            Write("gpu:max_freq", "700000000"),
            *_limits("gpu", 620000000, 700000000, 612000000),
            Write("gpu:userspace/set_freq", "650000000"),
            Read("gpu:cur_freq", "714000000"),
        ),
    ),
    Row(
        "`max_freq` 0",
        "no limit",
        (
            Write("gpu:max_freq", "510000000"),
            Write("gpu:max_freq", "0"),
            *_limits("gpu", 306000000, 1300500000, 816000000),
        ),
    ),
    Row(
        "`max_freq` 1",
        "both limits read 1000, the clock is the lowest",
        (Write("gpu:max_freq", "1"), *_limits("gpu", 1000, 1000, 306000000)),
    ),
    Row(
        "governor `UserSpace`, an unknown one",
        "EINVAL",
        (
            Write("gpu:governor", "UserSpace", EINVAL),
            Write("gpu:governor", "nosuch", EINVAL),
            Read("gpu:governor", "userspace"),
        ),
    ),
    Row(
        "`polling_interval` under `userspace`",
        "not there (5.10: still there)",
        (
            Read("gpu:polling_interval", ENOENT),
            Write("gpu:polling_interval", "20", ENOENT),
        ),
    ),
    Row(
        "hardware throttles below the clock set",
        "`cur_freq` tells, `target_freq` keeps showing the wish",
        (
            *_target("1224000000", OK, "1224000000", 1224000000),
            Break("gpu", cap_hz=510_000_000),
            Read("gpu:cur_freq", "510000000"),
            Read("gpu:target_freq", "1224000000"),
        ),
    ),
    Row(
        "a thermal cap arrives and leaves",
        "`max_freq` shows it, our own request stays behind it",
        (
            Write("gpu:max_freq", "918000000"),
            Write("gpu:cool", "7"),
            *_limits("gpu", 306000000, 612000000, 612000000),
            Write("gpu:cool", "0"),
            *_limits("gpu", 306000000, 918000000, 816000000),
        ),
    ),
)

EMC_ROWS = (
    Row(
        "`rate` of the memory clock, unlocked",
        "accepted without effect",
        (Write("emc:rate", "665600000"), Read("emc:rate", "3199000000")),
    ),
    Row(
        "`rate`, locked",
        "the next point above; beyond the table it is ignored without a word",
        (
            Write("emc:mrq_rate_locked", "1"),
            Write("emc:rate", "2000000000"),
            Read("emc:rate", "2133000000"),
            Write("emc:rate", "9999000000"),
            Read("emc:rate", "2133000000"),
            Write("emc:mrq_rate_locked", "0"),
            Read("emc:rate", "3199000000"),
        ),
    ),
)

TABLE = {"CPU (cpufreq)": CPU_ROWS, "GPU (devfreq)": GPU_ROWS, "Memory (BPMP)": EMC_ROWS}


def markdown() -> str:
    """Write the table for people."""
    lines: list[str] = []
    for title, rows in TABLE.items():
        lines += [f"### {title}", "", "| act | the kernel's answer |", "|---|---|"]
        lines += [f"| {row.act} | {row.answer} |" for row in rows]
        lines.append("")
    unlike = [
        f"- {backend}, {row.act}: {text}."
        for rows in TABLE.values()
        for row in rows
        for backend, text in row.unlike.items()
    ]
    return "\n".join([*lines, f"- {PLAIN}, wherever the kernel refuses: {REFUSALS}.", *unlike])
