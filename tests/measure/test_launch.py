"""What is looked at before the processes of a launcher meet; and ranks that no launcher started."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.errors import MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks import launch
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.ranks import Launched
from loaderprobe.store.codec import encode
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.measure.seat_group import DONE, KILLED, WAITS, Group, order

pytestmark = pytest.mark.starts  # in the threads that stand for processes of a launcher


def process(rank: int, size: int, *, agent_store: bool) -> Launched:
    """One of so many."""
    return Launched(rank=rank, size=size, node="", address="localhost", port=1, agent_store=agent_store)


@pytest.mark.parametrize(("agent_store", "holder"), [(True, "torchrun on the node of rank 0"), (False, "to rank 0")])
def test_too_many_processes_for_the_store_are_refused_before_they_meet(
    agent_store: bool, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the one that holds it, or is started by it: what is needed, what is allowed, and how to raise that."""
    asked: list[tuple[int, int]] = []

    def allowed(least: int, pid: int = 0) -> int:
        asked.append((least, pid))
        return 1024

    monkeypatch.setattr(launch, "allow_open_files", allowed)
    monkeypatch.setattr(launch, "die_with_parent", lambda _: None)
    with pytest.raises(
        MissingPart, match=rf"1000 processes .*{holder}, which needs 7100 open .* limit is 1024"
    ) as raised:
        launch.comes(process(0, 1000, agent_store=agent_store))
    assert "ulimit -Hn 7100" in raised.value.hint
    assert asked[-1] == (7100, os.getppid() if agent_store else 0)


def test_the_limit_of_the_store_is_no_matter_of_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They raise their own, and of few ranks none is too low."""
    monkeypatch.setattr(launch, "allow_open_files", lambda *_: 1024)
    launch._allow_connections(process(1, 1000, agent_store=False))
    launch._allow_connections(process(0, 8, agent_store=True))


class Server:
    """In place of a forkserver: the children of its rank are the scripts of a group."""

    def __init__(self, group: Group, rank: int) -> None:
        self.start = group.start(rank)


def test_ranks_of_this_machine_are_threads_with_a_child_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over torch's own store. Each gets its share of the cores; one that dies is named; no thread is left."""
    monkeypatch.setattr(launch, "POLL_S", 0.005)
    monkeypatch.setattr(launch, "GRACE_S", 0.05)
    monkeypatch.setattr(launch, "cores_available", lambda: 8.0)
    monkeypatch.delenv("RANK", raising=False)
    given = replace(measured(Truth(compute=1000.0), 2), config=order().config)
    group = Group(1, 2, tmp_path, encode("measurement", given))
    group.scripts = {0: [DONE, WAITS, DONE], 1: [DONE, KILLED, DONE]}
    variables: list[Mapping[str, str]] = []

    @contextmanager
    def forkserver(given: Mapping[str, str]) -> Iterator[Any]:
        variables.append(given)
        yield Server(group, len(variables) - 1)

    before = threading.active_count()
    made: Any = forkserver
    with launch.on_this_machine(2, made) as lead:
        found = [
            lead.run(order(), Measurement, clock=SystemClock(), time_limit_s=60.0, on_event=lambda _: None)
            for _ in range(3)
        ]
    assert threading.active_count() == before
    first, failure, last = found
    assert isinstance(first, Measurement) and isinstance(last, Measurement)
    assert isinstance(failure, RunFailure) and failure.rank == 1 and "killed by SIGKILL" in failure.reason
    assert [each["OMP_NUM_THREADS"] for each in variables] == ["4", "4"]
    assert {(each.address, each.local_size) for each in group.places} == {("127.0.0.1", 2)}
