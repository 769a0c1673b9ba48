"""`bandwidth`: of this process and of ranks, and on paths that are no folder of images."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api.bandwidth import Bandwidth, ladder_of
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.ranks.launch import parse_layout
from loaderprobe.measure.runner import Order
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.rank_processes import Node, ReadResult
from loaderprobe.storage.by_ranks import RankReader, read_step
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import example_config
from tests.cli.invoke import invoke
from tests.examples.bandwidth import example_bandwidth
from tests.fakes import FakeGroup
from tests.planted.files import random_files
from tests.stored import failure

TWO_NODES = (Node(host="a", processes=(0, 1), gpus=0), Node(host="b", processes=(2, 3), gpus=0))
QUICK = ("--readers", "1,2", "--seconds", "0.1", "--json")


class CoordinatorOfOne:
    """Rank 0 of one, which reads in this process; `failure` is how that ends, where it fails."""

    nodes = (Node(host="a", processes=(0,), gpus=0),)

    def __init__(self, failure: RunFailure | None = None) -> None:
        self.failure = failure

    def run(self, order: Order, type_: type[ReadResult], **_: Any) -> ReadResult | RunFailure:
        """One step."""
        assert order.read is not None
        (group,) = FakeGroup.of(1)
        return self.failure or ReadResult(
            config=order.config, phase=read_step(RankReader(order.read, group, LinuxPageCache(), 4.0))
        )


def test_one_rank_reads_and_one_that_fails_is_named_with_its_host(tmp_path: Path) -> None:
    """Real files, whole, each within the agreed time; each rank reads files of its own."""
    random_files(tmp_path, count=256)
    coordinator: Any = CoordinatorOfOne()
    found = loaderprobe.bandwidth(tmp_path, coordinator=coordinator, readers=2, seconds=0.1)
    (phase,) = found.phases
    assert phase.bw_bytes > 0 and phase.by_rank[0].host == "a" and found.images and not found.interrupted
    assert found.limit.code in ("one_step_of_ranks", "probe_busy", "from_memory") and found.kind.kind == "unknown"
    failing: Any = CoordinatorOfOne(
        failure(example_config(), "the measuring process was killed by SIGKILL", stage="run 1", rank=1, host="b")
    )
    with pytest.raises(LoaderprobeError, match=r"rank 1 \(b\): the measuring process was killed by SIGKILL \(run 1\)"):
        loaderprobe.bandwidth(tmp_path, coordinator=failing)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "0.jpg").write_bytes(bytes(50_000))
    with pytest.raises(BadValue, match="has 1 file to read, too few for 1 rank of 1 reader: 4 are needed"):
        loaderprobe.bandwidth(tmp_path / "one", coordinator=coordinator, readers=1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"readers": [0, 1]}, "concurrency must be 1 or more"),
        ({"readers": ()}, "--readers: the list is empty"),
        ({"seconds": 0.0}, "--seconds: 0.0 is less than 0.1"),
        ({"seconds": float("inf")}, "--seconds: inf is more than 3600"),
        ({"scratch": "big"}, "big"),
        ({"scratch": "1kB"}, "at least 128 KiB"),
        ({"ranks": "1,2x2"}, "this one only"),
        ({"ranks": 2, "readers": [1, 2]}, "one number of readers each"),
        ({"ranks": 2, "scratch": "1GB"}, "--scratch is of one process only"),
        ({"ranks": [1, 2], "drop_caches": True}, "--drop-caches is of one process only"),
    ],
)
def test_impossible_probes_are_bad_values(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Before anything is read, or any process is started."""
    with pytest.raises(BadValue, match=says):
        loaderprobe.bandwidth(tmp_path, **changes)


def test_the_ladder_of_ranks() -> None:
    """(ranks, nodes, readers): doubles up to all processes, and ends with as many readers in one, which separates the
    limit of a process from the storage's; layouts choose the nodes."""

    def steps(*layouts: str) -> list[tuple[int, int, int]]:
        found = ladder_of([parse_layout(text) for text in layouts] or None, TWO_NODES, 2)
        return [(step.ranks, step.nodes, step.readers) for step in found]

    assert steps() == [(1, 1, 2), (2, 1, 2), (4, 2, 2), (1, 1, 8)] and steps("2", "2x1") == [(2, 1, 2), (2, 2, 2)]
    with pytest.raises(BadValue, match="8 ranks are asked for"):
        steps("8")


def odd_path(place: Path, kind: str) -> Path:
    path = place / "path"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(path))  # the path of a socket may not be long
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "empty file":
        path.touch()
    elif kind == "below a file":
        path.touch()
        path /= "x"
    elif kind in ("empty folder", "odd things"):
        path.mkdir()
    if kind == "odd things":
        os.mkfifo(path / "pipe")
        (path / "broken.jpg").symlink_to(place / "none")
        (path / "again").symlink_to(path)
    return Path("/dev/zero") if kind == "device" else path


ODD = {
    "pipe": "is a pipe", "socket": "is a socket", "device": "is a device", "loop": "symbolic links",
    "nothing": "No such file", "empty folder": "it is empty", "empty file": "is empty",
    "odd things": "1 a broken link", "below a file": "Not a directory",
}  # fmt: skip
INVOKE_EACH = """
import json, sys
from tests.cli.invoke import invoke
done = [invoke("bandwidth", *arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in done]))
"""


def test_a_path_that_cannot_be_probed_has_a_code_a_reason_and_a_next_step(
    tmp_path_factory: pytest.TempPathFactory, python: str
) -> None:
    """It is refused at once, in a process that may not hang, with exit code 2 and what to do."""
    asked = json.dumps([[str(odd_path(tmp_path_factory.mktemp("odd"), kind)), *QUICK] for kind in ODD])
    command = [python, "-c", INVOKE_EACH, asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    for says, (code, stdout, stderr) in zip(ODD.values(), json.loads(done.stdout), strict=True):
        words = " ".join(stderr.split())
        assert (code, stdout) == (2, "") and says in words and "try:" in words


def test_caches_that_may_not_be_dropped_are_a_missing_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a user without root's rights."""

    def refused() -> None:
        raise MissingPart("not permitted here")

    random_files(tmp_path, count=12)
    monkeypatch.setattr("loaderprobe.api.bandwidth.drop_all_caches", refused)
    with pytest.raises(MissingPart, match="not permitted here"):
        loaderprobe.bandwidth(tmp_path, drop_caches=True, readers=1, seconds=0.1)


def test_ctrl_c_shows_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted probe prints the ladder so far, and the exit code says that it was interrupted."""
    interrupted = replace(example_bandwidth(), interrupted=True)
    monkeypatch.setattr("loaderprobe.api.bandwidth.bandwidth", lambda *_, **__: Bandwidth.of(interrupted))
    done = invoke("bandwidth", "/data", "--quiet")
    assert done.exit_code == 130 and "interrupted" in done.stdout.lower() and "MB/s" in done.stdout
    assert invoke("bandwidth", "/data", "--quiet", "--md").stdout.startswith("# Storage delivers ")


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_hangup_interrupts_unless_it_is_ignored(before: signal.Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by nohup: the probe goes on when its terminal is closed. Who calls the command has its signals back."""
    during: list[object] = []

    def probe(*_: object, **__: object) -> Bandwidth:
        during.append(signal.getsignal(signal.SIGHUP))
        return Bandwidth.of(example_bandwidth())

    monkeypatch.setattr("loaderprobe.api.bandwidth.bandwidth", probe)
    usual = {number: signal.signal(number, before) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        assert invoke("bandwidth", "/data", "--quiet").exit_code == 0
        assert {signal.getsignal(number) for number in usual} == {before}
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert during == [before if before == signal.SIG_IGN else signal.default_int_handler]
