"""How one segment of a session is run: prepared, flushed, and timed with the loader, without it, or without input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import repeat
from types import SimpleNamespace
from typing import Any, Self

from loaderprobe.measure.collectives import SINGLE_PROCESS, Collectives
from loaderprobe.measure.pace import BLOCKED_SHARE, MIN_STEPS_OF_SLOW_DEVICE, Enough, Pace, Part
from loaderprobe.measure.segments import Readiness, Steps, blocked_share, flush, load_only, rest, train, train_resident
from loaderprobe.protocols import Clock, Compute, Exchanging, Loader, PageCache, Renewing, Switched
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Missing, Mode, Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WaitSamples
from loaderprobe.system.device import read_sectors, reads_from_storage
from loaderprobe.system.limits import cores_available
from loaderprobe.system.others import OthersMeter

UNSEEN = Missing(name="waits", reason=Remark(code="workers_not_sampled"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The independent parts of one measurement; what is not given is that of this machine."""

    loader: Loader
    compute: Compute
    clock: Clock
    cache: PageCache
    location: StorageLocation
    cores_available: float = field(default_factory=cores_available)
    counts_devices: bool = True
    """False where another rank of the node reads what its devices count."""
    disturbance: OthersMeter = field(default_factory=OthersMeter)
    """Sees what other processes do to the machine while something is timed."""
    waits: Callable[[], WaitSamples | Missing] = lambda: UNSEEN
    """The samples of the workers' waits so far, or why there are none."""
    collectives: Collectives = SINGLE_PROCESS
    """The ranks that measure in step with this process; usually none but itself."""

    def read_devices(self) -> int | None:
        """Bytes that the devices under the data, or the server, have read so far; None when not visible."""
        if not self.counts_devices:
            return None
        devices = self.location.devices
        return read_sectors(devices) if devices else reads_from_storage(self.location)


# The first half dozen steps of a CPU took 1.4 times as long as those after them.
WARM_UP = Pace(min_s=0.0, min_batches=20, max_s=2.0)
# Not timed: a device is slow in its first step after idling, and after a flush the loader has no batch ready. One wait
# of 200 ms made training of 8 steps of 150 ms look 14 % slower than it is.
FIRST_STEP = Pace(max_batches=1)
MOST_RESIDENT = 200
"""Steps of compute alone in a segment: more only wear out schedulers that count steps."""
# Where there are several ranks: each alone, without the input of one of them, and without the exchange of gradients.
ALONE_S = 2.0
"""For ranks alone, all for the same time: what one reads after the others have ended, it reads without them."""
# The first steps under a profiler are slow, and it may lose their first records.
WINDOW_WARM_UP = 3


def warm_up(on_device: Sequence[Any], config: RunConfig, compute: Compute, clock: Clock, enough: Enough) -> None:
    """Train in turn on batches that stay on the device, until it is as fast as later; an emulated one always is."""
    if compute.info().specified_images_per_s is not None:
        return
    if config.compute.compile:
        # The first step compiles, for minutes.
        train_resident(on_device, compute, clock, FIRST_STEP.enough)
    train_resident(on_device, compute, clock, enough)


class Counted:
    """Batches that were taken, those of a segment that was broken off among them."""

    def __init__(self, inner: Iterator[Any], count: int) -> None:
        self._inner, self.count = inner, count

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = next(self._inner)
        self.count += 1
        return batch


@dataclass(slots=True)
class SegmentRunner:
    """Runs segments one after the other, inside one iterator of the loader; all ranks run the same ones in step."""

    config: RunConfig
    parts: Parts
    batches: Counted
    pace: Pace
    ready: Readiness
    period: int | None
    """Batches that an update of the model takes, where the step is the loop of a script; None for any other step."""
    longer: dict[Part, tuple[int, float]] = field(init=False, default_factory=dict)
    """Least batches, and most seconds, of cold segments of a data set that reads in chunks which hold more."""
    stand_in: Sequence[Any] = field(init=False, default=())
    """Batches for steps without the loader; set it once the first batch is there."""
    _resident: list[Any] = field(init=False, default_factory=list)
    """Copies of `stand_in` on the device; none for an emulated one."""
    _alone_s: float = field(init=False, default=ALONE_S)
    """For which all ranks are alone next."""

    @property
    def _begins_again(self) -> bool:
        """True for a stream: it begins with each segment, as rarely as an epoch does else."""
        return isinstance(self.parts.loader, Renewing) and not self.parts.loader.repeats()

    @property
    def _lead_in(self) -> int:
        """Batches that ranks take in step before timing: who comes first has full buffers while it waits.

        A serial stream has one, whose buffer the other ranks would wait for.
        """
        return max(self.config.loader.batches_ahead, int(self._begins_again)) if self.parts.collectives.size > 1 else 0

    def warm_up(self) -> None:
        """Copy batches to the device, and train on them until it is as fast as later."""
        self._resident = [self.parts.compute.copy(batch) for batch in self.stand_in]
        warm_up(self._resident, self.config, self.parts.compute, self.parts.clock, self._agreed(WARM_UP))

    def shorten(self, most_steps: int) -> None:
        """Later segments have no more steps than this, and end between two groups of batches where it holds one."""
        most_steps -= most_steps % self.pace.multiple if most_steps >= self.pace.multiple else 0
        self.pace = replace(self.pace, max_batches=min(most_steps, self.pace.max_batches or most_steps))

    def feed(self, count: int) -> Iterator[Any]:
        """`count` batches as in a segment of the configuration as asked, from files in the same cache state."""
        self._prepare(self.config.mode, replace(self.pace, min_batches=count))
        first, size = self.batches.count, self.config.compute.batch_size
        self._switch(Part(self.config.mode, "training"))
        files = self.ready.whole()
        for number in range(count):
            if number == WINDOW_WARM_UP - 1 and files is not None and self.config.mode == "baseline":
                # A small set comes round within the window: what was read so far is cold again.
                self.parts.cache.evict(files.absolute(first * size, (self.batches.count - first) * size))
            # Without a name of its own here, a batch is released when its step is over.
            yield next(self.batches)

    def run(self, part: Part, number: int) -> Segment:
        """The segment of one part of round `number`."""
        mode, activity = part.mode, part.activity
        if part.without == self.parts.collectives.rank:
            return self._without_input(part, number)
        if not part.loads:
            return self._without_loader(part, number)
        begins = self._begins_again or self.config.loader.batches_ahead > 0
        leads = activity == "training" or (self._lead_in == 0 and begins)
        pace = self._paced(part, untimed_steps=int(leads))
        self._prepare(mode, pace)
        resident = self.ready.resident(self.batches.count)
        self._switch(part)
        # What the kernel reads ahead of a shard must be as much when timing begins as when it ends.
        flush(self.batches, self.ready.untimed(mode))
        # Without transport, the step uses an earlier batch.
        instead = self.stand_in if mode == "no_transport" else ()
        compute, clock = self.parts.compute, self.parts.clock
        if activity == "training":
            train(self.batches, compute, clock, self._agreed(FIRST_STEP), instead)
        elif leads:
            # After a flush all workers begin at once, so that their batches come at once, and in a row through what is
            # behind them: on an H100, with 16 workers, pinning those took half as long as making them. From one batch
            # on, a whole period of the workers has it once.
            flush(self.batches, 1)

        def steps() -> Steps:
            if activity == "training":
                return train(self.batches, compute, clock, self._agreed(pace), instead)
            if activity == "alone":
                least = max(MIN_STEPS_OF_SLOW_DEVICE, pace.multiple)
                alone = replace(pace, min_s=self._alone_s, max_s=self._alone_s, min_batches=least)
                return load_only(self.batches, clock, alone.enough)
            return self.parts.collectives.load(self.batches, clock, pace)

        segment = self.timed(part, number, steps, resident=resident)
        if mode not in ("warm", "no_transport"):
            self.ready.last_new = segment.steps
        return segment

    def _without_loader(self, part: Part, number: int) -> Segment:
        """Steps on batches that stay on the device, or of the exchange of gradients alone; no worker makes a batch."""
        compute, clock, batches = self.parts.compute, self.parts.clock, self._resident
        if part.mode == "exchange" and isinstance(compute, Exchanging):
            exchange = compute.exchange_alone
            alone: Any = SimpleNamespace(step=lambda _: exchange(), finish=compute.finish)
            compute, batches = alone, [None]
        with ExitStack() as stack:
            if part.mode == "no_exchange" and isinstance(compute, Exchanging):
                compute.exchange(on=False)
                stack.callback(compute.exchange, on=True)
            self._rest()
            train_resident(batches[:1], compute, clock, self._agreed(FIRST_STEP))
            enough = self._agreed(self._resident_pace())
            segment = self.timed(part, number, lambda: train_resident(batches, compute, clock, enough))
            return replace(segment, disk_bytes=None)  # nothing of it is read

    def _without_input(self, part: Part, number: int) -> Segment:
        """This rank meets the others where they meet, and takes nothing; its workers rest."""
        collectives, pace = self.parts.collectives, self._paced(part, 0)
        self._rest()
        collectives.barrier()
        for _ in range(self._lead_in):
            collectives.barrier()
        return self.timed(part, number, lambda: collectives.load(repeat(None), self.parts.clock, pace))

    def _agreed(self, pace: Pace) -> Enough:
        """When training at a pace ends, for all ranks."""
        return self.parts.collectives.enough(pace, self.parts.compute)

    def _resident_pace(self) -> Pace:
        """The pace of compute alone, which has nothing to do with the number of workers."""
        if self.period is None:
            return replace(self.pace, multiple=1)
        most_steps = min(MOST_RESIDENT, self.pace.max_batches or MOST_RESIDENT)
        whole = max(self.period, most_steps // self.period * self.period)
        return replace(self.pace, multiple=self.period, max_batches=whole)

    def _rest(self) -> None:
        rest(self.parts.loader, self.batches.count, self.parts.clock, self.config.loader.prefetch_factor)

    def _switch(self, part: Part) -> None:
        """Switch the workers to the mode of a segment, and drop batches made before, which would bias it."""
        self._flush(part)
        collectives = self.parts.collectives
        if part.activity == "alone":
            # Ranks meet here for the last time before: who waits after its lead-in begins with full buffers.
            self._alone_s = collectives.agree(round(min(ALONE_S, self.pace.max_s) * 1e9)) / 1e9
            flush(self.batches, self._lead_in)
            return
        collectives.barrier()
        for _ in range(self._lead_in):
            flush(self.batches, 1)
            collectives.barrier()

    def _flush(self, part: Part) -> None:
        loader, begun = self.parts.loader, self.config.loader.batches_begun
        if not isinstance(loader, Switched):
            flush(self.batches, begun)
            return
        loader.switch(part.mode)
        switched_ns = self.parts.clock.now_ns()
        end = self.batches.count + begun
        while self.batches.count < end and loader.begun_before(self.batches.count, switched_ns):
            flush(self.batches, 1)

    def _paced(self, part: Part, untimed_steps: int) -> Pace:
        """The pace of a part: cold segments read each file once, and are longer where workers wait for storage.

        No segment is longer than the files of any rank allow.
        """
        pace, mode = self.pace, part.mode
        if part in self.longer:
            pace = pace.holding(*self.longer[part])
        if self.ready.is_cold(mode) and blocked_share(self.parts.loader.records()) > BLOCKED_SHARE:
            pace = pace.for_blocked_workers()
        loader = self.config.loader
        untimed = loader.batches_begun + loader.batches_ahead + untimed_steps + self._lead_in
        limited = self.ready.limit(pace, mode, untimed)
        limit = min((count for count in (pace.max_batches, limited.max_batches) if count is not None), default=None)
        return replace(limited, max_batches=self.parts.collectives.least(limit))

    def _prepare(self, mode: Mode, pace: Pace) -> None:
        pace = replace(pace, min_batches=pace.min_batches + self._lead_in)
        self.ready.prepare(mode, taken=self.batches.count, pace=pace, cores=self.parts.cores_available)

    def timed(self, part: Part, number: int, time: Callable[[], Steps], *, resident: float | None = None) -> Segment:
        """The segment of these steps, with what the devices read and what other processes did meanwhile.

        Where they take no batch, nothing is known of files.
        """
        self.parts.disturbance.begin()
        disk_before, first_batch = self.parts.read_devices(), self.batches.count
        steps = time()
        others, disk_after = self.parts.disturbance.end(), self.parts.read_devices()
        takes = self.batches.count > first_batch
        delivered, distinct = self.ready.delivered(first_batch, len(steps.begin_ns)) if takes else (None, None)
        return steps.segment(
            **part._asdict(),
            round=number,
            first_batch=first_batch if takes else -1,
            batch_size=self.config.compute.batch_size,
            delivered_bytes=delivered,
            distinct_bytes=distinct,
            disk_bytes=disk_after - disk_before if disk_after is not None and disk_before is not None else None,
            resident_before=resident,
            others=others,
        )
