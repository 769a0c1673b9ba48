"""Looks on a training without changing it, and estimates what limits it, interval after interval."""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loaderprobe.analyze.verdict.judge import Judged
from loaderprobe.batches import holds_images
from loaderprobe.measure.attach.outside import NO_STEP_TIMES, Outside
from loaderprobe.measure.attach.script_loaders import UPDATES_A_BATCH, KnownLoader, ScriptLoader, SeenLoaders
from loaderprobe.measure.segment_runner import UNSEEN
from loaderprobe.measure.session import NOT_ASKED
from loaderprobe.protocols import Say
from loaderprobe.records.attached import Attached, AttachRequest, WatchedInterval, WatchReport, WhyNot
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.environment import Origin
from loaderprobe.records.files import content_hash
from loaderprobe.records.measurement import ComputeInfo, Measurement, Segment, WorkerBatches
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Bound
from loaderprobe.stats import mean, median
from loaderprobe.system.host import utc_timestamp
from loaderprobe.system.limits import cores_available

ROUNDS = 3
LEAST_STEPS = 8
"""Of a round."""
STEPS = ComputeInfo(
    name="step", device="CPU", synchronous=True, specified_images_per_s=None, source="the script's own steps"
)


@dataclass(slots=True)
class LoopStep:
    """One `next()` of a loop, and what it did with its batch.

    Of the moments in which `next()` begins, gives its batch and begins again: ns of one clock, and of the thread's own.
    """

    begin_ns: int
    """Of the first batch of a loop, earlier by what it took to end the iterator before and to make this one."""
    ready_ns: int
    begin_cpu_ns: int
    ready_cpu_ns: int
    end_ns: int = 0
    """0 until the loop asks for its next batch."""
    end_cpu_ns: int = 0
    begin_process_ns: int = 0
    """CPU time of the whole process, as the next."""
    end_process_ns: int = 0
    trains: bool = True
    """False where no backward pass followed: the loop evaluated."""


def observed(steps: Sequence[LoopStep], records: WorkerBatches, loader: Any, cores: float) -> Measurement | None:
    """Three rounds of the steps; None where there are too few, or no record of their batches."""
    whole, name, workers = _whole(steps), type(loader.dataset).__name__, loader.num_workers
    period = max(workers, 1)
    size = len(whole) // ROUNDS // period * period
    if size < LEAST_STEPS or not records.images:
        return None
    batch_size = max(1, _usual_size(records) or 0)
    config = RunConfig(
        data=content_hash([name]), resolution=name,
        loader=LoaderSpec(name="own", workers=workers, prefetch_factor=loader.prefetch_factor or 0),
        compute=ComputeSpec(name="own", batch_size=batch_size), cache="as-found", rounds=ROUNDS,
    )  # fmt: skip
    firsts = range(0, ROUNDS * size, size)
    return Measurement(
        config=config,
        compute=STEPS,
        started_utc=utc_timestamp(),
        first_batch_s=(steps[0].ready_ns - steps[0].begin_ns) / 1e9,
        segments=tuple(_segment(whole[at : at + size], number, at, batch_size) for number, at in enumerate(firsts)),
        worker_batches=records,
        series=(),
        missing=(NOT_ASKED, UNSEEN),
        cores_available=cores,
        storage_counts_reads=True,
        storage_kind="unknown",
        access="none",
        modes=("baseline",),
        notes=(Remark(code="only_watched"),),
        wall_s=(whole[-1].end_ns - steps[0].begin_ns) / 1e9,
    )


def _usual_size(records: WorkerBatches) -> int | None:
    """Samples of a batch; None without a record of one."""
    return round(median([float(image) for image in records.images])) if records.images else None


def _whole(steps: Sequence[LoopStep]) -> list[LoopStep]:
    """The steps that ended, and trained."""
    ended = [step for step in steps if step.end_ns and step.trains]
    if not ended:
        return []
    usual = median([float(step.end_ns - step.ready_ns) for step in ended])
    return [step for step in ended if step.end_ns - step.ready_ns <= NO_STEP_TIMES * usual]


def _segment(part: Sequence[LoopStep], number: int, first_batch: int, batch_size: int) -> Segment:
    """Steps one after the other: what lay between them, a validation or a checkpoint, is cut out."""
    begin, ready, end, now = [], [], [], part[0].begin_ns
    for step in part:
        begin.append(now)
        ready.append(now + step.ready_ns - step.begin_ns)
        now += step.end_ns - step.begin_ns
        end.append(now)
    return Segment(
        mode="baseline",
        activity="training",
        round=number,
        first_batch=first_batch,
        batch_size=batch_size,
        begin_ns=tuple(begin),
        ready_ns=tuple(ready),
        copied_ns=tuple(ready),
        end_ns=tuple(end),
        finished_ns=tuple(end),
        closed_ns=now,
        # A loop that goes on in another thread has another clock of CPU time.
        thread_cpu_ns=sum(max(0, step.end_cpu_ns - step.begin_cpu_ns) for step in part),
        process_cpu_ns=sum(max(0, step.end_process_ns - step.begin_process_ns) for step in part),
        receive_cpu_ns=sum(step.ready_cpu_ns - step.begin_cpu_ns for step in part),
        delivered_bytes=None,
        disk_bytes=None,
        resident_before=None,
    )


FIRST_S, LATER_S = 15.0, 60.0
"""Lengths of the first interval and of all others."""
JUDGED_STEPS = 4000
"""The last steps are kept: each verdict is on them, and a log holds their batches."""
WARM_UP = 8
FIRST_STEPS = 3
"""Of these one may compile, or start a GPU: no interval ends before they do."""


@dataclass(slots=True)
class IntervalSums:
    """The training steps of an interval so far, of any number."""

    steps: int = 0
    begin_ns: int = 0
    """Of the first, and the end of the last."""
    end_ns: int = 0
    wait_ns: int = 0
    busy_ns: int = 0

    def add(self, step: LoopStep) -> None:
        if not self.steps:
            self.begin_ns = step.begin_ns
        self.steps += 1
        self.end_ns = step.end_ns
        self.wait_ns += step.ready_ns - step.begin_ns
        self.busy_ns += step.end_ns - step.ready_ns


@dataclass(eq=False, slots=True, kw_only=True)
class Watched(ScriptLoader):
    """One loader of the script, with its last steps and what they came to."""

    watching: Any
    """The `WatchedLoader` that records what its batches cost."""
    steps: deque[LoopStep] = field(default_factory=lambda: deque(maxlen=JUDGED_STEPS))
    sums: IntervalSums = field(default_factory=IntervalSums)
    intervals: list[WatchedInterval] = field(default_factory=list)
    images: bool | None = None
    """Whether its first batch holds images; None before that."""
    beside: Sequence[Watched] = ()
    """Those that gave batches since the last training step but one that took one of this loader, itself among them."""
    given_at: int = 0
    """Batches of all loaders when it gave its last, and when the last step that took one of it trained."""
    trained_at: int = 0


class Watcher:
    """Its methods are those of `ScriptHooks`; `say(code, facts)` is called once an interval."""

    drives = False

    def __init__(
        self, request: AttachRequest, say: Say, keep: Callable[[WatchReport], None], origin: Callable[[str], Origin]
    ) -> None:
        """`keep(found)` is called with all so far once an interval is over; `origin(command)` says where it is from."""
        self._request, self._say, self._keep, self._origin = request, say, keep, origin
        # Below that of the command, which is removed however this process ends.
        self._folder = tempfile.TemporaryDirectory(prefix="loaderprobe-", dir=request.scratch or None)
        self._loaders = SeenLoaders(self._made)
        self._batches = 0
        self._overhead_ns = 0
        self._ranks = 1
        self._outside = Outside(say, Path(self._folder.name))

    def loop_begins(self, loader: Any) -> None:
        """A loop over a loader begins, with an iterator that is heard of by itself."""
        tracked = self._loaders.known(loader)
        if tracked is not None:
            tracked.begins()

    def get_iterator(self, loader: Any, original: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """The script's own iterator, whose workers record what batches cost."""
        entered_ns, tracked = time.thread_time_ns(), self._loaders.seen(loader)
        self._ended(tracked, time.perf_counter_ns(), entered_ns)  # where the loop before was left

        def timed(loader: Any) -> Iterator[Any]:
            begin_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            real = original(loader)
            tracked.starting_ns += time.perf_counter_ns() - begin_ns
            self._overhead_ns -= time.thread_time_ns() - cpu_ns
            return real

        made: Iterator[Any] = tracked.watching.iterate(loader, timed)
        self._overhead_ns += time.thread_time_ns() - entered_ns
        return made

    def iterator_made(self, loader: Any) -> Watched:
        return self._loaders.seen(loader)

    def next_batch(self, tracked: Watched, real: Iterator[Any], take: Callable[[], Any]) -> Any:
        entered = time.thread_time_ns()
        self._ended(tracked, time.perf_counter_ns(), entered)
        # What closing an interval takes is no waiting for input.
        begin_ns, cpu_ns, process_begun_ns = time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()
        try:
            batch = take()
        except StopIteration:  # its workers have ended
            tracked.starting_ns += time.perf_counter_ns() - begin_ns
            raise
        ready_ns, cpu_after = time.perf_counter_ns(), time.thread_time_ns()
        step = LoopStep(
            begin_ns=begin_ns - tracked.starting_ns,
            ready_ns=ready_ns,
            begin_cpu_ns=cpu_ns,
            ready_cpu_ns=cpu_after,
            begin_process_ns=process_begun_ns,
        )
        if tracked.images is None:
            tracked.images = False
            with suppress(Exception):  # a batch of no usual kind: training goes on
                tracked.images = holds_images(batch)
        self._took(tracked, step)
        self._overhead_ns += cpu_ns - entered + time.thread_time_ns() - cpu_after
        return batch

    def _ended(self, tracked: Watched, now_ns: int, cpu_ns: int) -> None:
        """The loop asks for its next batch: its step is over."""
        if tracked.steps and not tracked.steps[-1].end_ns:
            last = tracked.steps[-1]
            last.end_ns, last.end_cpu_ns, last.end_process_ns = now_ns, cpu_ns, time.process_time_ns()
            last.trains = tracked.passes.trains
            if last.trains:
                tracked.sums.add(last)
            if tracked.batches == FIRST_STEPS:
                tracked.sums = _without_slow_start(tracked.steps) or tracked.sums
            length_s = FIRST_S if not tracked.intervals else LATER_S
            is_over = tracked.sums.steps and now_ns - tracked.sums.begin_ns >= length_s * 1e9
            if is_over and tracked.batches >= FIRST_STEPS and tracked is self._main(tracked.beside):
                self._interval(tracked)

    def _took(self, tracked: Watched, step: LoopStep) -> None:
        tracked.in_epoch += 1
        self._loaders.gave(tracked)
        self._outside.took()
        tracked.began_ns, tracked.starting_ns = tracked.began_ns or step.begin_ns, 0
        tracked.steps.append(step)
        self._batches += 1
        tracked.given_at = self._batches

    def _trains_on(self, tracked: Watched) -> bool:
        """False for a loader that only gives batches now and then, as for a validation, beside many updates without."""
        of_all = tracked.trained * UPDATES_A_BATCH >= self._loaders.passes
        return tracked.trained > 0 and (of_all or tracked.passes.steps >= UPDATES_A_BATCH)

    def _main(self, among: Sequence[Watched]) -> Watched | None:
        """Of these loaders, the one that training waits for most; None where none trains."""
        return max(filter(self._trains_on, among), key=lambda tracked: tracked.wait_ns, default=None)

    def backward(self) -> None:
        """A backward pass belongs to the loaders that gave batches since the pass before it."""
        from loaderprobe.loaders.attached import ranks_in_use

        self._outside.backward()
        self._ranks = max(self._ranks, ranks_in_use())  # a script may end their group before it ends
        for tracked in self._loaders.taken:  # also where loaders give batches to steps of their own in turn
            tracked.beside = [loader for loader in self._loaders.all if loader.given_at > tracked.trained_at]
            tracked.trained_at = self._batches
        for tracked in self._loaders.current:
            if not tracked.passes.updates:
                # Of the batches before, an evaluation may have taken some.
                tracked.wait_ns += tracked.steps[-1].ready_ns - tracked.steps[-1].begin_ns
        self._loaders.backward()

    def optimizer_stepped(self) -> None:
        """An optimizer's step is a part of the loop's."""
        self._outside.optimizer_stepped()
        self._loaders.optimizer_stepped()

    def saving(self, target: Any) -> None:
        """The training is a real one, and may save."""

    def result(self) -> WatchReport | None:
        """What was seen of the loader that training waited for most, to the end; None where none trained."""
        self._outside.close()
        trained = self._main(self._loaders.all)
        if trained is None:
            return None
        if trained.sums.steps:
            self._interval(trained)
        return self._so_far(trained)

    def record(self) -> Attached:
        why: WhyNot | None = None
        if not any(map(self._trains_on, self._loaders.all)):
            why = "no_loader" if self._loaders.passes else "no_backward"
        outside = self._outside.seen() if why == "no_loader" else None
        return Attached(pid=os.getpid(), loaders=self._loaders.records(), why_not=why, outside=outside)

    def _so_far(self, trained: Watched) -> WatchReport:
        last = list(trained.steps)[WARM_UP if trained.batches == len(trained.steps) else 0 :]
        records = self._records(trained, last)
        return WatchReport(
            origin=self._origin(self._request.command),
            loader=type(trained.loader.dataset).__name__,
            workers=trained.loader.num_workers,
            batch_size=trained.loader.batch_size or _usual_size(records),
            intervals=tuple(trained.intervals),
            bound=self._bound(trained, last, records),
            on_gpu=_on_gpu(),
            ranks=self._ranks,
            others=tuple(
                type(other.loader.dataset).__name__
                for other in trained.beside
                if other is not trained and self._trains_on(other)
            ),
            overhead_s=self._overhead_ns / 1e9,
            images=bool(trained.images),
        )

    def close(self) -> None:
        self._folder.cleanup()

    def _made(self, number: int, known: KnownLoader) -> Watched:
        from loaderprobe.loaders.attached import WatchedLoader

        return Watched(number, known, watching=WatchedLoader(Path(self._folder.name, str(number))))

    def _interval(self, tracked: Watched) -> None:
        """Close an interval. Of a long one, the last steps are judged."""
        sums, tracked.sums = tracked.sums, IntervalSums()
        part = [step for step in tracked.steps if step.begin_ns >= sums.begin_ns]
        try:
            records = self._records(tracked, part)
            if not tracked.loader.num_workers and records.instrument_ns:
                self._overhead_ns += round(mean(records.instrument_ns) * sums.steps)
            bound = self._bound(tracked, part, records)
            tracked.intervals.append(_summed(sums, records, tracked.began_ns, bound, tracked.loader.batch_size))
            facts = {"interval": tracked.intervals[-1], "ranks": self._ranks, "images": bool(tracked.images)}
            self._say("script.watched", facts)
            self._keep(self._so_far(tracked))
        except Exception as error:  # noqa: BLE001  # a full disk, or whatever it is: training goes on
            self._say("script.not_kept", {"error": str(error) or type(error).__name__})

    def _records(self, tracked: Watched, part: Sequence[LoopStep]) -> WorkerBatches:
        records: WorkerBatches = tracked.watching.records(part[0].begin_ns if part else 0)
        return records

    def _bound(self, tracked: Watched, part: Sequence[LoopStep], records: WorkerBatches) -> Bound | None:
        if _on_gpu():
            return None
        measured = observed(part, records, tracked.loader, cores_available())
        bound = None if measured is None else Judged(measurement=measured).bound
        # What this rank takes for its step may be waiting for a rank whose loader is slower.
        named = {bound.cause, *bound.candidates} if bound else set()
        return None if self._ranks > 1 and named & {"compute", "balanced"} else bound


def _without_slow_start(steps: Sequence[LoopStep]) -> IntervalSums | None:
    """Of the first steps of a loader those behind one that compiled, or started a GPU; None where none did."""
    usual_ns = median([float(step.end_ns - step.ready_ns) for step in steps])
    slow = [number for number, step in enumerate(steps) if step.end_ns - step.ready_ns > NO_STEP_TIMES * usual_ns]
    sums = IntervalSums()
    for step in list(steps)[slow[-1] + 1 :] if slow else ():
        if step.trains:
            sums.add(step)
    return sums if slow else None


def _on_gpu() -> bool:
    from loaderprobe.compute.step import cuda_in_use

    return cuda_in_use()


def _summed(
    sums: IntervalSums, records: WorkerBatches, began_ns: int, bound: Bound | None, batch_size: int | None
) -> WatchedInterval:
    """What an interval came to, with the records of its last steps. `batch_size` is for batches of which there is none:
    of the first iterator of a loader that has iterators of its own kind; None where the loader does not know it."""
    wall = sum(records.wall_ns)
    seconds, trained_ns = (sums.end_ns - sums.begin_ns) / 1e9, max(sums.wait_ns + sums.busy_ns, 1)
    images = mean(records.images) if records.images else batch_size
    waiting = wall - sum(records.cpu_ns) - sum(records.run_delay_ns)
    return WatchedInterval(
        begin_s=(sums.begin_ns - began_ns) / 1e9,
        seconds=seconds,
        steps=sums.steps,
        images_per_s=None if images is None else images * sums.steps / trained_ns * 1e9,
        input_wait_fraction=sums.wait_ns / trained_ns,
        worker_cpu_fraction=sum(records.cpu_ns) / wall if wall else None,
        worker_blocked_fraction=max(0, waiting) / wall if wall else None,
        read_bytes_per_s=mean(records.read_bytes) * sums.steps / seconds if wall and seconds else None,
        bound=bound,
    )
