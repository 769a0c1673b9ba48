"""Training loops as people write them: taken over and measured, however a loader is iterated, or only watched."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import loaderprobe
from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import load_any
from loaderprobe.api.run import Watch, attachment_of, watcher_of
from loaderprobe.errors import BadValue, NoSpace
from loaderprobe.loaders.attached import attach
from loaderprobe.measure.attach import watcher as watcher
from loaderprobe.measure.attach.attachment import Finished
from loaderprobe.measure.user.loader import measure_loader
from loaderprobe.records.attached import AttachRequest
from loaderprobe.render.watch import said
from tests.examples import training as example
from tests.examples.iterated import EPOCH, KINDS, Eager, begun_each_batch, made_again, never_again, over
from tests.examples.training import BATCH, SAMPLES, SCHEDULED, STEP_S, WAYS, Costly, Training

pytestmark = pytest.mark.usefixtures("one_thread")
BUDGET_S = 0.3
"""Enough for one round of loops of half a millisecond a step."""


Loop = Callable[[Training], None]


def attached_to(loop: Loop, training: Training, budget_s: float = BUDGET_S) -> Any:
    with loaderprobe.attached(budget_s=budget_s) as found:
        loop(training)
    return found


def over_a(kind: str, workers: int) -> Loop:
    """Over a loader that is made in the loop."""
    return lambda training: over(KINDS[kind](Costly(), BATCH, shuffle=True, num_workers=workers))(training)


# More steps are made of the scheduled one than its script planned.
ITS_OWN = (
    "plain", "by_next", "generated", "accumulates", "zips", "again", "counts", "adversarial", "skips", "schedules",
)  # fmt: skip


def short_epochs(training: Training) -> None:
    """Of five batches, which the loop knows but does not count on."""
    loader = DataLoader(Costly(samples=5 * BATCH), BATCH, shuffle=True)
    last = len(loader)
    for _ in training.epochs():
        for number, batch in enumerate(loader):
            training.step(batch, update=number % last < last)


def saves(training: Training) -> None:
    """Over its own checkpoint, of an epoch that is over before the loop is taken."""
    for _ in training.epochs():
        for _, batch in zip(range(8), training.loader, strict=False):
            training.step(batch)
        torch.save(training.model.state_dict(), training.out / "last.pt")


LOOPS: dict[str, tuple[Loop, int]] = {
    **{way: (WAYS[way], 0) for way in ITS_OWN},
    "saves": (saves, 0),
    **{kind: (over_a(kind, number % 2), number % 2) for number, kind in enumerate(KINDS)},
    # With its data set, of a class that is made again, too; samples are counted by their indices.
    "made again for each epoch": (made_again, 0),
    "short epochs": (short_epochs, 0),
    "begun for each batch": (begun_each_batch, 0),
    "begun for each batch, with workers that stay": (begun_each_batch, 1),
}
"""With the workers of the loader that trains."""


@pytest.mark.starts
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_measured_and_ended(name: str, tmp_path: Path) -> None:
    """By a copy of the loader that trains, although others are iterated, too; torch, its classes and those of the
    loaders that were seen are as they were afterwards."""
    kinds = [DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter, *KINDS.values()]
    before = [dict(vars(kind)) for kind in kinds], torch.autograd.backward, torch.save
    loop, workers = LOOPS[name]
    training = Training(tmp_path, num_workers=workers, persistent_workers=workers > 0)
    found = attached_to(loop, training)
    assert found.diagnosis is not None, found.reason
    config, notes = found.diagnosis.row.config, {note.code for note in found.diagnosis.detail.notes}
    assert (config.loader.workers, config.compute.batch_size) == (workers, BATCH)
    assert {"loader_only", "training"} <= {each.activity for each in found.diagnosis.measurement.segments}
    assert ("begun_each_batch" in notes) == (loop is begun_each_batch)
    assert loop is not made_again or training.steps > EPOCH
    assert ([dict(vars(kind)) for kind in kinds], torch.autograd.backward, torch.save) == before


def test_an_iterator_that_was_kept_before_is_heard(tmp_path: Path) -> None:
    loader = Eager(Costly(), BATCH, shuffle=True)
    next(iter(loader))
    assert attached_to(over(loader), Training(tmp_path)).diagnosis is not None


def test_an_evaluation_over_the_training_loader_is_no_training(tmp_path: Path) -> None:
    """It gets the loader's own batches, ends with them, and no step that is timed is one of its own."""
    training = Training(tmp_path, num_workers=1)
    found = attached_to(WAYS["evaluates_train"], training)
    assert found.diagnosis is not None, found.reason
    assert training.evaluated and set(training.evaluated) == {len(training.loader)}
    timed = [each for each in found.diagnosis.measurement.segments if each.activity == "training"]
    assert min(end - copied for each in timed for copied, end in zip(each.copied_ns, each.end_ns, strict=True)) >= (
        STEP_S * 1e9
    )


def test_a_loop_that_catches_everything_is_ended_all_the_same(tmp_path: Path) -> None:
    """At its next batch, and at its next epoch; what ends it says what happened, as some libraries log it."""
    training, said = Training(tmp_path), list[object]()
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        try:
            for batch in training.loader:
                training.step(batch)
        except BaseException as error:  # noqa: BLE001  # as some scripts do
            said += [type(error), getattr(error, "code", None), str(error)]
            for batch in training.loader:
                training.step(batch)
    assert found.diagnosis is not None, found.reason
    assert said == [Finished, 0, "loaderprobe has measured the training, and ends the script here"]


class Clocked:
    """A loop that is measured by a clock that it sets forward."""

    def __init__(self, tmp_path: Path, budget_s: float = BUDGET_S, loader: int | None = None, keep: Any = None) -> None:
        self.ahead_s, self.said, self.kept = 0.0, list[str](), list[Diagnosis]()
        request = AttachRequest(
            run=str(tmp_path), scratch=str(tmp_path), command="train.py", budget_s=budget_s, loader=loader
        )
        self.attachment = attachment_of(
            request, lambda code, facts: self.said.append(said(code, facts)), keep or self.kept.append,
            clock=lambda: time.perf_counter_ns() + round(self.ahead_s * 1e9),
        )  # fmt: skip

    def run(self, loop: Callable[[], object]) -> Diagnosis:
        detach = attach(self.attachment)
        try:
            loop()
        except Finished:
            pass
        finally:
            detach()
            self.attachment.end()
            self.attachment.close()
        (diagnosis,) = self.kept
        return diagnosis


def test_a_pause_makes_void_what_was_timed(tmp_path: Path) -> None:
    """Also in the middle of an epoch, between two batches of one loop."""
    clocked, training, why = Clocked(tmp_path), Training(tmp_path), list[str]()

    def loop() -> None:
        for batch in training.loader:
            training.step(batch)
            if training.steps == 20:
                clocked.ahead_s += 40.0
                coroutine = clocked.attachment._takeover.coroutine  # type: ignore[union-attr]  # it has begun
                coroutine.interrupt = why.append  # type: ignore[method-assign]  # to hear of it

    clocked.run(loop)
    assert why == ["the script paused between two batches"]


def test_the_start_of_workers_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 5 s of the script's time, and an epoch trains for less than a second: it limits, and is in all rates."""
    clocked, training, start = Clocked(tmp_path), Training(tmp_path, num_workers=1), DataLoader._get_iterator

    def slow(loader: Any) -> Any:
        clocked.ahead_s += 5.0 if loader is training.loader else 0.0  # and not a copy that is measured
        return start(loader)

    monkeypatch.setattr(DataLoader, "_get_iterator", slow)
    found = clocked.run(lambda: WAYS["plain"](training))
    (note,) = (note for note in found.measurement.notes if note.code == "workers_start_each_epoch")
    slower = 1 + float(note.facts["start_s"]) / float(note.facts["epoch_s"])
    within, stay = verdict(found.measurement), found.verdict.advice[0]
    assert slower > 5 and found.verdict.bound.cause == "wait" != within.bound.cause
    assert (stay.action.code, stay.speedup, stay.after) == ("persistent_workers", slower, within.images_per_s)
    assert found.verdict.images_per_s.value == stay.before.value == pytest.approx(within.images_per_s.value / slower)
    assert found.verdict.speedups["compute"] and 1 <= found.verdict.speedups["compute"].value < 1.2


def test_ctrl_c_ends_the_script_with_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes while the script waits for its batch."""
    clocked, sample = Clocked(tmp_path, budget_s=60.0), Costly.__getitem__

    def interrupted(data: Costly, index: int) -> Any:
        if "round 2 …" in clocked.said:
            raise KeyboardInterrupt
        return sample(data, index)

    monkeypatch.setattr(Costly, "__getitem__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clocked.run(lambda: WAYS["plain"](Training(tmp_path)))
    (found,) = clocked.kept
    assert "script_interrupted" in [note.code for note in found.measurement.notes]


def test_ctrl_c_while_the_result_is_kept_leaves_the_reason(tmp_path: Path) -> None:
    """And ends the script."""
    clocked = Clocked(tmp_path, keep=Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        clocked.run(lambda: WAYS["plain"](Training(tmp_path)))
    assert clocked.attachment.record().why_not == "ended_early"


def test_a_checkpoint_that_exists_is_not_written_over(tmp_path: Path) -> None:
    """Nor while the script ends: many save in a `finally`, with the path by its name."""
    kept, new, training = tmp_path / "last.pt", tmp_path / "new.pt", Training(tmp_path)
    torch.save({"weights": torch.ones(3)}, kept)
    before = kept.read_bytes()
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        try:
            WAYS["plain"](training)
        finally:
            torch.save(training.model.state_dict(), f=new)
            torch.save(training.model.state_dict(), f=kept)
    assert found.diagnosis is not None, found.reason
    assert kept.read_bytes() == before and new.exists()


def ten_begun(training: Training) -> None:
    for _ in range(10):
        training.step(next(iter(training.loader)))


def validates(training: Training) -> None:
    """After each batch, over a loader that is waited for most."""
    training.validation = DataLoader(Costly(4 * example.SAMPLE_S, BATCH), BATCH)  # type: ignore[arg-type]  # its targets are numbers
    for _ in training.epochs():
        training.step(next(iter(training.loader)))
        training.validate()


LEFT_ALONE: dict[str, tuple[Loop, int, str, int]] = {
    "never_trains": (WAYS["never_trains"], 0, "no backward pass after them", 0),
    "validates_alone": (WAYS["validates_alone"], 0, "batches come otherwise", 400),
    "short": (WAYS["short"], 0, "after too few training steps", 3),
    "in_a_thread": (WAYS["in_a_thread"], 0, "in another thread than the one that trains", EPOCH),
    # Each of these ends the script, the second after two of its epochs.
    "validates after each batch": (validates, 0, "loader 1 was iterated", 20),
    "another loader for each epoch": (never_again, 0, "went on with loader 2 (ArrayDataset)", 3 * EPOCH),
    # Which would start for each.
    "workers that start for each batch": (ten_begun, 1, "starts its loader for each batch", 10),
}
"""With the workers of its loader, the reason, and the steps after which it ends."""


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_cannot_be_measured_runs_to_its_end(name: str, tmp_path: Path) -> None:
    """But a loader that does not come again ends the script."""
    loop, workers, says, steps = LEFT_ALONE[name]
    training = Training(tmp_path, num_workers=workers)
    found = attached_to(loop, training, budget_s=60.0)
    assert found.diagnosis is None and says in found.reason
    assert training.steps <= steps + 1 if loop in (never_again, validates) else training.steps == steps


def broken(*given: Any, **named: Any) -> None:
    raise ZeroDivisionError("planted here")


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("measure.attach.attachment.measure_loader", broken, "ZeroDivisionError: planted here"),
        ("api.run.attachment_of", partial(attachment_of, launched=2), "2 ranks"),
        ("measure.attach.attachment.measure_loader", measure_loader, ""),
    ],
)
def test_a_script_may_raise(place: str, value: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the measurement, after an error of our own, and where one of two ranks is left alone; an
    impossible budget is refused before."""
    with pytest.raises(loaderprobe.LoaderprobeError, match="the budget must be"), loaderprobe.attached(budget_s=-1):
        raise AssertionError
    monkeypatch.setattr(f"loaderprobe.{place}", value)
    with pytest.raises(KeyError, match="planted"), loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS["raises"](Training(tmp_path))
    assert says in found.reason


class Noisy(Costly):
    """Samples at once, that draw from the random state of whoever makes them."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(10) + index, index % 10


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """An iterable that ends within a batch."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        yield from (((torch.randn(10) + index), index % 10) for index in range(SAMPLES - 3))


Loaders = Callable[[], Any]
ITERATED: dict[str, Loaders] = {
    f"{kind} {1 - number % 2}": partial(KINDS[kind], Noisy(), BATCH, shuffle=True, num_workers=1 - number % 2)
    for number, kind in enumerate(KINDS)
}
"""With workers where a loop over the kind is measured without, and without where it is measured with them."""
SERIAL = partial(DataLoader, Noisy(), BATCH, shuffle=True)
WATCHED: dict[str, Loaders] = {
    **ITERATED,
    "DataLoader 0": SERIAL,
    "persistent": partial(DataLoader, Noisy(), BATCH, shuffle=True, num_workers=2, persistent_workers=True),
    "iterable": partial(DataLoader, Stream(), BATCH, num_workers=1),
}
HEARD_FROM_THE_FIRST = ("persistent", "iterable", "DataLoader 0", "DataLoader 1")


def passes(make: Loaders, out: Path, asked: int = EPOCH) -> tuple[list[list[int]], list[float]]:
    """The targets of the batches of three epochs, left after as many; the weights then, and the random state."""
    torch.manual_seed(5)
    loader, training, seen = make(), Training(out), []
    for _ in range(3):
        for _, batch in zip(range(asked), loader, strict=False):
            seen.append(batch[1].tolist())
            training.step(batch)
    del loader
    gc.collect()
    return seen, [*training.model.weight.flatten().tolist(), *torch.get_rng_state().tolist()]


@functools.cache
def passes_alone(name: str, asked: int = EPOCH) -> tuple[list[list[int]], list[float]]:
    """Neither measured nor watched."""
    return passes(WATCHED[name], Path(), asked)


@pytest.mark.parametrize("name", ITERATED)
def test_a_script_not_measured_sees_its_own_batches(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, in their order: what was learned of a copy took none, and drew from none of its generators."""

    def refused(*given: Any) -> None:  # an error that is kept would keep its frames, and with them workers
        raise BadValue("planted here")

    monkeypatch.setattr("loaderprobe.loaders.user_loader.UserLoader.files", refused)
    monkeypatch.setattr("loaderprobe.measure.user.loader.DISCOVERY_AT_LEAST_S", 0.0)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        beside = passes(ITERATED[name], tmp_path)
    assert "planted here" in found.reason
    assert beside == passes_alone(name)


class Sharing(DataLoader[Any]):
    """Keeps its iterator where no copy looks for it."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.deep = {"here": [super().__iter__()]}

    def __iter__(self) -> Any:
        yield from self.deep["here"][0]


def test_an_iterator_that_a_copy_would_share_is_never_used_up(tmp_path: Path) -> None:
    """The copy is refused, and the script gets each sample once."""
    seen, training = list[int](), Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        for batch in Sharing(Costly(0.0), BATCH):
            seen += batch[1].tolist()
            training.step(batch)
    assert "an iterator that the script uses" in found.reason
    assert seen == [index % 10 for index in range(BATCH * EPOCH)]


def test_a_loader_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    """While the script trains on; the loaders that there are stand there, and the same at its end."""
    clocked, training = Clocked(tmp_path, loader=3), Training(tmp_path)
    with pytest.raises(ValueError, match="not enough values"):
        clocked.run(lambda: list(map(training.step, training.loader)))
    (missing,) = clocked.said
    assert "there is no loader 3, only loader 0 (Costly, batch size 8, serial)" in missing
    assert clocked.attachment.record().why_not == "no_such_loader"


def watched(train: Any, keep: Callable[[Watch], None] = lambda found: None) -> tuple[Any, Any, list[str]]:
    """What it returns, what was seen (None where nothing was), and what was said."""
    heard: list[str] = []
    request = AttachRequest(run="", scratch="", command="train.py", budget_s=None)
    watcher = watcher_of(request, lambda code, facts: heard.append(said(code, facts)), keep)
    detach = attach(watcher)
    try:
        returned = train()
        report = watcher.result()
        return returned, None if report is None else Watch.of(report), heard
    finally:
        detach()
        watcher.close()


@pytest.mark.parametrize("name", WATCHED)
def test_a_watched_training_is_the_same_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Batches, weights and random state, over epochs, of which those after the first are recorded, at least."""
    make, asked = WATCHED[name], EPOCH + (name in HEARD_FROM_THE_FIRST)
    beside, found, _ = watched(lambda: passes(make, tmp_path, asked))
    assert beside == passes_alone(name, asked)
    (interval,) = found.intervals
    assert interval.worker_cpu_fraction is not None
    if name in HEARD_FROM_THE_FIRST:
        assert interval.steps == len(beside[0]) and interval.images_per_s
        assert 0 < found.overhead_s < interval.seconds
        assert BATCH * interval.steps / interval.images_per_s == pytest.approx(interval.seconds, rel=0.5)


def test_what_cannot_be_kept_ends_no_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk is said once an interval, and all is seen to the end."""
    monkeypatch.setattr(watcher, "FIRST_S", 0.01)
    full = Mock(side_effect=NoSpace("no space left to write result.json"))
    (seen, _), found, said = watched(lambda: passes(SERIAL, tmp_path, EPOCH + 1), full)
    assert sum(each.steps for each in found.intervals) == len(seen)
    assert said[1] == "the last interval is not kept: no space left to write result.json"


def trained(sample_s: float, step_s: float, steps: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A loop of so many steps, validated now and then, that is watched in short intervals."""
    monkeypatch.setattr(watcher, "FIRST_S", 0.1)
    monkeypatch.setattr(watcher, "LATER_S", 0.6)
    monkeypatch.setattr(example, "STEP_S", step_s)

    def train() -> None:
        training = Training(tmp_path)
        training.loader.dataset.sample_s = sample_s  # type: ignore[attr-defined]  # it is ours
        while training.steps < steps:
            for batch in training.loader:
                training.step(batch)
            training.validate()

    return watched(train)


def test_preprocessing_that_starves_training_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In each interval and as a whole; it is said meanwhile, and kept with a chart."""
    _, found, said = trained(0.0008, 0.0005, 150, monkeypatch, tmp_path)
    # On a busy machine, time lost to others looks like waiting, too.
    assert "preprocessing" in (found.bound.cause, *found.bound.candidates)
    assert len(found.intervals) >= 2 and len(said) == len(found.intervals)
    # On a busy machine, so short an interval has too few steps for a verdict.
    assert [" (estimated)" in each for each in said] == [each.bound is not None for each in found.intervals]
    assert max(each.input_wait_fraction for each in found.intervals) > 0.6
    page = found.save(tmp_path / "found")
    assert "<svg" in page.read_text()
    shown = load_any(tmp_path / "found")
    assert isinstance(shown, Watch) and shown == found
    assert "estimated, as nothing was changed" in shown.text()


def test_an_evaluation_is_no_step_of_a_watched_training(tmp_path: Path) -> None:
    """Its batches are counted as taken, and are no steps; an error of the script is its own."""
    training = Training(tmp_path)

    def train() -> None:
        for _ in range(3):
            training.evaluate()
            for batch in training.loader:
                training.step(batch)

    _, found, _ = watched(train)
    assert sum(interval.steps for interval in found.intervals) == training.steps
    with pytest.raises(ValueError, match=f"total steps is {SCHEDULED}"):
        watched(lambda: WAYS["schedules"](training))


def in_turn(training: Training) -> None:
    """Two loaders, each with steps of its own."""
    other = DataLoader(Costly(0.0001), BATCH, shuffle=True)
    for _ in training.epochs():
        others = iter(other)
        for batch in training.loader:
            training.step(batch)
            training.step(next(others))


@pytest.mark.parametrize(("way", "least"), [(WAYS["zips"], 0.5), (in_turn, 0.3)])
def test_of_two_loaders_of_a_step_the_one_that_it_waits_for_is_watched(
    way: Callable[[Training], None], least: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whichever gives its batch last; the wait for the other is said to count as compute."""
    monkeypatch.setattr(watcher, "FIRST_S", 0.05)
    monkeypatch.setattr(example, "STEP_S", 0.0)
    monkeypatch.setattr(Training, "epochs", lambda training: range(3))
    _, found, _ = watched(lambda: way(Training(tmp_path)))
    assert found.others == ("Costly",)
    assert min(each.input_wait_fraction for each in found.intervals) > least
    assert "waits for Costly count as compute" in found.text()


def test_of_several_ranks_the_first_is_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which is said; its steps have the waits for the others, so they are not called compute."""
    monkeypatch.setattr("loaderprobe.loaders.attached.ranks_in_use", lambda: 2)
    _, found, said = trained(0.0, 0.002, 100, monkeypatch, tmp_path)
    assert found.document().title.startswith("Watched training: rank 0 of 2, ")
    assert all(", rank 0 of 2" in each for each in said)
    bounds = [found.bound, *(each.bound for each in found.intervals)]
    assert not [bound for bound in bounds if bound and {"compute", "balanced"} & {bound.cause, *bound.candidates}]


def test_the_size_of_watched_batches_is_that_of_their_records(tmp_path: Path) -> None:
    """Where the loader does not know it; without records no size and no rate are shown."""
    training = Training(tmp_path)
    loader = DataLoader(Costly(0.0), batch_sampler=training.loader.batch_sampler)
    _, found, _ = watched(lambda: list(map(training.step, loader)))
    assert f"batches of {BATCH}" in found.document().title
    unknown = replace(found, batch_size=None, intervals=(replace(found.intervals[0], images_per_s=None),))
    assert "batches of" not in unknown.text() and "samples/s," not in unknown.text()


def test_what_does_not_train_gives_nothing(tmp_path: Path) -> None:
    """Only validation was iterated, also where a training without a loader runs in between."""
    _, found, _ = watched(lambda: Training(tmp_path).validate())
    assert found is None
    _, found, said = watched(lambda: WAYS["validates_alone"](Training(tmp_path)))
    assert found is None and not any("samples/s" in each for each in said)
