"""A slow disk that cannot be had says why, and leaves nothing behind; those that are planted verify themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.errors import BadValue
from tests.planted.files import random_files
from tests.planted.slow_disk import CannotPlant, slow_disk

BYTES_PER_S = 20e6


def _traces(scratch: Path) -> list[str]:
    """What lies in the folder, is mounted below it or lends it to a loop device."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    images = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [text for text in (*lines, *images) if str(scratch) in text] + [path.name for path in scratch.iterdir()]


def test_fuse_cannot_be_told_what_to_read_ahead(tmp_path: Path) -> None:
    """Then there is no plant, and the reason is said."""
    with (
        pytest.raises(CannotPlant, match="fuse: what is read ahead is agreed with the server"),
        slow_disk(
            kind="token_bucket",
            bytes_per_s=BYTES_PER_S,
            fill=random_files,
            scratch=tmp_path,
            read_ahead_bytes=1 << 20,
            ways=("fuse",),
        ),
    ):
        pass


def test_every_reason_is_named_where_nothing_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk too small for a file system, and no library for FUSE: three ways, three reasons, and no trace."""
    monkeypatch.setenv("FUSE_LIBRARY_NAME", "no-such-library")
    with (
        pytest.raises(CannotPlant, match="no token_bucket disk can be planted here") as caught,
        slow_disk(kind="token_bucket", bytes_per_s=BYTES_PER_S, fill=random_files, scratch=tmp_path, size_bytes=1000),
    ):
        pass
    assert [reason.partition(":")[0] for reason in caught.value.reasons] == ["blkio", "io.max", "fuse"]
    assert _traces(tmp_path) == []


def test_a_limit_that_does_not_fit_the_kind_is_refused(tmp_path: Path) -> None:
    """A rate for a latency disk, or none at all for a token bucket, plants nothing."""
    with (
        pytest.raises(BadValue, match="latency_s"),
        slow_disk(kind="latency", bytes_per_s=1e6, fill=random_files, scratch=tmp_path),
    ):
        pass
    with (
        pytest.raises(BadValue, match="bytes_per_s"),
        slow_disk(kind="token_bucket", fill=random_files, scratch=tmp_path),
    ):
        pass
