"""Configurations and file sets: what names them, what they refuse."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.errors import BadValue
from loaderprobe.records.config import LoaderSpec
from loaderprobe.testing import example_config, example_files


def test_a_key_is_the_same_in_every_process() -> None:
    """Resuming tomorrow finds what was measured today: no hash of this process is in the key."""
    script = "from loaderprobe.testing import example_config; print(example_config().key)"
    keys = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert keys == {example_config().key}


@pytest.mark.parametrize(
    "changes",
    [{"prefetch_factor": -1}, {"workers": 1, "prefetch_factor": 0}, {"batch_size": -1}, {"rounds": -1}],
)
def test_negative_and_contradictory_numbers_are_refused(changes: dict[str, int]) -> None:
    """Workers without a batch ahead, or less than none, cannot be made."""
    with pytest.raises(BadValue):
        example_config(**changes)


def test_a_serial_loader_has_no_prefetch_factor() -> None:
    """With 0 workers a prefetch factor means nothing, so it must be 0."""
    with pytest.raises(BadValue, match="serial"):
        LoaderSpec(workers=0, prefetch_factor=2)
    assert example_config(workers=0).loader.batches_ahead == 0


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"root": "/elsewhere"}, False),
        ({"size_bytes": (1, 2, 4)}, False),
        ({"paths": ("b", "a", "c")}, False),
        ({"label": "other"}, True),
        ({"images_found": 99}, True),
        ({"skipped_count": 5}, True),
    ],
)
def test_a_fingerprint_depends_on_places_sizes_and_order(change: dict[str, object], same: bool) -> None:
    """What describes the set does not change which files are read."""
    files = replace(example_files(3), paths=("a", "b", "c"), size_bytes=(1, 2, 3))
    assert (replace(files, **change).fingerprint == files.fingerprint) is same  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("change", "same"),
    [({"root": "/elsewhere"}, True), ({"size_bytes": (1, 2, 4)}, False), ({"paths": ("b", "a", "c")}, False)],
)
def test_the_content_is_that_of_a_copy_elsewhere(change: dict[str, object], same: bool) -> None:
    """The same data on two storages compare; other names, sizes or another order are other data."""
    files = replace(example_files(3), paths=("a", "b", "c"), size_bytes=(1, 2, 3))
    assert (replace(files, **change).content == files.content) is same  # type: ignore[arg-type]  # by name


@given(st.integers(1, 7), st.integers(0, 30), st.integers(0, 30))
def test_files_go_round(count: int, first: int, images: int) -> None:
    """Image k is file k modulo the number of files, wherever one begins."""
    files = example_files(count)
    assert files.absolute(first, images) == [
        Path("/nowhere", files.paths[k % count]) for k in range(first, first + images)
    ]


@given(st.integers(1, 9), st.integers(1, 6))
def test_shards_of_ranks_are_disjoint_and_together_the_whole(count: int, size: int) -> None:
    """Of sizes that differ by one at most; fewer files than ranks are refused."""
    files = example_files(count)
    if count < size:
        with pytest.raises(BadValue, match="cannot be shared"):
            files.shard(0, size)
        return
    shards = [files.shard(rank, size) for rank in range(size)]
    assert sorted(path for each in shards for path in each.paths) == sorted(files.paths)
    assert max(each.count for each in shards) - min(each.count for each in shards) <= 1


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_delivered_bytes_add_up(first: int, one: int, other: int) -> None:
    """Two stretches in turn deliver what they deliver as one."""
    files = replace(example_files(5), size_bytes=(1, 10, 100, 1000, 10_000))
    parts = files.delivered_bytes(first, one) + files.delivered_bytes(first + one, other)
    assert parts == files.delivered_bytes(first, one + other)


@pytest.mark.parametrize("changes", [{"paths": ("a",)}, {"classes": (0,)}, {"size_bytes": (1,)}])
def test_columns_of_different_length_are_refused(changes: dict[str, object]) -> None:
    """Each file has one path, one class and one size."""
    with pytest.raises(BadValue, match="differ in number"):
        replace(example_files(3), **changes)  # type: ignore[arg-type]  # by name
