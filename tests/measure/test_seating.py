"""Layouts of ranks on the nodes that there are."""

from __future__ import annotations

import pytest

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.ranks.launch import (
    check_crowd,
    check_room,
    nodes_of,
    parse_layout,
    place_of,
    spread,
    taking_part,
)
from loaderprobe.records.ranks import Launched, Layout, SeatSeen
from loaderprobe.testing import example_config


def seats(*counts: int, gpus: int = 0) -> list[SeatSeen]:
    """So many processes on each node; each sees all GPUs of its node."""
    ranks = iter(range(sum(counts)))
    return [
        SeatSeen(
            rank=next(ranks), host=f"host{node}", node=str(node), version="1",
            gpus=tuple(f"GPU-{node}-{number}" for number in range(gpus)),
        )
        for node, count in enumerate(counts)
        for _ in range(count)
    ]  # fmt: skip


def here(rank: int) -> Launched:
    """One process of eight."""
    return Launched(rank=rank, size=8, node="", address="head", port=1, agent_store=True)


def test_ranks_are_numbers_or_nodes_times_ranks() -> None:
    """Nothing else is taken, and no 0."""
    assert parse_layout("8") == Layout(ranks=8)
    assert parse_layout("4x2") == Layout(ranks=8, nodes=4)
    for wrong in ("", "0", "x2", "0x4", "4x", "two", "1.5", "-1", "2x2x2"):
        with pytest.raises(BadValue, match="no number of ranks"):
            parse_layout(wrong)


def test_nodes_come_in_the_order_of_their_first_rank() -> None:
    """However the launcher deals ranks out."""
    mixed = [
        SeatSeen(rank=rank, host=f"h{node}", node=node, gpus=(f"{node}{rank}",), version="1")
        for rank, node in ((2, "b"), (0, "a"), (1, "b"), (3, "a"))
    ]
    first, second = nodes_of(mixed)
    assert (first.host, first.seats, first.gpus) == ("ha", (0, 3), 2)
    assert (second.host, second.seats) == ("hb", (1, 2))


def test_ranks_go_to_as_few_nodes_as_have_them() -> None:
    """Unless the layout says how many."""
    nodes = nodes_of(seats(4, 4))
    assert spread(Layout(ranks=4), nodes) == (4, 1)
    assert spread(Layout(ranks=8), nodes) == (8, 2)
    assert spread(Layout(ranks=6), nodes) == (6, 2)
    assert spread(Layout(ranks=2, nodes=2), nodes) == (2, 2)
    assert spread(Layout(ranks=64), None) == (64, 1)


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (Layout(ranks=9), "9 ranks are asked for, and the launcher started 8"),
        (Layout(ranks=3, nodes=3), "3 nodes are asked for"),
        (Layout(ranks=7), "7 ranks cannot be spread evenly over 2 nodes"),
        (Layout(ranks=6, nodes=1), "6 ranks on each node are asked for, and host0 has 4"),
    ],
)
def test_more_than_there_is_is_refused(layout: Layout, why: str) -> None:
    """With what there is."""
    with pytest.raises(BadValue, match=why):
        spread(layout, nodes_of(seats(4, 4)))


def test_without_a_launcher_there_is_one_node() -> None:
    """loaderprobe starts nothing on others."""
    with pytest.raises(BadValue, match="on this one only"):
        spread(Layout(ranks=4, nodes=2), None)


@pytest.mark.parametrize(("ranks", "cores", "most"), [(8, 1.0, 8), (16, 2.0, 16), (8, 0.5, 8), (64, 8.0, 64)])
def test_a_small_machine_has_no_thousand_ranks(ranks: int, cores: float, most: int) -> None:
    """Eight may share a core."""
    check_crowd(ranks, cores)
    with pytest.raises(BadValue, match=f"{most + 1} ranks on this machine would share {cores:g} core") as raised:
        check_crowd(most + 1, cores)
    assert f"ask for {most} at most" in raised.value.hint


def test_each_rank_on_cuda_has_a_gpu() -> None:
    """Where they can be listed; two on one node need two."""
    configs = [example_config(compute="cuda", ranks=2)]
    check_room(configs, nodes_of(seats(4, gpus=2)))
    check_room(configs, nodes_of(seats(4, gpus=0)))
    check_room([example_config(compute="cuda", ranks=2, nodes=2)], nodes_of(seats(1, 1, gpus=1)))
    with pytest.raises(MissingPart, match="2 ranks on cuda need a GPU each, and host0 has 1"):
        check_room(configs, nodes_of(seats(4, gpus=1)))


def test_a_layout_takes_the_first_processes_of_each_node() -> None:
    """In order of nodes; the others have no place, and all agree on who takes part."""
    nodes = nodes_of(seats(4, 4))
    found = {rank: place_of(here(rank), 4, 2, nodes, "p") for rank in range(8)}
    placed = {rank: (each.rank, each.node, each.local_rank) for rank, each in found.items() if each}
    assert placed == {0: (0, 0, 0), 1: (1, 0, 1), 4: (2, 1, 0), 5: (3, 1, 1)}
    assert all(each.size == 4 and each.local_size == 2 and each.prefix == "p" for each in found.values() if each)
    assert taking_part(4, 2, nodes) == [(0, "host0"), (1, "host0"), (4, "host1"), (5, "host1")]
