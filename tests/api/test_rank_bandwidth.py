"""The bandwidth of ranks: the ladder that is asked for, and one rank's own reading."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.api import bandwidth
from loaderprobe.api.bandwidth import RankBandwidth, RankProbe, ladder_of, lead_ranks, most_ranks_of
from loaderprobe.api.load import load_any, type_of
from loaderprobe.errors import BadValue, Refused
from loaderprobe.loaders import ranks as gloo
from loaderprobe.records.ranks import Launched, Node
from loaderprobe.storage.by_ranks import RanksStep, Whereabouts
from loaderprobe.testing.ranks import FakeGroup
from tests.examples.rank_bandwidth import example_rank_bandwidth, example_ranks

TWO_NODES = (Node(host="a", seats=(0, 1), gpus=0), Node(host="b", seats=(2, 3), gpus=0))
HERE = Whereabouts(host="a", node=0)


def rungs(ranks: str | None) -> list[tuple[tuple[int, ...], int, int]]:
    """(processes, nodes, readers) of each step, with two readers a rank."""
    return [(step.seats, step.nodes, step.readers) for step in ladder_of(ranks, TWO_NODES, 2)]


def test_the_ladder_doubles_up_to_all_and_ends_with_as_many_readers_in_one() -> None:
    """That separates the limit of a process from the storage's."""
    assert rungs(None) == [((0,), 1, 2), ((0, 1), 1, 2), ((0, 1, 2, 3), 2, 2), ((0,), 1, 8)]


def test_layouts_choose_the_nodes() -> None:
    """One process on each of two nodes against two on one; nothing is added where no step has one rank."""
    assert rungs("2,2x1") == [((0, 1), 1, 2), ((0, 2), 2, 2)]
    with pytest.raises(BadValue, match="8 ranks are asked for"):
        rungs("8")


def test_without_a_launcher_ranks_are_of_this_machine() -> None:
    """Several nodes need one."""
    assert most_ranks_of("1,4,2") == 4
    with pytest.raises(BadValue, match="this one only"):
        most_ranks_of("1,2x2")


def test_one_rank_reads_and_reports(tmp_path: Path) -> None:
    """Real files, whole, each within the agreed time; the report can be loaded from its JSON."""
    for number in range(64):
        tmp_path.joinpath(f"{number}.jpg").write_bytes(b"x" * 50_000)
    (group,) = FakeGroup.of(1)
    steps = (RanksStep(seats=(0,), nodes=1, readers=2),)
    found = lead_ranks(group, HERE, RankProbe(path=tmp_path, steps=steps, seconds=0.02), lambda *_: None)
    (phase,) = found.phases
    assert phase.bw_bytes > 0 and phase.by_rank[0].host == "a" and found.images and not found.interrupted
    assert "with 2 readers in 1 rank" in found.headline()
    assert found.limit.code in ("one_step_of_ranks", "probe_busy", "from_memory")
    assert type_of(found.schema) is RankBandwidth
    file = tmp_path / "found.json"
    file.write_text(found.json())
    assert RankBandwidth.load(file).phases == found.phases


def test_a_kept_result_is_shown_again(tmp_path: Path) -> None:
    """Its JSON, its table and its page, with a chart of both rates and one of all ranks."""
    phases = example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6)
    page = RankBandwidth.of(example_rank_bandwidth(*phases)).save(tmp_path / "kept")
    assert {each.name for each in page.parent.iterdir()} == {"result.json", "ladder.csv", "report.html"}
    shown = load_any(page.parent)
    assert isinstance(shown, RankBandwidth) and shown.phases == phases
    assert page.read_text().count("<svg") == 3


def test_a_place_that_is_taken_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The other ranks hear of it: rank 0 says that nothing follows."""
    tmp_path.joinpath("other").touch()
    (group,) = FakeGroup.of(1)
    with pytest.raises(Refused, match="is not empty"):
        lead_ranks(group, HERE, RankProbe(path=tmp_path, out=tmp_path), lambda *_: None)


def test_too_few_files_are_refused(tmp_path: Path) -> None:
    """Each rank reads files of its own."""
    tmp_path.joinpath("one.jpg").write_bytes(b"x")
    (group,) = FakeGroup.of(1)
    steps = (RanksStep(seats=(0,), nodes=1, readers=1),)
    with pytest.raises(BadValue, match="has 1 file to read, too few for 1 rank of 1 reader: 4 are needed"):
        lead_ranks(group, HERE, RankProbe(path=tmp_path, steps=steps), lambda *_: None)


@pytest.mark.parametrize(("ranks", "said"), [("8", "8 ranks are asked for"), ("2", "too few for 2 ranks")])
def test_what_rank_0_refuses_is_no_lost_rank_to_the_others(
    ranks: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hear of it, and leave without an error of their own; no launcher ends them before they have an exit code."""
    tmp_path.joinpath("one.jpg").write_bytes(b"x")
    spared: list[bool] = []
    monkeypatch.setattr(bandwidth, "ends_by_itself", lambda: spared.append(True))
    node, groups = Node(host="a", seats=(0, 1), gpus=0), FakeGroup.of(2)
    monkeypatch.setattr(bandwidth, "comes", lambda here: SimpleNamespace(nodes=(node,), prefix="p"))
    monkeypatch.setattr(gloo, "joined_at", lambda place, **_: SimpleNamespace(group=groups[place.rank]))

    def part(rank: int) -> Any:
        here = Launched(rank=rank, size=2, node="", address="localhost", port=1, agent_store=False)
        return bandwidth.read_in_seat(here, RankProbe(path=tmp_path), ranks, 1, lambda *_: None)

    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(part, rank) for rank in range(2))
        with pytest.raises(BadValue, match=said):
            first.result()
        assert second.result() == BadValue.exit_code
    assert spared == [True, True]
