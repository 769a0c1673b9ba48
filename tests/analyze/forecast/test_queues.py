"""The closed network of workers, disk and cores, at any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.forecast.fit import closed_network

times = st.one_of(st.just(0.0), st.floats(1e-5, 0.1))


@given(st.integers(1, 512), times, times, st.floats(1e-5, 0.1), st.floats(0.5, 256))
def test_more_workers_bring_more_but_never_more_than_there_is(
    workers: int, own_s: float, served_s: float, cpu_s: float, cores: float
) -> None:
    """Up to the cores, the server, and what workers that wait for nothing would do."""
    now, more = (
        closed_network(n, own_s=own_s, served_s=served_s, cpu_s=cpu_s, cores=cores) for n in (workers, workers + 1)
    )
    limits = [cores / cpu_s, workers / (own_s + served_s + cpu_s), 1 / served_s if served_s else float("inf")]
    assert 0 < now <= min(limits) * (1 + 1e-9)
    assert more >= now * (1 - 1e-9)


def test_many_workers_use_up_what_there_is() -> None:
    """The cores, a server, and both at half of it."""
    assert closed_network(64, own_s=0.01, served_s=0.0, cpu_s=0.01, cores=8.0) == pytest.approx(800)
    assert closed_network(64, own_s=0.01, served_s=0.005, cpu_s=0.01, cores=8.0) == pytest.approx(200)
    assert closed_network(1, own_s=0.01, served_s=0.005, cpu_s=0.01, cores=0.5) == pytest.approx(1 / 0.035)


def test_what_goes_on_beside_computing_shortens_it() -> None:
    """Of 4 ms of CPU time 1 ms beside the rest: an image takes 3 ms, and cores are used up as before."""
    assert closed_network(1, own_s=-0.001, served_s=0.0, cpu_s=0.004, cores=2.0) == pytest.approx(1 / 0.003)
    assert closed_network(9, own_s=-0.001, served_s=0.0, cpu_s=0.004, cores=2.0) == pytest.approx(2 / 0.004)
