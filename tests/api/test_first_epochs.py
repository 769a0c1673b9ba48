"""Data sets whose second epoch is not like the first, that read in threads, or whose batches differ in cost."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from loaderprobe.analyze.verdict.rates import cold_fraction
from loaderprobe.records.measurement import Measurement
from loaderprobe.system.device import locate
from tests.api import samples
from tests.api.conftest import Judge, Plan
from tests.api.samples import Numbers, RawImages
from tests.said import all_said

BIG, MAKING_S = 200_000, 0.02


class Keeping(Numbers):
    """Makes each sample once, with 20 ms of CPU time: a kept one is faster even where the host takes half the time."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.kept:
            end_s = time.thread_time() + MAKING_S
            while time.thread_time() < end_s:
                pass
            self.kept[index] = super().__getitem__(index)
        return self.kept[index]


class InThreads(RawImages):
    """Reads whole batches in threads of its own."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return [(len(data), index) for data, index in pool.map(self._read, indices)]

    def _read(self, index: int) -> tuple[bytes, int]:
        return Path(self.paths[index]).read_bytes(), index


class Texts(Numbers):
    """Batches of texts of very different lengths."""

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(8 << (index // 4 % 4))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_that_keeps_its_samples_is_judged_on_new_ones(judge: Judge, workers: int) -> None:
    """No advice to buy an accelerator of two million images/s in a first epoch that is input-bound."""
    # Batches of two: those that are ready when a segment begins count for little.
    loader = DataLoader(Keeping(4000), batch_size=2, num_workers=workers)
    found = judge(loader, lambda batch: None, modes=("warm",))
    assert found.measurement.access == "fresh"
    assert found.first_epoch_images_per_s is not None
    assert found.first_epoch_images_per_s < 1.04 / MAKING_S * max(workers, 1)
    assert found.later_epochs_images_per_s is not None
    assert any("in the first epoch" in note for note in all_said(found.notes))


def test_one_that_is_too_small_for_that_is_judged_on_later_epochs(judge: Judge) -> None:
    """And says so, with the rate of the first."""
    found = judge(DataLoader(Keeping(64), batch_size=4, num_workers=1))
    assert found.measurement.access != "fresh"
    assert found.first_epoch_images_per_s is not None and found.later_epochs_images_per_s is not None
    assert any("verdict is on the later epochs" in note for note in all_said(found.notes))


def test_bytes_that_threads_of_the_data_set_read_are_counted(judge: Judge, tmp_path: Path) -> None:
    """A worker belongs to the loader, with all its threads: "0 % came from storage" was false."""
    if not locate(tmp_path).counts_reads:
        pytest.skip("the temporary directory counts no reads")
    paths = [tmp_path / f"{number}.raw" for number in range(64)]
    for path in paths:
        path.write_bytes(bytes(BIG))
    loader = DataLoader(InThreads([str(path) for path in paths]), batch_size=2, num_workers=1)
    measured = judge(loader, modes=("warm",)).measurement
    assert measured.access == "files"
    cold = [segment for segment in measured.segments if segment.mode == "baseline"]
    assert (cold_fraction(measured, cold) or 0.0) > 0.9


def test_samples_drawn_twice_are_read_once(judge: Judge, tmp_path: Path) -> None:
    """With replacement, bytes from storage are compared with the files that had not been read yet."""
    paths = [tmp_path / f"{number}.raw" for number in range(12)]
    for path in paths:
        path.write_bytes(bytes(samples.FILE_BYTES))
    data = RawImages([str(path) for path in paths])
    drawn = RandomSampler(data, replacement=True, num_samples=400)
    measured = judge(DataLoader(data, batch_size=4, sampler=drawn, num_workers=1)).measurement
    delivered = [segment.delivered_bytes or 0 for segment in measured.segments]
    distinct = [segment.distinct_bytes or 0 for segment in measured.segments]
    assert max(distinct) <= len(paths) * samples.FILE_BYTES
    assert sum(distinct) < sum(delivered)


def test_compute_alone_steps_on_several_batches(judge: Judge) -> None:
    """Batches differ in cost, and the first one speaks for none of the others."""
    lengths: list[int] = []
    alone: list[set[int]] = []
    loader = DataLoader(Texts(64), batch_size=4, num_workers=1)

    def compute_alone_first(measurement: Measurement, *, thorough: bool) -> Plan:
        if not measurement.segments:
            return (("resident", "training"),)
        alone.append(set(lengths))
        return (("baseline", "loader_only"), ("baseline", "training")) if len(alone) == 1 else ()

    judge(loader, lambda batch: lengths.append(batch.shape[1]), next_round=compute_alone_first)
    assert {8, 16, 32, 64} <= alone[0]
