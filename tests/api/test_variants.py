"""Loaders as users make them: each is really run, in two rounds of a few batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.policy import JUDGING
from loaderprobe.compute.step import NoCompute
from loaderprobe.measure.own.loader import LoaderRequest, measure_loader
from loaderprobe.records.files import BatchFiles
from loaderprobe.records.measurement import Activity, Measurement, Mode
from loaderprobe.testing import FakePageCache
from tests.api import samples
from tests.api.conftest import Judge
from tests.api.samples import RawImages, Shared
from tests.said import all_said, said


def _files_seen(found: Diagnosis) -> bool:
    return found.measurement.access == "files" and found.cache == "cold"


@pytest.mark.parametrize(
    ("form", "workers"), [("tuple", 0), ("dict", 2), ("nested", 0), ("namedtuple", 2), ("alone", 0)]
)
def test_batches_of_any_form(judge: Judge, paths: list[str], form: str, workers: int) -> None:
    """Counted by their first tensor, their files learned."""
    taken: list[Any] = []
    found = judge(DataLoader(RawImages(paths, form), batch_size=4, num_workers=workers), taken.append)
    assert (found.batch_size, found.workers, found.sample) == (4, workers, "images")
    assert found.rounds == 2
    assert _files_seen(found)
    assert found.measurement.config.resolution == Path(paths[0]).parent.name, "the data are called as their folder"
    assert type(taken[0]) is {"tuple": list, "dict": dict, "nested": dict, "namedtuple": samples.Sample}.get(
        form, torch.Tensor
    )


@pytest.mark.parametrize(
    ("options", "workers"), [({"batch_size": 4}, 1), ({"batch_size": None, "sampler": samples.Pairs(64, 4)}, 0)]
)
def test_batches_that_a_data_set_finishes(judge: Judge, options: dict[str, Any], workers: int) -> None:
    """Are counted by their indices: its tuple has two items, of four samples."""
    data = samples.Finished() if options["batch_size"] else samples.ByLists()
    found = judge(DataLoader(data, collate_fn=samples.finished, num_workers=workers, **options))
    assert found.batch_size == 4
    assert set(found.measurement.worker_batches.images) == {4}


def test_samples_in_memory_are_no_cold_files(judge: Judge, paths: list[str]) -> None:
    """Although files lie where the data set says that it came from."""
    found = judge(DataLoader(samples.InMemory(str(Path(paths[0]).parent)), batch_size=4, num_workers=1))
    assert (found.measurement.access, found.cache) == ("none", "as-found")
    assert "4 a batch, no files read" in str(found)


@pytest.mark.usefixtures("real_waits")
@pytest.mark.parametrize("workers", [0, 2])
def test_every_mode_is_measured_on_photographs(judge: Judge, photos: list[str], workers: int) -> None:
    """Files learned from Pillow are read cold, warm and without decoding; their bytes are those of the files. Workers
    are sampled meanwhile."""
    loader = DataLoader(samples.Cropped(photos), batch_size=2, shuffle=True, num_workers=workers)
    found = judge(loader, lambda batch: None, modes=("warm", "cached_samples", "no_transport"))
    assert found.measurement.waits is not None, found.measurement.missing
    seen = {segment.mode for segment in found.measurement.segments}
    assert seen == {"baseline", "warm", "cached_samples", "resident"} | ({"no_transport"} if workers else set())
    mean = sum(Path(path).stat().st_size for path in photos) / len(photos)
    read = [segment for segment in found.measurement.segments if segment.mode != "resident"]
    delivered = sum(segment.delivered_bytes or 0 for segment in read) / sum(segment.steps * 2 for segment in read)
    assert delivered == pytest.approx(mean, rel=0.2)


class _Spy(FakePageCache):
    """Remembers what it was asked to hold and to drop."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int]] = []
        self.seen: set[str] = set()

    def evict(self, paths: Sequence[Path]) -> None:
        self.told.append(("evict", len(set(paths))))
        self.seen.update(map(str, paths))

    def warm(self, paths: Sequence[Path]) -> None:
        self.told.append(("warm", len(set(paths))))
        self.seen.update(map(str, paths))


@pytest.mark.parametrize("workers", [0, 2])
def test_all_files_and_no_others_are_evicted_and_warmed(photos: list[str], workers: int) -> None:
    """Before they are looked at for the second time, and before each cold and each warm segment, in this order."""
    spy = _Spy()
    for path in photos:
        Path(path).read_bytes()  # a cache that only remembers cannot make cold again what once came from storage

    def next_round(measurement: Measurement, *, thorough: bool) -> tuple[tuple[Mode, Activity], ...]:
        plan: tuple[tuple[Mode, Activity], ...] = (
            ("baseline", "loader_only"),
            ("warm", "loader_only"),
            ("cached_samples", "loader_only"),
        )
        return plan[len(measurement.segments) :][:1]

    loader = DataLoader(samples.Cropped(photos), batch_size=2, shuffle=True, num_workers=workers)
    asked = LoaderRequest(judging=JUDGING, budget_s=60.0, next_round=next_round)
    found = measure_loader(loader, NoCompute, asked, lambda *_: None, spy)
    measured, files = found.measurement, found.files
    assert [segment.mode for segment in measured.segments] == ["baseline", "warm", "cached_samples"]
    assert [what for what, _ in spy.told][:4] == ["evict", "evict", "warm", "evict"]
    assert isinstance(files, BatchFiles)
    assert spy.seen == set(photos) == {path for batch in files.paths for path in batch}
    assert spy.told[0] == ("evict", len(photos))


def test_warm_files_can_be_judged(judge: Judge, paths: list[str]) -> None:
    """Storage is then no part of the question."""
    found = judge(DataLoader(RawImages(paths), batch_size=4, num_workers=1), cache="warm")
    assert found.cache == "warm"
    assert {segment.mode for segment in found.measurement.segments} == {"warm"}


@pytest.mark.parametrize(("batch_size", "workers"), [(4, 2), (None, 0)])
def test_an_iterable_is_shared_by_its_workers(
    judge: Judge, paths: list[str], workers: int, batch_size: int | None
) -> None:
    """It begins again when it ends, as often as needed, and its files are learned though it shuffles."""
    loader = DataLoader(Shared(paths, length=64), batch_size=batch_size, num_workers=workers)
    assert len(loader) > 0
    found = judge(loader, modes=("warm", "cached_samples"))
    assert (found.batch_size, _files_seen(found)) == (batch_size or 1, True)


def test_an_iterable_reads_the_same_files_each_time(judge: Judge, paths: list[str], tmp_path: Path) -> None:
    """A pool of batches that begins again is shuffled as before, so that eviction finds what will be read."""
    found = judge(DataLoader(Shared(paths[:20]), batch_size=4, num_workers=2), modes=("cached_samples",))
    assert _files_seen(found)
    assert all(s.delivered_bytes == s.steps * 4 * samples.FILE_BYTES for s in found.measurement.segments)


def test_samplers_of_ones_own(judge: Judge, paths: list[str]) -> None:
    """They decide what is read, and are not touched themselves."""
    sampler = samples.Backwards(len(paths))
    found = judge(DataLoader(RawImages(paths), batch_size=4, sampler=sampler, num_workers=1))
    assert sampler.begun == 0
    assert found.batch_size == 4


def test_batch_samplers_of_ones_own(judge: Judge, paths: list[str]) -> None:
    """A short last batch is left out."""
    batches = samples.Pairs(len(paths), 6)
    found = judge(DataLoader(RawImages(paths), batch_sampler=batches, num_workers=2))
    assert found.batch_size == 6
    assert set(found.measurement.worker_batches.images) == {6}
    assert not any("differ in length" in note for note in all_said(found.notes))


def test_batches_that_differ_in_length_are_said_to(judge: Judge, paths: list[str]) -> None:
    """Those of the length of the first are measured."""
    batches = samples.Pairs(len(paths), 4)
    batches.batches = [batch[: 4 - number % 2] for number, batch in enumerate(batches.batches)]
    found = judge(DataLoader(RawImages(paths), batch_sampler=batches))
    assert any("differ in length" in note for note in all_said(found.notes))
    assert set(found.measurement.worker_batches.images) == {4}


def test_samples_that_are_not_collated(judge: Judge, paths: list[str]) -> None:
    """With batch_size=None an image and its label are one sample."""
    found = judge(DataLoader(RawImages(paths), batch_size=None))
    assert (found.batch_size, found.sample) == (1, "samples")


def test_worker_init_fn_is_called_in_every_worker(judge: Judge, paths: list[str], tmp_path: Path) -> None:
    """It is the user's own that is called, beside ours."""
    init = samples.Noting(tmp_path)
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=3, worker_init_fn=init)
    judge(loader)
    assert {f"worker-{number}-of-3" for number in range(3)} <= {path.name for path in tmp_path.iterdir()}
    assert loader.worker_init_fn is init


def test_a_collate_fn_may_empty_its_samples(judge: Judge, paths: list[str]) -> None:
    """Samples that stand in for others that are not made are whole each time."""
    loader = DataLoader(RawImages(paths, "dict"), batch_size=4, num_workers=2, collate_fn=samples.taking_apart)
    assert judge(loader, modes=("cached_samples", "no_transport")).sample == "images"


def test_a_step_may_empty_its_batches(judge: Judge, paths: list[str]) -> None:
    """The batch that stays is whole each time."""
    found = judge(
        DataLoader(RawImages(paths, "dict"), batch_size=4), lambda batch: batch.pop("image").sum() + batch["label"][0]
    )
    assert found.ceilings.compute is not None


def test_workers_of_another_start_method(judge: Judge, photos: list[str]) -> None:
    """Everything that a worker needs reaches it by pickling."""
    loader = DataLoader(samples.Cropped(photos), batch_size=2, num_workers=1, multiprocessing_context="forkserver")
    found = judge(loader, modes=("warm", "cached_samples", "no_transport"))
    assert {segment.mode for segment in found.measurement.segments} == {
        "baseline",
        "warm",
        "cached_samples",
        "no_transport",
    }
    assert _files_seen(found)


def test_pinned_memory_without_a_device_is_quiet(judge: Judge, paths: list[str]) -> None:
    """torch itself would warn; nothing is pinned there."""
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=1, pin_memory=True)
    judge(loader)
    assert loader.pin_memory


def test_data_sets_that_make_samples_in_one_go(judge: Judge, paths: list[str]) -> None:
    """`__getitems__` is called as torch calls it."""
    assert _files_seen(judge(DataLoader(samples.InOneGo(paths), batch_size=4, num_workers=1)))


def test_a_sub_class_keeps_what_it_does(judge: Judge, paths: list[str]) -> None:
    """Its own __iter__ works on what it yields, so it is given nothing but batches, and as many as it wants."""
    seen: list[Any] = []
    loader = samples.Moving(RawImages(paths), batch_size=4, num_workers=1)
    found = judge(loader, seen.append, modes=("cached_samples", "no_transport"))
    assert "no_transport" not in found.measurement.modes
    assert seen[0][0][1, 0, 0, 0] % 8 == 2.0


def test_files_of_unknown_batches_are_evicted_as_a_whole(judge: Judge, paths: list[str], tmp_path: Path) -> None:
    """Mapped into memory, or read in C: found among mappings and the data set's own lists, and warm by repetition."""
    whole = tmp_path / "whole.raw"
    whole.write_bytes(b"".join(Path(path).read_bytes() for path in paths))
    for data in (samples.Mapped(str(whole), len(paths)), samples.ReadInC(paths)):
        found = judge(DataLoader(data, batch_size=4, num_workers=2), modes=("warm", "cached_samples"))
        assert (found.cache, found.measurement.access) == ("cold", "parts")
        assert {segment.mode for segment in found.measurement.segments} == {"baseline", "warm"}


def test_samples_are_not_called_images(judge: Judge) -> None:
    """Where no batch holds a tensor of four dimensions, samples are counted, in every word."""
    found = judge(DataLoader(samples.Numbers(), batch_size=8, num_workers=1), lambda batch: None)
    assert found.sample == "samples"
    assert "samples/s" in str(found)
    assert "image" not in str(found)


def test_without_a_step_no_device_is_spoken_of(judge: Judge, paths: list[str]) -> None:
    """The loader alone is judged."""
    found = judge(DataLoader(RawImages(paths), batch_size=4, num_workers=1))
    assert (found.with_step, found.ceilings.compute, found.speedups.compute) == (False, None, None)
    assert said(found.unavailable["speedups.compute"]) == "no step was given"
    page = re.sub(r"<style.*?</style>|<[^>]*>", "", found._repr_html_(), flags=re.DOTALL)
    shown = f"{found}{page}{[said(each) for each in found.evidence]}"
    assert not [word for word in ("accelerator", "of what the", "compute", "training runs") if word in shown]


def test_a_batch_larger_than_the_data_set(judge: Judge, paths: list[str]) -> None:
    """The short batch is what there is."""
    found = judge(DataLoader(RawImages(paths[:6]), batch_size=64, num_workers=2))
    assert found.batch_size == 6


def test_batches_out_of_order_are_taken_in_order(judge: Judge, paths: list[str]) -> None:
    """And a note says so."""
    found = judge(DataLoader(RawImages(paths), batch_size=4, num_workers=2, in_order=False))
    assert any("in_order" in note for note in all_said(found.notes))
