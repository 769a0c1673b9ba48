"""Opens/s and stats/s: when they may be called cold, and what is dropped for them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.records.bandwidth import BandwidthMeasurement
from loaderprobe.storage import metadata as metadata_module
from loaderprobe.storage.files import Sample, sample_files
from loaderprobe.storage.metadata import (
    LEAST_INODE_BYTES,
    MOST_DROPS,
    MetadataSettings,
    metadata_label,
    run_metadata,
)
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.testing import FakeClock, FakePageCache, example_location
from tests.said import said
from tests.skips import needs_cold_reads

BLOCK = example_location("/data")


def _settings(sample: Sample, **changes: object) -> MetadataSettings:
    options: dict[str, object] = {
        "sample": sample, "location": BLOCK, "cores_available": 64.0, "seconds": 0.01, "longest_s": 0.3, "seed": 0,
        "drop_all": None, "clock": SystemClock(), **changes,
    }  # fmt: skip
    return MetadataSettings(**options)  # type: ignore[arg-type]  # options by name, for brevity


def _probe(path: Path, **changes: object) -> BandwidthMeasurement:
    options: dict[str, object] = {"path": path, "readers": (1,), "seconds": 0.03, "metadata": True, **changes}
    request = ProbeRequest(**options)  # type: ignore[arg-type]  # options by name, for brevity
    return probe_bandwidth(request, cache=FakePageCache(blind=True), on_phase=lambda *_: None, clock=SystemClock())


@pytest.mark.parametrize(
    ("changes", "drops", "storage_bytes", "server_calls", "label"),
    [
        ({}, 1, 100 * LEAST_INODE_BYTES, None, "cold"),
        ({}, 1, 100 * LEAST_INODE_BYTES - 1, None, "warm"),
        ({}, 0, 10**9, None, "warm"),
        ({}, 1, None, None, "unproved"),
        ({"kind": "fuse", "devices": ()}, 1, 10**9, None, "unproved"),
        ({"kind": "network", "filesystem": "nfs4"}, 3, 0, None, "unproved"),
        ({"kind": "network", "filesystem": "nfs4"}, 3, 0, 100, "cold"),
        ({"kind": "network", "filesystem": "nfs4"}, 3, 0, 99, "warm"),
        ({"kind": "network", "filesystem": "nfs4"}, 0, 0, 100, "warm"),
        ({"kind": "memory", "filesystem": "tmpfs"}, 1, 10**9, None, "warm"),
    ],
)
def test_only_dropped_and_counted_names_are_cold(
    changes: dict[str, object], drops: int, storage_bytes: int | None, server_calls: int | None, label: str
) -> None:
    """Dropped is not enough: bytes must come back from storage, or calls reach the server; without a drop neither."""
    place = replace(BLOCK, **changes)  # type: ignore[arg-type]  # fields by name
    assert metadata_label(place, drops, storage_bytes, server_calls, 100) == label


def test_nothing_is_dropped_unless_asked(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option no cache of the machine is touched, and the label is warm however many bytes were read."""
    counted = itertools.count(0, 10**9)
    monkeypatch.setattr(metadata_module, "own_reads", lambda: next(counted))
    phases = [run_metadata(_settings(sample, operation=operation, readers=2)) for operation in ("open", "stat")]
    assert [(phase.operation, phase.readers) for phase in phases] == [("open", 2), ("stat", 2)]
    assert {(phase.metadata, phase.drops) for phase in phases} == {("warm", 0)}


def test_each_pass_follows_a_drop(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is opened once after a drop; the number of drops has a limit, whatever time is left."""
    monkeypatch.setattr(metadata_module, "SETTLED_AT", 0.0)
    drops: list[int] = []
    counted = itertools.count(0, 10**6)
    monkeypatch.setattr(metadata_module, "own_reads", lambda: next(counted))
    found = run_metadata(_settings(sample, seconds=60.0, longest_s=60.0, drop_all=lambda: drops.append(1)))
    assert (len(drops), found.drops, found.total_ops) == (MOST_DROPS, MOST_DROPS, MOST_DROPS * len(sample.paths))
    assert found.metadata == "cold" and found.storage_bytes == MOST_DROPS * 10**6
    assert found.ops_low <= found.ops_per_s <= found.ops_high
    monkeypatch.undo()
    assert found.short and not run_metadata(_settings(sample)).short


@pytest.mark.parametrize(("longest_s", "drops"), [(0.0, 1), (25.0, 3), (1000.0, MOST_DROPS)])
def test_slow_drops_end_a_phase(sample: Sample, longest_s: float, drops: int) -> None:
    """Where a drop takes 10 s, no pass begins after the longest time, and at least one is made."""
    clock = FakeClock()
    settings = _settings(
        sample, seconds=60.0, longest_s=longest_s, drop_all=lambda: clock.sleep(10), clock=clock
    )  # fmt: skip
    assert run_metadata(settings).drops == drops


def test_a_drop_that_drops_nothing_is_called_warm(folder: Path) -> None:
    """Names that stay in memory after a drop, as of files that another program holds, are not passed off as cold."""
    needs_cold_reads(folder)
    measured = _probe(folder, drop_all=lambda: None)
    assert {phase.metadata for phase in measured.metadata} == {"warm"}
    assert all(phase.drops for phase in measured.metadata)


def test_a_drop_that_is_refused_is_the_users_to_know(sample: Sample) -> None:
    """The error of the drop is passed on; nothing is measured instead."""

    def refuse() -> None:
        raise MissingPart("no permission", hint="be root")

    with pytest.raises(MissingPart):
        run_metadata(_settings(sample, drop_all=refuse))


def test_files_that_vanish_are_counted_and_all_gone_is_an_error(folder: Path) -> None:
    """One lost file is a reason beside the rate; without any there is no rate."""
    sample = sample_files(folder, limit_bytes=10**9, seed=0)
    sample.paths[0].unlink()
    assert run_metadata(_settings(sample)).unread == {"vanished": 1}
    for path in sample.paths[1:]:
        path.unlink()
    with pytest.raises(BadValue, match="vanished"):
        run_metadata(_settings(sample))


def test_a_probe_measures_them_only_when_asked_and_not_of_blocks(folder: Path) -> None:
    """A sweep's own probes do not; a scratch file is one file, of which there are no opens/s."""
    assert _probe(folder, metadata=False).metadata == ()
    assert {phase.operation for phase in _probe(folder).metadata} == {"open", "stat"}
    scratch = _probe(folder, scratch_bytes=1 << 20)
    assert scratch.metadata == () and "blocks" in {each.name: said(each.reason) for each in scratch.missing}["metadata"]
