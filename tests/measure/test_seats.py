"""Ranks in the processes of a launcher: each has a child, and a rank or node that fails is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaderprobe.errors import BadValue, LostRank
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks import launch as lead_module
from loaderprobe.measure.ranks import launch as seat_module
from loaderprobe.measure.ranks.launch import Seat, put, take
from loaderprobe.measure.runner import Event
from loaderprobe.records.diagnosis import DataFound, OwnLoader, OwnMeasured
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.ranks import Launched, SeatSeen, Turn
from loaderprobe.store.codec import encode
from loaderprobe.testing import FakeClock, FakeStore, example_files
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.measure.seat_group import (
    DONE,
    HUNG,
    KILLED,
    KILLED_WITH_WORKER,
    LOST,
    RAISED,
    WAITS,
    Group,
    measure,
    order,
)

pytestmark = pytest.mark.starts  # in the threads that stand for processes of a launcher


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_module, "POLL_S", 0.005)
    monkeypatch.setattr(seat_module, "GRACE_S", 0.05)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """Makes groups, and lets all their threads go."""
    made: list[Group] = []

    def make(nodes: int = 1, local: int = 2, ranks: int = 2, over: int = 1) -> Group:
        given = replace(measured(Truth(compute=1000.0), 2), config=order(ranks, over).config)
        made.append(Group(nodes, local, tmp_path, encode("measurement", given)))
        return made[-1]

    yield make
    for each in made:
        for thread in each.threads:
            thread.join(10)
            assert not thread.is_alive()


def test_all_ranks_have_a_child_and_rank_0_s_measurement_counts(group: Callable[..., Group]) -> None:
    """Each child has its place; the others' processes then wait for the next, and go when all is over."""
    here = group()
    here.scripts = {0: [DONE, DONE], 1: [DONE, DONE]}
    lead, events = here.lead(), list[Event]()
    assert isinstance(measure(lead, order(), events), Measurement)
    assert isinstance(measure(lead, order()), Measurement)
    lead.end(4)
    for thread in here.threads:
        thread.join(10)
    assert here.codes == [4], "all processes end alike"
    assert [each.stage for each in events] == ["round 1"]
    places = sorted((each.prefix, each.rank, each.size, each.local_size) for each in here.places)
    assert places == [(f"p/0/turn/{turn}/ranks", rank, 2, 2) for turn in (0, 1) for rank in (0, 1)]
    assert here.raised == []


def test_children_may_return_another_record(group: Callable[..., Group], tmp_path: Path) -> None:
    """That of a user's own loader, by whose order each process knows what its child returns."""
    here = group()
    here.scripts = {0: [DONE], 1: [DONE]}
    given = replace(measured(Truth(compute=1000.0), 2), config=order().config)
    data = DataFound(hidden=None, size_bytes=None, root="")
    record = OwnMeasured(config=given.config, measurement=given, data=data, with_step=True)
    (tmp_path / "measured.json").write_bytes(encode("own-loader", record))
    own = OwnLoader(name="a:b", folder="/", module="a", function="b")
    lead = here.lead()
    found = lead.run(
        replace(order(), own=own), OwnMeasured, clock=SystemClock(), time_limit_s=60.0, on_event=lambda _: None
    )
    lead.end(0)
    assert found == record and here.raised == []


def test_a_layout_leaves_the_other_processes_waiting(group: Callable[..., Group]) -> None:
    """One rank on each of two nodes with two processes."""
    here = group(nodes=2, local=2, over=2)
    here.scripts = {0: [DONE], 2: [DONE]}
    lead = here.lead()
    assert isinstance(measure(lead, order(2, 2)), Measurement)
    lead.end(0)
    assert sorted((each.rank, each.node, each.local_rank) for each in here.places) == [(0, 0, 0), (1, 1, 0)]


@pytest.mark.parametrize(
    ("first", "second", "rank", "said"),
    [
        (WAITS, KILLED, 1, "killed by SIGKILL"),
        (LOST, KILLED_WITH_WORKER, 1, "killed by SIGKILL"),
        (LOST, HUNG, 1, "did not answer, ended because rank 0 could not go on"),
        (WAITS, RAISED, 1, "ValueError: no"),
        (RAISED, LOST, 0, "ValueError: no"),
        (KILLED, WAITS, 0, "killed by SIGKILL"),
    ],
)
def test_a_rank_that_fails_costs_one_configuration(
    group: Callable[..., Group], first: str, second: str, rank: int, said: str
) -> None:
    """It is named, all children are ended, and the next configuration is measured."""
    here = group()
    here.scripts = {0: [first, DONE], 1: [second, DONE]}
    lead = here.lead()
    failure = measure(lead, order())
    assert isinstance(failure, RunFailure)
    assert (failure.rank, failure.host) == (rank, "host0")
    assert said in failure.reason
    assert failure.stage == ("joining" if second == HUNG else "round 1")
    assert isinstance(measure(lead, order()), Measurement)
    lead.end(0)
    assert here.raised == []


def test_a_child_that_stays_after_rank_0_s_has_ended_is_ended(
    group: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rank 0 gathered counts."""
    monkeypatch.setattr(lead_module, "ENDS_S", 0.05)
    here = group()
    here.scripts = {0: [DONE], 1: [WAITS]}
    lead = here.lead()
    assert isinstance(measure(lead, order()), Measurement)
    lead.end(0)
    assert here.raised == []


def test_ctrl_c_at_one_process_ends_the_children_of_all(group: Callable[..., Group]) -> None:
    """The others wait for what is next."""
    here = group()
    here.scripts = {0: [WAITS], 1: [WAITS]}
    lead = here.lead()

    def interrupt(_: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lead.run(order(), Measurement, clock=SystemClock(), time_limit_s=60.0, on_event=interrupt)
    lead.end(0)
    for thread in here.threads:
        thread.join(10)
    assert here.raised == [] and not any(thread.is_alive() for thread in here.threads)


def test_a_process_that_has_gone_ends_the_sweep_but_no_result(
    group: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration has a record with its host; then what is left waits for a resume."""
    monkeypatch.setattr(lead_module, "ENDS_S", 0.02)
    monkeypatch.setattr(lead_module, "ENDED_S", 0.02)
    here = group(nodes=2, local=1, over=2)
    here.scripts = {0: [LOST], 1: []}
    here.threads = []
    put(here.store, "seat/1", here.seats[1]._seen)
    lead = here.lead()
    failure = measure(lead, order(2, 2))
    assert isinstance(failure, RunFailure)
    assert (failure.rank, failure.host) == (1, "host1")
    with pytest.raises(LostRank, match="rank 1 on host1 has gone") as caught:
        measure(lead, order(2, 2))
    assert "--resume" in caught.value.hint


def test_a_store_that_has_gone_ends_the_others(group: Callable[..., Group]) -> None:
    """Their children too: rank 0's process held it."""
    here = group()
    here.scripts = {1: [WAITS]}
    lead = here.lead()
    put(here.store, "order", order())
    lead._begin(Turn(kind="measure", ranks=2, nodes=1, time_limit_s=60.0))
    while not here.places:
        SystemClock().sleep(0.005)
    here.store.gone = True
    for thread in here.threads:
        thread.join(10)
    assert [type(each) for each in here.raised] == [LostRank]


def files_at(folder: Path) -> FileSet:
    """One file there."""
    (folder / "a.jpg").write_bytes(b"12345")
    return replace(example_files(1), root=str(folder), paths=("a.jpg",), classes=(0,), size_bytes=(5,))


@pytest.mark.parametrize("damage", ["gone", "shorter", ""])
def test_every_node_sees_the_data_set(group: Callable[..., Group], tmp_path: Path, damage: str) -> None:
    """Where a file is missing or has another size there, the sweep is refused, and the node is named."""
    here = group(nodes=2, local=1, over=2)
    files = files_at(tmp_path)
    configs = [replace(order(2, 2).config, data=files.fingerprint)]
    if damage == "gone":
        files.folder.joinpath("a.jpg").unlink()
    elif damage == "shorter":
        files.folder.joinpath("a.jpg").write_bytes(b"123")
    lead = here.lead()
    if damage:
        with pytest.raises(BadValue, match=r"host1 does not see the data set 500x375: .*a\.jpg"):
            lead.admit(configs, [files])
    else:
        lead.admit(configs, [files])
    lead.end(0)


def test_more_ranks_than_processes_are_refused_before_measuring(group: Callable[..., Group]) -> None:
    """A run that is resumed with fewer."""
    here = group()
    lead = here.lead()
    with pytest.raises(BadValue, match="4 ranks are asked for, and the launcher started 2"):
        lead.admit([order(4).config], [])
    lead.end(0)


def test_processes_that_do_not_come_are_named() -> None:
    """After some minutes, on a fake clock."""
    store = FakeStore()
    here = Launched(rank=0, size=2, node="0", address="head", port=1, agent_store=True)
    seen = SeatSeen(rank=0, host="host0", node="0", gpus=(), version="1")
    with pytest.raises(LostRank, match="rank 1 of 2 has not come after 300 s"):
        Seat(here, seen, store, store, FakeClock(), "p").come()


def test_different_versions_are_refused(group: Callable[..., Group]) -> None:
    """Their records would not be alike."""
    here = group()
    here.threads = []
    put(here.store, "seat/1", here.seat(1, 2, 1, version="2")._seen)
    with pytest.raises(BadValue, match="host1 has loaderprobe 2, and host0 has 1"):
        here.lead()


def test_many_processes_ask_the_store_less_often() -> None:
    """It serves them all while they measure."""
    store, clock = FakeStore(), FakeClock()
    here = Launched(rank=0, size=1024, node="0", address="head", port=1, agent_store=True)
    seen = SeatSeen(rank=0, host="host0", node="0", gpus=(), version="1")
    assert Seat(here, seen, store, store, clock, "p").poll_s == pytest.approx(1.024)


def test_a_long_record_is_kept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes no value above 8 MiB."""
    monkeypatch.setattr(seat_module, "PART", 7)
    store = FakeStore()
    put(store, "long", ["ä" * 9, "b"])
    assert max(map(len, store.held.values())) == 7
    found: Any = take(store, "long", list[str])
    assert found == ["ä" * 9, "b"] == msgspec.json.decode(msgspec.json.encode(found))
