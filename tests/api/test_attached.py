"""Training loops as people write them are taken over, measured, and ended."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import loaderprobe
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.run import attachment_of
from loaderprobe.loaders.attached import attach
from loaderprobe.measure.attach.attachment import Finished
from loaderprobe.records.diagnosis import AttachRequest
from tests.examples.training import SCHEDULED, STEP_S, WAYS, Training

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
    ["plain", "validates", "by_next", "generated", "accumulates", "zips", "again", "counts", "adversarial", "skips"],
)
def test_a_loop_is_measured_and_ended(way: str, tmp_path: Path) -> None:
    """By the loader that trains, although others are iterated, too; torch is as it was afterwards."""
    before = DataLoader.__iter__, torch.autograd.backward, torch.save
    found = attached_to(way, tmp_path)
    assert found.diagnosis is not None, found.reason
    assert (found.diagnosis.workers, found.diagnosis.batch_size) == (0, 8)
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


def test_a_loop_that_leaves_out_its_first_batch_trains_all_the_same(tmp_path: Path) -> None:
    """It is taken for an evaluation only until its first backward pass."""
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        for _ in training.epochs():
            last = len(training.loader)
            for number, batch in enumerate(training.loader):
                if number:
                    training.step(batch, update=number < last)
    assert found.diagnosis is not None, found.reason


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_a_loop_over_workers_is_measured(options: dict[str, Any], tmp_path: Path) -> None:
    """Those of the script have ended, and the measurement has had its own."""
    training = Training(tmp_path, **options)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS["by_next"](training)
    assert found.diagnosis is not None, found.reason
    assert found.diagnosis.workers == 1
    # After the block the loader is the script's again.
    assert len(list(training.loader)) == len(training.loader)


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


class Slow:
    """A clock in ns that the script sets forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> int:
        return time.perf_counter_ns() + round(self.ahead_s * 1e9)


class Clocked:
    """A loop that is measured by a clock that it sets forward."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock, self.said, self.kept = Slow(), list[str](), list[Diagnosis]()
        request = AttachRequest(run=str(tmp_path), scratch=str(tmp_path), command="train.py", budget_s=BUDGET_S)
        self.attachment = attachment_of(request, self.said.append, self.kept.append, clock=self.clock)

    def run(self, loop: Callable[[], None]) -> Diagnosis:
        """What is found."""
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


def test_a_long_end_of_an_epoch_is_said(tmp_path: Path) -> None:
    """How long it took, and that it counts towards the budget; the verdict has a note of it, too."""
    clocked, training, sampled = Clocked(tmp_path), Training(tmp_path), list[float]()

    def sample() -> None:
        clocked.clock.ahead_s += 40.0
        sampled.append(40.0)

    training.validate = sample  # type: ignore[method-assign]  # the end of an epoch
    diagnosis = clocked.run(lambda: WAYS["by_next"](training))
    long = [text for text in clocked.said if "something else than train" in text]
    # The end of the first epochs may be before the takeover.
    assert long and len(long) <= len(sampled)
    assert all("for 40 s between two batches" in text and "budget of 500 ms" in text for text in long)
    (note,) = (note for note in diagnosis.notes if note.code == "script_paused")
    assert note.facts["paused_s"] == pytest.approx(40.0 * len(long), rel=0.1)


def test_a_pause_makes_void_what_was_timed(tmp_path: Path) -> None:
    """Also in the middle of an epoch, between two batches of one loop."""
    clocked, training, why = Clocked(tmp_path), Training(tmp_path), list[str]()

    def loop() -> None:
        for batch in training.loader:
            training.step(batch)
            if training.steps == 20:
                clocked.clock.ahead_s += 40.0
                turns = clocked.attachment._turns
                assert turns is not None
                turns.interrupt = why.append  # type: ignore[method-assign, assignment]  # to hear of it

    clocked.run(loop)
    assert why == ["the script paused between two batches"]


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
        ("validates_alone", "the script makes its batches in another way"),
        ("short", "after too few training steps"),
        ("in_a_thread", "in another thread than the one that trains"),
    ],
)
def test_what_cannot_be_measured_runs_to_its_end(way: str, says: str, tmp_path: Path) -> None:
    """With the reason."""
    found = attached_to(way, tmp_path)
    assert found.diagnosis is None
    assert says in found.reason


def test_a_schedule_outlasts_its_steps_while_it_is_measured(tmp_path: Path) -> None:
    """The measurement makes more steps than the script planned; by itself the script would fail."""
    found = attached_to("schedules", tmp_path)
    assert found.diagnosis is not None, found.reason
    with pytest.raises(ValueError, match=f"total steps is {SCHEDULED}"):
        WAYS["schedules"](Training(tmp_path))


def test_an_error_before_the_first_batch_leaves_the_script_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: the script goes on, and raises what it raises."""

    def broken(*given: Any, **named: Any) -> None:
        raise ZeroDivisionError("planted here")

    monkeypatch.setattr("loaderprobe.measure.attach.attachment.measure_with_step", broken)
    with pytest.raises(KeyError, match="planted"), loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS["raises"](Training(tmp_path))
    assert "ZeroDivisionError: planted here" in found.reason


def test_errors_of_the_script_are_its_own(tmp_path: Path) -> None:
    """Also in the middle of the measurement."""
    with pytest.raises(KeyError, match="planted"):
        attached_to("raises", tmp_path)


def test_ranks_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two cannot be stopped without the other."""
    monkeypatch.setattr("loaderprobe.loaders.attached.ranks_in_use", lambda: 2)
    with pytest.raises(KeyError, match="planted"), loaderprobe.attached(budget_s=BUDGET_S) as found:
        WAYS["raises"](Training(tmp_path))
    assert "2 ranks" in found.reason


def test_an_impossible_budget_is_refused() -> None:
    """Before anything trains."""
    with (
        pytest.raises(loaderprobe.LoaderprobeError, match=r"the budget is -1"),
        loaderprobe.attached(budget_s=-1),
    ):
        raise AssertionError
