"""The bandwidth of ranks: the ladder that is asked for, and one rank's own reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaderprobe.api.bandwidth import RankBandwidth, RankProbe, bandwidth_of_ranks, ladder_of, most_ranks_of
from loaderprobe.api.load import load_any, type_of
from loaderprobe.errors import BadValue, LoaderprobeError, Refused
from loaderprobe.measure.runner import Order
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.ranks import Node, ReadResult
from loaderprobe.storage.by_ranks import RankReader, read_step
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import FakeGroup, example_config
from tests.examples.rank_bandwidth import example_rank_bandwidth, example_ranks
from tests.skips import needs_cold_reads

TWO_NODES = (Node(host="a", seats=(0, 1), gpus=0), Node(host="b", seats=(2, 3), gpus=0))


def rungs(ranks: str | None) -> list[tuple[int, int, int]]:
    """(ranks, nodes, readers) of each step, with two readers a rank."""
    return [(step.ranks, step.nodes, step.readers) for step in ladder_of(ranks, TWO_NODES, 2)]


def test_the_ladder_doubles_up_to_all_and_ends_with_as_many_readers_in_one() -> None:
    """That separates the limit of a process from the storage's."""
    assert rungs(None) == [(1, 1, 2), (2, 1, 2), (4, 2, 2), (1, 1, 8)]


def test_layouts_choose_the_nodes() -> None:
    """One process on each of two nodes against two on one; nothing is added where no step has one rank."""
    assert rungs("2,2x1") == [(2, 1, 2), (2, 2, 2)]
    with pytest.raises(BadValue, match="8 ranks are asked for"):
        rungs("8")


def test_without_a_launcher_ranks_are_of_this_machine() -> None:
    """Several nodes need one."""
    assert most_ranks_of("1,4,2") == 4
    with pytest.raises(BadValue, match="this one only"):
        most_ranks_of("1,2x2")


class LeadOfOne:
    """Rank 0 of one, which reads in this process; `failure` is how that ends, where it fails."""

    nodes = (Node(host="a", seats=(0,), gpus=0),)

    def __init__(self, failure: RunFailure | None = None) -> None:
        self.failure = failure
        self.orders: list[Order] = []

    def run(self, order: Order, type_: type[ReadResult], **_: Any) -> ReadResult | RunFailure:
        """One step."""
        self.orders.append(order)
        assert order.read is not None
        if self.failure:
            return self.failure
        (group,) = FakeGroup.of(1)
        return ReadResult(config=order.config, phase=read_step(RankReader(order.read, group, LinuxPageCache())))


def read(lead: Any, probe: RankProbe) -> RankBandwidth:
    return bandwidth_of_ranks(lead, probe, lambda *_: None)


def test_one_rank_reads_and_reports(tmp_path: Path) -> None:
    """Real files, whole, each within the agreed time; the report can be loaded from its JSON."""
    needs_cold_reads(tmp_path)
    for number in range(64):
        tmp_path.joinpath(f"{number}.jpg").write_bytes(b"x" * 50_000)
    found = read(LeadOfOne(), RankProbe(path=tmp_path, readers=2, seconds=0.2))
    (phase,) = found.phases
    assert phase.bw_bytes > 0 and phase.by_rank[0].host == "a" and found.images and not found.interrupted
    assert "with 2 readers in 1 rank" in found.headline()
    assert found.limit.code in ("one_step_of_ranks", "probe_busy", "from_memory")
    assert type_of(found.schema) is RankBandwidth
    file = tmp_path / "found.json"
    file.write_text(found.json())
    assert RankBandwidth.load(file).phases == found.phases


def test_a_rank_that_fails_is_named_with_its_host(tmp_path: Path) -> None:
    """As in any other command of ranks."""
    for number in range(64):
        tmp_path.joinpath(f"{number}.jpg").write_bytes(b"x")
    failure = RunFailure(
        config=example_config(), stage="run 1", reason="the measuring process was killed by SIGKILL", hint="",
        exit_code=None, signal="SIGKILL", log=(), started_utc="", wall_s=1.0, rank=1, host="b",
    )  # fmt: skip
    with pytest.raises(LoaderprobeError, match=r"rank 1 \(b\): the measuring process was killed by SIGKILL \(run 1\)"):
        read(LeadOfOne(failure), RankProbe(path=tmp_path))


def test_a_kept_result_is_shown_again(tmp_path: Path) -> None:
    """Its JSON, its table and its page, with a chart of both rates and one of all ranks."""
    phases = example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6)
    page = RankBandwidth.of(example_rank_bandwidth(*phases)).save(tmp_path / "kept")
    assert {each.name for each in page.parent.iterdir()} == {"result.json", "ladder.csv", "report.html"}
    shown = load_any(page.parent)
    assert isinstance(shown, RankBandwidth) and shown.phases == phases
    assert page.read_text().count("<svg") == 3


def test_a_place_that_is_taken_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """No rank is asked."""
    tmp_path.joinpath("other").touch()
    lead = LeadOfOne()
    with pytest.raises(Refused, match="is not empty"):
        read(lead, RankProbe(path=tmp_path, out=tmp_path))
    assert not lead.orders


def test_too_few_files_are_refused(tmp_path: Path) -> None:
    """Each rank reads files of its own."""
    tmp_path.joinpath("one.jpg").write_bytes(b"x")
    with pytest.raises(BadValue, match="has 1 file to read, too few for 1 rank of 1 reader: 4 are needed"):
        read(LeadOfOne(), RankProbe(path=tmp_path, readers=1))
