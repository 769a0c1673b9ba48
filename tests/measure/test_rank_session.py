"""Ranks of one configuration, on threads with clocks of their own: equal steps, no deadlock, what only they have.

And what belongs to one node, and not to all ranks: cores, the ceiling of its storage, GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.compute.torch import gpu_of
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure import child, session
from loaderprobe.measure.ceilings import measure_ceiling
from loaderprobe.measure.collectives import Collectives, SingleProcessGroup
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.ranks import child as rank_child
from loaderprobe.measure.ranks import launch
from loaderprobe.measure.ranks.child import cores_of
from loaderprobe.measure.ranks.launch import failure_of, is_consequence, nodes_of, spread
from loaderprobe.measure.runner import Order
from loaderprobe.records.rank_processes import Node, ProcessInfo, RankOutcome, RankPlacement
from loaderprobe.testing import Service, example_config, example_files
from tests.analyze.scripted import Truth, measured
from tests.fakes import FakeGroup
from tests.measure import scripted
from tests.measure.scripted import Rank, ScriptedStream, ran, together


def common_steps(rank: Rank) -> list[tuple[str, str, int | None, int]]:
    """Of all segments but those in which each rank is alone."""
    assert rank.own is not None
    return [(s.mode, s.activity, s.without, s.steps) for s in rank.own.segments if s.activity != "alone"]


def test_meeting_takes_a_whole_step_at_most() -> None:
    """A barrier is timed by itself, and may have been slower than those among the steps."""
    (note,) = rank_child.meeting_notes("ranks_meet", 1e6, measured(Truth(compute=100.0), 1).segments)
    assert note.facts["share"] == 1


def test_no_rank_waits_for_the_begin_of_another_ranks_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serial ones fill their buffers with each segment, here for 5 s and 25 s: all have, before timing."""
    monkeypatch.setattr(scripted, "ScriptedLoader", ScriptedStream)
    services = Service(cpu_s=0.01), Service(cpu_s=0.05)
    ranks = ran(*services, workers=0, batch_size=4, compute="emulated:100", cache="warm", rounds=1)
    found = [segment for rank in ranks if rank.own for segment in rank.own.segments]
    assert {each.activity for each in found} >= {"loader_only", "alone", "training"}
    assert max(end - begin for s in found for begin, end in zip(s.begin_ns, s.end_ns, strict=True)) < 5e9
    assert common_steps(ranks[0]) == common_steps(ranks[1])


@settings(max_examples=4)
@given(data=st.data())
def test_no_deadlock(data: st.DataObject) -> None:
    """Whatever the shards, budgets, speeds and workers: all come to the end, after the same steps."""
    size = data.draw(st.integers(2, 4))
    services = [
        Service(cpu_s=data.draw(st.floats(0.004, 0.04)), blocked_s=data.draw(st.sampled_from((0.0, 0.02))))
        for _ in range(size)
    ]
    ranks = ran(
        *services,
        files=example_files(data.draw(st.integers(12 * size, 3000))),
        budgets_s=tuple(data.draw(st.sampled_from((None, 3.0, 9.0, 40.0))) for _ in range(size)),
        workers=data.draw(st.sampled_from((0, 1, 3))),
        batch_size=4,
        compute=data.draw(st.sampled_from(("emulated:100", "emulated:2000", "emulated-sync:200"))),
        cache=data.draw(st.sampled_from(("cold", "warm"))),
        rounds=1,
    )
    assert all(common_steps(rank) == common_steps(ranks[0]) for rank in ranks)
    assert together(ranks).ranks == size


def test_a_rank_alone_begins_with_buffers_as_empty_as_it_ends() -> None:
    """A fast rank does not wait for a slow one after its lead-in: what it loads meanwhile is not of the time alone."""
    services = Service(cpu_s=0.15), Service(cpu_s=0.05)
    found = together(ran(*services, compute="emulated:1e6", workers=3, batch_size=4, rounds=1))
    (place,) = [place for place, each in enumerate(found.segments) if (each.activity, each.round) == ("alone", 0)]
    fast = found.by_rank[1]
    assert fast.steps[place] * 1e9 / fast.span_ns[place] == pytest.approx(3 / (4 * 0.05), rel=0.02)


def test_a_loader_that_ends_while_ranks_are_alone_ends_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that this is said, and not an error of ours."""
    monkeypatch.setattr(session.Session, "_in_a_row", Mock(side_effect=StopIteration))
    with pytest.raises(StopIteration):
        ran(Service(cpu_s=0.002), Service(cpu_s=0.002), compute="emulated:1000")


def test_no_budget_is_kept_for_a_profiler_window_that_ranks_never_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds fit, however long a window would be."""
    monkeypatch.setattr(session, "Profiling", object)
    monkeypatch.setattr(session, "MOST_WINDOW_S", 1e6)
    monkeypatch.setattr(session.Session, "_step_s", lambda _: 1e6)
    services = [Service(cpu_s=0.002)] * 2
    found = together(ran(*services, compute="emulated:1000", budgets_s=(300.0, 300.0), rounds=2))
    assert len({segment.round for segment in found.segments}) == 2


def test_further_rounds_are_added_to_those_of_all_ranks_before() -> None:
    """Rank 0 knows who was slowest; rounds are numbered on, and what each rank saw has an entry a segment."""
    services = Service(cpu_s=0.008), Service(cpu_s=0.016, blocked_s=0.008)
    earlier = together(ran(*services, compute="emulated:1000", budgets_s=(1.0, 90.0)))
    found = together(ran(*services, compute="emulated:1000", earlier=earlier))
    before = len(earlier.segments)
    assert found.segments[:before] == earlier.segments and len(found.segments) > before
    assert min(each.round for each in found.segments[before:]) == 1 + max(each.round for each in earlier.segments)
    assert {len(each.steps) for each in found.by_rank} == {len(found.segments)}
    removed = [{s.without for s in segments} for segments in (earlier.segments, found.segments[before:])]
    assert removed[0] == removed[1] == {None, 0, 1}


@pytest.mark.parametrize(("most", "expected"), [(None, 141), (90, 90)])
def test_a_pace_ahead_agrees_seldom_and_ends_where_any_pace_would(most: int | None, expected: int) -> None:
    """Some ten meetings for a hundred steps, a whole multiple of the workers, and never more than the files allow."""
    agreed: list[int] = []

    class Told(Collectives):
        def agree(self, value: int) -> int:
            agreed.append(value)
            return value

    pace = Pace(min_s=0.7, multiple=3, max_batches=most)
    enough, steps = Told(SingleProcessGroup()).ahead(pace), 0
    while not enough(steps, steps * 0.005):
        steps += 1
    assert pace.enough(steps, steps * 0.005)
    assert steps == expected
    assert len(agreed) <= 10


@pytest.mark.parametrize(("node_of", "cores"), [(lambda _: 0, 1.5), (lambda rank: rank // 2, 3.0)])
def test_ranks_share_their_cores(node_of: Callable[[int], int], cores: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly; containers on two nodes may have the same host name."""
    monkeypatch.setattr(rank_child, "core_limits", lambda: {"pod": 6.0, "socket": 8.0})
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda group: cores_of(group, node_of(group.rank)), FakeGroup.of(4)))
    assert found == [cores] * 4


def test_one_node_measures_no_ceiling_of_several() -> None:
    """What it gets alone is less than all get together."""
    run: Any = None
    order: Any = SimpleNamespace(config=replace(example_config(), ranks=4, nodes=2))
    measure_ceiling(run, order, order)


class OnlyGpu(Exception):
    """What is seen of GPUs when the loader starts."""


@pytest.mark.parametrize(
    ("compute", "shown", "gpus", "seen"),
    [
        ("cuda", None, 4, "2"), ("cuda:1", None, 4, "3"), ("cuda", "7,6,5", 4, "5"), ("emulated:100", None, 4, None),
        ("cuda", "GPU-a, GPU-b, GPU-c", 4, "GPU-c"),
        # Where one is shown, or too few, the variable stays.
        ("cuda", "7", 4, "7"), ("cuda", "0,1", 4, "0,1"), ("cuda", "", 4, ""), ("cuda", None, 2, None),
        ("cuda", None, 0, None),
    ],
)  # fmt: skip
def test_a_rank_sees_its_own_gpu_before_its_loader_starts(
    compute: str, shown: str | None, gpus: int, seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread that pins memory uses the first GPU it sees, and starts before the device chooses one."""

    def make_loader(*_: Any) -> Any:
        raise OnlyGpu(os.environ.get("CUDA_VISIBLE_DEVICES"))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.setattr(child, "list_gpus", lambda: (("a", "b", "c", "d")[:gpus], None))
    monkeypatch.setattr(child, "make_loader", make_loader)
    shard: Any = SimpleNamespace(root="/")
    shard.dealt = lambda *_: shard
    order: Any = SimpleNamespace(
        config=example_config(compute=compute, ranks=3), files=SimpleNamespace(shard=lambda *_: shard), earlier=None,
        placement=RankPlacement(rank=2, size=3, node=0, local_rank=2, local_size=3, address="a", port=1, prefix="p"),
    )  # fmt: skip
    with pytest.raises(OnlyGpu) as raised:
        child.measure(order, Path("/"), lambda *_: None)
    assert raised.value.args == (seen,)


@pytest.mark.parametrize(("first", "gpus", "number"), [(0, 1, 0), (2, 1, 0), (0, 4, 2), (1, 4, 3)])
def test_a_rank_has_the_only_gpu_it_sees(first: int, gpus: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several, those of a node's ranks follow each other; without ranks it is the one that is asked for."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    peers: Any = SimpleNamespace(local_rank=2)
    assert gpu_of(first, peers) == number and gpu_of(first, None) == first
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(MissingPart, match="rank 2 of this node has no GPU"):
        gpu_of(0, peers)


def nodes(*counts: int, gpus: int = 0) -> tuple[Node, ...]:
    """So many processes on each node; each sees all GPUs of its node."""
    places = [str(on) for on, count in enumerate(counts) for _ in range(count)]
    return nodes_of(
        [
            ProcessInfo(rank=rank, host=f"host{on}", node=on, version="1", gpus=tuple(f"{on}{n}" for n in range(gpus)))
            for rank, on in enumerate(places)
        ]
    )


def test_nodes_come_in_the_order_of_their_first_rank() -> None:
    """However the launcher deals ranks out. Processes of a node share its cores."""
    mixed = [
        ProcessInfo(rank=rank, host=f"h{on}", node=on, gpus=(f"{on}{rank}",), version="1", core_limits={"all": 8.0})
        for rank, on in ((2, "b"), (0, "a"), (1, "b"), (3, "a"))
    ]
    first, second = nodes_of(mixed)
    assert (first.host, first.processes, first.gpus) == ("ha", (0, 3), 2)
    assert (second.host, second.processes) == ("hb", (1, 2))
    assert first.cores == second.cores == (4.0, 4.0)


@pytest.mark.parametrize(
    ("layout", "there", "expected"),
    [
        ("4", nodes(4, 4), (4, 1)),
        ("8", nodes(4, 4), (8, 2)),
        ("6", nodes(4, 4), (6, 2)),
        ("2x1", nodes(4, 4), (2, 2)),
        ("64", None, (64, 1)),
        ("9", nodes(4, 4), "9 ranks are asked for, and the launcher started 8"),
        ("3x1", nodes(4, 4), "3 nodes are asked for"),
        ("7", nodes(4, 4), "7 ranks cannot be spread evenly over 2 nodes"),
        ("1x6", nodes(4, 4), "6 ranks on each node are asked for, and host0 has 4"),
        ("2x2", None, "on this one only"),
        *((wrong, None, "no number of ranks") for wrong in ("", "0", "x2", "0x4", "4x", "two", "1.5", "-1", "2x2x2")),
    ],
)
def test_ranks_go_to_few_nodes(layout: str, there: Sequence[Node] | None, expected: tuple[int, int] | str) -> None:
    """Unless the layout says how many; more than there is is refused with what there is."""
    if isinstance(expected, str):
        with pytest.raises(BadValue, match=expected):
            spread(layout, there)
    else:
        assert spread(layout, there) == expected


def test_each_rank_on_cuda_has_a_gpu() -> None:
    """Where they can be listed; two on one node need two."""
    config = example_config(compute="cuda", ranks=2)
    launch.check_gpus(config, nodes(4, gpus=2))
    launch.check_gpus(config, nodes(4, gpus=0))
    launch.check_gpus(example_config(compute="cuda", ranks=2, nodes=2), nodes(1, 1, gpus=1))
    with pytest.raises(MissingPart, match="2 ranks on cuda need a GPU each, and host0 has 1"):
        launch.check_gpus(config, nodes(4, gpus=1))


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
def test_the_origin_is_named(ends: list[RankOutcome], rank: int | None, reason: str, kept: dict[str, Any]) -> None:
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
    assert launch.origin_of([lost(0, first=True), lost(1)]) is None
