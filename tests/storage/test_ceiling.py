from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loaderprobe.records.bandwidth import BandwidthPhase, StorageCeiling
from loaderprobe.records.files import FileSet
from loaderprobe.records.remark import Remark
from loaderprobe.storage import ceiling as ceiling_module
from loaderprobe.storage.ceiling import ceiling_of_parts, raise_ceiling
from loaderprobe.storage.files import LARGE_BLOCK_BYTES
from loaderprobe.storage.phase import PhaseSettings
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from tests.examples.bandwidth import example_phase
from tests.said import said
from tests.skips import needs_cold_reads


def _files(folder: Path) -> FileSet:
    found = sorted(folder.iterdir())
    return FileSet(
        label="as-found", root=str(folder), generated=False, images_found=len(found),
        paths=tuple(path.name for path in found),
        classes=(0,) * len(found),
        size_bytes=tuple(path.stat().st_size for path in found),
    )  # fmt: skip


def _raise(known: StorageCeiling | None, files: FileSet, readers: int) -> StorageCeiling:
    return raise_ceiling(known, files, readers, seconds=0.1, longest_s=0.1, cache=LinuxPageCache())


def _why(missing: Remark | None) -> str:
    return said(missing) if missing else ""


def test_each_concurrency_is_measured_once(folder: Path) -> None:
    """A phase that is known is not measured again; another number of readers adds one."""
    needs_cold_reads(folder)
    files = _files(folder)
    first = _raise(None, files, 2)
    assert first.data == files.fingerprint and [phase.readers for phase in first.phases] == [2]
    assert first.phases[0].cache == "cold"
    assert _raise(first, files, 2) is first
    assert [phase.readers for phase in _raise(first, files, 1).phases] == [2, 1]


def test_where_reads_are_not_counted_there_is_no_ceiling(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On memory and FUSE nothing could be compared, and the reason is kept."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or locate(shared).counts_reads:
        pytest.skip("/dev/shm is not memory here")
    monkeypatch.setattr(ceiling_module, "locate_pieces", lambda *_: locate(shared))
    found = _raise(None, _files(folder), 2)
    assert found.phases == () and "not counted" in _why(found.missing)


def test_a_failure_is_kept_as_a_reason(folder: Path) -> None:
    """Files that have gone cost the ceiling, not the sweep."""
    files = _files(folder)
    for path in folder.iterdir():
        path.unlink()
    found = _raise(None, files, 1)
    assert found.phases == () and ("vanished" in _why(found.missing) or "not counted" in _why(found.missing))


def test_a_folder_that_has_gone_costs_the_ceiling_only(folder: Path) -> None:
    """Even where the storage cannot be located any more, the sweep goes on."""
    files = _files(folder)
    shutil.rmtree(folder)
    assert "failed" in _why(_raise(None, files, 1).missing)


def test_the_ceiling_reads_as_the_loader_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole files, at random, through the page cache, with as many readers as asked."""
    seen: list[PhaseSettings] = []

    def made(settings: PhaseSettings) -> BandwidthPhase:
        seen.append(settings)
        return example_phase(settings.readers, 1e8)

    monkeypatch.setattr(ceiling_module, "run_phase", made)
    if not _raise(None, _files(folder), 3).phases:
        pytest.skip("reads are not counted here")
    (settings,) = seen
    assert (settings.name, settings.readers, settings.direct) == ("files", 3, False)
    assert settings.supply.sample.block_bytes is None and len(settings.supply.sample.pieces) == 20


def test_shards_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader reads unknown parts of them; blocks of 1 MB get about the most that storage has."""
    shard = tmp_path / "000.tar"
    shard.write_bytes(bytes(LARGE_BLOCK_BYTES * 3 + 5))
    seen: list[PhaseSettings] = []

    def made(settings: PhaseSettings) -> BandwidthPhase:
        seen.append(settings)
        return example_phase(settings.readers, 1e8)

    monkeypatch.setattr(ceiling_module, "run_phase", made)
    sizes = {str(shard): shard.stat().st_size}
    found = ceiling_of_parts(sizes, 2, seconds=0.1, longest_s=0.1, cache=LinuxPageCache())
    if not found.phases:
        pytest.skip("reads are not counted here")
    (settings,) = seen
    assert sorted(piece.size_bytes for piece in settings.supply.sample.pieces) == [5, *[LARGE_BLOCK_BYTES] * 3]
    empty = ceiling_of_parts({}, 2, seconds=0.1, longest_s=0.1, cache=LinuxPageCache())
    assert empty.phases == () and empty.missing
