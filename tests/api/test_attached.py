"""Training loops as people write them: taken over and measured, however a loader is iterated, or only watched."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import loaderprobe
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import load_any
from loaderprobe.api.run import Watch, attachment_of, watcher_of
from loaderprobe.errors import BadValue, NoSpace
from loaderprobe.loaders.attached import attach
from loaderprobe.measure.attach import watcher as watcher
from loaderprobe.measure.attach.attachment import Finished
from loaderprobe.measure.user.loader import measure_loader
from loaderprobe.records.diagnosis import AttachRequest
from loaderprobe.render.watch import said
from tests.examples import training as example
from tests.examples.iterated import EPOCH, KINDS, Eager, arrays, begun_each_batch, made_again, never_again, over
from tests.examples.training import BATCH, SCHEDULED, STEP_S, WAYS, Costly, Training

pytestmark = pytest.mark.usefixtures("one_thread")
BUDGET_S = 0.5
"""Enough for one round of loops of a millisecond a step."""


def attached_to(way: str, out: Path, **loader: Any) -> Any:
    """What is found in such a loop."""
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS[way](Training(out, **loader))
    return found


@pytest.mark.parametrize(
    "way",
    ["plain", "by_next", "generated", "accumulates", "zips", "again", "counts", "adversarial", "skips"],
)
def test_a_loop_is_measured_and_ended(way: str, tmp_path: Path) -> None:
    """By the loader that trains, although others are iterated, too; torch is as it was afterwards."""
    before = DataLoader.__iter__, torch.autograd.backward, torch.save
    found = attached_to(way, tmp_path)
    assert found.diagnosis is not None, found.reason
    assert (found.diagnosis.row.config.loader.workers, found.diagnosis.row.config.compute.batch_size) == (0, 8)
    assert {"loader_only", "training"} <= {each.activity for each in found.diagnosis.measurement.segments}
    assert (DataLoader.__iter__, torch.autograd.backward, torch.save) == before


def test_an_evaluation_over_the_training_loader_is_no_training(tmp_path: Path) -> None:
    """It gets the loader's own batches, ends with them, and no step that is timed is one of its own."""
    training = Training(tmp_path, num_workers=1)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS["evaluates_train"](training)
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

    def __init__(self, tmp_path: Path, budget_s: float = BUDGET_S) -> None:
        self.ahead_s, self.said, self.kept = 0.0, list[str](), list[Diagnosis]()
        request = AttachRequest(run=str(tmp_path), scratch=str(tmp_path), command="train.py", budget_s=budget_s)
        self.attachment = attachment_of(
            request, lambda code, facts: self.said.append(said(code, facts)), self.kept.append,
            clock=lambda: time.perf_counter_ns() + round(self.ahead_s * 1e9),
        )  # fmt: skip

    def run(self, loop: Callable[[], None]) -> Diagnosis:
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
    """It took 5 s of the script's time, and an epoch trains for less than a second."""
    clocked, training, start = Clocked(tmp_path), Training(tmp_path, num_workers=1), DataLoader._get_iterator

    def slow(loader: Any) -> Any:
        clocked.ahead_s += 5.0 if loader is training.loader else 0.0  # and not a copy that is measured
        return start(loader)

    monkeypatch.setattr(DataLoader, "_get_iterator", slow)
    notes = clocked.run(lambda: WAYS["plain"](training)).measurement.notes
    assert "workers_start_each_epoch" in [note.code for note in notes]


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


def test_a_checkpoint_that_exists_is_not_written_over(tmp_path: Path) -> None:
    """Nor while the script ends: many save in a `finally`, with the path by its name."""
    kept = tmp_path / "last.pt"
    torch.save({"weights": torch.ones(3)}, kept)
    before = hashlib.sha256(kept.read_bytes()).hexdigest()
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        try:
            WAYS["plain"](training)
        finally:
            torch.save(training.model.state_dict(), f=tmp_path / "new.pt")
            torch.save(training.model.state_dict(), f=kept)
    assert found.diagnosis is not None, found.reason
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == before
    assert (tmp_path / "new.pt").exists()


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("never_trains", "no backward pass after them"),
        ("validates_alone", "batches come otherwise"),
        ("short", "after too few training steps"),
        ("in_a_thread", "in another thread than the one that trains"),
    ],
)
def test_what_cannot_be_measured_runs_to_its_end(way: str, says: str, tmp_path: Path) -> None:
    found = attached_to(way, tmp_path)
    assert found.diagnosis is None
    assert says in found.reason


def test_a_schedule_outlasts_its_steps_while_it_is_measured(tmp_path: Path) -> None:
    """The measurement makes more steps than the script planned; by itself the script would fail."""
    found = attached_to("schedules", tmp_path)
    assert found.diagnosis is not None, found.reason
    with pytest.raises(ValueError, match=f"total steps is {SCHEDULED}"):
        WAYS["schedules"](Training(tmp_path))


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
def test_a_script_raises_what_it_raises(
    place: str, value: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the measurement, after an error of our own, and where one of two ranks is left alone."""
    monkeypatch.setattr(f"loaderprobe.{place}", value)
    with pytest.raises(KeyError, match="planted"), loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS["raises"](Training(tmp_path))
    assert says in found.reason


def test_an_impossible_budget_is_refused() -> None:
    with pytest.raises(loaderprobe.LoaderprobeError, match=r"the budget must be"), loaderprobe.attached(budget_s=-1):
        raise AssertionError


@pytest.mark.parametrize(("kind", "workers"), [(kind, number % 2) for number, kind in enumerate(KINDS)])
def test_a_loader_of_any_kind_is_measured(kind: str, workers: int, tmp_path: Path) -> None:
    """By a copy that has its workers and batches; the loop is ended."""
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        loader = KINDS[kind](Costly(), BATCH, shuffle=True, num_workers=workers)
        over(loader)(Training(tmp_path))
    assert found.diagnosis is not None, found.reason
    config = found.diagnosis.row.config
    assert (config.loader.workers, config.compute.batch_size) == (workers, BATCH)


def test_an_iterator_that_was_kept_before_is_heard(tmp_path: Path) -> None:
    loader = Eager(Costly(), BATCH, shuffle=True)
    next(iter(loader))
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        over(loader)(Training(tmp_path))
    assert found.diagnosis is not None, found.reason


@pytest.mark.parametrize(("kind", "workers"), [(kind, 1 - number % 2) for number, kind in enumerate(KINDS)])
def test_a_script_that_is_not_measured_sees_its_own_batches(
    kind: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, in their order: what was learned of a copy took none, and drew from none of its generators."""

    def refused(*given: Any) -> None:
        raise BadValue("planted here")

    monkeypatch.setattr("loaderprobe.measure.user.loader.Discovery._evict", refused)
    monkeypatch.setattr("loaderprobe.measure.user.loader.DISCOVERY_AT_LEAST_S", 0.0)
    alone = targets(kind, workers, tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        beside = targets(kind, workers, tmp_path)
    assert "planted here" in found.reason
    assert beside == alone


def targets(kind: str, workers: int, out: Path) -> list[list[int]]:
    """Of the batches of three epochs."""
    torch.manual_seed(5)
    loader, training, seen = KINDS[kind](Costly(0.0), BATCH, shuffle=True, num_workers=workers), Training(out), []
    for _ in range(3):
        for _, batch in zip(range(EPOCH), loader, strict=False):
            seen.append(batch[1].tolist())
            training.step(batch)
    del loader
    gc.collect()
    return seen


class Sharing(DataLoader[Any]):
    """Keeps its iterator where no copy looks for it."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.deep = {"here": [super().__iter__()]}

    def __iter__(self) -> Any:
        yield from self.deep["here"][0]


def test_an_iterator_that_a_copy_would_share_is_never_used_up(tmp_path: Path) -> None:
    """The copy is refused, and the script gets each sample once."""
    seen: list[int] = []
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        for batch in Sharing(Costly(0.0), BATCH):
            seen += batch[1].tolist()
            training.step(batch)
    assert "an iterator that the script uses" in found.reason
    assert seen == [index % 10 for index in range(BATCH * EPOCH)]


def test_a_loader_that_is_made_again_is_the_same_one(tmp_path: Path) -> None:
    """With its data set, of a class that is made again, too; samples are counted by their indices."""
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        made_again(training)
    assert found.diagnosis is not None, found.reason
    assert found.diagnosis.row.config.compute.batch_size == BATCH
    assert training.steps > EPOCH


def test_a_loader_that_does_not_come_again_ends_the_script(tmp_path: Path) -> None:
    """After two of its epochs, with the reason."""
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=60.0) as found:
        never_again(training)
    assert "went on with loader 2 (ArrayDataset)" in found.reason
    assert training.steps <= 3 * EPOCH + 1


def test_a_loader_that_is_begun_each_batch_for_each_batch(tmp_path: Path) -> None:
    """Is measured with a note; with workers, which would start each time, it is left alone, and says why."""
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        begun_each_batch(Training(tmp_path))
    assert found.diagnosis is not None, found.reason
    assert "begun_each_batch" in [note.code for note in found.diagnosis.detail.notes]
    training = Training(tmp_path, num_workers=1)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        for _ in range(10):
            training.step(next(iter(training.loader)))
    assert "starts its loader for each batch" in found.reason
    training = Training(tmp_path, num_workers=1, persistent_workers=True)  # which start once
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        begun_each_batch(training)
    assert found.diagnosis is not None, found.reason


def test_torch_is_as_it_was() -> None:
    """After the block, its classes and those of the loaders that were seen."""
    kinds = [DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter, *KINDS.values()]
    before = [dict(vars(kind)) for kind in kinds]
    with loaderprobe.attached(budget_s=BUDGET_S):
        for kind in KINDS.values():
            for _, _batch in zip(range(2), kind(Costly(0.0), BATCH, shuffle=True), strict=False):
                pass
        next(iter(arrays(0)))
    assert [dict(vars(kind)) for kind in kinds] == before


STEPS = 200


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Samples that draw from the worker's random state."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(10) + index, index % 10


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """An iterable that ends within a batch."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        yield from (((torch.randn(10) + index), index % 10) for index in range(317))


LOADERS: dict[str, dict[str, Any]] = {
    "serial": {"dataset": Noisy(), "shuffle": True},
    "workers": {"dataset": Noisy(), "shuffle": True, "num_workers": 1},
    "persistent": {"dataset": Noisy(), "shuffle": True, "num_workers": 2, "persistent_workers": True},
    "iterable": {"dataset": Stream(), "num_workers": 1},
}


def losses(options: dict[str, Any]) -> tuple[list[float], torch.Tensor]:
    """Of 200 steps with a fixed seed, and the random state after them."""
    torch.manual_seed(1)
    loader: DataLoader[Any] = DataLoader(batch_size=8, **options)
    model = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    found: list[float] = []
    while len(found) < STEPS:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
    return found, torch.get_rng_state()


def watched(train: Any, keep: Callable[[Watch], None] = lambda found: None) -> tuple[Any, Watch | None, list[str]]:
    """What it returns, what was seen, and what was said."""
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


@pytest.mark.parametrize("kind", LOADERS)
def test_a_watched_training_is_the_same_bit_for_bit(kind: str) -> None:
    """Losses and random state, over epochs."""
    usual = losses(LOADERS[kind])
    (seen, state), found, _ = watched(lambda: losses(LOADERS[kind]))
    assert seen == usual[0] and torch.equal(state, usual[1])
    assert found is not None and sum(each.steps for each in found.intervals) == len(seen)
    (interval,) = found.intervals
    assert 0 < found.overhead_s < interval.seconds and interval.images_per_s
    usual_s = sum((317 / 40 if kind == "iterable" else 8) for _ in seen) / interval.images_per_s
    assert usual_s == pytest.approx(interval.seconds, rel=0.5)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_of_any_kind_is_watched(kind: str, workers: int, tmp_path: Path) -> None:
    """Each epoch gives the script its own batches, and those after the first are recorded."""
    alone = targets(kind, workers, tmp_path)
    beside, found, _ = watched(lambda: targets(kind, workers, tmp_path))
    assert beside == alone
    assert found is not None and found.intervals[0].worker_cpu_fraction is not None


def test_what_cannot_be_kept_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is said once an interval, and all is seen to the end."""
    monkeypatch.setattr(watcher, "FIRST_S", 0.01)

    def full(found: Watch) -> None:
        raise NoSpace("no space left to write result.json")

    (seen, _), found, said = watched(lambda: losses(LOADERS["serial"]), full)
    assert found is not None and sum(each.steps for each in found.intervals) == len(seen)
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
    assert found is not None and sum(interval.steps for interval in found.intervals) == training.steps
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
    monkeypatch.setattr(Training, "epochs", lambda training: range(3))
    _, found, said = watched(lambda: way(Training(tmp_path)))
    assert found is not None and found.others == ("Costly",)
    assert min(each.input_wait_fraction for each in found.intervals) > least
    assert len(said) == len(found.intervals)
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
    assert found is not None and f"batches of {BATCH}" in found.document().title
    unknown = replace(found, batch_size=None, intervals=(replace(found.intervals[0], images_per_s=None),))
    assert "batches of" not in unknown.text() and "samples/s," not in unknown.text()


def test_what_does_not_train_gives_nothing(tmp_path: Path) -> None:
    """Only validation was iterated, also where a training without a loader runs in between."""
    _, found, _ = watched(lambda: Training(tmp_path).validate())
    assert found is None
    _, found, said = watched(lambda: WAYS["validates_alone"](Training(tmp_path)))
    assert found is None and not any("samples/s" in each for each in said)
