"""The restore journal: what it says at any instant, and what becomes of a damaged one."""

import os
import signal
import time
from pathlib import Path

import pytest

from governor import journal as journal_module
from governor.boards.knob import NONE, Original, Slot
from governor.errors import JournalError
from governor.journal import Journal, restore_from
from tests.boards import plain

GOVERNOR = Original("governor", "sys/governor", "schedutil", ("schedutil", "userspace"))
LOW = Original("min", "sys/min", "100")
HIGH = Original("max", "sys/max", "900")
KNOBS = (GOVERNOR, LOW, HIGH)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for knob in KNOBS:
        plain.put(tmp_path, knob.path, knob.text)
    return tmp_path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def wrote(root: Path, slot: Slot, path: str, value: int | str) -> None:
    slot.intend(value)
    plain.put(root, path, value)
    slot.settle(value)


def test_a_slot_knows_the_last_two_readings_and_the_intention() -> None:
    slot = Slot.scratch(LOW)
    assert not slot.written
    for value in (200, 300):
        slot.intend(value)
        slot.settle(value)
    slot.intend(400)
    assert slot.written
    assert [value for value in (100, 200, 300, 400) if slot.is_ours(str(value))] == [200, 300, 400]
    slot.settle(350)
    assert [v for v in (200, 300, 350, 400) if slot.is_ours(str(v))] == [300, 350, 400]


def test_a_reading_that_is_no_value_is_never_ours() -> None:
    slot = Slot.scratch(GOVERNOR)
    assert slot.code_of("nosuch") == NONE
    assert not slot.is_ours("nosuch")
    assert not Slot.scratch(LOW).is_ours("<unsupported>")


def test_an_adopted_value_replaces_the_original() -> None:
    words, number = Slot.scratch(GOVERNOR), Slot.scratch(LOW)
    assert (words.adopted, number.adopted) == (None, None)
    words.adopt("simple_ondemand")
    number.adopt(250)
    assert (words.adopted, number.adopted) == ("simple_ondemand", 250)


def test_a_journal_is_read_back_by_the_next_daemon(root: Path, run: Path) -> None:
    slots = Journal.create(run, root).add("policy0", KNOBS)
    slots["governor"].intend("userspace")
    slots["max"].adopt(700)
    again = Journal.open(run, root)
    entry = again.entries["policy0"]
    assert entry.originals == KNOBS
    assert entry.slots["governor"].is_ours("userspace")
    assert entry.slots["max"].adopted == 700
    assert not entry.slots["min"].written


def test_create_refuses_unfinished_business_and_add_refuses_twice(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    journal.add("gpu", KNOBS)
    with pytest.raises(JournalError, match=r"gpu.*flamegov restore"):
        Journal.create(run, root)
    with pytest.raises(JournalError, match="not restored yet"):
        journal.add("gpu", KNOBS)


def test_discard_forgets_without_restoring(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    journal.add("gpu", KNOBS)
    journal.discard()
    assert list(run.iterdir()) == []
    assert journal.restore().restored == ()


def test_restore_puts_back_ours_and_keeps_theirs(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    slots = journal.add("gpu", KNOBS)
    wrote(root, slots["governor"], GOVERNOR.path, "userspace")
    wrote(root, slots["min"], LOW.path, 500)
    wrote(root, slots["max"], HIGH.path, 500)
    plain.put(root, HIGH.path, 640)
    report = restore_from(journal, root)
    assert report.complete
    assert len(report.restored) == 2
    assert report.kept == (f"{root / HIGH.path}: 640",)
    assert [plain.get(root, k.path) for k in KNOBS] == ["schedutil", "100", "640"]
    assert list(run.iterdir()) == []


def test_a_knob_never_written_is_never_touched(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    journal.add("gpu", KNOBS)
    plain.put(root, LOW.path, 333)
    assert journal.restore() == restore_from(Journal.open(run, root), root)
    assert plain.get(root, LOW.path) == "333"


def test_a_knob_that_vanished_is_left_and_restored_when_it_returns(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    slots = journal.add("policy4", KNOBS)
    wrote(root, slots["governor"], GOVERNOR.path, "userspace")
    (root / GOVERNOR.path).unlink()
    report = journal.restore()
    assert not report.complete
    assert "ENOENT" in report.left[0]
    plain.put(root, GOVERNOR.path, "userspace")
    again = Journal.open(run, root)
    assert restore_from(again, root).complete
    assert plain.get(root, GOVERNOR.path) == "schedutil"


def test_restoring_one_clock_leaves_the_others(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    slots = journal.add("gpu", KNOBS)
    journal.add("policy0", KNOBS)
    wrote(root, slots["min"], LOW.path, 500)
    journal.restore(only="policy0")
    assert list(journal.entries) == ["gpu"]
    assert plain.get(root, LOW.path) == "500"


def test_a_journal_of_another_boot_is_discarded_with_a_note(
    root: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = Journal.create(run, root).add("gpu", KNOBS)
    wrote(root, slots["min"], LOW.path, 500)
    monkeypatch.setattr(journal_module, "boot_id", lambda: "another")
    journal = Journal.open(run, root)
    assert journal.entries == {}
    assert list(run.iterdir()) == []
    report = journal.restore()
    assert "earlier boot" in report.notes[0]
    assert plain.get(root, LOW.path) == "500"
    assert journal.restore().notes == (), "told once"


@pytest.mark.parametrize("keep", [0, 100, 4096, 4110, 4200])
def test_a_cut_journal_is_kept_aside(root: Path, run: Path, keep: int) -> None:
    Journal.create(run, root).add("gpu", KNOBS)
    path = run / "gpu.journal"
    path.write_bytes(path.read_bytes()[:keep])
    journal = Journal.open(run, root)
    assert journal.entries == {}
    assert [p.name for p in run.iterdir()] == ["gpu.corrupt"]
    assert "unreadable" in journal.restore().notes[0]
    journal.add("gpu", KNOBS)


def test_a_flipped_bit_is_noticed(root: Path, run: Path) -> None:
    Journal.create(run, root).add("gpu", KNOBS)
    path = run / "gpu.journal"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    assert "damaged" in Journal.open(run, root).notes[0]


def test_a_newer_format_is_kept_aside(
    root: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "FORMAT", 2)
    Journal.create(run, root).add("gpu", KNOBS)
    monkeypatch.undo()
    assert "its format is 2" in Journal.open(run, root).notes[0]


def test_a_journal_of_another_root_is_left_alone(root: Path, run: Path, tmp_path: Path) -> None:
    journal = Journal.create(run, root)
    journal.add("gpu", KNOBS)
    other = Journal.open(run, tmp_path / "other")
    assert other.entries == {}
    assert str(root) in other.notes[0]
    assert (run / "gpu.journal").exists()
    with pytest.raises(JournalError, match="another board"):
        restore_from(journal, tmp_path / "other")


def test_a_half_made_journal_does_not_count(root: Path, run: Path) -> None:
    run.mkdir()
    (run / "gpu.new").write_bytes(b"half")
    journal = Journal.create(run, root)
    assert journal.entries == {}
    journal.add("gpu", KNOBS)
    assert sorted(p.name for p in run.iterdir()) == ["gpu.journal"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="writable tmpfs folder"):
        Journal.open(tmp_path / "file" / "run", tmp_path)


def test_a_record_outlives_a_kill_at_once(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    slots = journal.add("gpu", KNOBS)
    child = os.fork()
    if child == 0:
        slots["min"].intend(555)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert Journal.open(run, root).entries["gpu"].slots["min"].is_ours("555")


def test_recording_a_write_is_cheap(root: Path, run: Path) -> None:
    slot = Journal.create(run, root).add("gpu", KNOBS)["min"]
    best = 1e9
    for _ in range(5):
        start = time.perf_counter_ns()
        for value in range(2000):
            slot.intend(value)
            slot.settle(value)
        best = min(best, (time.perf_counter_ns() - start) / 2000)
    assert best < 20_000, f"{best:.0f} ns a write"
