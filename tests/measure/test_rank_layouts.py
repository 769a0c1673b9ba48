"""Layouts of ranks on the nodes that there are, and in which rank an error began, from how each ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.ranks.launch import (
    check_gpus,
    failure_of,
    is_consequence,
    nodes_of,
    origin_of,
    parse_layout,
    spread,
)
from loaderprobe.measure.runner import Order
from loaderprobe.records.rank_processes import Layout, Node, ProcessInfo, RankOutcome
from loaderprobe.testing import example_config, example_files


def nodes(*counts: int, gpus: int = 0) -> tuple[Node, ...]:
    """So many processes on each node; each sees all GPUs of its node."""
    places = [str(node) for node, count in enumerate(counts) for _ in range(count)]
    return nodes_of(
        [
            ProcessInfo(
                rank=rank, host=f"host{node}", node=node, version="1", gpus=tuple(f"{node}{n}" for n in range(gpus))
            )
            for rank, node in enumerate(places)
        ]
    )


def test_ranks_are_numbers_or_nodes_times_ranks() -> None:
    """Nothing else is taken, and no 0."""
    assert parse_layout("8") == Layout(ranks=8)
    assert parse_layout("4x2") == Layout(ranks=8, nodes=4)
    for wrong in ("", "0", "x2", "0x4", "4x", "two", "1.5", "-1", "2x2x2"):
        with pytest.raises(BadValue, match="no number of ranks"):
            parse_layout(wrong)


def test_nodes_come_in_the_order_of_their_first_rank() -> None:
    """However the launcher deals ranks out. Processes of a node share its cores."""
    mixed = [
        ProcessInfo(
            rank=rank, host=f"h{node}", node=node, gpus=(f"{node}{rank}",), version="1", core_limits={"all": 8.0}
        )
        for rank, node in ((2, "b"), (0, "a"), (1, "b"), (3, "a"))
    ]
    first, second = nodes_of(mixed)
    assert (first.host, first.processes, first.gpus) == ("ha", (0, 3), 2)
    assert (second.host, second.processes) == ("hb", (1, 2))
    assert first.cores == second.cores == (4.0, 4.0)


@pytest.mark.parametrize(
    ("layout", "there", "expected"),
    [
        (Layout(ranks=4), nodes(4, 4), (4, 1)),
        (Layout(ranks=8), nodes(4, 4), (8, 2)),
        (Layout(ranks=6), nodes(4, 4), (6, 2)),
        (Layout(ranks=2, nodes=2), nodes(4, 4), (2, 2)),
        (Layout(ranks=64), None, (64, 1)),
        (Layout(ranks=9), nodes(4, 4), "9 ranks are asked for, and the launcher started 8"),
        (Layout(ranks=3, nodes=3), nodes(4, 4), "3 nodes are asked for"),
        (Layout(ranks=7), nodes(4, 4), "7 ranks cannot be spread evenly over 2 nodes"),
        (Layout(ranks=6, nodes=1), nodes(4, 4), "6 ranks on each node are asked for, and host0 has 4"),
        (Layout(ranks=4, nodes=2), None, "on this one only"),
    ],
)
def test_ranks_go_to_as_few_nodes_as_have_them(
    layout: Layout, there: Sequence[Node] | None, expected: tuple[int, int] | str
) -> None:
    """Unless the layout says how many; more than there is is refused with what there is."""
    if isinstance(expected, str):
        with pytest.raises(BadValue, match=expected):
            spread(layout, there)
    else:
        assert spread(layout, there) == expected


def test_each_rank_on_cuda_has_a_gpu() -> None:
    """Where they can be listed; two on one node need two."""
    config = example_config(compute="cuda", ranks=2)
    check_gpus(config, nodes(4, gpus=2))
    check_gpus(config, nodes(4, gpus=0))
    check_gpus(example_config(compute="cuda", ranks=2, nodes=2), nodes(1, 1, gpus=1))
    with pytest.raises(MissingPart, match="2 ranks on cuda need a GPU each, and host0 has 1"):
        check_gpus(config, nodes(4, gpus=1))


GONE = "another rank has gone, or does not answer (Connection closed by peer [10.0.0.1]:1)"
NAMED = "another rank has gone, or does not answer: {} (Connection closed by peer)"
BARRIER = "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 60000 ms"


def end(rank: int, kind: Any = "ended", **given: Any) -> RankOutcome:
    """Of one rank, at the stage at which the others are unless given."""
    return RankOutcome(**{"rank": rank, "host": f"host{rank}", "kind": kind, "stage": "round 1", "events": 5, **given})


def lost(rank: int, **given: Any) -> RankOutcome:
    """Of a rank that failed because another had gone."""
    return end(rank, "failed", **{"consequence": True, "reason": GONE, "exit_code": 1, **given})


def failed(rank: int, reason: str, **given: Any) -> RankOutcome:
    return end(rank, "failed", reason=reason, **given)


WAITS = lost(0, reason="it failed", log=("x", BARRIER), first=True)
LATE = end(0, "timeout", reason="timeout: not finished after 9 s", first=True)
KILLED: dict[str, Any] = {"reason": "killed by SIGKILL", "signal": "SIGKILL"}
SAYS: dict[str, Any] = {"stage": "round 2", "hint": "repair it", "exit_code": 1, "log": ("last words",)}
JOINING: dict[str, Any] = {"stage": "joining the ranks"}
LOOK = "look for a hang on that host: storage, memory, GPU"
NO_WORD = "its process, or its node, does not answer"
NO_ANSWER = "did not answer, ended because rank 0 could not go on"


@pytest.mark.parametrize(
    ("ends", "rank", "reason", "kept"),
    [
        # Killed or raised, though another failed first, which had only lost it; of several that raised, the first.
        ([lost(0, first=True), end(1, "failed", **KILLED), end(2)], 1, KILLED["reason"], {"signal": "SIGKILL"}),
        ([lost(0), failed(1, "ValueError: no"), failed(2, "B", first=True)], 2, "B", {}),
        ([lost(0, first=True), failed(1, "no", **SAYS)], 1, "no", SAYS),
        # Hung: the signal that its own process sent it is no reason.
        ([lost(0, first=True), end(1, **KILLED, **JOINING)], 1, f"{NO_ANSWER}, which was at: round 1", JOINING),
        ([lost(0, first=True), end(1, **KILLED)], 1, NO_ANSWER, {"hint": LOOK}),
        # Of several that were ended, the one that is behind all others; without such a one none is named.
        ([lost(0, first=True), end(1), end(2, events=3), end(3)], 2, NO_ANSWER, {}),
        ([lost(0, first=True), end(1), end(2)], None, f"{GONE}; ranks 1 and 2 did not answer", {"host": ""}),
        # Those that wait for it, or lost it, name it; of two that are named, the one behind.
        ([WAITS, end(1), end(2)], 2, NO_ANSWER, {}),
        ([lost(0, reason=NAMED.format("rank 2"), first=True), end(1), end(2)], 2, NO_ANSWER, {}),
        ([lost(0, reason=NAMED.format("ranks 1 and 2"), first=True), end(1, events=1), end(2)], 1, NO_ANSWER, {}),
        ([WAITS, end(1), lost(2)], 2, "did not come in time: it failed", {}),
        # Its process gives no word.
        ([lost(0, first=True), end(1), end(2, "lost", stage="", events=0)], 2, NO_WORD, {}),
        # A timeout is a rank's only where one is behind: the others run into it as well.
        ([LATE, end(1), end(2)], None, LATE.reason, {"host": ""}),
        ([LATE, end(1, events=2), end(2)], 1, f"{LATE.reason}; it was behind the other ranks", {}),
    ],
)
def test_the_rank_in_which_it_began_is_named(
    ends: list[RankOutcome], rank: int | None, reason: str, kept: dict[str, Any]
) -> None:
    """With its host, its reason, and the stage at which it was; a signal that we sent is not kept."""
    files = example_files(16)
    asked = Order(config=example_config(data=files.fingerprint), files=files, budget_s=None, begin_ns=0)
    found = failure_of(asked, ends, started_utc="2026-11-22T00:00:00+00:00", wall_s=1.0)
    expected = {"rank": rank, "host": f"host{rank}", "signal": None, "stage": "round 1", **kept}
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.reason == reason


ABORTED = "the measuring process was killed by SIGABRT"
WATCHDOG = "what(): [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"


@pytest.mark.parametrize(
    ("reason", "log", "consequence"),
    [
        (GONE, (), True),
        ("no store answers at head:29500 (The client socket has timed out)", (), True),
        ("RuntimeError: [../pair.cc:5] Connection reset by peer", (), True),
        ("FileNotFoundError: connection.jpg", (), False),
        ("the data set raised in a worker: OSError: [Errno 104] Connection reset by peer", (), False),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", (), False),
        (ABORTED, ("terminate called", WATCHDOG), True),
        (ABORTED, ("double free or corruption",), False),
    ],
)
def test_words_of_gloo_and_nccl_are_a_consequence(reason: str, log: tuple[str, ...], consequence: bool) -> None:
    """Not those of a data set, whose storage fails in the same words. Of consequences alone none is the origin."""
    assert is_consequence(reason, log) is consequence
    assert origin_of([lost(0, first=True), lost(1)]) is None
