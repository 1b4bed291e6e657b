import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.lines import Lines

levels = st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0])


@settings(deadline=None)
@given(
    rows=st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(levels, min_size=n, max_size=n), min_size=2, max_size=4)
    ),
    weight=st.sampled_from([0.25, 0.5, 0.75]),
    limit=st.sampled_from([0.5, 1.0, 1.25, 1.75, 2.0, 2.5, 9.0, math.nan, -math.inf, math.inf]),
    data=st.data(),
)
def test_first_hit_is_that_of_a_plain_scan(
    rows: list[list[float]], weight: float, limit: float, data: st.DataObject
) -> None:
    count = len(rows[0])
    low = data.draw(st.integers(0, len(rows) - 1))
    high = data.draw(st.integers(0, len(rows) - 1))
    weight = weight if low != high else 0.0
    usable = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    begin = data.draw(st.integers(0, count))
    mixed = [a * (1.0 - weight) + b * weight for a, b in zip(rows[low], rows[high], strict=True)]
    hits = [i for i in range(begin, count) if usable[i] and mixed[i] <= limit]
    found = Lines(np.array(rows, np.float32)).first(
        low, high, weight, limit, usable=usable, begin=begin
    )
    assert found == ((hits[0], mixed[hits[0]]) if hits else None)
