"""The vectorised recursions against the plain event loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.plant.stream import Drain, event_loop, timeline


def _jobs(seed, n, kernels, balance):
    rng = np.random.default_rng(seed)
    host = rng.exponential(10.0, (n, kernels)) + 0.1
    gpu = rng.exponential(10.0 * balance, (n, kernels)) + 0.1
    return host, gpu


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kernels=st.integers(1, 60),
    queue=st.integers(1, 70),
    balance=st.sampled_from([0.2, 1.0, 5.0]),
    syncs=st.lists(st.integers(1, 59), max_size=3, unique=True),
)
def test_timeline_is_the_event_loop(seed, kernels, queue, balance, syncs):
    host, gpu = _jobs(seed, 3, kernels, balance)
    syncs = sorted(s for s in syncs if s < kernels)
    fast = timeline(host, gpu, 5.0, queue, syncs)
    slow = event_loop(host, gpu, 5.0, queue, syncs=syncs)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kernels=st.integers(1, 60),
    queue=st.integers(1, 70),
    balance=st.sampled_from([0.2, 1.0, 5.0]),
)
def test_drain_is_the_end_of_the_timeline(seed, kernels, queue, balance):
    host, gpu = _jobs(seed, 4, kernels, balance)
    gpu = gpu[0]
    drain = Drain(np.cumsum(host, axis=1), 5.0, queue)
    drain(gpu[::-1])  # what it keeps from one call must not reach the next
    end, launched = drain(gpu)
    full = timeline(host, np.broadcast_to(gpu, host.shape), 5.0, queue)
    np.testing.assert_allclose(end, full.end[:, -1], rtol=1e-9)
    np.testing.assert_allclose(launched, full.launch[:, -1], rtol=1e-9)


def test_a_short_queue_holds_the_host_back():
    host, gpu = np.full((1, 40), 1.0), np.full((1, 40), 10.0)
    free = timeline(host, gpu, 0.0, 1000)
    held = timeline(host, gpu, 0.0, 4)
    assert free.launch[0, -1] == pytest.approx(40.0)
    assert held.launch[0, -1] == pytest.approx(held.start[0, 35])
    assert held.end[0, -1] == pytest.approx(free.end[0, -1])


def test_a_second_stream_runs_beside_the_first_until_they_join():
    host, gpu = np.full((1, 3), 1.0), np.array([[100.0, 100.0, 10.0]])
    side, joins = np.array([False, True, False]), np.array([False, False, True])
    apart = event_loop(host, gpu, 0.0, 99, side=side, joins=joins)
    assert apart.start[0, 1] == pytest.approx(2.0)
    assert apart.start[0, 2] == pytest.approx(102.0)
