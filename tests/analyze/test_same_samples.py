"""Ranks that share a data set, and ranks that each take all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.ranks import differing, same_samples
from loaderprobe.records.diagnosis import Drawn

ONE = Drawn(batch_size=8, workers=2, prefetch_factor=2, files=tuple(range(100)), first=1, whole=False)


def rank(first: int, *, count: int = 100, whole: bool = False) -> Drawn:
    """Whose files begin with this number."""
    return replace(ONE, files=tuple(range(first, first + count)), first=first, whole=whole)


def test_shares_of_one_data_set_are_no_mistake() -> None:
    """Nor where a sampler repeats a few samples to make the shares equal, or two ranks read from one shard."""
    assert same_samples([rank(0), rank(100)]) is None
    assert same_samples([rank(0), rank(95), rank(190)]) is None


@pytest.mark.parametrize("size", [2, 8])
def test_ranks_that_open_the_same_files_are_seen(size: int) -> None:
    """Whatever their number: all but the first of them read again what another had read."""
    note = same_samples([ONE] * size)
    assert note is not None and note.code == "same_samples"
    assert note.facts == {"ranks": size, "again": 100.0 * (size - 1), "files": 100.0 * size}


def test_a_shuffled_large_data_set_overlaps_by_chance() -> None:
    """Some files in common are enough where each sampler goes through everything, and not otherwise."""
    assert same_samples([rank(0, whole=True), rank(96, whole=True)]) is not None
    assert same_samples([rank(0, whole=True), rank(96)]) is None


def test_a_data_set_of_each_rank_s_own_is_a_share() -> None:
    """Such as a Subset, whose sampler goes through all of it; also where all open a file of labels."""
    assert same_samples([rank(0, whole=True), rank(100, whole=True)]) is None
    labels = 9999
    assert same_samples([replace(ONE, files=(labels, *range(at, at + 50)), whole=True) for at in (0, 50)]) is None


def test_without_files_the_first_batches_show_it() -> None:
    """Where they have the same content; one that could not be hashed shows nothing."""
    hidden = replace(ONE, files=())
    found = same_samples([hidden, hidden])
    assert found is not None and found.code == "same_batches"
    assert same_samples([hidden, replace(hidden, first=2)]) is None
    assert same_samples([replace(hidden, first=None)] * 2) is None


def test_the_rank_whose_loader_is_another_is_found() -> None:
    """With the first setting that differs."""
    assert differing([ONE, ONE]) is None
    assert differing([ONE, ONE, replace(ONE, workers=3)]) == (2, "workers")
    assert differing([ONE, replace(ONE, exchanges=True)]) == (1, "exchanges")
