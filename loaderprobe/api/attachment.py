"""One process that trains: which of its loaders trains, when the measurement takes over, and how that ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.loop_turns import announce, budget_of, others_that_train, prevented, settled, step_s, turns_of
from loaderprobe.api.looped import LoopIterator, counts_to
from loaderprobe.api.outside import Outside, Pauses
from loaderprobe.api.script_ranks import Ranks, ranks_here
from loaderprobe.api.seen_loaders import Seen, SeenLoaders
from loaderprobe.batches import length_of
from loaderprobe.errors import BadValue, LoaderprobeError, LostRank
from loaderprobe.measure.turns import Turns, Withdrawn
from loaderprobe.records.attachment import Attached, AttachRequest, WhyNot
from loaderprobe.records.note import Note
from loaderprobe.render import attachment_words as words
from loaderprobe.system.written_files import WrittenFiles

MOST_LISTED = 200
"""Files that the script made, in the record."""


class Finished(SystemExit):
    """The measurement is over, and the script ends: raised where its loop asks for the next batch.

    Libraries that log what ends them show `said`.
    """

    def __init__(self, code: int = 0, said: str = words.MEASURED) -> None:
        super().__init__(code)
        self.said = said

    def __str__(self) -> str:
        return self.said


class Attachment:
    """Looks on until a loader has trained for some steps, then measures it with the loop as the step.

    `say(text)` is how it speaks, `found(diagnosis)` is called with the verdict. Hears of the script as an `Onlooker`.
    """

    def __init__(
        self,
        request: AttachRequest,
        say: Callable[[str], None],
        found: Callable[[Diagnosis], None],
        launched: int = 1,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`launched` is how many processes a launcher has started to train together; `clock` gives ns."""
        self._request, self._say, self._found, self._launched = request, say, found, launched
        self._clock = clock
        self._pid = os.getpid()
        self._outside = Outside(say, Path(request.scratch), clock)
        self._pauses = Pauses(clock)
        self._budget_s = 0.0
        self._given_in: Any = None
        """The iterator through which the loop got its last batch of the loader that is measured."""
        self._given = 0
        """Batches that it got through that one."""
        self._trains_in: Any = None
        """The one through which it got the batch of the last backward pass."""
        self._evaluates_in: Any = None
        """One whose batches are not trained on, which gives those of `_own` then."""
        self._own: Iterator[Any] = iter(())
        self._loaders = SeenLoaders()
        self._chosen: Seen | None = None
        self._turns: Turns | None = None
        self._ranks: Ranks | None = None
        """Set where this process trains together with others."""
        self._real: Any = None
        self._length: int | None = None
        """Batches of an epoch, where the loop ends with them; None for as many as the measurement takes."""
        self._over = self._finished = self._keeping = False
        self._files = WrittenFiles(self._endangered, ours=self._is_ours)
        self._why: WhyNot | None = None
        self._detail = self._hint = self._stopped_before = self._round = ""

    @property
    def drives(self) -> bool:
        """True from when the loop is taken over, as `Onlooker` says."""
        return self._turns is not None and not self._over

    # What the script does.

    def iterated(self, loader: Any, original: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """A loop over a loader begins: one of the script's, or one of the measurement itself."""
        if self._finished and self._here:
            raise Finished
        if self._over or not self._here or self._measures():
            return original(loader)
        seen = self._loaders.seen(loader)
        if self._turns is not None:
            if seen is self._chosen:
                self._turns.interrupt(words.NEXT_EPOCH)
                return LoopIterator(iter(()), partial(self._next, seen, partial(original, loader)))
            self._turns.interrupt(words.iterated(seen.record()))
        return LoopIterator(original(loader), partial(self._next, seen, partial(original, loader)))

    def _next(self, seen: Seen, again: Callable[[], Iterator[Any]], real: Iterator[Any]) -> Any:
        """The batch that the script gets: the next of its own loader, or of the measurement."""
        taken = self._takes(seen, real) and not self._evaluates(seen, again, real)
        seen.in_epoch += 1
        if taken:
            return self._turn(seen, real)
        if real is self._evaluates_in:
            self._given_in = real
            return next(self._own)
        begin_ns = time.perf_counter_ns()
        batch = next(real)
        self._loaders.took(seen, begin_ns, time.perf_counter_ns())
        self._outside.took()
        return batch

    def _evaluates(self, seen: Seen, again: Callable[[], Iterator[Any]], real: Iterator[Any]) -> bool:
        """True for a loop over the loader that is measured which trains on none of its batches: it gets its own.

        A single batch without a backward pass, in a loop that trains, only makes void what was timed.
        """
        if self._finished or self._turns is None:
            return False
        if real is self._evaluates_in:
            return True
        if self._given_in is not real or not seen.trained or seen.passes.trains:
            return False
        self._turns.interrupt(words.NO_PASS)
        if self._trains_in is real or not seen.passes.evaluates:
            return False
        self._evaluates_in, self._own = real, again()
        for _ in range(self._given):  # in place of these it got batches of the measurement
            next(self._own, None)
        return True

    def _takes(self, seen: Seen, real: Iterator[Any]) -> bool:
        """True when the batch that is asked for now comes from the measurement."""
        if not self._here:
            return False
        if self._finished:
            return True
        if self._over:
            return False
        if self._turns is None and self._may_begin(seen):
            self._begin(seen, real)
        return self._turns is not None and seen is self._chosen

    def _turn(self, seen: Seen, real: Iterator[Any]) -> Any:
        """The next batch of the measurement; raises Finished when it has none."""
        if self._finished or self._turns is None:
            raise Finished
        self._resumed()
        if self._chosen is not None and self._length is not None and self._chosen.in_epoch > self._length:
            raise StopIteration
        try:
            batch = self._turns.next()
        except LoaderprobeError as error:
            return self._refused(error)
        except Withdrawn:
            return self._withdrawn()
        except Exception as error:
            if self._real is None:
                raise
            return self._refused(LoaderprobeError(f"{type(error).__name__}: {error}", hint="report this error"))
        if self._turns.over:
            self._conclude()
            raise Finished
        self._release()
        self._loaders.gave(seen)
        self._outside.took()
        self._given = self._given + 1 if self._given_in is real else 1
        self._given_in = real
        self._pauses.begin()
        return batch

    def _resumed(self) -> None:
        """The loop asks for a batch again: what took it much longer than a step is said."""
        pause = self._pauses.end()
        if pause is not None and self._leads:
            self._say(words.paused(*pause, self._budget_s))

    def backward(self) -> None:
        """A backward pass began."""
        if not self._here:
            return
        if not self._loaders.passes:
            announce(Path(self._request.scratch))
        self._loaders.backward()
        self._trains_in = self._given_in
        if self._given_in is self._evaluates_in:
            self._evaluates_in = None  # it trains after all
        if not self._over:
            self._outside.backward()

    def updated(self) -> None:
        """An optimizer made a step."""
        self._loaders.updated()
        self._outside.updated()

    def saving(self, target: Any) -> None:
        """A model is going to be saved."""
        self._files.saving(target)

    def _endangered(self, path: str) -> None:
        """A model that trained on the same batches over and over must not take the place of a real one."""
        self._say(words.stopped_before(path))
        if self._here:
            self._stopped_before = path
            if threading.get_ident() == self._loaders.trained_in:
                self.end()
        raise Finished(0, words.stopped_before(path))

    @property
    def _here(self) -> bool:
        """False in a process that was forked from the one that trains."""
        return os.getpid() == self._pid

    def _measures(self) -> bool:
        """True while the measurement runs, and not the script."""
        return self._turns is not None and self._turns.inside

    def _is_ours(self) -> bool:
        """True while files are written by the measurement."""
        return self._keeping or self._measures()

    # Which loader, and for how long.

    def _may_begin(self, seen: Seen) -> bool:
        """True where this loop is taken over now: alone, as soon as it trains; with others, where all agreed to."""
        if self._ranks is None:
            if seen is not self._loaders.choice(self._request.loader, self._request.after_steps):
                return False
            self._ranks = ranks_here()
            if self._ranks is None and not (settled(seen) or others_that_train(Path(self._request.scratch))):
                return False
            why, self._detail = prevented(self._request, self._loaders, self._ranks, self._launched)
            if self._ranks is None:
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
        if self._leads:
            self._say(words.not_measured(self.record()))

    @property
    def _leads(self) -> bool:
        """False for ranks that are measured together with rank 0, which speaks for them."""
        return self._ranks is None or self._ranks.leads

    def _begin(self, seen: Seen, real: Iterator[Any]) -> None:
        ranks, budget_s = self._ranks, budget_of(self._request, seen)
        if ranks is not None:
            try:
                budget_s = ranks.same_budget(budget_s)
            except LostRank as error:
                ranks.refuse("lost", error.message, error.hint)
                return self._leave("ranks_apart")
        self._chosen, self._real, length = seen, real, length_of(seen.loader)
        self._length = length if length is not None and counts_to(length) else None
        if self._leads:
            others = self._loaders.beside(seen)
            self._say(words.begins(seen.record(), budget_s, others, ranks.size if ranks else 1))
        self._turns = turns_of(seen, self._request, budget_s, ranks, self._heard)
        self._files.begin()
        self._budget_s = budget_s
        self._pauses.watch(threading.get_ident(), step_s(seen))
        return None

    def _heard(self, stage: str, done: int, total: int) -> None:
        """One line a round. Raises BadValue where another process has begun to train meanwhile."""
        others = 0 if self._ranks else others_that_train(Path(self._request.scratch))
        if others:
            raise BadValue(words.others_train(others + 1), hint=words.ONE_PROCESS)
        round_ = stage.partition(":")[0]
        if self._leads and stage.startswith("round") and round_ != self._round:
            self._round = round_
            self._say(words.going_on(round_))

    def _release(self) -> None:
        """The script's own workers are not needed any more, and would only take memory."""
        if self._real is not None and self._chosen is not None:
            from loaderprobe.loaders.attached import shut_down

            shut_down(self._real, self._chosen.loader)
        self._real = None

    # How it ends.

    def _refused(self, error: LoaderprobeError) -> Any:
        """Before the first batch the script goes on as if nothing had happened; later it ends."""
        if self._ranks is not None and self._real is not None:
            self._ranks.refuse("refused", error.message, error.hint)
            return self._withdrawn()
        self._over, self._why, self._detail, self._hint = True, "refused", error.message, error.hint
        self._say(words.not_measured(self.record()))
        if self._real is None:
            self._finished = True
            raise Finished(error.exit_code, words.NOT_MEASURED)
        self._files.end()
        return next(self._real)

    def _withdrawn(self) -> Any:
        """A rank cannot be measured, so the script goes on, on all of them."""
        assert self._ranks is not None
        if self._ranks.apart is None:
            self._ranks.withdraw()
        self._leave("ranks_apart")
        self._files.end()
        return next(self._real)

    def _conclude(self) -> None:
        self._over = self._finished = self._keeping = True
        found = self._turns.result if self._turns else None
        try:
            if isinstance(found, Diagnosis):
                if self._pauses.total_s:
                    note = Note(code="script_paused", facts={"paused_s": self._pauses.total_s})
                    found = replace(found, notes=(*found.notes, note))
                self._found(found)
            else:
                self._why = "ended_early" if self._leads else "follows"
        except LoaderprobeError as error:
            self._why, self._detail, self._hint = "refused", error.message, error.hint
        finally:
            self._keeping = False
            self._pauses.close()
        if self._files.new:
            self._say(words.saved(tuple(self._files.new)))

    def end(self) -> None:
        """The script ends by itself: conclude from whole rounds, else keep the reason."""
        if self._over:
            return
        self._over = True
        self._outside.close()
        self._pauses.close()
        if self._turns is None:
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
            self._turns.give_up()
            self._conclude()
        except LoaderprobeError as error:
            lost = isinstance(error, LostRank)
            self._why = "ended_early" if self._leads or lost else "follows"
            self._detail, self._hint = error.message, error.hint

    def close(self) -> None:
        """The script is over, or the block: its files are its own again."""
        self._files.end()

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
