"""One process that trains: which of its loaders trains, when the measurement takes over, and how that ends."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from loaderprobe.batches import length_of
from loaderprobe.errors import BadValue, LoaderprobeError, LostRank
from loaderprobe.measure.attach.coroutine import SessionCoroutine, Withdrawn
from loaderprobe.measure.attach.outside import Outside, Pauses
from loaderprobe.measure.attach.script_loaders import LoopIterator, ScriptLoader, SeenLoaders, counts_to
from loaderprobe.measure.attach.script_ranks import Ranks, ranks_here
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.user.loader import LoaderRequest, measure_with_step
from loaderprobe.protocols import Say
from loaderprobe.records.diagnosis import Attached, AttachRequest, OwnMeasured, WhyNot
from loaderprobe.records.remark import Remark
from loaderprobe.system.process import runs
from loaderprobe.system.written_files import WrittenFiles
from loaderprobe.units import join_words

# What prevents a measurement in place of a script's loop, how long it takes, and the turns of the loop.

BEGUN_EACH_BATCH = Remark(code="begun_each_batch")
LEAST_BUDGET_S = 60.0
BUDGET_STEPS = 60
"""The usual budget is that of so many steps: twenty to warm up, and three rounds of training and of compute alone."""


def prevented(
    request: AttachRequest, loaders: SeenLoaders, ranks: Ranks | None, launched: int
) -> tuple[WhyNot | None, str]:
    """What keeps this process from being measured, and a detail of it; `launched` processes train together."""
    if loaders.trained_in not in (0, threading.get_ident()):
        return "other_thread", ""
    from loaderprobe.loaders.attached import ranks_in_use

    count, scratch = max(launched, ranks_in_use()), Path(request.scratch)
    if ranks is None:
        if count > 1:
            return "ranks", str(count)
        if others := others_that_train(scratch):
            return "several_processes", str(others + 1)
    elif not ranks.leads:
        return None, ""
    return None if claimed(scratch) else "another_process", ""


TRAINS = "trains-"
SETTLED_S = 5.0
"""A process that another Python started may have siblings, which begin to train a little later."""


def announce(scratch: Path) -> None:
    """This process makes its first backward pass."""
    with suppress(OSError):  # the command that asked is over, and the script goes on
        (scratch / f"{TRAINS}{os.getpid()}").touch()


def others_that_train(scratch: Path) -> int:
    """Other processes of the command that have made a backward pass and run still."""
    found = (int(path.name.removeprefix(TRAINS)) for path in scratch.glob(f"{TRAINS}*"))
    return sum(1 for pid in found if pid != os.getpid() and runs(pid))


def settled(seen: ScriptLoader) -> bool:
    """True where siblings of this process, if it has any, train by now, too."""
    alone = multiprocessing.parent_process() is None
    return alone or time.perf_counter_ns() - seen.began_ns >= SETTLED_S * 1e9


def claimed(scratch: Path) -> bool:
    """True for the first process of a command that asks, while that command runs."""
    try:
        os.close(os.open(scratch / "claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:  # it exists, or the folder is gone with the command
        return False
    return True


def budget_of(request: AttachRequest, seen: ScriptLoader) -> float:
    """Seconds: those asked for, or those of `BUDGET_STEPS` steps like the script's own so far."""
    return request.budget_s or max(LEAST_BUDGET_S, BUDGET_STEPS * step_s(seen))


def step_s(seen: ScriptLoader) -> float:
    """Seconds of a step so far, with its waiting."""
    return (time.perf_counter_ns() - seen.began_ns) / max(seen.batches, 1) / 1e9


Judge = Callable[[OwnMeasured, Callable[[], tuple[Remark, ...]]], Any]
"""Makes a result of what was measured; once that is judged, it asks for the notes that the result has first."""


def coroutine_of(
    seen: ScriptLoader, request: AttachRequest, budget_s: float, ranks: Ranks | None, on_stage: OnStage,
    judge: Judge,
) -> SessionCoroutine:  # fmt: skip
    """Those of the loop over one loader, which measure it alone, or in step with the loops of all `ranks`.

    Their result is what `judge` makes; None on ranks other than the first.
    """

    def measure(step: Callable[[Any], None]) -> Any:
        if ranks is not None:
            found = ranks.measure(seen, step, request, budget_s, on_stage)
            return None if found is None else judge(found, lambda: ranks.kept(found.measurement, request.run))
        asked = LoaderRequest(
            cache=request.cache, budget_s=budget_s, period=seen.period,
            notes=(BEGUN_EACH_BATCH,) if seen.begun_each_batch else (),
        )  # fmt: skip
        return judge(measure_with_step(seen.known.to_measure(), step, asked, on_stage), lambda: ())

    return ranks.coroutine(measure) if ranks is not None else SessionCoroutine(measure)


MOST_LISTED = 200
"""Files that the script made, in the record."""
MOST_FILES = 5
"""Of the script's new files, so many are named."""
EPOCHS_ELSEWHERE = 2
"""Epochs that the script may train without a batch of the loader that is measured."""

Loop = tuple[Any, int]
"""One over the loader that is measured: its iterator, which may be that of all loops, and its number."""


MEASURED = "loaderprobe has measured the training, and ends the script here"
CANNOT_GO_ON = "loaderprobe cannot go on measuring, and ends the script here"


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
    """Looks on until a loader has trained for some steps, then measures it with the loop as the step.

    `say(code, facts)` is how it speaks. `judge` makes the result of what was measured, and `found(result, notes)` is
    called with it and what is to be noted besides. Hears of the script as an `ScriptHooks`.
    """

    def __init__(
        self,
        request: AttachRequest,
        say: Say,
        judge: Judge,
        found: Callable[[Any, tuple[Remark, ...]], None],
        launched: int = 1,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`launched` is how many processes a launcher has started to train together; `clock` gives ns."""
        self._request, self._say, self._launched, self._clock = request, say, launched, clock
        self._judge, self._found = judge, found
        self._pid = os.getpid()
        self._outside = Outside(say, Path(request.scratch), clock)
        self._pauses = Pauses(clock)
        self._given_in: Loop | None = None
        """The one that got the last batch of the loader that is measured."""
        self._given = 0
        """Batches of the measurement that it got."""
        self._trains_in: Loop | None = None
        """The one that got the batch of the last backward pass."""
        self._evaluates_in: Loop | None = None
        """One that does not train on its batches, and gets those of `_own` then."""
        self._own: Iterator[Any] = iter(())
        self._makes_own = False
        """True while that is made, which is no loop of the script."""
        self._loaders = SeenLoaders()
        self._chosen: ScriptLoader | None = None
        self._coroutine: SessionCoroutine | None = None
        self._ranks: Ranks | None = None
        """Set where this process trains together with others."""
        self._real: Any = None
        """The iterator that the script had of the chosen loader when the measurement took over."""
        self._take: Callable[[], Any] = lambda: None
        """Its next batch."""
        self._handed = False
        """True once the script was given a batch of the measurement."""
        self._elsewhere = self._most_elsewhere = 0
        """Backward passes since its last one, on other batches; and the most before the script is ended."""
        self._handed_ns, self._budget_s = 0, 0.0
        self._length: int | None = None
        """Batches of an epoch, where the loop ends with them; None for as many as the measurement takes."""
        self._over = self._finished = self._keeping = False
        self._files = WrittenFiles(self._endangered, ours=self._is_ours)
        self._why: WhyNot | None = None
        self._detail = self._hint = self._stopped_before = self._round = ""

    @property
    def drives(self) -> bool:
        """True from when the loop is taken over, as `ScriptHooks` says."""
        return self._coroutine is not None and not self._over

    # What the script does.

    def begins(self, loader: Any) -> None:
        """A loop over a loader begins. One that keeps its iterator makes no other."""
        self._goes_on()
        seen = self._loaders.itself(loader) if self._hears else None
        if seen is not None:
            seen.begins()
            self._interrupt(seen)
            if seen is self._chosen:
                self._own = iter(())  # with its workers

    def iterated(self, loader: Any, original: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """A loader is asked for an iterator: by the script, or by the measurement itself."""
        self._goes_on()
        if self._coroutine is None or not self._hears:
            return original(loader)
        seen = self._loaders.seen(loader)
        if seen is not self._chosen:
            return original(loader)
        self._interrupt(seen)
        # Another real one would start workers, and begin to read.
        return LoopIterator(self._real, partial(self.next, seen, take=self._take))

    def made(self, loader: Any) -> ScriptLoader | None:
        """An iterator of a loader is made, one of the script's."""
        self._goes_on()
        if not self._hears:
            return None
        seen = self._loaders.seen(loader)
        self._interrupt(seen)
        return seen

    def next(self, seen: ScriptLoader, real: Iterator[Any], take: Callable[[], Any]) -> Any:
        """The batch that the script gets: the next of its own loader, or of the measurement."""
        if self._here and self._measures():
            from loaderprobe.loaders.unwrap import FOREIGN_HINT, SHARED

            raise BadValue(SHARED, hint=FOREIGN_HINT)
        taken = self._takes(seen, real, take) and not self._evaluates(seen, real)
        seen.in_epoch += 1
        if taken:
            return self._turn(seen, real)
        if self._evaluates_in == (real, seen.begun):
            return self._next_own()
        begin_ns = time.perf_counter_ns()
        batch = take()
        self._loaders.took(seen, begin_ns, time.perf_counter_ns())
        self._outside.took()
        return batch

    def _goes_on(self) -> None:
        """Raise Finished where the script goes on although it was ended."""
        if self._finished and self._here:
            raise self._ended()

    @property
    def _hears(self) -> bool:
        """True where it is the script that iterates, and that is of interest."""
        return self._here and not (self._over or self._makes_own or self._measures())

    def _interrupt(self, seen: ScriptLoader) -> None:
        """What is timed now is more than a step."""
        if self._coroutine is not None and not (seen is self._chosen and seen.begun_each_batch):
            other = f"loader {seen.record().number} was iterated"
            self._coroutine.interrupt("the loop began its next epoch" if seen is self._chosen else other)

    def _evaluates(self, seen: ScriptLoader, real: Iterator[Any]) -> bool:
        """True for a loop over the loader that is measured which trains on none of its batches: it gets its own.

        A single batch without a backward pass, in a loop that trains, only makes void what was timed.
        """
        loop = real, seen.begun
        if self._finished or self._coroutine is None:
            return False
        if self._evaluates_in == loop:
            return True
        if self._given_in != loop or not seen.trained or seen.passes.trains:
            return False
        self._coroutine.interrupt("a batch was taken without a backward pass after it")
        if self._trains_in == loop or not seen.passes.evaluates:
            return False
        self._makes_own = True
        try:
            self._evaluates_in, self._own = loop, seen.loader._get_iterator()
        finally:
            self._makes_own = False
        for _ in range(self._given):  # in place of these it got batches of the measurement
            next(self._own, None)
        return True

    def _next_own(self) -> Any:
        """A batch of the loader itself."""
        self._given_in = self._evaluates_in
        try:
            return next(self._own)
        except StopIteration:
            self._own = iter(())  # workers that are persistent end, too
            raise

    def _takes(self, seen: ScriptLoader, real: Iterator[Any], take: Callable[[], Any]) -> bool:
        """True when the batch that is asked for now comes from the measurement."""
        if not self._here:
            return False
        if self._finished:
            return True
        if self._over:
            return False
        if self._coroutine is None and self._may_begin(seen):
            self._begin(seen, real, take)
        return self._coroutine is not None and seen is self._chosen

    def _turn(self, seen: ScriptLoader, real: Iterator[Any]) -> Any:
        """The next batch of the measurement, in place of one of `real`; raises Finished when it has none."""
        if self._finished or self._coroutine is None:
            raise self._ended()
        self._resumed()
        if self._chosen is not None and self._length is not None and self._chosen.in_epoch > self._length:
            raise StopIteration
        try:
            batch = self._coroutine.next()
        except LoaderprobeError as error:
            return self._refused(error)
        except Withdrawn:
            return self._withdrawn()
        except Exception as error:
            if self._handed:
                raise
            return self._refused(LoaderprobeError(f"{type(error).__name__}: {error}", hint="report this error"))
        if self._coroutine.over:
            self._conclude()
            raise self._ended()
        self._release(real)
        if self._evaluates_in is not None and self._evaluates_in != (real, seen.begun):
            self._evaluates_in, self._own = None, iter(())  # an evaluation that was broken off, with its workers
        self._loaders.gave(seen)
        self._outside.took()
        loop = real, seen.begun
        self._given = self._given + 1 if self._given_in == loop else 1
        self._given_in = loop
        self._pauses.begin()
        return batch

    def _resumed(self) -> None:
        """The loop asks for a batch again: what took it much longer than a step is said, and is no part of a step."""
        pause = self._pauses.end()
        if pause is not None and self._coroutine is not None:
            self._coroutine.interrupt("the script paused between two batches")
        if pause is not None and self._leads:
            paused_s, place = pause
            facts = {"paused_s": paused_s, "place": place, "budget_s": self._budget_s}
            self._say("script.was_paused", facts)

    def backward(self) -> None:
        if not self._here:
            return
        if not self._loaders.passes:
            announce(Path(self._request.scratch))
        self._loaders.backward()
        self._trains_in = self._given_in
        if self._given_in == self._evaluates_in:
            self._evaluates_in = None  # it trains after all
            self._own = iter(())  # with its workers
        if not self._over:
            self._outside.backward()
        if self._handed and self._hears:
            self._elsewhere += 1
            if self._is_lost():
                self.end()
                raise self._ended()

    def _is_lost(self) -> bool:
        """True where the script trains on, but not on what is measured. Ranks, which are in step, count steps alone."""
        waited_s = (self._clock() - self._handed_ns) / 1e9
        late = self._ranks is None and waited_s > EPOCHS_ELSEWHERE * self._budget_s
        return self._elsewhere > self._most_elsewhere or (late and self._trains_elsewhere)

    @property
    def _trains_elsewhere(self) -> bool:
        return self._elsewhere >= self._request.after_steps

    def updated(self) -> None:
        """An optimizer made a step."""
        self._loaders.updated()
        self._outside.updated()

    def saving(self, target: Any) -> None:
        """A model is going to be saved."""
        self._files.saving(target)

    def _endangered(self, path: str) -> None:
        """A model that trained on the same batches over and over must not take the place of a real one."""
        self._say("script.stopped_before", {"path": path})
        if self._here:
            self._stopped_before = path
            if threading.get_ident() == self._loaders.trained_in:
                self.end()
        raise Finished(0, f"stopped before the script would write over or remove {path}")

    @property
    def _here(self) -> bool:
        """False in a process that was forked from the one that trains."""
        return os.getpid() == self._pid

    def _measures(self) -> bool:
        """True while the measurement runs, and not the script."""
        return self._coroutine is not None and self._coroutine.inside

    def _is_ours(self) -> bool:
        """True while files are written by the measurement."""
        return self._keeping or self._measures()

    # Which loader, and for how long.

    def _may_begin(self, seen: ScriptLoader) -> bool:
        """True where this loop is taken over now: alone, as soon as it trains; with others, where all agreed to."""
        if self._ranks is None:
            if seen is not self._loaders.choice(self._request.loader, self._request.after_steps):
                return False
            self._ranks = ranks_here()
            if self._ranks is None and not (settled(seen) or others_that_train(Path(self._request.scratch))):
                return False
            why, self._detail = prevented(self._request, self._loaders, self._ranks, self._launched)
            if self._ranks is None:
                # What starting them each time costs shows in no copy, whose workers run on.
                starts = seen.loader.num_workers and not seen.loader.persistent_workers
                if why is None and seen.begun_each_batch and starts:
                    why = "begun_each_batch"
                self._leave(why)
                return why is None
            if why == "other_thread" or why == "another_process":
                self._ranks.refuse(why)
        agreed = self._ranks.agrees(seen, self._loaders.passes)
        self._leave("ranks_apart" if self._ranks.apart else None)
        return agreed

    def _leave(self, why: WhyNot | None) -> None:
        """The script goes on by itself, if there is a reason why. Rank 0 gives it."""
        if why is None:
            return
        self._over, self._why = True, why if self._leads else "follows"
        self._outside.close()
        if self._leads:
            self._say("script.no_verdict", {"attached": self.record()})

    @property
    def _leads(self) -> bool:
        """False for ranks that are measured together with rank 0, which speaks for them."""
        return self._ranks is None or self._ranks.leads

    def _begin(self, seen: ScriptLoader, real: Iterator[Any], take: Callable[[], Any]) -> None:
        ranks, budget_s = self._ranks, budget_of(self._request, seen)
        if ranks is not None:
            try:
                budget_s = ranks.same_budget(budget_s)
            except LostRank as error:
                ranks.refuse("lost", error.message, error.hint)
                return self._leave("ranks_apart")
        self._chosen, self._real, self._take, length = seen, real, take, length_of(seen.loader)
        self._length = length if length is not None and not seen.known.keeps(real) and counts_to(length) else None
        passes = max(1.0, self._loaders.passes / max(seen.batches, 1))
        epoch = max(self._request.after_steps, length or seen.batches)
        self._most_elsewhere = round(EPOCHS_ELSEWHERE * epoch * passes)
        if self._leads:
            facts = {
                "loader": seen.record(),
                "ranks": ranks.size if ranks and ranks.size > 1 else None,
                "budget_s": budget_s,
                "others": self._loaders.beside(seen),
            }
            self._say("script.begins", facts)
        self._coroutine = coroutine_of(seen, self._request, budget_s, ranks, self._heard, self._judge)
        self._files.begin()
        self._budget_s = budget_s
        self._pauses.watch(threading.get_ident(), step_s(seen))
        return None

    def _heard(self, stage: str, done: int, total: int) -> None:
        """One line a round. Raises BadValue where another process has begun to train meanwhile."""
        others = 0 if self._ranks else others_that_train(Path(self._request.scratch))
        if others:
            raise BadValue(
                f"{others + 1} processes of the command train at the same time, not joined by torch.distributed",
                hint="start the script with one process that trains",
            )
        round_ = stage.partition(":")[0]
        if self._leads and stage.startswith("round") and round_ != self._round:
            self._round = round_
            self._say("script.round", {"round": round_})

    def _release(self, real: Iterator[Any]) -> None:
        """The script's own workers are not needed any more, and would only take memory."""
        self._elsewhere, self._handed_ns = 0, self._clock()
        if self._chosen is not None and not (self._handed and real is self._real) and type(real) is not LoopIterator:
            from loaderprobe.loaders.attached import shut_down

            shut_down(real, self._chosen.loader)
        self._handed = True

    # How it ends.

    def _ended(self) -> Finished:
        """What ends the script, with what it has come to."""
        return Finished(0, CANNOT_GO_ON if self._why else MEASURED)

    def _refused(self, error: LoaderprobeError) -> Any:
        """Before the first batch the script goes on as if nothing had happened; later it ends."""
        if self._ranks is not None and not self._handed:
            self._ranks.refuse("refused", error.message, error.hint)
            return self._withdrawn()
        self._over, self._why, self._detail, self._hint = True, "refused", error.message, error.hint
        self._outside.close()
        self._say("script.no_verdict", {"attached": self.record()})
        if self._handed:
            self._pauses.close()
            self._finished = True
            raise Finished(error.exit_code, CANNOT_GO_ON)
        return self._as_before()

    def _withdrawn(self) -> Any:
        """A rank cannot be measured, so the script goes on, on all of them."""
        assert self._ranks is not None
        if self._ranks.apart is None:
            self._ranks.withdraw()
        self._leave("ranks_apart")
        return self._as_before()

    def _as_before(self) -> Any:
        """The script goes on: its own next batch. Its iterator, with its workers, lives as long as it wants."""
        take, self._real, self._take = self._take, None, lambda: None
        self._pauses.close()
        self._files.end()
        return take()

    def _conclude(self) -> None:
        self._over = self._finished = self._keeping = True
        found, paused_s = (
            self._coroutine.result if self._coroutine and self._coroutine.over else None,
            self._pauses.total_s,
        )
        try:
            if found is not None:
                self._found(found, (Remark(code="script_paused", facts={"paused_s": paused_s}),) if paused_s else ())
            else:
                self._why = "ended_early" if self._leads else "follows"
        except LoaderprobeError as error:
            self._why, self._detail, self._hint = "refused", error.message, error.hint
        finally:
            self._keeping = False
            self._pauses.close()
        if self._files.new:
            files = [*self._files.new]
            facts = {"files": ", ".join(files[:MOST_FILES]), "more": max(0, len(files) - MOST_FILES) or None}
            self._say("script.saved", facts)

    def end(self) -> None:
        """The script ends by itself: conclude from whole rounds, else keep the reason."""
        if self._over:
            return
        self._over = True
        self._own = iter(())  # with its workers
        self._outside.close()
        self._pauses.close()
        if self._coroutine is None:
            without = self._outside.looked or (self._outside.passes and not self._loaders.records())
            self._why = "no_loader" if without else self._loaders.why_none(self._request.loader)
            if self._ranks is not None:
                self._ranks.end()
                self._why = "ranks_apart" if self._leads else "follows"
            return
        self._finished = True
        if threading.get_ident() != self._loaders.trained_in:
            self._why = "ended_early"
            return
        try:
            self._coroutine.give_up()
            self._conclude()
        except LoaderprobeError as error:
            lost = isinstance(error, LostRank)
            self._why = "ended_early" if self._leads or lost else "follows"
            self._detail, self._hint = error.message, error.hint
            if self._trains_elsewhere and self._why == "ended_early":
                others = self._loaders.beside(self._chosen)
                self._why = "not_seen_again"
                self._detail = join_words([f"loader {other.number} ({other.dataset})" for other in others])

    def close(self) -> None:
        """The script is over, or the block: its files are its own again, and its loader makes iterators again."""
        self._files.end()
        held = vars(self._chosen.loader) if self._chosen is not None else {}
        held.update({name: None for name, value in held.items() if type(value) is LoopIterator})

    def record(self) -> Attached:
        """What this process did and saw, once it has ended."""
        return Attached(
            pid=os.getpid(),
            loaders=self._loaders.records(),
            why_not=self._why,
            detail=self._detail,
            hint=self._hint,
            apart=self._ranks.apart if self._ranks and self._why == "ranks_apart" else None,
            saved=tuple(self._files.new)[:MOST_LISTED],
            endangered=self._stopped_before,
            outside=self._outside.seen() if self._why == "no_loader" else None,
        )
