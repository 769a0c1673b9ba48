"""A host that stands apart from all others, by the rates of its ranks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.ranks import host_names, slow_host

Rates = list[tuple[str, float]]


def hosts(**rates: list[float]) -> Rates:
    """(host, rate) of each rank."""
    return [(host, rate) for host, each in rates.items() for rate in each]


def test_a_slow_host_is_named_with_its_ranks_and_the_slowest_elsewhere() -> None:
    """By how much that one leads the fastest of them."""
    found = slow_host(hosts(a=[114.0, 110.0], b=[37.0, 40.0], c=[120.0, 112.0]))
    assert found is not None
    assert (found.host, found.slow, found.ranks, found.rate, found.elsewhere) == ("b", 2, 2, 38.5, 110.0)
    assert found.lead == pytest.approx(110 / 40)


@pytest.mark.parametrize(
    "rates",
    [
        hosts(a=[37.0, 40.0, 114.0]),
        hosts(a=[114.0], b=[37.0]),
        hosts(a=[114.0, 110.0], b=[37.0, 111.0]),
        hosts(a=[114.0, 110.0], b=[37.0] * 6 + [111.0]),
        hosts(a=[114.0, 110.0], b=[37.0, 37.0], c=[36.0, 38.0]),
        hosts(a=[114.0, 36.0], b=[37.0, 37.0]),
        hosts(a=[114.0, 110.0], b=[0.0, 0.0]),
        [],
    ],
    ids=["one host", "one rank each", "half", "6 of 7", "two hosts", "a slow rank elsewhere", "nothing", "none"],
)
def test_less_than_that_names_no_host(rates: Rates) -> None:
    """Nearly all ranks of it must be slower than every rank elsewhere."""
    assert slow_host(rates) is None


def test_one_rank_of_eight_may_be_as_fast_as_others() -> None:
    """Seven slow ones still are the host."""
    found = slow_host(hosts(a=[110.0] * 8, b=[37.0] * 7 + [111.0]))
    assert found is not None and (found.slow, found.ranks) == (7, 8)


def test_nodes_of_one_name_are_kept_apart() -> None:
    """As containers may have."""
    assert host_names([(0, "a"), (0, "a"), (1, "b")]) == ["a", "a", "b"]
    assert host_names([(0, "a"), (1, "a"), (2, "b")]) == ["a (node 0)", "a (node 1)", "b"]


equal = st.lists(st.floats(0.94, 1.06), min_size=2, max_size=8)


@settings(max_examples=80)
@given(st.lists(equal, min_size=2, max_size=6))
def test_equal_hosts_never_lead_beyond_noise(each: list[list[float]]) -> None:
    """Ranks that differ by 6 % from what all have: a lead stays below the 1.15 that is asked for."""
    found = slow_host([(f"h{number}", rate) for number, rates in enumerate(each) for rate in rates])
    assert found is None or found.lead < 1.15


@settings(max_examples=80)
@given(st.lists(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=9), min_size=1, max_size=5))
def test_what_is_named_is_slower_than_all_others(each: list[list[float]]) -> None:
    """Whatever the rates: all its ranks but one in eight, and the order of ranks is no matter."""
    rates = [(f"h{number}", rate) for number, own in enumerate(each) for rate in own]
    found = slow_host(rates)
    assert slow_host(rates[::-1]) == found
    if found is not None:
        elsewhere = min(rate for host, rate in rates if host != found.host)
        own = [rate for host, rate in rates if host == found.host]
        assert found.lead > 1 and found.elsewhere == elsewhere
        assert sum(rate >= elsewhere for rate in own) <= len(own) // 8
