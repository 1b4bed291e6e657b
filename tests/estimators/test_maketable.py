import numpy as np
import pytest

from estimators.errors import ProfileError
from estimators.maketable import make_table
from estimators.profiles import NetworkRecord
from estimators.table import LatencyTable
from tests.estimators.streams import BIG, CPU_HZ, SMALL, profile, run_set, truth

ORDER = [SMALL] * 4 + [BIG] * 2


def test_table_holds_every_clock_and_says_how_good_it_is(tmp_path):
    table = make_table(profile(ORDER, toy=run_set(ORDER)), "toy")
    assert np.abs(table.latency_us[0] / truth(ORDER) - 1).max() < 0.05
    assert table.header.fit["heldout_runs"] == 9
    assert table.header.fit["heldout_mape_pct"] < 3
    assert table.tail_ratio is not None
    table.save(tmp_path / "toy.npz")
    assert LatencyTable.load(tmp_path / "toy.npz").header.model == "toy"


def test_runs_alone_do_where_layers_do_not_show():
    p = profile(ORDER, toy=run_set(ORDER))
    p.networks["toy"] = NetworkRecord(())
    table = make_table(p, "toy")
    assert table.header.fit["estimator"] == "end-to-end smooth hinge"
    assert np.abs(table.latency_us[0] / truth(ORDER) - 1).mean() < 0.05
    assert table.shape == (1, 1, len(CPU_HZ), 11)


def test_contexts_of_the_table_are_those_asked_for():
    contexts = (1, 500, 1000)
    p = profile(ORDER, contexts)
    assert make_table(p, "toy", context=[10, 5]).context.tolist() == [5, 10]
    assert len(make_table(p, "toy").context) == 64
    assert make_table(p, "toy").header.fit["heldout_runs"] == 0


def test_no_runs_and_no_layers_is_an_error():
    with pytest.raises(ProfileError, match="no end-to-end runs of 'toy'"):
        make_table(profile(ORDER), "toy", end_to_end=True)
