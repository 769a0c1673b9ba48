"""`bandwidth` from Python: of this process and of ranks; what it returns shows itself, is kept, and comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api.bandwidth import Bandwidth, ladder_of
from loaderprobe.api.load import load_any
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.ranks.launch import parse_layout
from loaderprobe.measure.runner import Order
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.ranks import Node, ReadResult
from loaderprobe.storage.by_ranks import RankReader, read_step
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import FakeGroup, example_config
from tests.examples.bandwidth import example_bandwidth, example_operations, example_rank_bandwidth, example_ranks

TWO_NODES = (Node(host="a", seats=(0, 1), gpus=0), Node(host="b", seats=(2, 3), gpus=0))
OPENS = (*example_operations({4: 1000.0}), *example_operations({4: 900.0}, "stat", metadata="warm"))
ONE = replace(example_bandwidth(), metadata=OPENS)
RANKS = example_rank_bandwidth(example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6))


@pytest.mark.parametrize(("report", "charts"), [(ONE, 2), (RANKS, 3)])
def test_a_result_shows_itself_and_comes_back_from_its_directory(
    report: BandwidthReport, charts: int, tmp_path: Path
) -> None:
    """One line at the prompt, all of it when printed; its JSON, its table and its page with charts against readers."""
    found = Bandwidth.of(report)
    assert repr(found).startswith(f"<Bandwidth: {report.path}: ") and "\n" not in repr(found) and "MB/s" in str(found)
    page = found.save(tmp_path / "kept")
    assert {file.name for file in page.parent.iterdir()} == {"result.json", "phases.csv", "report.html"}
    assert load_any(page.parent) == load_any(page.parent / "result.json") == found
    assert page.read_text().count("<svg") == charts == found._repr_html_().count("<svg")


def test_a_frame_has_a_row_a_phase() -> None:
    """Opens and stats after the reads, units in the names, NaN for what could not be counted; of ranks the slowest."""
    table = Bandwidth.of(ONE).to_frame()
    assert list(table["name"]) == [*(phase.name for phase in ONE.phases), "open", "stat"]
    assert list(table["bw_bytes_per_s"].dropna()) == [phase.bw_bytes for phase in ONE.phases]
    assert list(table["file_p99_ns"].dropna()) == [
        phase.file_ns.percentile["99.000000"] for phase in ONE.phases if phase.file_ns
    ]
    assert list(table["cold_fraction"][: len(ONE.phases)].isna()) == [
        phase.cold_fraction is None for phase in ONE.phases
    ]
    assert list(table["ops_per_s"].dropna()) == [1000.0, 900.0]
    assert not {"clat_ns", "file_ns", "unread", "runtime", "by_rank"} & set(table.columns)
    ranks = Bandwidth.of(RANKS).to_frame()
    assert list(ranks["ranks"]) == [1, 4] and list(ranks["slowest_rank"]) == [0, 3]
    assert list(ranks["in_step_bw_bytes_per_s"]) == [20e6, 16e6]


def files_in(folder: Path, count: int, size_bytes: int = 50_000) -> Path:
    for number in range(count):
        folder.joinpath(f"{number}.jpg").write_bytes(b"x" * size_bytes)
    return folder


def test_a_folder_is_read_without_a_callback(tmp_path: Path) -> None:
    """A list of concurrencies gives a step for each of them."""
    found = loaderprobe.bandwidth(files_in(tmp_path, 2, 300_000), readers=[1, 2], seconds=0.1)
    assert [phase.readers for phase in found.ladder] == [1, 2]
    assert {(phase.operation, phase.metadata) for phase in found.metadata} == {("open", "warm"), ("stat", "warm")}


class LeadOfOne:
    """Rank 0 of one, which reads in this process; `failure` is how that ends, where it fails."""

    nodes = (Node(host="a", seats=(0,), gpus=0),)

    def __init__(self, failure: RunFailure | None = None) -> None:
        self.failure = failure

    def run(self, order: Order, type_: type[ReadResult], **_: Any) -> ReadResult | RunFailure:
        """One step."""
        assert order.read is not None
        if self.failure:
            return self.failure
        (group,) = FakeGroup.of(1)
        return ReadResult(config=order.config, phase=read_step(RankReader(order.read, group, LinuxPageCache())))


def read(path: Path, failure: RunFailure | None = None, **changes: Any) -> Bandwidth:
    lead: Any = LeadOfOne(failure)
    return loaderprobe.bandwidth(path, lead=lead, **changes)


def test_one_rank_reads_and_reports(tmp_path: Path) -> None:
    """Real files, whole, each within the agreed time; what follows is that of one step."""
    found = read(files_in(tmp_path, 64), readers=2, seconds=0.2)
    (phase,) = found.phases
    assert phase.bw_bytes > 0 and phase.by_rank[0].host == "a" and found.images and not found.interrupted
    assert found.limit.code in ("one_step_of_ranks", "probe_busy", "from_memory") and found.kind.kind == "unknown"


def test_a_rank_that_fails_is_named_with_its_host(tmp_path: Path) -> None:
    """As in any other command of ranks."""
    failure = RunFailure(
        config=example_config(), stage="run 1", reason="the measuring process was killed by SIGKILL", hint="",
        exit_code=None, signal="SIGKILL", log=(), started_utc="", wall_s=1.0, rank=1, host="b",
    )  # fmt: skip
    with pytest.raises(LoaderprobeError, match=r"rank 1 \(b\): the measuring process was killed by SIGKILL \(run 1\)"):
        read(files_in(tmp_path, 64), failure)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"readers": "two"}, "--readers"),
        ({"readers": [0]}, "concurrency must be 1 or more"),
        ({"scratch": "big"}, "big"),
        ({"ranks": "1,2x2"}, "this one only"),
        ({"ranks": "some"}, "no number of ranks"),
        ({"ranks": 2, "readers": [1, 2]}, "one number of readers each"),
        ({"ranks": 2, "scratch": "1GB"}, "--scratch is of one process only"),
        ({"ranks": [1, 2], "drop_caches": True}, "--drop-caches is of one process only"),
    ],
)
def test_impossible_probes_are_bad_values(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Before anything is read, or any process is started."""
    with pytest.raises(BadValue, match=says):
        loaderprobe.bandwidth(tmp_path, **changes)


def test_too_few_files_are_refused(tmp_path: Path) -> None:
    """Each rank reads files of its own."""
    with pytest.raises(BadValue, match="has 1 file to read, too few for 1 rank of 1 reader: 4 are needed"):
        read(files_in(tmp_path, 1), readers=1)


@pytest.mark.parametrize(
    ("ranks", "steps"),
    [
        (None, [(1, 1, 2), (2, 1, 2), (4, 2, 2), (1, 1, 8)]),
        ("2,2x1", [(2, 1, 2), (2, 2, 2)]),
        ("8", "8 ranks are asked for"),
    ],
)
def test_the_ladder_of_ranks(ranks: str | None, steps: list[tuple[int, int, int]] | str) -> None:
    """(ranks, nodes, readers): doubles up to all processes, and ends with as many readers in one, which separates the
    limit of a process from the storage's; layouts choose the nodes."""
    layouts = None if ranks is None else [parse_layout(text) for text in ranks.split(",")]
    if isinstance(steps, str):
        with pytest.raises(BadValue, match=steps):
            ladder_of(layouts, TWO_NODES, 2)
    else:
        found = ladder_of(layouts, TWO_NODES, 2)
        assert [(step.ranks, step.nodes, step.readers) for step in found] == steps
