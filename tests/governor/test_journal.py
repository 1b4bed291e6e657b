"""The restore journal: what it says at any instant, and what becomes of a damaged one."""

import contextlib
import json
import os
import random
import resource
import signal
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from governor import journal as journal_module
from governor.boards.knob import NONE, SLOT_BYTES, Original, Slot
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


def test_a_damaged_journal_leaves_its_clock_to_a_person(root: Path, run: Path) -> None:
    Journal.create(run, root).add("gpu", KNOBS)
    path = run / "gpu.journal"
    path.write_bytes(path.read_bytes()[:4096])
    advice = r"gpu\.corrupt: .*look at the file, set the clock by hand, then remove the file"
    for journal in (Journal.open(run, root), Journal.open(run, root)):  # and again, any time later
        report = journal.restore()
        assert not report.complete
        assert len(report.left) == 1
        assert "\n" not in report.left[0]
        with pytest.raises(JournalError, match=advice):
            journal.add("gpu", KNOBS)
        assert journal.owes("gpu")
        assert not journal.owes("policy0")
        assert journal.restore(only="policy0").complete
    with pytest.raises(JournalError, match=r"gpu.*flamegov restore"):
        Journal.create(run, root)
    (run / "gpu.corrupt").unlink()
    assert journal.restore().complete
    journal.add("gpu", KNOBS)


def signed(body: bytes) -> bytes:
    """A journal whose checksum is right, whatever it says."""
    head = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little")
    return bytes(4096) + b"FLGVJRNL" + head + body


def scribble(path: Path, at: int, raw: bytes) -> None:
    """Write into a journal as something that is not us would."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def told(root: Path, **more: object) -> dict[str, Any]:
    knobs = [{"role": k.role, "path": k.path, "text": k.text, "words": k.words} for k in KNOBS]
    boot = journal_module.boot_id()
    whole = {"format": 2, "boot_id": boot, "root": str(root), "name": "gpu", "knobs": knobs}
    return {**whole, **more}


def low(text: str | None) -> list[dict[str, Any]]:
    return [{"role": "min", "path": LOW.path, "text": text, "words": []}]


NEST = b"[" * 50_000 + b"]" * 50_000


@pytest.mark.parametrize(
    "what",
    [
        [1],
        b'{"format":1,"a":' + NEST + b"}",
        {"knobs": low("100") * 180},
        {"knobs": low("100")},
        {"knobs": low("junk")},
        {"knobs": low("-5")},
        {"knobs": low("9" * 5000)},
        {"knobs": low(None)},
        {"knobs": [{"role": "governor", "path": GOVERNOR.path, "text": None, "words": []}]},
        {"name": "../../x"},
        {"format": 3},
    ],
    ids=lambda what: str(what)[:30],
)
def test_one_bad_journal_does_not_stop_the_restore_of_others(
    root: Path, run: Path, what: dict[str, object] | list[int] | bytes
) -> None:
    slots = Journal.create(run, root).add("policy0", KNOBS)
    wrote(root, slots["min"], LOW.path, 500)
    whole = told(root, **what) if isinstance(what, dict) else what
    body = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
    (run / "gpu.journal").write_bytes(signed(body))
    report = restore_from(Journal.open(run, root), root)
    assert [line.partition(":")[0] for line in report.left] == [str(run / "gpu.corrupt")]
    assert len(report.restored) == 1
    assert plain.get(root, LOW.path) == "100"
    assert [p.name for p in run.iterdir()] == ["gpu.corrupt"]


def test_a_journal_that_is_a_folder_is_left_and_used_again_when_it_is_gone(
    root: Path, run: Path
) -> None:
    (run / "gpu.journal").mkdir(parents=True)
    journal = Journal.open(run, root)
    assert "gpu.journal: cannot be used: Is a directory" in journal.restore().left[0]
    with pytest.raises(JournalError, match="Is a directory"):
        journal.add("gpu", KNOBS)
    (run / "gpu.journal").rmdir()
    assert journal.restore().complete
    journal.add("gpu", KNOBS)


def test_a_path_no_file_can_have_does_not_stop_the_restore_of_others(root: Path, run: Path) -> None:
    journal = Journal.create(run, root)
    odd = journal.add("a", (Original("governor", "sys/\0", "schedutil", GOVERNOR.words),))
    odd["governor"].intend("userspace")
    wrote(root, journal.add("b", KNOBS)["min"], LOW.path, 500)
    report = Journal.open(run, root).restore()
    assert len(report.left) == len(report.restored) == 1
    assert plain.get(root, LOW.path) == "100"


def test_a_journal_that_cannot_be_removed_does_not_stop_the_restore_of_others(
    root: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(run, root)
    journal.add("a", KNOBS[:1])
    wrote(root, journal.add("b", KNOBS)["min"], LOW.path, 500)

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr(Path, "unlink", refuse)
    report = journal.restore()
    assert [line.partition(":")[0] for line in report.left] == [
        str(run / f"{name}.journal") for name in "ab"
    ]
    assert plain.get(root, LOW.path) == "100"


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond a size; a write across it is cut short, as on a full tmpfs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("allocates", [True, False])
def test_a_journal_cut_short_by_a_full_tmpfs_is_refused(
    root: Path, run: Path, monkeypatch: pytest.MonkeyPatch, allocates: bool
) -> None:
    journal = Journal.create(run, root)
    if not allocates:
        monkeypatch.setattr(os, "posix_fallocate", lambda *_: None)
    with room_for(4096), pytest.raises(JournalError, match="cannot write the journal"):
        journal.add("gpu", KNOBS)
    assert list(run.iterdir()) == []
    assert journal.entries == {}
    journal.add("gpu", KNOBS)
    assert (run / "gpu.journal").stat().st_size > 4096


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
    monkeypatch.setattr(journal_module, "FORMAT", 3)
    Journal.create(run, root).add("gpu", KNOBS)
    monkeypatch.undo()
    assert "its format is 3" in Journal.open(run, root).notes[0]


def test_a_journal_of_another_root_is_left_alone(root: Path, run: Path, tmp_path: Path) -> None:
    journal = Journal.create(run, root)
    journal.add("gpu", KNOBS)
    other = Journal.open(run, tmp_path / "other")
    assert other.entries == {}
    assert str(root) in other.notes[0]
    assert (run / "gpu.journal").exists()
    report = other.restore()
    assert (report.complete, report.elsewhere) == (True, (str(root.resolve()),))
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


def test_random_bytes_over_the_slots_leave_no_pin_unmentioned(root: Path, run: Path) -> None:
    slots = Journal.create(run, root).add("gpu", KNOBS)
    wrote(root, slots["governor"], GOVERNOR.path, "userspace")
    wrote(root, slots["min"], LOW.path, 500)
    scribble(run / "gpu.journal", 0, random.Random(7).randbytes(4096))
    journal = Journal.open(run, root)
    assert "its record of governor, min, max is damaged" in journal.notes[0]
    report = journal.restore()
    assert (report.restored, report.kept) == ((), ())
    assert [line.partition(": ")[0] for line in report.left] == [
        str(root / GOVERNOR.path),
        str(root / LOW.path),
    ]
    assert "found as schedutil" in report.left[0] and "found as 100" in report.left[1]
    assert journal.owes("gpu"), "our pins must not be taken for how it was found"
    plain.put(root, GOVERNOR.path, "schedutil")
    plain.put(root, LOW.path, 100)
    assert Journal.open(run, root).restore().complete
    assert list(run.iterdir()) == []


def test_one_damaged_slot_does_not_stop_the_restore_of_the_others(root: Path, run: Path) -> None:
    slots = Journal.create(run, root).add("gpu", KNOBS)
    wrote(root, slots["governor"], GOVERNOR.path, "userspace")
    wrote(root, slots["min"], LOW.path, 500)
    wrote(root, slots["max"], HIGH.path, 500)
    scribble(run / "gpu.journal", SLOT_BYTES, random.Random(7).randbytes(SLOT_BYTES))
    journal = Journal.open(run, root)
    assert "its record of min is damaged" in journal.notes[0]
    report = journal.restore()
    assert (len(report.restored), report.kept, len(report.left)) == (2, (), 1)
    assert [plain.get(root, k.path) for k in KNOBS] == ["schedutil", "500", "900"]


@pytest.mark.parametrize("at", range(SLOT_BYTES))
def test_any_damaged_byte_of_a_slot_is_told_and_never_taken_for_another_writer(
    root: Path, run: Path, at: int
) -> None:
    slots = Journal.create(run, root).add("gpu", (LOW, HIGH))
    wrote(root, slots["min"], LOW.path, 500)
    slots["min"].intend(600)
    plain.put(root, LOW.path, 600)
    path = run / "gpu.journal"
    scribble(path, at, bytes([path.read_bytes()[at] ^ 0x40]))
    journal = Journal.open(run, root)
    assert "damaged" in journal.notes[0]
    report = journal.restore()
    assert report.kept == ()
    assert len(report.restored) + len(report.left) == 1


@pytest.mark.parametrize("copied", range(1, SLOT_BYTES // 2))
def test_a_record_cut_short_by_a_kill_leaves_the_one_before_in_force(
    root: Path, run: Path, copied: int
) -> None:
    slots = Journal.create(run, root).add("gpu", (LOW, HIGH))
    wrote(root, slots["min"], LOW.path, 500)
    path = run / "gpu.journal"
    before = path.read_bytes()
    slots["min"].intend(600)
    after = path.read_bytes()
    at = next(at for at in range(SLOT_BYTES) if before[at] != after[at])
    at -= at % (SLOT_BYTES // 2)
    scribble(path, at, after[at : at + copied] + before[at + copied : SLOT_BYTES])
    journal = Journal.open(run, root)
    assert journal.entries["gpu"].slots["min"].is_ours("500")
    assert journal.restore().complete
    assert plain.get(root, LOW.path) == "100"


def test_a_journal_of_the_format_before_is_still_restored(root: Path, run: Path) -> None:
    run.mkdir()
    none = NONE.to_bytes(8, "little")
    numbers = [NONE, 500, 400, 500, 1, 0]  # adopted, intended, effective twice, turn, rest
    page = (none * 4 + bytes(16)) + b"".join(n.to_bytes(8, "little") for n in numbers)
    page += (700).to_bytes(8, "little") + page[56:96]
    body = json.dumps(told(root, format=1)).encode()
    (run / "gpu.journal").write_bytes(page + signed(body)[len(page) :])
    plain.put(root, LOW.path, 400)
    plain.put(root, HIGH.path, 500)
    report = restore_from(Journal.open(run, root), root)
    assert (report.left, report.kept, report.notes) == ((), (), ())
    assert [plain.get(root, k.path) for k in KNOBS] == ["schedutil", "100", "700"]


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
