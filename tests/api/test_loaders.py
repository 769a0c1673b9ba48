"""Loaders as users make them: each is really run, in two rounds of a few batches, and left as it was.

Iterables that hold no DataLoader to copy are iterated on a clock that is scripted.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import re
import signal
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

import loaderprobe
from loaderprobe.compute.step import NoCompute
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.loaders import user_loader, worker_probe
from loaderprobe.measure.user.loader import Deadline, LoaderRequest, OutOfTimeError, measure_loader
from loaderprobe.records.measurement import Activity, Measurement, Mode
from loaderprobe.system.host import SystemClock
from loaderprobe.system.others import OthersMeter
from loaderprobe.testing import FakeClock, FakePageCache
from tests.api import samples
from tests.api.conftest import Judge, Plan
from tests.api.samples import Numbers, RawImages, Shared
from tests.conftest import needs_cold_reads
from tests.examples.iterated import Eager
from tests.said import all_said, said

COLD = {"access": "files", "cache": "cold"}
PARTS = {"access": "parts", "cache": "cold", "modes": {"baseline", "warm", "no_transport", "resident"}}


def uneven(paths: list[str]) -> samples.Pairs:
    pairs = samples.Pairs(len(paths), 4)
    pairs.batches = [batch[: 4 - number % 2] for number, batch in enumerate(pairs.batches)]
    return pairs


def pipeline(paths: list[str]) -> samples.Piped:
    """Later stages may make other batches."""
    return samples.Piped([DataLoader(Numbers(), batch_size=4), lambda batches: pytest.fail("was run")])


Found = dict[str, Any]
VARIANTS: dict[str, tuple[Callable[[list[str]], Any], Found]] = {
    "tuple": (lambda paths: DataLoader(RawImages(paths), 4), COLD),
    "dict": (lambda paths: DataLoader(RawImages(paths, "dict"), 4, num_workers=2), COLD),
    "nested": (lambda paths: DataLoader(RawImages(paths, "nested"), 4), COLD),
    "namedtuple": (lambda paths: DataLoader(RawImages(paths, "namedtuple"), 4, num_workers=2), COLD),
    "alone": (lambda paths: DataLoader(RawImages(paths, "alone"), 4), COLD),
    # Finished batches are counted by their indices: the tuple has two items, of four samples.
    "finished": (
        lambda paths: DataLoader(samples.Finished(), 4, collate_fn=samples.finished, num_workers=1), {"images": {4}},
    ),
    "by lists": (
        lambda paths: DataLoader(
            samples.Made(samples.listed), None, sampler=samples.Pairs(64, 4), collate_fn=samples.finished
        ), {"images": {4}},
    ),
    # No cold files, although files lie where the data set says that it came from.
    "in memory": (
        lambda paths: DataLoader(samples.Made(float, root=str(Path(paths[0]).parent)), 4, num_workers=1),
        {"access": "none", "cache": "as-found", "sample": "samples", "note": "reads_no_files"},
    ),
    "one go": (lambda paths: DataLoader(samples.InOneGo(paths), 4, num_workers=1), COLD),
    # An iterable begins again when it ends, and its files are learned though it shuffles.
    "iterable": (lambda paths: DataLoader(Shared(paths, length=64), 4, num_workers=2), {**COLD, "stream": True}),
    # Its own __iter__ works on what it yields, so it is given nothing but batches, and as many as it wants.
    "sub-class": (
        lambda paths: samples.Moving(RawImages(paths), 4, num_workers=1),
        {"modes": {"baseline", "warm", "cached_samples", "resident"}},
    ),
    "iterable of samples": (lambda paths: DataLoader(Shared(paths, length=64), None), {**COLD, "batch_size": 1}),
    "idle workers": (
        lambda paths: DataLoader(Shared(paths, shares=False), 4, num_workers=3),
        {"workers": 1, "note": "workers_without_data"},
    ),
    "batch sampler": (
        lambda paths: DataLoader(RawImages(paths), batch_sampler=samples.Pairs(len(paths), 6), num_workers=2),
        {"batch_size": 6, "images": {6}, "no_note": "odd_batches"},
    ),
    "uneven": (
        lambda paths: DataLoader(RawImages(paths), batch_sampler=uneven(paths)),
        {"images": {4}, "note": "odd_batches"},
    ),
    "row groups": (
        lambda paths: DataLoader(samples.RowGroups(), batch_size=None),
        {"batch_size": 4, "images": {1, 7}, "note": "uneven_batches"},
    ),
    "not collated": (lambda paths: DataLoader(RawImages(paths), None), {"batch_size": 1, "sample": "samples"}),
    "emptying collate_fn": (
        lambda paths: DataLoader(RawImages(paths, "dict"), 4, num_workers=2, collate_fn=samples.taking_apart),
        {"sample": "images", "modes": {"baseline", "warm", "cached_samples", "no_transport", "resident"}},
    ),
    # torch itself would warn; nothing is pinned without a device.
    "pinned": (lambda paths: DataLoader(RawImages(paths), 4, num_workers=1, pin_memory=True), COLD),
    # Everything that a worker needs reaches it by pickling.
    "forkserver": (
        lambda paths: DataLoader(RawImages(paths), 4, num_workers=1, multiprocessing_context="forkserver"),
        {**COLD, "modes": {"baseline", "warm", "cached_samples", "no_transport", "resident"}},
    ),
    # Found among mappings and the data set's own lists, evicted as a whole, warm by repetition.
    "mapped": (lambda paths: DataLoader(samples.mapped(paths), 4, num_workers=2), PARTS),
    "read in C": (lambda paths: DataLoader(samples.read_in_c(paths), 4, num_workers=2), PARTS),
    "no images": (lambda paths: DataLoader(Numbers(), 4, num_workers=1), {"sample": "samples"}),
    "one short batch": (lambda paths: DataLoader(RawImages(paths[:6]), 64, num_workers=2), {"batch_size": 6}),
    "out of order": (
        lambda paths: DataLoader(RawImages(paths), 4, num_workers=2, in_order=False), {"note": "taken_in_order"},
    ),
    # Of batches that a loader in the data set makes there are no records.
    "a loader inside": (lambda paths: DataLoader(samples.Nested(), 4), {"images": {4}}),
    "a loader inside, at once": (lambda paths: DataLoader(samples.EagerlyNested(), 4, num_workers=1), {"images": {4}}),
    # It takes twelve batches to give one, from the first on.
    "prefetches": (lambda paths: samples.Prefetching(Numbers(), 4), {"images": {4}}),
    "joins": (lambda paths: samples.Joining(DataLoader(Numbers(), 4, num_workers=2)), {"note": "wrapper_left_out"}),
    "pipeline": (pipeline, {"note": "wrapper_left_out"}),
}  # fmt: skip
"""A loader, and what is found; a batch of four unless it says another."""
BEGIN_AGAIN = ("alone", "iterable", "forkserver", "pipeline")
"""Measured in a second round, too."""


@pytest.mark.starts
@pytest.mark.parametrize("name", VARIANTS)
def test_a_loader_of_any_form_is_measured(judge: Judge, paths: list[str], name: str) -> None:
    """By its batches and files, in all modes that it has; the step is given what the loader makes."""
    make, expected = VARIANTS[name]
    if name == "in memory":  # where reads are not counted, files that are named may have been read
        needs_cold_reads(Path(paths[0]).parent)
    gc.collect()  # files that the loader of another test maps would be found among this one's
    loader, taken = make(paths), list[Any]()
    rounds = 1 + (name in BEGIN_AGAIN)
    found = judge(loader, taken.append, modes=("warm", "cached_samples", "no_transport"), rounds=rounds)
    seen = {
        "batch_size": found.row.config.compute.batch_size,
        "workers": found.row.config.loader.workers,
        "sample": f"{found.detail.sample}s",
        "access": found.measurement.access,
        "stream": found.measurement.stream,
        "cache": found.row.config.cache,
        "images": set(found.measurement.worker_batches.images),
        "modes": {segment.mode for segment in found.measurement.segments},
        "note": expected.get("note") if expected.get("note") in {note.code for note in found.detail.notes} else None,
    }
    unexpected = expected.get("no_note")
    assert unexpected not in {note.code for note in found.detail.notes}
    wanted = {key: value for key, value in {"batch_size": 4, **expected}.items() if key != "no_note"}
    assert {key: seen[key] for key in wanted} == wanted
    assert {segment.round for segment in found.measurement.segments} == {*range(rounds)}
    kinds = {"dict": dict, "nested": dict, "namedtuple": samples.Sample, "alone": torch.Tensor}
    assert name not in kinds or type(taken[0]) is kinds[name]
    in_order = [[*range(first, first + 4)] for first in range(0, 64, 4)]
    assert "inside" not in name or all(batch.tolist() in in_order for batch in taken)


@pytest.mark.usefixtures("real_waits")
@pytest.mark.parametrize("workers", [0, 2])
def test_every_mode_is_measured_on_photographs(judge: Judge, photos: list[str], workers: int) -> None:
    """Files learned from Pillow are read cold, warm and without decoding, with their bytes; workers are sampled."""
    loader = DataLoader(samples.Cropped(photos), batch_size=2, shuffle=True, num_workers=workers)
    found = judge(loader, lambda batch: None, modes=("warm", "cached_samples", "no_transport"))
    assert found.measurement.waits is not None, found.measurement.missing
    assert found.measurement.config.resolution == Path(photos[0]).parent.name, "the data are called as their folder"
    seen = {segment.mode for segment in found.measurement.segments}
    assert seen == {"baseline", "warm", "cached_samples", "resident"} | ({"no_transport"} if workers else set())
    mean = sum(Path(path).stat().st_size for path in photos) / len(photos)
    read = [segment for segment in found.measurement.segments if segment.mode != "resident"]
    delivered = sum(segment.delivered_bytes or 0 for segment in read) / sum(segment.steps * 2 for segment in read)
    assert delivered == pytest.approx(mean, rel=0.2)


@pytest.mark.parametrize("workers", [0, 2])
def test_all_files_and_no_others_are_evicted_and_warmed(
    photos: list[str], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they are looked at for the second time, and before each cold and each warm segment, in this order."""
    spy = Mock(spec=FakePageCache, **{"resident.return_value": 0.0})
    for path in photos:
        Path(path).read_bytes()  # a cache that only remembers cannot make cold again what once came from storage

    def next_round(measurement: Measurement, *, thorough: bool) -> tuple[tuple[Mode, Activity], ...]:
        modes: tuple[Mode, ...] = ("baseline", "warm", "cached_samples")
        return tuple((mode, "loader_only") for mode in modes[len(measurement.segments) :][:1])

    loader = DataLoader(samples.Cropped(photos), batch_size=2, shuffle=True, num_workers=workers)
    monkeypatch.setattr("loaderprobe.measure.collectives.next_round", next_round)
    asked = LoaderRequest(budget_s=60.0)
    found = measure_loader(loader, NoCompute, asked, lambda *_: None, spy)
    assert [segment.mode for segment in found.measurement.segments] == ["baseline", "warm", "cached_samples"]
    told = [(what, {*map(str, given[0])}) for what, given, _ in spy.method_calls if what != "resident"]
    assert [what for what, _ in told][:4] == ["evict", "evict", "warm", "evict"]
    assert set.union(*(seen for _, seen in told)) == set(photos)
    assert found.data.size_bytes == pytest.approx(sum(Path(path).stat().st_size for path in photos))
    assert told[0] == ("evict", set(photos))


class Spent(Deadline):
    """Discovery has spent so many seconds of a budget."""

    spent_s = 0.0


@pytest.mark.parametrize("spent_s", [29.99, 40.0])
def test_a_budget_that_discovery_used_up_is_said_to_be_too_small(
    judge: Judge, paths: list[str], monkeypatch: pytest.MonkeyPatch, spent_s: float
) -> None:
    """With one that would do, which grows by what a round takes. What goes beyond a budget is no overrun."""
    monkeypatch.setattr(Spent, "spent_s", spent_s)
    made = list[float | None]()

    def deadline(budget_s: float) -> Deadline:
        made.append(budget_s)
        return Spent(budget_s)

    asked = {"budget_s": 30.0, "beyond_s": 0.001, "ceiling": False, "deadline": deadline, "rounds": 2}
    found = judge(DataLoader(RawImages(paths), 4), lambda _: None, **asked)
    (said,) = (note.facts["budget_s"] for note in found.measurement.notes if note.code == "no_time")
    assert 30 < float(said) <= 60 and made == [30.001]


def test_samplers_and_worker_init_fn_of_ones_own(judge: Judge, paths: list[str], tmp_path: Path) -> None:
    """A sampler decides what is read, and is not touched itself; worker_init_fn is called in every worker."""
    sampler, init = samples.Backwards(len(paths)), partial(samples.noted, tmp_path)
    loader = DataLoader(RawImages(paths), batch_size=4, sampler=sampler, num_workers=3, worker_init_fn=init)
    assert judge(loader).row.config.compute.batch_size == 4 and sampler.begun == 0
    assert {f"worker-{number}-of-3" for number in range(3)} <= {path.name for path in tmp_path.iterdir()}
    assert loader.worker_init_fn is init


@pytest.mark.parametrize(("samples_", "workers", "new"), [(4000, 0, True), (4000, 2, True), (64, 1, False)])
def test_a_data_set_that_keeps_its_samples_is_judged_on_new_ones(
    judge: Judge, samples_: int, workers: int, new: bool
) -> None:
    """No advice to buy an accelerator of two million images/s in a first epoch that is input-bound; one that is too
    small for that is judged on later epochs, and both have the rate of the first."""
    # Batches of two: those that are ready when a segment begins count for little.
    loader = DataLoader(samples.Kept(samples_), batch_size=2, num_workers=workers)
    found = judge(loader, lambda batch: None, modes=("warm",), rounds=2)
    assert (found.measurement.access == "fresh") == new
    # They come from no file, so none is cold or warm: that once kept the verdict open.
    assert found.measurement.config.cache == "as-found"
    (note,) = [note for note in found.detail.notes if note.code == "samples_kept"]
    # A sample costs 20 ms of CPU time in the first epoch, and microseconds when it is kept.
    assert float(note.facts["later_per_s"]) > (4 * float(note.facts["first_per_s"]) if new else 0)
    assert ("later epochs" in said(note)) == (not new)


def test_compute_alone_steps_on_several_batches(judge: Judge) -> None:
    """Batches differ in cost, and the first one speaks for none of the others."""
    lengths: list[int] = []
    alone: list[set[int]] = []

    def compute_alone_first(measurement: Measurement, *, thorough: bool) -> Plan:
        if not measurement.segments:
            return (("resident", "training"),)
        alone.append(set(lengths))
        return (("baseline", "loader_only"), ("baseline", "training")) if len(alone) == 1 else ()

    loader = DataLoader(samples.Made(samples.long_and_short), batch_size=4, num_workers=1)
    judge(loader, lambda batch: lengths.append(batch.shape[1]), decide=compute_alone_first)
    assert {8, 16, 32, 64} <= alone[0]


def labels_of(loader: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in loader]


@pytest.mark.parametrize(("kind", "workers"), [(samples.Doubling, 2), (samples.Ahead, 0)])
def test_a_wrappers_own_work_is_measured(judge: Judge, paths: list[str], kind: Any, workers: int) -> None:
    """The step is given what the wrapper makes; files are learned below it; batches are not left out below it."""
    seen: list[Any] = []
    wrapper = kind(DataLoader(RawImages(paths), batch_size=4, num_workers=workers))
    found = judge(wrapper, seen.append, modes=("warm", "cached_samples", "no_transport"))
    config = found.row.config
    assert (config.compute.batch_size, config.loader.workers, config.cache) == (4, workers, "cold")
    assert "no_transport" not in found.measurement.modes
    assert {label % 2 for _, labels in seen for label in labels.tolist()} == {0}
    assert wrapper.seen == [] and labels_of(wrapper)[0] == [0, 2, 4, 6]


def test_the_sampler_of_a_wrapped_loader_keeps_its_epoch(judge: Judge, paths: list[str]) -> None:
    """A wrapper that sets the epoch sets that of a copy, also where it passes for a DataLoader."""
    data = RawImages(paths)
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=1, rank=0)
    sampler.set_epoch(5)
    judge(samples.Disguised(DataLoader(data, batch_size=4, sampler=sampler)))
    assert sampler.epoch == 5


@pytest.mark.parametrize(("workers", "at_once"), [(0, True), (2, False)])
def test_a_loader_that_keeps_one_iterator_is_measured(judge: Judge, workers: int, at_once: bool) -> None:
    """With an iterator of its own; the user's goes on where it was, in the midst of an epoch and after it."""
    loader = Eager(Numbers(), batch_size=4, num_workers=workers, at_once=at_once)
    batches = iter(loader)
    before = [next(batches)[1].tolist() for _ in range(3)]
    found = judge(loader)
    assert (found.row.config.compute.batch_size, found.row.config.loader.workers) == (4, workers)
    rest = labels_of(batches)
    assert [number for batch in before + rest for number in batch] == list(range(64))
    assert labels_of(loader)[0] == [0, 1, 2, 3]
    # In a cycle it would stay, with its workers.
    gone = weakref.ref(loader)
    gc.disable()
    del loader, batches
    gc.enable()
    assert gone() is None


@pytest.mark.parametrize(
    ("place", "value", "make", "says"),
    [
        (worker_probe, None, partial(DataLoader, Numbers(), None), "TypeError: 'NoneType'"),
        (worker_probe, None, partial(DataLoader, Numbers(), None, num_workers=1), "TypeError: 'NoneType'"),
        # A sub-class asks our stand-in for its batch sampler for something, in its own lines.
        (user_loader.BatchPool, object.__getattribute__, partial(Eager, Numbers(), 4), "'BatchPool' object has no att"),
    ],
)
def test_what_our_own_code_raises_is_ours(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, place: Any, value: Any, make: Callable[[], Any], says: str
) -> None:
    """In this process and in a worker; the user is asked to report it."""
    monkeypatch.setattr(place, "samples_without_collation" if value is None else "__getattr__", value)
    with pytest.raises(LoaderprobeError, match=f"loaderprobe failed in its own code: .*{says}") as caught:
        judge(make())
    assert "report this" in caught.value.hint


def raising(*_: Any) -> Any:
    raise ValueError("no\nlabels")


def killing(_: Any) -> None:
    victim = multiprocessing.active_children()[0]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)


def interrupting(_: Any) -> None:
    raise KeyboardInterrupt


class RaisingSampler(samples.Backwards):
    def __iter__(self) -> Iterator[int]:
        raise ValueError("no order")


class Failing(samples.Doubling):
    def __iter__(self) -> Any:
        raise ValueError("no device")


class Generated(samples.Pairs):
    """Holds a generator, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__(8, 2)
        self.source = (batch for batch in self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return self.source


def wrong() -> Iterator[Any]:
    yield {"name": "cat", "size": 3}


def without_a_label() -> Iterator[Any]:
    raise KeyError("label")
    yield


Make = Callable[[list[str]], Any]
BROKEN = partial(DataLoader, samples.Made(samples.broken), 4)
ENDED = r"the loader ended after [0-9]+ batch(es)? and did not begin again"
FAILS: tuple[tuple[Make, Any, type[BaseException], str, str], ...] = (
    (lambda paths: BROKEN(), None, LoaderprobeError, "the data set raised FileNotFoundError: samp", ""),
    (lambda paths: BROKEN(num_workers=2), None, LoaderprobeError, "the data set raised FileNotFoundError", ""),
    (
        lambda paths: DataLoader(Numbers(), 4, num_workers=1, collate_fn=raising), None, LoaderprobeError,
        "the loader's collate_fn raised ValueError: no\nlabels", "",
    ),
    (lambda _: DataLoader(Numbers(), 4, sampler=RaisingSampler(64)), None, LoaderprobeError, "sampler raised Val", ""),
    (
        lambda paths: DataLoader(Numbers(), 4, num_workers=1, worker_init_fn=raising), None, LoaderprobeError,
        "the loader's worker_init_fn raised ValueError: no\nlabels, in a worker", "",
    ),
    (lambda _: Failing(DataLoader(Numbers(), 4)), None, LoaderprobeError, "loader raised ValueError: no device", ""),
    (
        lambda paths: DataLoader(samples.Made(samples.deadly), 4, num_workers=2), None, LoaderprobeError,
        "worker .* was killed by SIGKILL", "dmesg",
    ),
    # torch reports it by a signal, which meets whatever runs just then.
    (
        lambda paths: DataLoader(RawImages(paths), 4, num_workers=1), killing, LoaderprobeError,
        "a loader worker .* was killed by SIGKILL", "dmesg",
    ),
    (
        lambda paths: DataLoader(RawImages(paths), 4, num_workers=1), raising, LoaderprobeError,
        "your step raised ValueError: no\nlabels", "",
    ),
    (lambda paths: DataLoader(RawImages(paths), 4, num_workers=1), interrupting, KeyboardInterrupt, "", ""),
    (lambda paths: DataLoader(Shared(paths, once=True), 4), None, BadValue, ENDED, ""),
    (lambda paths: DataLoader(Shared(paths, once=True), 4, num_workers=1), None, BadValue, ENDED, ""),
    # A batch sampler that always gives the same generator is found out only when that ends.
    (lambda paths: DataLoader(Numbers(), batch_sampler=Generated()), None, BadValue, "did not begin again", ""),
    (lambda paths: DataLoader(Shared([]), 4), None, BadValue, "yields no batch", ""),
    *(
        (lambda paths, kind=kind: kind(Numbers(), 4), None, BadValue, "does not iterate as torch's DataLoader does", "")
        for kind in (samples.Foreign, samples.Merging, samples.MergingBelow)
    ),
    (lambda paths: DataLoader(Shared([]), 4, num_workers=2), None, BadValue, "yields no batch", ""),
    (lambda paths: DataLoader(Numbers(0), 4), None, BadValue, "its data set is empty", ""),
    (
        lambda paths: DataLoader(Numbers(6), 64, drop_last=True), None, BadValue,
        "64 are a batch, the data set has 6, and drop_last=True drops those", "",
    ),
    (lambda paths: wrong, None, BadValue, "gives a dict without a tensor or an array", "tensors or numpy arrays"),
    (lambda paths: without_a_label, None, LoaderprobeError, "loader raised KeyError: 'label'", "iterate it alone"),
    (lambda paths: lambda: iter(()), None, BadValue, "yields no batch", "iterate it yourself"),
)  # fmt: skip
"""A loader and a step; the error, what it says and what to do."""


@pytest.mark.parametrize(("make", "step", "kind", "says", "hint"), FAILS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch raises from a signal handler
def test_what_fails_is_named(
    judge: Judge, paths: list[str], make: Make, step: Any, kind: type[BaseException], says: str, hint: str
) -> None:
    """The data set, collate_fn, sampler, worker_init_fn, a wrapper, a worker or the step, with its own error as the
    cause; and the loader goes on."""
    loader = make(paths)
    with pytest.raises(kind, match=says or None) as caught:
        judge(loader, step)
    raised, cause = re.search(r"raised ([A-Z]\w+)", str(caught.value)), caught.value.__cause__
    assert hint in getattr(caught.value, "hint", "") and (not raised or type(cause).__name__ == raised[1])
    if "FileNotFound" in says or step is raising:
        assert next(iter(loader))[1].tolist() == [0, 1, 2, 3]
    # What a signal met while it was being closed is collected here, not in a later test.
    del caught, cause
    gc.collect()


def test_ctrl_c_ends_a_diagnosis_with_the_rounds_that_there_are(judge: Judge, paths: list[str]) -> None:
    """Before the first is over there is nothing, as above."""
    rounds: list[int] = []

    def decide(_: Measurement, *, thorough: bool) -> Plan:
        rounds.append(len(rounds))
        return (("baseline", "loader_only"), ("baseline", "training"), ("resident", "training"))

    def step(batch: Any) -> None:
        if len(rounds) > 1:
            interrupting(batch)

    found = judge(DataLoader(RawImages(paths), batch_size=4, num_workers=1), step, decide=decide)
    assert found.interrupted and {segment.round for segment in found.measurement.segments} == {0}


def test_what_cannot_be_asked_of_a_loader() -> None:
    """A step that cannot be called, and a budget."""
    loader = DataLoader(Numbers(), batch_size=4)
    with pytest.raises(BadValue, match="the step is a int"):
        loaderprobe.diagnose(loader, 3)  # type: ignore[arg-type]  # wrong on purpose
    for budget_s in (0, -1.0, float("nan")):
        with pytest.raises(BadValue, match="the budget must be"):
            loaderprobe.diagnose(loader, budget_s=budget_s)


def test_a_loader_that_merges_batches_is_refused_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data set is so small that this could not be known before; also where time is over after a whole round."""

    def next_round(measurement: Measurement, *, thorough: bool) -> Plan:
        if measurement.segments:
            raise OutOfTimeError("planted here")
        return (("baseline", "loader_only"), ("baseline", "training"))

    monkeypatch.setattr("loaderprobe.measure.collectives.next_round", next_round)
    asked = LoaderRequest(budget_s=60.0)
    with pytest.raises(BadValue, match="does not iterate as torch's DataLoader does"):
        measure_loader(samples.Merging(Numbers(16), 4), NoCompute, asked, lambda *_: None, FakePageCache())


@pytest.mark.parametrize(("rows_s", "budget_s"), [([0.01], 120), ([0.1, 20], 220), ([], 1445)])
def test_an_advised_budget_fits_a_round(monkeypatch: pytest.MonkeyPatch, rows_s: list[float], budget_s: int) -> None:
    """By the longest batch, where none came by the time that was waited; and twice the present one at least."""
    monkeypatch.setattr(Spent, "spent_s", 131.0)
    rows = SimpleNamespace(batch=rows_s, wall_ns=[round(1e9 * each) for each in rows_s])
    monkeypatch.setattr(user_loader.UserLoader, "records", lambda _: rows)
    asked = LoaderRequest(budget_s=30.0, beyond_s=30.0, deadline=Spent)
    with pytest.raises(BadValue, match="not even one round fitted into 2 min 10 s") as caught:
        measure_loader(DataLoader(Numbers(16), 4), NoCompute, asked, lambda *_: None, FakePageCache())
    assert caught.value.hint == f"give more time: --budget {budget_s} (in Python budget_s)"


def test_loaders_that_would_be_used_up_are_refused(judge: Judge, paths: list[str]) -> None:
    """A sampler that is an iterator, and a generator that is kept, or holds what a copy of the data set would need:
    nothing is taken from them."""
    once, data = iter(range(8)), Consumed()
    with pytest.raises(BadValue, match="only once"):
        judge(DataLoader(Numbers(), batch_size=None, sampler=once))
    assert next(once) == 0
    keeping = Eager(RawImages(paths), batch_size=4)
    keeping.iterator = (batch for batch in keeping.iterator)
    with pytest.raises(BadValue, match="keeps an iterator of its own"):
        judge(keeping)
    assert next(iter(keeping))[1].tolist() == [0, 1, 2, 3]
    judge(DataLoader(data, batch_size=4))
    assert data.given == 0
    vars(data)["source"] = (number for number in range(3))
    with pytest.raises(BadValue, match="only once"):
        judge(DataLoader(data, batch_size=4))
    assert data.given == 0


class Consumed(IterableDataset[int]):
    """An iterable that is its own iterator."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Consumed:
        return self

    def __next__(self) -> int:
        self.given += 1
        return self.given


def test_a_loader_is_left_as_it_was(judge: Judge) -> None:
    """Its settings, its sampler, and all random generators, its data set's among them."""
    data, generator = samples.Dreaming(), torch.Generator().manual_seed(5)
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=generator)

    def state() -> list[Any]:
        drawn = [torch.get_rng_state(), generator.get_state(), data.torch_state.get_state()]
        others = [np.random.get_state(), data.numpy_state.bit_generator.state]
        return [*map(torch.Tensor.tolist, drawn), *map(repr, others), random.getstate(), data.python_state.getstate()]

    settings, before = dict(vars(loader)), state()
    judge(loader, lambda batch: torch.rand(1))
    assert vars(loader) == settings and state() == before


def test_memory_that_workers_share_is_put_back(judge: Judge) -> None:
    """An epoch that they count: the samples are those that would have come without a diagnosis."""
    options: Any = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork"}
    without, with_one = (DataLoader(samples.Counting(), **options) for _ in range(2))
    judge(with_one)
    data: Any = with_one.dataset
    assert data.epoch.value == 0
    first, second = (sorted(number for batch in loader for number in batch.tolist()) for loader in (with_one, without))
    assert first == second and data.epoch.value == 2


def test_persistent_workers_go_on_as_before(judge: Judge, paths: list[str]) -> None:
    """The same processes serve the loader before and after, and in the midst of an epoch."""
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    first = [next(batches)[1].tolist() for _ in range(3)]
    workers = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr]  # it has begun
    judge(loader)
    rest = [batch[1].tolist() for batch in batches]
    assert [number for batch in first + rest for number in batch] == list(range(64))
    assert len(list(loader)) == 16
    assert [worker.pid for worker in loader._iterator._workers] == workers  # type: ignore[union-attr]  # it has begun
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]  # it has begun


SIZE = 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of the whole measurement."""
    scripted = FakeClock()
    monkeypatch.setattr(SystemClock, "now_ns", lambda _: scripted.now_ns())
    monkeypatch.setattr(SystemClock, "thread_cpu_ns", lambda _: scripted.thread_cpu_ns())
    monkeypatch.setattr(SystemClock, "process_cpu_ns", lambda _: scripted.process_cpu_ns())
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: scripted.sleep(seconds))
    return scripted


def batch() -> torch.Tensor:
    return torch.zeros(SIZE, 3, 8, 8)


class Ahead:
    """Makes batches of 10 ms in a thread of its own, three ahead, as a fake clock goes."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def __iter__(self) -> Iterator[Any]:
        taken: list[int] = []
        made = self._clock.now_ns()
        while True:
            made = max(made, taken[-3] if len(taken) >= 3 else 0) + 10_000_000
            self._clock.sleep(max(0, made - self._clock.now_ns()) / 1e9)
            taken.append(self._clock.now_ns())
            yield batch()


@pytest.mark.parametrize(("step_s", "side", "images_per_s"), [(0.002, "input", 400), (0.04, "compute", 100)])
def test_batches_made_ahead_overlap_the_step(clock: FakeClock, step_s: float, side: str, images_per_s: float) -> None:
    """Such a loader counts as one worker, which is as many batches ahead as were ready after a pause."""
    found = loaderprobe.diagnose(Ahead(clock), lambda _: clock.work(step_s), budget_s=5)
    assert (found.row.config.loader.workers, found.row.config.loader.prefetch_factor) == (1, 3)
    assert found.bound.side == side
    assert found.verdict.images_per_s.value == pytest.approx(images_per_s, rel=0.05)
    assert any("3 were ready after a pause" in note for note in all_said(found.detail.notes))


@pytest.mark.parametrize(("waits_s", "says"), [(0.04, "40.0 ms use no core (logging"), (0.0, "a faster accelerator")])
def test_a_step_that_waits_needs_no_accelerator(
    clock: FakeClock, waits_s: float, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said how much of it uses no core; of a step that computes that an accelerator would help. Nothing is read
    of other processes, whose time is not that of the clock."""
    monkeypatch.setattr(OthersMeter, "end", lambda _: None)

    def step(_: Any) -> None:
        clock.work(0.042 - waits_s)
        clock.sleep(waits_s)

    assert says in " ".join(loaderprobe.diagnose(Ahead(clock), step, budget_s=5).text().split())


def test_a_generator_is_closed_and_random_state_is_put_back(clock: FakeClock) -> None:
    """Also after Ctrl-C in the step."""
    closed: list[bool] = []

    def batches() -> Iterator[Any]:
        try:
            while True:
                clock.work(0.01)
                yield torch.rand(SIZE, 3, 8, 8)
        finally:
            closed.append(True)

    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        loaderprobe.diagnose(batches, interrupting, budget_s=5)
    assert closed and torch.equal(torch.get_rng_state(), before)
