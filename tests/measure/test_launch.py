"""The processes that a launcher started: what is looked at before they meet."""

from __future__ import annotations

import os

import pytest

from loaderprobe.errors import MissingPart
from loaderprobe.measure.ranks import launch
from loaderprobe.records.ranks import Launched


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
