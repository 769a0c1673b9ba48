"""What limits ranks that read at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.rank_bandwidth import ranks_limit
from loaderprobe.records.bandwidth import Limit, LimitCode, RanksPhase
from tests.examples.rank_bandwidth import example_ranks

ONE, TWO, FOUR = example_ranks(20e6), example_ranks(10.2e6, 10.2e6), example_ranks(*[5.1e6] * 4)


def short(phase: RanksPhase) -> RanksPhase:
    """The same from 0.1 s of reading."""
    return replace(phase, by_rank=tuple(replace(each, seconds=0.1) for each in phase.by_rank))


@pytest.mark.parametrize(
    ("phases", "code"),
    [
        ((ONE, TWO, FOUR), "plateau"),
        ((ONE, TWO), "rising"),
        ((ONE, example_ranks(18e6, 18e6), example_ranks(*[15e6] * 4)), "rising"),
        ((FOUR,), "one_step_of_ranks"),
        ((), "no_step"),
        ((ONE, TWO, example_ranks(6e6, 6e6, 6e6, 3.5e6)), "slow_rank"),
        ((ONE, TWO, example_ranks(*[5.1e6] * 4, at_least=True)), "probe_busy"),
        ((ONE, TWO, example_ranks(*[5.1e6] * 4, cache="warm")), "from_memory"),
        ((ONE, TWO, short(example_ranks(6e6, 6e6, 6e6, 3.5e6))), "too_short"),
        ((ONE, example_ranks(9e6, 9e6, 4e6, 4.5e6, nodes=2)), "slow_host"),
        ((ONE, example_ranks(9e6, 9e6, 4e6, 4.5e6)), "slow_rank"),
        ((ONE, example_ranks(9e6, 9e6, 9e6, 4.5e6, nodes=2)), "slow_rank"),
        ((ONE, example_ranks(9e6, 4e6, nodes=2)), "slow_rank"),
        ((example_ranks(400e6, readers=8), example_ranks(*[200e6] * 4)), "process"),
        ((example_ranks(790e6, readers=8), example_ranks(*[200e6] * 4)), "one_step_of_ranks"),
    ],
)  # fmt: skip
def test_the_steps_show_the_limit(phases: tuple[RanksPhase, ...], code: LimitCode) -> None:
    """Two doublings under 5 % are a plateau; one is not. As many readers in more ranks tell a process from storage."""
    assert ranks_limit(phases).code == code


def test_a_climbing_ladder_names_the_readers_that_would_show_more() -> None:
    """It is never extrapolated."""
    found = ranks_limit((ONE, example_ranks(18e6, 18e6), example_ranks(*[15e6] * 4)))
    assert found == Limit(by="unknown", knee_readers=None, code="rising", facts={"clients": 8, "next": 16})


def test_a_slow_host_is_named_with_what_its_ranks_get() -> None:
    """The median of its ranks, and the slowest rank elsewhere."""
    found = ranks_limit((ONE, example_ranks(9e6, 8e6, 4e6, 4.5e6, nodes=2)))
    assert found.facts == {
        "host": "node1", "slow_ranks": 2, "host_ranks": 2, "bytes_per_s": 4.25e6, "elsewhere_bytes_per_s": 8e6,
    }  # fmt: skip


def test_a_node_is_told_from_its_server() -> None:
    """Eight ranks on one node against one on each of eight."""
    node, spread = example_ranks(*[50e6] * 8), example_ranks(*[100e6] * 8, nodes=8)
    found = ranks_limit((node, spread))
    assert found.code == "process" and (found.facts["fewer_nodes"], found.facts["nodes"]) == (1, 8)
