"""One process that trains: hears what its script does, has one of its loaders measured, and ends it with the result."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loaderprobe.analyze.verdict.rates import worker_cost
from loaderprobe.batches import length_of
from loaderprobe.errors import BadValue, LoaderprobeError, LostRank
from loaderprobe.measure.attach.coroutine import SessionCoroutine, Withdrawn
from loaderprobe.measure.attach.outside import Outside, Pauses
from loaderprobe.measure.attach.script_loaders import LoopIterator, ScriptLoader, SeenLoaders, counts_to
from loaderprobe.measure.attach.script_ranks import Ranks, ranks_here
from loaderprobe.measure.session import LEAST_STEPS_IN_A_ROW
from loaderprobe.measure.user.loader import INTERRUPTED, LoaderRequest, compute_of, measure_loader
from loaderprobe.protocols import Say
from loaderprobe.records import values
from loaderprobe.records.attached import Attached, AttachRequest, WhyNot
from loaderprobe.records.diagnosis import OwnMeasured
from loaderprobe.records.measurement import Measurement, segments_of
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.thresholds import LEAST_PREDICTION_ERROR
from loaderprobe.stats import median
from loaderprobe.system.process import runs
from loaderprobe.system.written_files import WrittenFiles
from loaderprobe.units import join_words

# The processes of a command that train.

TRAINS = "trains-"
SETTLED_S = 5.0
"""A process that another Python started may have siblings, which begin to train a little later."""


def announce(scratch: Path) -> None:
    """Tell the other processes of the command that this one has made its first backward pass."""
    with suppress(OSError):  # the command that asked is over, and the script goes on
        (scratch / f"{TRAINS}{os.getpid()}").touch()


def others_that_train(scratch: Path) -> int:
    """Other processes of the command that have made a backward pass and run still."""
    pids = (int(path.name.removeprefix(TRAINS)) for path in scratch.glob(f"{TRAINS}*"))
    return sum(1 for pid in pids if pid != os.getpid() and runs(pid))


def settled(tracked: ScriptLoader) -> bool:
    """True where siblings of this process, if it has any, train by now, too."""
    alone = multiprocessing.parent_process() is None
    return alone or time.perf_counter_ns() - tracked.began_ns >= SETTLED_S * 1e9


def claimed(scratch: Path) -> bool:
    """True for the first process of a command that asks, while that command runs."""
    try:
        os.close(os.open(scratch / "claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:  # it exists, or the folder is gone with the command
        return False
    return True


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """Why a process has no verdict."""

    why: WhyNot
    detail: str = ""
    hint: str = ""


# The measurement in place of a script's loader: what its loops get, and when they have gone elsewhere.

EPOCHS_ELSEWHERE = 2
"""Epochs that the script may train without a batch of the loader that is measured."""

Loop = tuple[Iterator[Any], int]
"""One over the loader that is measured: its iterator, which may be that of all loops, and its number."""


class Evaluation:
    """Finds loops over the measured loader that train on none of its batches, and gives them the loader's own."""

    def __init__(self, tracked: ScriptLoader, coroutine: SessionCoroutine) -> None:
        self._tracked, self._coroutine = tracked, coroutine
        self._last: Loop | None = None
        """The one that got the last batch."""
        self._given = 0
        """Batches of the measurement that it got."""
        self._trains: Loop | None = None
        """The one that got the batch of the last backward pass."""
        self._evaluates: Loop | None = None
        self._batches: Iterator[Any] = iter(())
        self.makes_iterator = False
        """True while an iterator is made that is none of the script's."""

    def has(self, loop: Loop) -> bool:
        """True for a loop that evaluates, from the batch on that it asks for now: `next` gives it.

        A single batch without a backward pass, in a loop that trains, only makes void what was timed.
        """
        if self._evaluates == loop:
            return True
        if self._last != loop or not self._tracked.trained or self._tracked.passes.trains:
            return False
        self._coroutine.interrupt("a batch was taken without a backward pass after it")
        if self._trains == loop or not self._tracked.passes.evaluates:
            return False
        self.makes_iterator = True
        try:
            self._evaluates, self._batches = loop, self._tracked.loader._get_iterator()
        finally:
            self.makes_iterator = False
        for _ in range(self._given):  # in place of these it got batches of the measurement
            next(self._batches, None)
        return True

    def next(self) -> Any:
        self._last = self._evaluates
        try:
            return next(self._batches)
        except StopIteration:
            self.stop()
            raise

    def gave(self, loop: Loop) -> None:
        """A loop got a batch of the measurement: if another evaluates, that was broken off."""
        if self._evaluates is not None and self._evaluates != loop:
            self._evaluates = None
            self.stop()
        self._given = self._given + 1 if self._last == loop else 1
        self._last = loop

    def backward(self) -> None:
        """The loop that got the last batch trains."""
        self._trains = self._last
        if self._last == self._evaluates:
            self._evaluates = None
            self.stop()

    def stop(self) -> None:
        """Let go of the loader's iterator: its workers end with it, persistent ones too."""
        self._batches = iter(())


class OtherTraining:
    """Backward passes on other batches: too many, or too long, and the loop that is measured does not come back."""

    def __init__(
        self, tracked: ScriptLoader, after_steps: int, passes: int, budget_s: float | None, clock: Callable[[], int]
    ) -> None:
        """The limit is in epochs, by the `passes` that the script made so far, and in `budget_s` for `after_steps`.

        Ranks, which are in step, count passes alone: for them `budget_s` is None.
        """
        epoch = max(after_steps, length_of(tracked.loader) or tracked.batches)
        self._most = round(EPOCHS_ELSEWHERE * epoch * max(1.0, passes / max(tracked.batches, 1)))
        self._most_s = None if budget_s is None else EPOCHS_ELSEWHERE * budget_s
        self._after_steps, self._clock = after_steps, clock
        self._passes = self._since_ns = 0

    def gave(self) -> None:
        self._passes, self._since_ns = 0, self._clock()

    def backward(self) -> None:
        self._passes += 1

    @property
    def happens(self) -> bool:
        """True after as many passes as show which loader a script trains on."""
        return self._passes >= self._after_steps

    @property
    def is_final(self) -> bool:
        seconds = (self._clock() - self._since_ns) / 1e9
        late = self._most_s is not None and seconds > self._most_s
        return self._passes > self._most or (late and self.happens)


@dataclass(eq=False)
class Takeover:
    """Gives the loops over one loader the batches of a measurement, with the loop's work as the step."""

    tracked: ScriptLoader
    real: Iterator[Any]
    """The iterator that the script has of the loader."""
    take: Callable[[], Any]
    """Its next batch."""
    coroutine: SessionCoroutine
    pauses: Pauses
    other_training: OtherTraining
    budget_s: float
    handed_over: bool = False
    """True once the script was given a batch of the measurement."""

    def __post_init__(self) -> None:
        self.evaluation = Evaluation(self.tracked, self.coroutine)
        length = length_of(self.tracked.loader) or 0
        # Fewer make no segment: then a loop that may expect no more gets more all the same.
        counted = length > LEAST_STEPS_IN_A_ROW and not self.tracked.known.keeps(self.real) and counts_to(length)
        self._length = length if counted else None
        """Batches of an epoch, where the loop ends with them; None for as many as the measurement takes."""

    @property
    def epoch_is_over(self) -> bool:
        return self._length is not None and self.tracked.in_epoch > self._length

    def loop_begins(self, tracked: ScriptLoader) -> None:
        """What is timed now is more than a step; an evaluation over the same loader is over."""
        if tracked is self.tracked:
            self.evaluation.stop()
        if not (tracked is self.tracked and tracked.begun_each_batch):
            reason = f"loader {tracked.record().number} was iterated"
            self.coroutine.interrupt("the loop began its next epoch" if tracked is self.tracked else reason)

    def resumes(self) -> tuple[float, str] | None:
        """The loop asks for a batch again: what took it much longer than a step, as `Pauses.end` says, is no step."""
        pause = self.pauses.end()
        if pause is not None:
            self.coroutine.interrupt("the script paused between two batches")
        return pause

    def gave(self, loop: Loop) -> None:
        """The script has a batch of the measurement: its own workers are not needed, and would only take memory."""
        self.other_training.gave()
        real, _ = loop
        if not (self.handed_over and real is self.real) and type(real) is not LoopIterator:
            from loaderprobe.loaders.attached import shut_down

            shut_down(real, self.tracked.loader)
        self.handed_over = True
        self.evaluation.gave(loop)
        self.pauses.begin()

    def close(self) -> None:
        """Put the loader's own iterators in the place of those that gave batches of the measurement."""
        attributes = vars(self.tracked.loader)
        attributes.update({name: None for name, value in attributes.items() if type(value) is LoopIterator})


WAITING_S = 10.0
"""Of slow steps the first are waited for that long before it is said; then twice as long, and so on."""
LEAST_BUDGET_S = 60.0
BUDGET_STEPS = 60
"""The usual budget is that of so many steps: twenty to warm up, and three rounds of training and of compute alone."""
MOST_LISTED = 200
"""Files that the script made, in the record."""
MOST_FILES = 5
"""Of the script's new files, so many are named."""
MEASURED = "loaderprobe has measured the training, and ends the script here"
CANNOT_GO_ON = "loaderprobe cannot go on measuring, and ends the script here"


def budget_of(request: AttachRequest, step_s: float, *, in_ranks: bool) -> tuple[float, float]:
    """(seconds, those beyond them while the verdict is open): as asked for, or of steps of `step_s` seconds.

    Ranks have both at once: each knows only its own part of an open verdict.
    """
    usual_s = max(LEAST_BUDGET_S, BUDGET_STEPS * step_s)
    if request.budget_s:
        return request.budget_s, 0.0
    return (2 * usual_s, 0.0) if in_ranks else (usual_s, usual_s)


def workers_start(tracked: ScriptLoader, measurement: Measurement) -> tuple[Remark, ...]:
    """Where workers start each epoch, and the script's rate is off the measured one by more than rates drift.

    With workers that run on, an epoch still waits for its first batch for as long as that takes to make.
    """
    from loaderprobe.loaders.unwrap import kept_iterators

    loader, base = tracked.loader, measurement.config.mode
    trained, alone = (segments_of(measurement, base, activity) for activity in ("training", "loader_only"))
    starts = tracked.starts_workers and tracked.starts_ns and not (tracked.begun_each_batch or kept_iterators(loader))
    cost = worker_cost(measurement.worker_batches, alone)  # all workers are busy, as when they start
    if not (starts and trained and cost):
        return ()
    start_s = median(tracked.starts_ns) / 1e9 - cost.wall_s / sum(segment.steps for segment in alone)
    step_s = sum(segment.seconds for segment in trained) / sum(segment.steps for segment in trained)
    epoch_s = (length_of(loader) or math.inf) * step_s
    if start_s < LEAST_PREDICTION_ERROR * epoch_s:
        return ()
    facts: Facts = {"start_s": start_s, "epoch_s": epoch_s, "starts": float(len(tracked.starts_ns))}
    return (Remark(code="workers_start_each_epoch", facts=facts),)


class Finished(SystemExit):
    """The measurement is over, and the script ends: raised where its loop asks for the next batch.

    Libraries that log what ends them show `said`.
    """

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code)
        self.said = said

    def __str__(self) -> str:
        return self.said


class Attachment:
    """Follows the script until a loader has trained for some steps, then measures it with the loop as the step.

    `say(code, facts)` is how it speaks, and `on_result` is called with what was measured. Its methods are those of
    `ScriptHooks`.
    """

    def __init__(
        self,
        request: AttachRequest,
        say: Say,
        on_result: Callable[[OwnMeasured], None],
        launched: int = 1,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`launched` is how many processes a launcher has started to train together; `clock` gives ns."""
        self._request, self._say, self._clock = request, say, clock
        self._on_result = on_result
        self._pid = os.getpid()
        self._outside = Outside(say, Path(request.scratch), clock)
        self._loaders = SeenLoaders(ScriptLoader)
        self._launched = launched
        self._ranks: Ranks | None = None
        """Set where this process trains together with others."""
        self._takeover: Takeover | None = None
        """None before the measurement; and after it, where the script goes on."""
        self._files = WrittenFiles(self._endangered, ours=lambda: self._keeping or self._measures())
        self._files.listen()
        self.saving = self._files.saving
        self._over = False
        """True once there is nothing more to measure."""
        self._finished = False
        """True once the script has to end, too."""
        self._interrupted = False
        """True where Ctrl-C came while no loop had its turn."""
        self._keeping = self._said_lacking = False
        self._no_verdict: NoVerdict | None = None
        self._stopped_before = self._round = ""
        self._silent_s = WAITING_S
        """Seconds of waiting for the first steps after which that is said again."""
        self._said_ns = clock()
        """When something was said of the rounds."""

    @property
    def drives(self) -> bool:
        return self._takeover is not None and not self._over

    def loop_begins(self, loader: Any) -> None:
        self._goes_on()
        tracked = self._loaders.known(loader) if self._hears else None
        if tracked is not None:
            tracked.begins()
            if self._takeover is not None:
                self._takeover.loop_begins(tracked)

    def get_iterator(self, loader: Any, original: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        self._goes_on()
        takeover = self._takeover
        if takeover is None or not self._hears or self._loaders.seen(loader) is not takeover.tracked:
            begin_ns = self._clock()
            made = original(loader)
            if (known := self._loaders.known(loader)) is not None:
                known.starting_ns += self._clock() - begin_ns
            return made
        takeover.loop_begins(takeover.tracked)
        # Another real one would start workers, and begin to read.
        return LoopIterator(takeover.real, partial(self.next_batch, takeover.tracked, take=takeover.take))

    def iterator_made(self, loader: Any) -> ScriptLoader | None:
        self._goes_on()
        if not self._hears:
            return None
        tracked = self._loaders.seen(loader)
        if self._takeover is not None:
            self._takeover.loop_begins(tracked)
        return tracked

    def next_batch(self, tracked: ScriptLoader, real: Iterator[Any], take: Callable[[], Any]) -> Any:
        """The batch that the script gets: the next of its own loader, or of the measurement."""
        if self._here and self._measures():
            from loaderprobe.loaders.unwrap import FOREIGN_HINT, SHARED

            raise BadValue(SHARED, hint=FOREIGN_HINT)
        self._goes_on()
        takeover, loop = self._takeover_of(tracked, real, take), (real, tracked.begun)
        tracked.in_epoch += 1
        if takeover is not None:
            return takeover.evaluation.next() if takeover.evaluation.has(loop) else self._measured_batch(takeover, loop)
        self._say_waiting(tracked)
        begin_ns = self._clock()
        try:
            batch = take()
        except StopIteration:  # its workers have ended
            tracked.starting_ns += self._clock() - begin_ns
            raise
        self._loaders.took(tracked, begin_ns, self._clock())
        self._outside.took()
        return batch

    def _say_waiting(self, tracked: ScriptLoader) -> None:
        """For what the measurement waits, less and less often; of several processes, they would all say so."""
        waited_s = (self._clock() - (tracked.began_ns or self._clock())) / 1e9
        begun = self._over or self._takeover is not None
        if waited_s >= self._silent_s and self._launched == 1 and not begun:
            self._silent_s, chosen = 2 * waited_s, self._request.loader is not None
            facts = {"steps": self._loaders.awaited(self._request.after_steps), "waited_s": waited_s}
            facts |= values(tracked.record(), "batches", "backward_passes")
            self._say("script.waits", facts | {"number": "" if tracked.trained or chosen else str(tracked.number)})

    def backward(self) -> None:
        if not self._here:
            return
        if not self._loaders.passes:
            announce(Path(self._request.scratch))
        self._loaders.backward()
        if not self._over:
            self._outside.backward()
        takeover = self._takeover
        if takeover is None:
            return
        takeover.evaluation.backward()
        if takeover.handed_over and self._hears:
            takeover.other_training.backward()
            if takeover.other_training.is_final:
                self.end()
                raise self._ended()

    def optimizer_stepped(self) -> None:
        self._loaders.optimizer_stepped()
        self._outside.optimizer_stepped()

    def _endangered(self, path: str) -> None:
        """A model that trained on the same batches over and over must not take the place of a real one."""
        self._say("script.stopped_before", {"path": path})
        if self._here:
            self._stopped_before = path
            if threading.get_ident() == self._loaders.trained_in:
                self.end()
        raise Finished(0, f"stopped before the script would write over or remove {path}")

    def _goes_on(self) -> None:
        """Raise Finished where the script goes on although it was ended."""
        if self._finished and self._here:
            raise self._ended()

    @property
    def _is_coordinator(self) -> bool:
        """False for ranks that are measured together with rank 0, which speaks for them."""
        return self._ranks is None or self._ranks.is_coordinator

    @property
    def _here(self) -> bool:
        """False in a process that was forked from the one that trains."""
        return os.getpid() == self._pid

    @property
    def _hears(self) -> bool:
        """True where it is the script that iterates, and that is of interest."""
        ours = self._measures() or (self._takeover is not None and self._takeover.evaluation.makes_iterator)
        return self._here and not self._over and not ours

    def _measures(self) -> bool:
        """True while the measurement runs, and not the script."""
        return self._takeover is not None and self._takeover.coroutine.inside

    def _takeover_of(self, tracked: ScriptLoader, real: Iterator[Any], take: Callable[[], Any]) -> Takeover | None:
        """The takeover that gives this loader's batches; it may begin with the one that is asked for now."""
        if self._over or not self._here:
            return None
        if self._takeover is None:
            decision = self._decided(tracked)
            if isinstance(decision, NoVerdict):
                self._leave(decision)
            elif decision:
                self._begin(tracked, real, take)
        return self._takeover if self._takeover is not None and self._takeover.tracked is tracked else None

    def _decided(self, tracked: ScriptLoader) -> bool | NoVerdict:
        """Whether to take over the loop over this loader now: of a single process once it trains, of ranks when all
        have agreed. Why this process is never measured, if that is clear."""
        if self._ranks is None:
            number, after_steps = self._request.loader, self._request.after_steps
            if tracked is not self._loaders.choice(number, after_steps):
                if self._loaders.lacks(number) and self._loaders.choice(None, after_steps) and not self._said_lacking:
                    self._said_lacking = True
                    self._say("script.no_such_loader", {"asked": number, "loaders": self._loaders.records()})
                return False
            self._ranks = ranks_here()
            if self._ranks is None and not (settled(tracked) or others_that_train(Path(self._request.scratch))):
                return False
            prevented = self._prevented(tracked)
            if self._ranks is None:
                return prevented or True
            if prevented is not None and prevented.why in ("other_thread", "another_process"):
                self._ranks.refuse(prevented.why)
        agreed = self._ranks.agrees(tracked, self._loaders.passes)
        return NoVerdict("ranks_apart") if self._ranks.not_together else agreed

    def _prevented(self, tracked: ScriptLoader) -> NoVerdict | None:
        if self._loaders.trained_in not in (0, threading.get_ident()):
            return NoVerdict("other_thread")
        scratch = Path(self._request.scratch)
        if self._ranks is None:
            if self._launched > 1:
                return NoVerdict("ranks", str(self._launched))
            if others := others_that_train(scratch):
                return NoVerdict("several_processes", str(others + 1))
        elif not self._ranks.is_coordinator:
            return None
        if not claimed(scratch):
            return NoVerdict("another_process")
        # What starting them each time costs shows in no copy, whose workers run on.
        if self._ranks is None and tracked.begun_each_batch and tracked.starts_workers:
            return NoVerdict("begun_each_batch")
        return None

    def _leave(self, no_verdict: NoVerdict) -> None:
        """The script goes on by itself, with its own iterator and workers. Rank 0 says why."""
        self._over, self._no_verdict = True, no_verdict if self._is_coordinator else NoVerdict("follows")
        self._outside.close()
        if self._takeover is not None:
            self._takeover.pauses.close()
            self._takeover = None
        self._files.end()
        if self._is_coordinator:
            self._say("script.no_verdict", {"attached": self.record()})

    def _begin(self, tracked: ScriptLoader, real: Iterator[Any], take: Callable[[], Any]) -> None:
        ranks, step_s = self._ranks, tracked.step_s(self._clock())
        budget_s, beyond_s = budget_of(self._request, step_s, in_ranks=ranks is not None)
        if ranks is not None:
            try:
                budget_s = ranks.same_budget(budget_s)
            except LostRank as error:
                ranks.refuse("lost", error.message, error.hint)
                self._leave(NoVerdict("ranks_apart"))
                return
        if self._is_coordinator:
            facts = {
                "loader": tracked.record(),
                "ranks": ranks.size if ranks else None,
                "budget_s": budget_s,
                "most_s": budget_s + beyond_s if beyond_s else None,
                "others": self._loaders.others(tracked),
            }
            self._say("script.begins", facts)
            self._said_ns = self._clock()
        pauses = Pauses(self._clock)
        measure = partial(self._measured, tracked, pauses, budget_s, beyond_s)
        coroutine = SessionCoroutine(measure) if ranks is None else ranks.coroutine(measure)
        most_s = None if ranks is not None else budget_s
        others = OtherTraining(tracked, self._request.after_steps, self._loaders.passes, most_s, self._clock)
        self._takeover = Takeover(tracked, real, take, coroutine, pauses, others, budget_s)
        self._files.begin()
        pauses.watch(threading.get_ident(), step_s)

    def _measured(
        self, tracked: ScriptLoader, pauses: Pauses, budget_s: float, beyond_s: float, step: Callable[[Any], None]
    ) -> OwnMeasured | None:
        """What is measured of the loops over a loader, alone or in step with all ranks; None on ranks but the first."""
        request, ranks = self._request, self._ranks
        if ranks is not None:
            measured = ranks.measure(tracked, step, request, budget_s, self._on_stage)
        else:
            options = LoaderRequest(cache=request.cache, budget_s=budget_s, beyond_s=beyond_s, period=tracked.period)
            measured = measure_loader(tracked.known.to_measure(), compute_of(step), options, self._on_stage)
        if measured is None:
            return None
        measurement = measured.measurement
        self._interrupted = INTERRUPTED in measurement.notes
        notes = [*(() if ranks is None else ranks.notes(measurement)), *workers_start(tracked, measurement)]
        if ranks is None and tracked.begun_each_batch:
            notes.append(Remark(code="begun_each_batch"))
        notes += measurement.notes
        if pauses.total_s:
            notes.append(Remark(code="script_paused", facts={"paused_s": pauses.total_s}))
        if ranks is not None:
            try:
                ranks.keep(request.run)
            except KeyboardInterrupt:  # all is measured
                self._interrupted = True
        return replace(measured, measurement=replace(measurement, notes=tuple(notes)))

    def _on_stage(self, stage: str, done: int, total: int) -> None:
        """One line a round, of slow ones more. Raises BadValue where another process has begun to train meanwhile."""
        others = 0 if self._ranks else others_that_train(Path(self._request.scratch))
        if others:
            raise BadValue(
                f"{others + 1} processes of the command train at the same time, not joined by torch.distributed. One "
                "alone would be measured beside the others",
                hint="start the script with one process that trains",
            )
        round_ = stage.partition(":")[0]
        is_new, late_s = stage.startswith("round") and round_ != self._round, (self._clock() - self._said_ns) / 1e9
        if self._is_coordinator and (is_new or late_s >= WAITING_S):
            self._round, self._said_ns = round_ if is_new else self._round, self._clock()
            self._say("script.round", {"round": round_ if is_new else stage})

    def _measured_batch(self, takeover: Takeover, loop: Loop) -> Any:
        """The next batch of the measurement, for one of the script's loops; raises Finished when it has none.

        Raises KeyboardInterrupt for one that came meanwhile, once what was measured until then is kept.
        """
        pause = takeover.resumes()
        if pause is not None and self._is_coordinator:
            paused_s, function = pause
            facts = {"paused_s": paused_s, "place": function, "budget_s": takeover.budget_s}
            self._say("script.was_paused", facts)
        if takeover.epoch_is_over:
            raise StopIteration
        try:
            batch = takeover.coroutine.next()
        except LoaderprobeError as error:
            return self._refused(takeover, error)
        except Withdrawn as error:
            assert self._ranks is not None
            self._ranks.not_together = error.why
            self._leave(NoVerdict("ranks_apart"))
            return takeover.take()
        except Exception as error:
            if takeover.handed_over:
                raise
            unexpected = LoaderprobeError(f"{type(error).__name__}: {error}", hint="report this error")
            return self._refused(takeover, unexpected)
        if takeover.coroutine.over:
            self._conclude(takeover)
            raise KeyboardInterrupt if self._interrupted else self._ended()
        takeover.gave(loop)
        self._loaders.gave(takeover.tracked)
        self._outside.took()
        return batch

    def _refused(self, takeover: Takeover, error: LoaderprobeError) -> Any:
        """Before the first batch the script goes on as if nothing had happened, on all ranks; later it ends."""
        ranks, no_verdict = self._ranks, NoVerdict("refused", error.message, error.hint)
        if not takeover.handed_over:
            if ranks is not None:
                ranks.refuse("refused", error.message, error.hint)
                no_verdict = NoVerdict("ranks_apart")
            self._leave(no_verdict)
            return takeover.take()
        self._over = self._finished = True
        self._no_verdict = no_verdict
        self._outside.close()
        self._say("script.no_verdict", {"attached": self.record()})
        takeover.pauses.close()
        raise Finished(error.exit_code, CANNOT_GO_ON)

    def _ended(self) -> Finished:
        """What ends the script, with what it has come to: a rank that follows says why where it was not measured."""
        measured = self._no_verdict in (None, NoVerdict("follows"))
        return Finished(0, MEASURED if measured else CANNOT_GO_ON)

    def _conclude(self, takeover: Takeover) -> None:
        self._over = self._finished = self._keeping = True
        result = takeover.coroutine.result if takeover.coroutine.over else None
        # Ctrl-C while the result is kept leaves that reason.
        self._no_verdict = NoVerdict("ended_early" if self._is_coordinator else "follows")
        try:
            if result is not None:
                self._on_result(result)
                self._no_verdict = None
        except LoaderprobeError as error:
            self._no_verdict = NoVerdict("refused", error.message, error.hint)
        finally:
            self._keeping = False
            takeover.pauses.close()
        if self._files.new:
            files = [*self._files.new]
            facts = {"files": ", ".join(files[:MOST_FILES]), "more": max(0, len(files) - MOST_FILES) or None}
            self._say("script.saved", facts)

    def end(self) -> None:
        """The script ends by itself: conclude from whole rounds, else keep the reason."""
        if self._over:
            return
        self._over = True
        self._outside.close()
        takeover, ranks = self._takeover, self._ranks
        if takeover is None:
            without = self._outside.looked or (self._loaders.passes and not self._loaders.all)
            self._no_verdict = NoVerdict("no_loader" if without else self._loaders.why_none(self._request.loader))
            if ranks is not None:
                ranks.end()
                self._no_verdict = NoVerdict("ranks_apart" if ranks.is_coordinator else "follows")
            return
        takeover.evaluation.stop()
        takeover.pauses.close()
        self._finished = True
        if threading.get_ident() != self._loaders.trained_in:
            self._no_verdict = NoVerdict("ended_early")
            return
        try:
            takeover.coroutine.give_up()
            self._conclude(takeover)
        except LoaderprobeError as error:
            early = self._is_coordinator or isinstance(error, LostRank)
            self._no_verdict = NoVerdict("ended_early" if early else "follows", error.message, error.hint)
            if takeover.other_training.happens and early:
                others = self._loaders.others(takeover.tracked)
                named = join_words([f"loader {other.number} ({other.dataset})" for other in others])
                self._no_verdict = NoVerdict("not_seen_again", named, error.hint)

    def close(self) -> None:
        """The script is over, or the block: its files are its own again, and its loader makes iterators again."""
        self._files.end()
        if self._takeover is not None:
            self._takeover.close()

    def record(self) -> Attached:
        """What this process did and saw, once it has ended."""
        no_verdict, ranks = self._no_verdict, self._ranks
        why_not = no_verdict.why if no_verdict else None
        return Attached(
            pid=os.getpid(),
            loaders=self._loaders.records(),
            why_not=why_not,
            detail=no_verdict.detail if no_verdict else "",
            hint=no_verdict.hint if no_verdict else "",
            apart=ranks.not_together if ranks and why_not == "ranks_apart" else None,
            saved=tuple(self._files.new)[:MOST_LISTED],
            endangered=self._stopped_before,
            outside=self._outside.seen() if why_not == "no_loader" else None,
        )
