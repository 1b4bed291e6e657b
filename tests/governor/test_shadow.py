"""A second policy that decides along, and policies that leave the clocks to the board."""

import subprocess
import time

import pytest

from governor.messages import Begin, End, Policy, Status
from governor.shadow import Shadow
from policies.base import BasePolicy, Decision
from policies.registry import load_policy

from .daemons import Running, Wire, wait_for
from .fakes import CPU, GPU
from .test_controller import MS, B, begin, end, make, opened


def shadowed(policy="flame", options=None, **more):
    c = make(**more)
    c.shadow = Shadow(policy, load_policy(policy, options))
    return c


def play(c, jobs, ms=20):
    opened(c, ms=ms)
    for number in range(jobs):
        begin(c, number, now=number * 100 * MS)
        end(c, number, start=number * 100 * MS, stop=number * 100 * MS + 15 * MS)


def test_it_decides_along_and_sets_no_clock():
    alone, both = make(), shadowed("max")
    play(alone, 5)
    play(both, 5)
    assert both.drive.sent == alone.drive.sent
    found = both.shadow.report()
    assert (found["policy"], found["jobs"], found["same_point"]) == ("max", 5, 0)
    assert (found["mean_cpu_hz"], found["mean_gpu_hz"]) == (CPU[2], GPU[2])
    assert (found["in_force_mean_cpu_hz"], found["in_force_mean_gpu_hz"]) == (CPU[2], GPU[1])
    assert (found["predicted"], found["predicted_late"]) == (5, 0)


def test_lateness_is_predicted():
    c = shadowed("powersave")
    play(c, 4)
    assert c.shadow.report()["predicted_late"] == 4


def test_a_policy_that_predicts_nothing_is_judged_by_the_one_in_force():
    c = shadowed("ztt")
    play(c, 3)
    found = c.shadow.report()
    assert (found["predicted"], found["predicted_late"]) == (3, 0)
    assert found["mean_gpu_hz"] == GPU[2]


def test_one_that_leaves_the_clocks():
    c = shadowed("schedutil")
    play(c, 3)
    found = c.shadow.report()
    assert (found["jobs"], found["left_to_board"]) == (3, 3)
    assert found["mean_cpu_hz"] is None


class Broken(BasePolicy):
    """Raises."""

    def decide(self, job, view):
        raise RuntimeError("no")


def test_one_that_raises_harms_nobody():
    c = make()
    c.shadow = Shadow("broken", Broken)
    play(c, 3)
    assert c.shadow.guard.errors == 3
    fault = c.shadow.guard.fault
    assert fault.startswith(f"shadow policy broken raised RuntimeError: no ({__file__}:")
    assert fault.endswith("; 3 in all")
    assert c.policy_errors == 0
    assert c.drive.sent


def test_it_learns_per_session_and_forgets_with_it():
    c = shadowed()
    play(c, 1)
    opened(c, ms=20, peer=B)
    begin(c, 0, peer=B)
    end(c, 0, peer=B)
    assert len(c.shadow._own) == 2
    c.timer(10**12)
    assert c.shadow._own == {}


def test_the_message_goes_without_a_name():
    assert Policy(v=1, id=1, action="shadow").name is None


# ---- leaving the clocks to the board -------------------------------------------------------------


def test_swapping_to_schedutil_gives_the_board_back():
    c = make()
    opened(c, ms=20)
    assert c.drive.sent and not c.drive.releases
    c.set_policy(load_policy("schedutil"))
    assert c.drive.releases == 1 and c.point is None
    c.set_policy(load_policy("flame"))
    assert len(c.drive.sent) == 2


def test_it_is_given_back_once_and_with_several_sessions():
    c = make()
    opened(c, ms=20)
    opened(c, ms=20, peer=B)
    c.set_policy(load_policy("schedutil"))
    begin(c, 0)
    end(c, 0)
    assert c.drive.releases == 1


def test_a_paused_board_is_not_given_back_again():
    c = make()
    opened(c, ms=20)
    c.pause()
    c.set_policy(load_policy("schedutil"))
    assert c.drive.releases == 1


def test_decisions_of_one_session_hold_while_another_leaves_the_clocks():
    class Half(BasePolicy):
        """Leaves the clocks for short deadlines."""

        def decide(self, job, view):
            point = None if job.deadline_us < 15_000 else (CPU[1], GPU[1])
            return Decision(point, float("nan"), True, "")

    c = make()
    c.set_policy(Half)
    opened(c, ms=20)
    opened(c, ms=10, peer=B)
    assert c.point == (CPU[1], GPU[1])
    assert c.drive.releases == 0


# ---- on a running daemon ------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path):
    it = Running(tmp_path)
    it.start(stderr=subprocess.DEVNULL)
    yield it
    assert it.stop() == 0


@pytest.fixture
def wire(running):
    with Wire(running.hints) as it:
        yield it


def begin_message(job):
    start_ns = time.monotonic_ns()
    return Begin(v=1, id=9, session=1, job=job, ack=True, start_ns=start_ns)


def end_message(job):
    now_ns = time.monotonic_ns()
    return End(v=1, id=9, session=1, job=job, ack=True, start_ns=now_ns - MS, end_ns=now_ns)


def test_schedutil_and_a_shadow_on_the_running_daemon(running, wire):
    governor = running.board / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    wire.open(deadline_ns=10**8)
    wire.ask(begin_message(1))
    wait_for(lambda: governor.read_text().strip() == "userspace")
    out = running.cli("policy", "shadow", "max", "--address", running.admin)
    assert (out.returncode, out.stdout) == (0, "shadow: max\n")
    out = running.cli("policy", "shadow", "maxx", "--address", running.admin)
    assert out.returncode != 0 and "unknown policy" in out.stderr
    wire.ask(end_message(1))
    with Wire(running.admin) as root:
        wait_for(lambda: root.ask(Status(v=1, id=1)).body["shadow"]["jobs"] == 1)
        shadow = root.ask(Status(v=1, id=1)).body["shadow"]
        assert shadow["policy"] == "max" and shadow["errors"] == 0
        assert "shadow    max" in running.cli("status", "--address", running.hints).stdout
        root.ask(Policy(v=1, id=1, action="shadow"))
        assert "shadow" not in root.ask(Status(v=1, id=1)).body
        wire.ask(begin_message(2))  # an open job keeps the session active
        root.ask(Policy(v=1, id=1, action="set", name="schedutil"))
        wait_for(lambda: governor.read_text().strip() == "schedutil")
        root.ask(Policy(v=1, id=1, action="set", name="flame"))
        wait_for(lambda: governor.read_text().strip() == "userspace")
