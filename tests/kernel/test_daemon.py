"""The whole daemon with a client through ZeroMQ, on the kernel's own files."""

import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.overhead_rig import MODEL
from governor.client import Session, connect
from tests.kernel import orinlike
from tests.kernel.guestdaemon import GuestDaemon
from tests.kernel.orinlike import CLUSTERS, CPUFREQ, GPU, ORIGINALS, get, put, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]
JOBS = 200
STILL_JOBS = 20
DEADLINES_MS = (14, 20, 40, 28, 60, 17)
WAIT_S = 20.0
REPEATS = 3


@pytest.fixture
def daemon() -> Iterator[Callable[..., GuestDaemon]]:
    orinlike.reset()
    made: list[GuestDaemon] = []
    folder = Path("/run/flamegov-test")

    def make(board: str = "") -> GuestDaemon:
        folder.mkdir()
        made.append(GuestDaemon(folder, board))
        return made[-1]

    yield make
    for one in made:
        one.close()
    orinlike.reset()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def job(session: Session, deadline_ms: int) -> tuple[int, int, int]:
    """Do one job that takes what was predicted; returns the moment of asking and the point."""
    asked_ns = time.monotonic_ns()
    session.begin(deadline=deadline_ms * 1_000_000, ack=True)
    reply = session.reply
    assert reply is not None
    wait_for(lambda: actual() == (reply["cpu_hz"], reply["gpu_hz"]), f"{reply}, {actual()}", WAIT_S)
    start_ns = session._core.start_ns
    session.end(end_ns=start_ns + int(reply["predicted_us"] * 1000), ack=True)
    return asked_ns, reply["cpu_hz"], reply["gpu_hz"]


def actual() -> tuple[int, int]:
    """Clocks as the hardware has them; 0 for clusters that are not at one clock."""
    khz = {int(get(CPUFREQ / name / "cpuinfo_cur_freq")) for name in CLUSTERS}
    return (khz.pop() * 1000 if len(khz) == 1 else 0), int(get(GPU / "cur_freq"))


def latencies_ms(jobs: list[tuple[int, int, int]]) -> dict[str, list[float]]:
    """Time from asking to the transition that put the clock in force, of each change."""
    log, found = orinlike.transitions(), {"cpu": [], "gpu": []}
    for (_, *before), (asked_ns, *point), later in zip(
        jobs[:-1], jobs[1:], [*jobs[2:], (1 << 63,)], strict=True
    ):
        for index, domain in enumerate(("cpu", "gpu")):
            if point[index] == before[index]:
                continue
            name = "policy0" if domain == "cpu" else "gpu"
            done = [
                ns
                for ns, who, hz in log
                if who == name and hz == point[index] and asked_ns <= ns < later[0]
            ]
            assert done, "the transition is in the log"
            found[domain].append((done[0] - asked_ns) / 1e6)
    return found


def test_jobs_with_changing_deadlines(
    daemon: Callable[..., GuestDaemon], report: Callable[[str], None]
) -> None:
    it = daemon()
    it.start()
    table: Counter[tuple[int, int, int]] = Counter()
    with connect(it.hints, strict=True, timeout="30s") as client, client.session(MODEL) as session:
        job(session, DEADLINES_MS[0])  # takes the board
        for delays in (0, 1):
            orinlike.hardware(
                cpu_delay_us=delays * orinlike.CPU_DELAY_US,
                gpu_delay_us=delays * orinlike.GPU_DELAY_US,
            )
            before, changed = orinlike.transitions(), it.counters()["changes"]
            done = []
            for number in range(JOBS // 2):
                deadline = DEADLINES_MS[number // REPEATS % len(DEADLINES_MS)]
                done.append(job(session, deadline))
                table[(deadline, *done[-1][1:])] += 1
            changes = it.counters()["changes"] - changed
            fresh = Counter(who for ns, who, _ in orinlike.transitions() if ns > before[-1][0])
            assert 0 < max(fresh.values()) <= changes, f"{fresh}, {changes} changes"
            said = "with 1.4/5 ms switches" if delays else "with instant switches"
            report(f"{JOBS // 2} jobs {said}: {changes} changes, transitions {dict(fresh)}")
            for domain, times in latencies_ms(done).items():
                p95 = sorted(times)[int(len(times) * 0.95)]
                report(
                    f"request to {domain} clock {said}: median "
                    f"{statistics.median(times):.1f} ms, p95 {p95:.1f} ms, n={len(times)}"
                )
        still(it, session)
    for (deadline, cpu_hz, gpu_hz), count in sorted(table.items()):
        report(
            f"deadline {deadline} ms: asked {cpu_hz // 1000} kHz and {gpu_hz} Hz, "
            f"read the same {count} times of {count}"
        )
    assert it.stop() == 0, it.log.read_text()
    wait_for(lambda: orinlike.state() == ORIGINALS, "the originals")


def still(it: GuestDaemon, session: Session) -> None:
    """Jobs that ask for the same clocks write nothing at all."""
    job(session, DEADLINES_MS[0])
    writes, before = len(it.writes()), len(orinlike.transitions())
    for _ in range(STILL_JOBS):
        job(session, DEADLINES_MS[0])
    assert len(it.writes()) == writes
    assert len(orinlike.transitions()) == before


@pytest.mark.parametrize(("mode", "kills"), [("userspace", 3), ("pin", 2)])
def test_the_daemon_is_killed_and_the_board_ends_as_it_was(
    daemon: Callable[..., GuestDaemon], mode: str, kills: int
) -> None:
    rng = random.Random(f"kill {mode}")
    it = daemon(f'gpu_mode = "{mode}"')
    for number in range(kills):
        it.start_forked()
        with connect(it.hints, strict=True, timeout="30s") as client:
            session = client.session(MODEL)
            for _ in range(rng.randint(1, 3)):
                job(session, rng.choice(DEADLINES_MS))
            session.begin(deadline=rng.choice(DEADLINES_MS) * 1_000_000)
            time.sleep(rng.random() * 0.01)
            assert it.stop(signal.SIGKILL) == -signal.SIGKILL
        assert get(CPUFREQ / "policy2/scaling_governor") == "userspace"
        expected = {name: dict(files) for name, files in ORIGINALS.items()}
        if number == 1:
            put(GPU / "max_freq", 714_001_000)  # another writer, while nobody was there
            expected["gpu"]["max_freq"] = "714001000"
        if number == 2:
            orinlike.online(2, False)
            assert it.restore() == 4, "a cluster is offline: something is left"
            orinlike.online(2, True)
        assert it.restore() == 0, it.log.read_text()
        wait_for(lambda want=expected: orinlike.state() == want, f"{expected}")
        orinlike.reset()


def test_the_daemon_goes_on_through_mishaps(daemon: Callable[..., GuestDaemon]) -> None:
    """A driver that fails without a word, a cluster that goes and returns, a thermal cap."""
    it = daemon()
    it.start_forked()
    with connect(it.hints, strict=True, timeout="30s") as client:
        session = client.session(MODEL)
        job(session, 40)
        orinlike.hardware(cpu_errno=5)
        session.begin(deadline=14_000_000, ack=True)
        wanted = session.reply["cpu_hz"]
        assert actual()[0] != wanted
        session.end(ack=True)
        orinlike.hardware(cpu_errno=0)  # noticed by reading back, and written again by itself
        wait_for(lambda: actual()[0] == wanted, "the clock once the driver works again", WAIT_S)

        orinlike.online(2, False)
        time.sleep(0.3)
        orinlike.online(2, True)
        wait_for(lambda: actual()[0] == wanted, "the cluster that came back", WAIT_S)

        put(GPU / "governor", "performance")
        wait_for(lambda: get(GPU / "governor") == "userspace", "the governor retaken", WAIT_S)

        orinlike.cool("gpu", 7)
        session.begin(deadline=14_000_000, ack=True)
        wait_for(lambda: actual()[1] <= 612_000_000, "the cap", WAIT_S)
        session.end(ack=True)
        orinlike.cool("gpu", 0)
        wait_for(lambda: int(get(GPU / "max_freq")) > 612_000_000, "the end of the cap")
    assert it.stop() == 0, it.log.read_text()
    expected = {**ORIGINALS, "gpu": {**ORIGINALS["gpu"], "governor": "performance"}}
    wait_for(lambda: orinlike.state() == expected, f"{expected}, got {orinlike.state()}")
