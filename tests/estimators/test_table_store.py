import os
from dataclasses import replace
from pathlib import Path

import pytest

from estimators.errors import TableError
from estimators.table import LatencyTable, Phase, TableHeader
from estimators.tablestore import TableStore
from tests.estimators.tables import make_table


def _table(model: str, phase: Phase = "inference") -> LatencyTable:
    return replace(make_table(), header=TableHeader(model=model, phase=phase))


def test_tables_are_found_by_model_and_phase(tmp_path: Path) -> None:
    _table("gpt2", "decode").save(tmp_path / "a.npz")
    _table("gpt2", "prefill").save(tmp_path / "b.npz")
    _table("alexnet").save(tmp_path / "c.npz")
    (tmp_path / "notes.txt").write_text("not a table")
    (tmp_path / ".d.npz.77.tmp").write_text("half written")
    store = TableStore.load(tmp_path)
    assert list(store) == [("alexnet", "inference"), ("gpt2", "decode"), ("gpt2", "prefill")]
    assert len(store) == 3
    assert store.get("gpt2", "prefill").source == str(tmp_path / "b.npz")
    assert store.problems == ()


def test_a_corrupt_file_is_told_and_the_others_load(tmp_path: Path) -> None:
    _table("one").save(tmp_path / "one.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    _table("two").save(tmp_path / "two.npz")
    store = TableStore.load(tmp_path)
    assert [model for model, _ in store] == ["one", "two"]
    (problem,) = store.problems
    assert str(problem).startswith(f"{tmp_path / 'broken.npz'}: not a readable table")


def test_an_error_nobody_foresaw_is_only_that_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _table("one").save(tmp_path / "one.npz")
    _table("two").save(tmp_path / "two.npz")
    load = LatencyTable.load

    def trip(path: Path) -> LatencyTable:
        if path.name == "one.npz":
            raise KeyError("x" * 5000)
        return load(path)

    monkeypatch.setattr(LatencyTable, "load", trip)
    store = TableStore.load(tmp_path)
    assert [model for model, _ in store] == ["two"]
    (problem,) = store.problems
    assert str(problem).startswith(f"{tmp_path / 'one.npz'}: cannot use: KeyError: 'xxx")
    assert len(str(problem)) < 500


@pytest.mark.timeout(20)
def test_a_fifo_among_the_tables_does_not_block_the_others(tmp_path: Path) -> None:
    _table("one").save(tmp_path / "one.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    store = TableStore.load(tmp_path)
    assert [model for model, _ in store] == ["one"]
    assert "pipe.npz: cannot read table: it is not a regular file" in str(store.problems[0])


def test_a_second_table_of_the_same_is_told(tmp_path: Path) -> None:
    _table("m").save(tmp_path / "a.npz")
    _table("m").save(tmp_path / "b.npz")
    store = TableStore.load(tmp_path)
    assert store.get("m").source == str(tmp_path / "a.npz")
    (problem,) = store.problems
    assert f"{tmp_path / 'b.npz'}: second table for model 'm'" in str(problem)
    assert f"{tmp_path / 'a.npz'} is used" in str(problem)


def test_a_nameless_table_is_told(tmp_path: Path) -> None:
    _table("").save(tmp_path / "a.npz")
    (problem,) = TableStore.load(tmp_path).problems
    assert "a.npz: table without a model's name" in str(problem)


def test_a_missing_folder_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    store = TableStore.load(tmp_path / "nowhere")
    assert len(store) == 0
    (problem,) = store.problems
    assert "nowhere: cannot read the folder of tables: No such file" in str(problem)


def test_unknown_model(tmp_path: Path) -> None:
    _table("gpt2", "decode").save(tmp_path / "a.npz")
    store = TableStore.load(tmp_path)
    with pytest.raises(TableError) as caught:
        store.get("gpt3", "decode")
    assert "no table for model 'gpt3', phase decode: loaded are: gpt2 (decode)" in str(caught.value)
    with pytest.raises(TableError, match="loaded are: none"):
        TableStore.load(tmp_path / "nowhere").get("x")
