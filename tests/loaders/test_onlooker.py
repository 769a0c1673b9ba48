"""What the workers of a watched loader record, over the epochs of a script."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from loaderprobe.loaders.onlooker import WatchedLoader
from tests.examples.training import Costly


@pytest.mark.parametrize("workers", [0, 1])
def test_records_of_all_epochs_are_there_until_they_are_forgotten(tmp_path: Path, workers: int) -> None:
    """Also after the last ones were asked for."""
    loader: DataLoader[Any] = DataLoader(Costly(0.0, 20), 8, num_workers=workers)
    watched, begun = WatchedLoader(tmp_path), []
    for _ in range(3):
        begun.append(time.perf_counter_ns())
        assert len(list(watched.iterate(loader, DataLoader.__iter__))) == 3
    assert [sum(watched.records(since).images) for since in (*begun, 0)] == [60, 40, 20, 60]
    assert watched.records(begun[1]).batch == tuple(range(6))
    watched.forget(begun[1])
    assert sum(watched.records(0).images) == 40


@pytest.mark.parametrize("workers", [0, 1])
def test_without_a_place_for_the_log_training_goes_on(tmp_path: Path, workers: int) -> None:
    """The loader is iterated as it would be, and there are no records."""
    loader: DataLoader[Any] = DataLoader(Costly(0.0, 20), 8, num_workers=workers)
    watched = WatchedLoader(tmp_path / "removed" / "0")
    assert len(list(watched.iterate(loader, DataLoader.__iter__))) == 3
    assert watched.records(0).images == ()
