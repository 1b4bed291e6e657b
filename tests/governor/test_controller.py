import dataclasses

import pytest

from governor.config import Config, Cpu, Idle, Limits
from governor.controller import Controller
from governor.messages import Begin, Close, Code, End, Open, Update
from governor.sessions import RefusedError
from policies.base import BasePolicy, Decision, OperatingPoint
from policies.registry import load_policy

from .fakes import CPU, GPU, FakeDrive, board_state, table

MS = 1_000_000
SECOND = 1_000 * MS
A, B = b"a", b"b"
HIGH, MIDDLE = OperatingPoint(CPU[2], GPU[2]), OperatingPoint(CPU[2], GPU[1])
LOW = OperatingPoint(CPU[0], GPU[0])


def make(config=None, policy="flame", options=None, drive=None, tables=None):
    config = config or Config()
    tables = tables or {
        ("net", "inference"): table(),
        ("slm", "decode"): table("slm", "decode", (0, 1000)),
    }
    return Controller(
        config,
        drive or FakeDrive(),
        tables,
        load_policy(policy, options if options is not None else {"margin": 0.0}),
    )


def opened(c, ms=None, peer=A, number=1, model="net", phase="inference", now=0, **more):
    deadline = ms * MS if ms else None
    return c.open(
        peer,
        Open(v=1, session=number, model=model, phase=phase, deadline_ns=deadline, **more),
        "",
        now,
    )


def begin(c, job, ms=None, peer=A, number=1, now=0, **more):
    deadline = int(ms * MS) if ms else None
    return c.begin(
        peer,
        Begin(v=1, session=number, job=job, start_ns=now, deadline_ns=deadline, **more),
        now,
    )


def end(c, job, start=0, stop=MS, peer=A, number=1, **more):
    return c.end(peer, End(v=1, session=number, job=job, start_ns=start, end_ns=stop, **more), stop)


def refused(call, *args, **kwargs):
    with pytest.raises(RefusedError) as caught:
        call(*args, **kwargs)
    return caught.value


def test_open_with_a_deadline_moves_the_clocks_before_the_first_job():
    c = make()
    opened(c, ms=20)
    assert c.drive.sent == [MIDDLE]


def test_open_without_a_deadline_moves_nothing():
    c = make()
    opened(c)
    assert c.drive.sent == [] and c.active == 0


def test_begin_moves_the_clocks_only_if_something_differs():
    c = make()
    opened(c, ms=20)
    begin(c, 0)
    assert len(c.drive.sent) == 1
    end(c, 0)
    begin(c, 1, ms=10)
    assert c.drive.sent[-1] == HIGH


def test_clocks_move_at_the_end_of_a_job_for_the_next_one():
    c = make()
    opened(c, ms=20)
    c.update(A, Update(v=1, session=1, deadline_ns=40 * MS), 0)
    assert c.drive.sent[-1] == LOW


def test_the_last_told_deadline_is_planned_for():
    c = make()
    opened(c, ms=20)
    begin(c, 0, ms=10)
    end(c, 0)
    begin(c, 1)
    assert c.drive.sent == [MIDDLE, HIGH]


def test_a_known_plan_is_not_made_again():
    c = make()
    c.drive.moved = True  # nothing is learnt, so every plan holds
    opened(c)
    for job in range(20):
        begin(c, job, ms=(10, 20)[job % 2])
        end(c, job)
    assert c.decisions == 2
    assert len(c.drive.sent) == 20


def test_two_sessions_get_the_element_wise_maximum():
    tables = {("net", "inference"): table(), ("cpu", "inference"): table("cpu", scale=0.5)}
    c = make(tables=tables)
    opened(c, ms=20)
    opened(c, ms=20, peer=B, model="cpu")
    assert c.drive.sent[-1] == MIDDLE
    opened(c, ms=5, peer=B, number=2, model="cpu")
    assert c.drive.sent[-1] == HIGH


def test_a_closed_session_no_longer_counts():
    c = make()
    opened(c, ms=40)
    opened(c, ms=10, peer=B)
    assert c.drive.sent[-1] == HIGH
    c.close(B, Close(v=1, session=1), 0)
    assert c.drive.sent[-1] == LOW


def test_a_session_is_active_for_three_periods_after_its_last_job():
    c = make(Config(idle=Idle(action="floor", after_ms=1000)))
    opened(c, ms=20, period_ns=100 * MS)
    begin(c, 0)
    end(c, 0, 0, 15 * MS)
    c.timer(15 * MS + 299 * MS)
    assert c.active == 1
    c.timer(15 * MS + 301 * MS)
    assert c.active == 0


def test_an_open_job_keeps_its_session_active():
    c = make()
    opened(c, ms=20)
    begin(c, 0)
    c.timer(20 * SECOND)
    assert c.active == 1


@pytest.mark.parametrize(
    ("action", "sent", "releases"),
    [("hold", [MIDDLE], 0), ("floor", [MIDDLE, LOW], 0), ("release", [MIDDLE], 1)],
)
def test_idle_behaviour(action, sent, releases):
    c = make(Config(idle=Idle(action=action, after_ms=2000)))
    opened(c, ms=20)
    c.timer(SECOND)
    c.timer(2 * SECOND)
    assert c.drive.releases == 0
    c.timer(4 * SECOND)
    assert (c.drive.sent, c.drive.releases) == (sent, releases)


def test_a_job_after_release_takes_the_board_again():
    c = make()
    opened(c, ms=20)
    c.timer(SECOND)
    c.timer(4 * SECOND)
    begin(c, 0, now=5 * SECOND)
    assert c.drive.sent == [MIDDLE, MIDDLE]


def test_activity_cancels_the_idle_action():
    c = make()
    opened(c, ms=20)
    c.timer(SECOND)
    begin(c, 0, now=2 * SECOND)
    c.timer(4 * SECOND)
    assert c.drive.releases == 0


def test_a_silent_peer_loses_its_sessions():
    c = make(Config(limits=Limits(lease_ms=1000)))
    opened(c, ms=20)
    begin(c, 0)
    c.timer(3 * SECOND)
    assert c.sessions.count == 0 and c.active == 0
    assert refused(end, c, 0).code is Code.REOPEN


def test_the_context_of_a_language_model_grows_with_each_token():
    c = make()
    session = opened(c, ms=40, model="slm", phase="decode", context=100)
    begin(c, 0)
    end(c, 0)
    assert session.context == 101
    begin(c, 1, context=500)
    end(c, 1)
    assert session.context == 501


def test_unknown_model_names_the_nearest_and_the_folder():
    error = refused(opened, make(), model="nett")
    assert error.code is Code.UNKNOWN_MODEL
    assert "did you mean 'net'?" in error.reason and "/var/lib/flamegov/tables" in error.reason


def test_a_model_without_a_table_of_that_phase_is_unknown():
    error = refused(opened, make(), model="net", phase="decode")
    assert error.code is Code.UNKNOWN_MODEL
    assert "; known: net (inference); " in error.reason
    error = refused(opened, make(), model="zzzzz")
    assert "; known: net (inference), slm (decode); " in error.reason
    assert "flamegov reload" in error.reason


def test_duplicate_session_is_refused_and_the_first_lives_on():
    c = make()
    opened(c, ms=20)
    assert refused(opened, c).code is Code.DUPLICATE_SESSION
    begin(c, 0)


def test_limits_per_peer_and_in_all():
    c = make(Config(limits=Limits(sessions=3, sessions_per_peer=2)))
    opened(c)
    opened(c, number=2)
    assert refused(opened, c, number=3).code is Code.LIMIT
    opened(c, peer=B)
    error = refused(opened, c, peer=B, number=2)
    assert error.code is Code.LIMIT and "limits.sessions" in error.reason


def test_end_without_begin_is_refused_and_counted():
    c = make()
    session = opened(c, ms=20)
    assert refused(end, c, 0).code is Code.ORDER
    assert session.counters.dropped == 1


def test_begin_after_its_end_is_refused_and_counted():
    c = make()
    session = opened(c, ms=20)
    begin(c, 5)
    end(c, 5)
    assert refused(begin, c, 5).code is Code.ORDER
    assert session.counters.dropped == 1


def test_a_lost_end_does_not_wedge_the_session():
    c = make()
    session = opened(c, ms=20)
    begin(c, 0)
    begin(c, 1)
    end(c, 1)
    assert (session.counters.dropped, session.counters.jobs) == (1, 1)


def test_a_deadline_in_the_past_is_refused_and_counted():
    c = make()
    session = opened(c)
    error = refused(c.begin, A, Begin(v=1, session=1, job=0, start_ns=0, deadline_at_ns=MS), 2 * MS)
    assert error.code is Code.LATE and session.counters.dropped == 1


def test_an_absolute_deadline_counts_from_the_start_of_the_job():
    c = make()
    opened(c)
    c.begin(A, Begin(v=1, session=1, job=0, start_ns=5 * MS, deadline_at_ns=25 * MS), 6 * MS)
    assert c.drive.sent == [MIDDLE]


def test_no_deadline_at_all_is_refused():
    c = make()
    opened(c)
    assert refused(begin, c, 0).field == "$.deadline_ns"


def test_a_start_on_another_clock_is_refused():
    c = make()
    opened(c, ms=20)
    error = refused(c.begin, A, Begin(v=1, session=1, job=0, start_ns=10**18), SECOND)
    assert "CLOCK_MONOTONIC" in error.reason


def test_an_infeasible_deadline_gets_the_fastest_point():
    c = make()
    session = opened(c, ms=5)
    assert c.drive.sent == [HIGH] and session.decision.feasible is False
    begin(c, 0)
    end(c, 0, 0, 10 * MS)
    assert (session.counters.infeasible, session.counters.late) == (1, 1)


def test_aborted_jobs_are_not_learnt_from():
    c = make()
    session = opened(c, ms=20)
    for job in range(30):
        begin(c, job)
        end(c, job, 0, 500 * MS, aborted=True)
    assert session.policy.stats()["offset_us"] == 0
    assert (session.counters.aborted, session.counters.jobs) == (30, 0)


def test_jobs_with_a_moving_clock_are_not_learnt_from():
    c = make()
    session = opened(c, ms=20)
    c.drive.moved = True
    for job in range(30):
        begin(c, job)
        end(c, job, 0, 500 * MS)
    assert session.policy.stats()["offset_us"] == 0


def test_slow_jobs_raise_the_clocks():
    c = make()
    opened(c, ms=20)
    for job in range(10):
        begin(c, job)
        end(c, job, 0, 25 * MS)
    # 0.6 x 5 ms is added to every estimate: 18 ms at this point, 23 ms at the one before.
    assert c.drive.sent == [MIDDLE, OperatingPoint(CPU[1], GPU[2])]


def test_a_cap_that_arrives_moves_the_point_and_one_that_leaves_moves_it_back():
    c = make()
    opened(c, ms=10)
    c.drive.state = board_state(gpu=GPU[:2])
    c.state_changed()
    assert c.drive.sent[-1] == OperatingPoint(CPU[2], GPU[1])
    c.drive.state = board_state()
    c.state_changed()
    assert c.drive.sent[-1] == HIGH


def test_a_state_without_news_changes_nothing():
    c = make()
    opened(c, ms=20)
    before = c.decisions
    c.drive.state = dataclasses.replace(board_state(), at_ns=5)
    c.state_changed()
    assert c.decisions == before


def test_the_cpu_floor_cuts_the_clocks():
    c = make(Config(cpu=Cpu(floor_hz=CPU[1])))
    opened(c, ms=40)
    assert c.drive.sent == [OperatingPoint(CPU[1], GPU[0])]


def test_a_floor_above_everything_leaves_the_top():
    c = make(Config(cpu=Cpu(floor_hz=9 * 10**9)))
    opened(c, ms=40)
    assert c.drive.sent[0].cpu_hz == CPU[2]


def test_a_board_without_a_gpu_is_driven_by_its_cpu():
    c = make(drive=FakeDrive(board_state(gpu=())))
    opened(c, ms=40)
    assert c.drive.sent == [OperatingPoint(CPU[0], 0)] or c.drive.sent[0].gpu_hz == 0


def test_pause_gives_the_board_back_and_resume_takes_it():
    c = make()
    opened(c, ms=20)
    c.pause()
    begin(c, 0, ms=10)
    assert c.drive.releases == 1 and c.drive.sent == [MIDDLE]
    c.resume()
    assert c.drive.sent[-1] == HIGH


def test_swapping_the_policy_replans_open_sessions_at_once():
    c = make()
    opened(c, ms=20)
    c.set_policy(load_policy("max"))
    assert c.drive.sent == [MIDDLE, HIGH]
    c.set_policy(load_policy("powersave"))
    assert c.drive.sent[-1] == LOW


class Broken(BasePolicy):
    name = "broken"

    def decide(self, job, view):
        raise ValueError("boom")

    def observe(self, outcome):
        raise ValueError("boom")


def test_a_policy_that_raises_is_counted_and_the_highest_clocks_are_used(caplog):
    c = Controller(Config(), FakeDrive(), {("net", "inference"): table()}, Broken)
    session = opened(c, ms=20)
    begin(c, 0)
    end(c, 0)
    assert c.drive.sent == [HIGH]
    assert c.policy_errors == 2
    raised = f"policy broken raised ValueError: boom ({__file__}:"
    assert caplog.messages[-1].startswith(raised)
    assert c.guard.fault == f"{caplog.messages[-1]}; 2 in all since it is in force"
    c.set_policy(load_policy("max"))
    assert c.guard.fault == ""
    c.set_policy(Broken)
    assert c.guard.fault.endswith("; 1 in all since it is in force")
    assert session.decision.reason.startswith("policy failed")


class Shared(BasePolicy):
    name = "shared"
    scope = "board"

    def decide(self, job, view):
        return Decision(None, float("nan"), True, "left to the board")

    def tick(self, view):
        return Decision(LOW, float("nan"), True, "tick")


def test_a_policy_of_the_board_is_one_for_all_and_ticks():
    made = []

    def factory():
        made.append(Shared())
        return made[-1]

    factory.name = "shared"

    c = Controller(Config(), FakeDrive(), {("net", "inference"): table()}, factory)
    one, two = opened(c, ms=20), opened(c, ms=20, number=2)
    assert one.policy is two.policy and len(made) == 1
    assert c.drive.sent == []
    c.state_changed()
    assert c.drive.sent == [LOW]


def test_reconfigure_moves_open_sessions_to_the_new_table():
    c = make()
    session = opened(c, ms=20)
    slow = table(scale=2.0)
    c.reconfigure(Config(), {("net", "inference"): slow}, load_policy("flame", {"margin": 0.0}))
    assert session.table is slow
    assert c.drive.sent[-1] == HIGH
