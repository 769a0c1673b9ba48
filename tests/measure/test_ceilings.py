"""The storage under a sweep's files: bytes/s or requests/s, as small files beside large ones show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.measure import ceilings
from loaderprobe.records.files import FileSet
from loaderprobe.records.phases import CacheLabel, StorageCeiling
from loaderprobe.testing import example_files
from tests.examples.bandwidth import example_phase

SIZES = (10_000, 20_000, 30_000, 40_000) * 4


@pytest.mark.parametrize(
    ("sizes", "cache", "by_requests", "expected"),
    [
        (SIZES, "cold", True, [1.0]),
        (SIZES, "cold", False, [0.0]),
        (SIZES, "warm", False, []),
        ((20_000,) * 16, "cold", True, []),
    ],
    ids=["requests", "bytes", "from memory", "one size"],
)
def test_the_rates_of_small_and_large_files_tell_requests_from_bytes(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], cache: CacheLabel, by_requests: bool, expected: list[float]
) -> None:
    """1 where storage gives so many files/s of any size, 0 where so many bytes/s; nothing where it cannot be seen."""

    def probed(_: None, files: FileSet, readers: int, **_times: Any) -> StorageCeiling:
        rate = 100 * files.mean_size_bytes if by_requests else 2e6
        return StorageCeiling(data="", phases=(replace(example_phase(readers, rate), cache=cache),))

    monkeypatch.setattr(ceilings, "raise_ceiling", probed)
    names = tuple(f"{number}.jpg" for number in range(len(sizes)))
    files = replace(example_files(), paths=names, classes=(0,) * len(sizes), size_bytes=sizes)
    found = [each.value for each in ceilings._by_file_size(files)]
    assert found == pytest.approx(expected)
