"""One segment: flush, then time whole steps until the pace allows the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

from loaderprobe.measure.pace import MIN_BATCHES, Enough, Pace
from loaderprobe.protocols import Clock, Compute, Evicting, Files, Loader, PageCache, Renewing, Switched, Timed
from loaderprobe.records import values
from loaderprobe.records.config import RunConfig
from loaderprobe.records.diagnosis import BatchFiles
from loaderprobe.records.files import PartFiles
from loaderprobe.records.measurement import Access, Mode, Segment, WorkerBatches
from loaderprobe.records.remark import Remark


@dataclass(slots=True)
class Steps:
    """The training thread's time stamps in ns, one entry per step."""

    begin_ns: list[int] = field(default_factory=list)
    ready_ns: list[int] = field(default_factory=list)
    copied_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    finished_ns: tuple[int, ...] = ()
    device_begin_ns: tuple[int, ...] = ()
    closed_ns: int = 0
    thread_cpu_ns: int = 0
    process_cpu_ns: int = 0

    def segment(self, **added: Any) -> Segment:
        """The record of the segment, with the session's data added."""
        stamps: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values(self).items()
        }
        return Segment(**stamps, **added)


def flush(batches: Iterator[Any], count: int) -> None:
    """Take and drop `count` batches: those made ahead of the switch would bias the segment after it."""
    for _ in range(count):
        next(batches)


def load_only(batches: Iterator[Any], clock: Clock, enough: Enough, *, in_step: bool = False) -> Steps:
    """Loader only: take batches as fast as the loader makes them.

    Ranks in step ask if it is enough with each batch in hand, and so wait for each other: from `ready_ns` to `end_ns`.
    """
    over = False

    def take() -> None:
        nonlocal over
        next(batches)
        now_ns = clock.now_ns()
        steps.ready_ns.append(now_ns)
        if in_step:
            over = enough(len(steps.ready_ns), (now_ns - steps.begin_ns[0]) / 1e9)
            now_ns = clock.now_ns()
        steps.copied_ns.append(now_ns)
        steps.end_ns.append(now_ns)

    steps = Steps()
    _repeat(take, steps, clock, (lambda *_: over) if in_step else enough)
    return steps


def train(
    batches: Iterator[Any], compute: Compute, clock: Clock, enough: Enough, instead: Sequence[Any] = (), *,
    resident: bool = False,
) -> Steps:  # fmt: skip
    """Take each batch, copy it to the device unless it is there, and train on it; without transport, on `instead`."""

    def step() -> None:
        batch = next(batches)
        steps.ready_ns.append(clock.now_ns())
        if resident:
            steps.copied_ns.append(steps.ready_ns[-1])
        else:
            batch = compute.copy(instead[len(steps.ready_ns) % len(instead)] if instead else batch)
            steps.copied_ns.append(clock.now_ns())
        compute.step(batch)
        steps.end_ns.append(clock.now_ns())

    steps = Steps()
    _repeat(step, steps, clock, enough)
    # The device is waited for once, at the end; only then its own times are read.
    steps.finished_ns = compute.finish()
    if isinstance(compute, Timed):
        steps.device_begin_ns = compute.begun()
    return steps


def train_resident(on_device: Sequence[Any], compute: Compute, clock: Clock, enough: Enough) -> Steps:
    """Train in turn on batches that stay on the device: the rate of compute alone."""
    return train(cycle(on_device), compute, clock, enough, resident=True)


def _repeat(step: Callable[[], None], steps: Steps, clock: Clock, enough: Enough) -> None:
    """Call `step` until it is enough. A batch is released when `step` returns, inside the iteration."""
    cpu_ns, process_ns = clock.thread_cpu_ns(), clock.process_cpu_ns()
    start_ns = now_ns = clock.now_ns()
    while not enough(len(steps.begin_ns), (now_ns - start_ns) / 1e9):
        steps.begin_ns.append(now_ns)
        step()
        now_ns = clock.now_ns()
    steps.closed_ns = now_ns
    steps.thread_cpu_ns = clock.thread_cpu_ns() - cpu_ns
    steps.process_cpu_ns = clock.process_cpu_ns() - process_ns


def blocked_share(records: WorkerBatches) -> float:
    """Share of the workers' wall time spent waiting: wall minus CPU minus run delay."""
    wall = sum(records.wall_ns)
    return 1 - (sum(records.cpu_ns) + sum(records.run_delay_ns)) / wall if wall else 0.0


def batches_between_reads(records: WorkerBatches, numbers: range) -> int | None:
    """Of these batches, how many lie at most between two large reads of one worker; None where no two are seen.

    Those of other workers between them count, too.
    """
    distances: list[int] = []
    for worker in set(records.worker):
        read = {
            number: size
            for number, lane, size in zip(records.batch, records.worker, records.read_bytes, strict=True)
            if lane == worker and number in numbers
        }
        large = sorted(number for number, size in read.items() if 2 * size > max(read.values()))
        distances += [later - earlier for earlier, later in pairwise(large)]
    return max(distances, default=None)


# The most to wait for workers to finish the requested batches, where none took long so far.
MOST_REST_NS = 10 * 10**9
# Seconds between checks meanwhile.
REST_S = 0.002


def rest(loader: Loader, taken: int, clock: Clock, prefetch_factor: int) -> None:
    """Wait until no worker is making a batch: compute alone must not share the cores with them.

    As long as a worker may take for all that it is asked for, each as long as the longest so far.
    """
    longest_ns = max(loader.records().wall_ns, default=0)
    if isinstance(loader, Switched):
        comes_to_rest(loader, taken, clock, max(MOST_REST_NS, longest_ns * prefetch_factor))


def comes_to_rest(loader: Switched, taken: int, clock: Clock, limit_ns: int) -> bool:
    """Wait until the workers have made all that they are asked for; False where that takes longer."""
    end_ns = clock.now_ns() + limit_ns
    while not loader.still(taken):
        if clock.now_ns() >= end_ns:
            return False
        clock.sleep(REST_S)
    return True


RESIDENCY_FILES = 256
RESIDENCY_BYTES = 4 << 30
"""Most bytes to ask about, because mincore takes a byte per page."""
# Warm more than the fastest rate of the cores would consume: that rate is estimated from the images so far, and other
# images (smaller, or of another quality) may be faster.
WARM_MARGIN = 2.0
# Evicted ahead of each sample are few large files, of which a sample is a part: what is read ahead ends with its file.
# The number is assumed.
MOST_EVICTED_AHEAD = 256
# Of the bytes of all files, in those that are evicted ahead: beside a data set may lie many small files. Assumed.
NEARLY_ALL = 0.99
# In times of what is read ahead: of longer ones, its end is hardly met. Assumed.
SHORT_SHARD = 8
# Cold segments of a round, and the rounds that new batches are saved for.
NEW_ROUNDS = 6


@dataclass(slots=True)
class Readiness:
    """The state of the data's files before each segment. `take(count)` takes and drops batches.

    How long a segment stays cold, how files are made cold or warm, and what was delivered all follow from the same
    access, files, loader and pool, so they stay in one class.
    """

    config: RunConfig
    files: Files | PartFiles | None
    access: Access
    loader: Loader
    cache: PageCache
    take: Callable[[int], None]
    pool: int = 0
    """Batches before the same are repeated; 0 where the files give it."""
    notes: list[Remark] = field(default_factory=list)
    evicted_at: int = 0
    """Number of batches taken when files were last evicted."""
    last_new: int = 0
    """Number of batches in the last segment that took new ones."""
    sample_bytes: float | None = None
    read_ahead_bytes: int | None = None
    """The most that the kernel reads ahead in a file."""
    _repeats: bool | None = None
    """Whether the loader repeats batches that were new; None before it was switched."""
    _read_whole: bool | None = None
    """Whether files that are read in parts are made warm by reading them whole; None before it was decided."""

    def is_cold(self, mode: Mode) -> bool:
        """True for a segment that is not to find its files in memory."""
        return "warm" not in (self.config.cache, mode)

    def whole(self) -> Files | None:
        """The files, where those of each batch are known."""
        return None if isinstance(self.files, PartFiles) else self.files

    def modes(self) -> tuple[Mode, ...]:
        """The modes that can be prepared: warm needs files or repeated batches, cached_samples needs files."""
        modes: frozenset[Mode] = (
            self.loader.modes() if isinstance(self.loader, Switched) else frozenset({"baseline", "warm"})
        )  # fmt: skip
        repeats = isinstance(self.loader, Renewing) and self.loader.repeats()
        if self.access == "none" or (self.access == "fresh" and not repeats):
            modes -= {"warm"}
        if self.access != "files":
            modes -= {"cached_samples"}
        return tuple(sorted(modes))

    def exhausted(self, segments: int, pace: Pace) -> bool:
        """True when so many cold segments need more new batches than are left."""
        if self.access != "fresh" or not isinstance(self.loader, Renewing):
            return False
        loader = self.config.loader
        return self.loader.new_left() < segments * (loader.batches_begun + 1 + loader.batches_ahead + pace.fewest_cold)

    def untimed(self, mode: Mode) -> int:
        """Batches to drop after a cold start: in shards and databases the kernel reads ahead."""
        streams = self.access == "parts" and not self._evicts_ahead
        return self.config.loader.batches_begun if streams and self.is_cold(mode) else 0

    def limit(self, pace: Pace, mode: Mode, untimed: int) -> Pace:
        """The pace limited so that cold segments read each file once; `untimed` batches come before the timed ones."""
        if not self.is_cold(mode) or self.access == "none":
            return pace
        if self.access == "parts" and self._evicts_ahead:
            return pace  # cold however often the pool comes round
        size = self.config.compute.batch_size
        if self.access == "fresh":
            left = self.loader.new_left() if isinstance(self.loader, Renewing) else 0
            if left == math.inf:
                return pace
            batches = int(left / NEW_ROUNDS)
        else:
            known = self.whole()
            untimed += self.untimed(mode)
            pace = self._whole_shards(pace, untimed)
            if pace.min_batches > MIN_BATCHES:
                self._extend_pool(untimed + pace.min_batches)
            samples = self.pool * size or (known.count if known else 0)
            batches = samples // size
        least, once = pace.fewest_cold, batches - untimed
        if self.access != "fresh" and once < least:
            facts: dict[str, float | str] = {"samples": samples, "needed": (untimed + least) * size}
            self.notes.append(Remark(code="too_few_samples", facts=facts))
        once -= once % pace.multiple
        return replace(pace, max_batches=max(once, least))

    def _whole_shards(self, pace: Pace, untimed: int) -> Pace:
        """Of short shards, as many batches as one has for each worker.

        What is read ahead ends with its shard, so that it differs from the begin of a segment to its end; it is the
        same at the same place of the next shard.
        """
        if self._evicts_ahead or not (
            isinstance(self.files, PartFiles) and self.sample_bytes and self.read_ahead_bytes
        ):
            return pace
        sizes, workers = self.files.file_bytes.values(), max(self.config.loader.workers, 1)
        shard = sum(sizes) / len(sizes)
        if shard > SHORT_SHARD * self.read_ahead_bytes or shard < 2 * self.sample_bytes:
            return pace
        batch_bytes = self.sample_bytes * self.config.compute.batch_size
        batches = math.ceil(math.ceil(shard / batch_bytes) * workers / pace.multiple) * pace.multiple
        if (untimed + batches) * batch_bytes > sum(sizes):
            return pace  # it would begin again within the segment
        self._extend_pool(untimed + batches)
        if untimed + batches > self.pool:
            return pace
        return replace(pace, multiple=batches)

    def _extend_pool(self, batches: int) -> None:
        if isinstance(self.loader, Evicting):
            self.pool = max(self.pool, self.loader.extend_pool(batches))

    def prepare(self, mode: Mode, *, taken: int, pace: Pace, cores: float) -> None:
        """Make the files of the next segment cold or warm, after `taken` batches."""
        self.evicted_at = taken
        if self.access == "none":
            return
        cold = self.is_cold(mode)
        self._evict_ahead(cold=cold)
        if self.access == "fresh" and isinstance(self.loader, Renewing):
            self._renew(self.loader, repeats=not cold)
        elif cold:
            self._make_cold(taken)
        elif self.access == "parts":
            self._warm_parts()
        else:
            self._warm(taken, pace, cores)

    def _warm_parts(self) -> None:
        """Read all files, where they are smaller than what the pool's batches read; else make those batches once.

        Of a mapped file the kernel reads some MB around each cold page: batches may read more than all there is.
        """
        if self._read_whole is None and isinstance(self.files, PartFiles):
            total, records = sum(self.files.file_bytes.values()), self.loader.records()
            image_bytes = sum(records.read_bytes) / max(sum(records.images), 1)
            of_pool = image_bytes * self.pool * self.config.compute.batch_size
            self._read_whole = total <= min(of_pool, RESIDENCY_BYTES)
        if self._read_whole and isinstance(self.files, PartFiles):
            self.cache.warm(self.files.paths)
            return
        if isinstance(self.loader, Switched):
            self.loader.switch("baseline")
        self.take(self.pool)

    @property
    def _evicts_ahead(self) -> bool:
        """True where no sample is to be served by what was read for another."""
        return bool(self._few_files()) and isinstance(self.loader, Evicting) and self.loader.evicts()

    def _few_files(self) -> list[Path]:
        """All files that are read in parts; of many, the largest, where nearly all bytes are in few; else none."""
        if not isinstance(self.files, PartFiles) or len(self.files.file_bytes) <= MOST_EVICTED_AHEAD:
            return self.files.paths if isinstance(self.files, PartFiles) else []
        sizes = self.files.file_bytes
        largest = sorted(sizes, key=lambda path: sizes[path], reverse=True)[:MOST_EVICTED_AHEAD]
        largest_bytes = sum(sizes[path] for path in largest)
        return [Path(path) for path in largest] if largest_bytes >= NEARLY_ALL * sum(sizes.values()) else []

    def _evict_ahead(self, *, cold: bool) -> None:
        if self._evicts_ahead and isinstance(self.loader, Evicting):
            self.loader.evict_ahead(self._few_files() if cold else ())

    def _make_cold(self, taken: int) -> None:
        if isinstance(self.loader, Evicting):
            self.loader.release(taken)
        if isinstance(self.files, PartFiles):
            self.cache.evict(self.files.paths)
        elif self.files is not None:
            self.cache.evict(self.files.absolute(0, self.files.count))

    def _renew(self, loader: Renewing, *, repeats: bool) -> None:
        """Have new batches made, or the last ones again; those that were requested before the switch are dropped."""
        ahead = self.config.loader.batches_ahead
        if repeats:
            loader.repeat(max(self.last_new, ahead + self.config.loader.batches_begun))
        else:
            loader.take_new()
        if repeats != self._repeats:
            self.take(ahead)
        self._repeats = repeats

    def _warm(self, taken: int, pace: Pace, cores: float) -> None:
        known, records = self.whole(), self.loader.records()
        if known is None:
            return
        size, loader = self.config.compute.batch_size, self.config.loader
        cpu_s = sum(records.process_cpu_ns or records.cpu_ns) / max(sum(records.images), 1) / 1e9
        steps_needed = loader.batches_ahead + loader.batches_begun + 1 + pace.min_batches
        # A warm configuration also trains on warm files, for as long as a segment may last.
        seconds = pace.max_s if self.config.cache == "warm" else pace.min_s
        at_once = min(max(loader.workers, 1), cores)
        most = round(WARM_MARGIN * at_once * seconds / cpu_s) if cpu_s > 0 else known.count
        images = min(known.count, max(steps_needed * size, most))
        self.cache.warm(known.absolute(taken * size, images))

    def resident(self, first_batch: int) -> float | None:
        """Cached share of the next files, or of all files that are read in parts; None when unknown."""
        if isinstance(self.files, PartFiles):
            few = sum(self.files.file_bytes.values()) <= RESIDENCY_BYTES
            return self.cache.resident(self.files.paths) if few else None
        if self.files is None:
            return None
        count = min(RESIDENCY_FILES, self.files.count)
        ahead = (first_batch + self.config.loader.batches_ahead) * self.config.compute.batch_size
        return self.cache.resident(self.files.absolute(ahead, count))

    def delivered(self, first_batch: int, batches: int) -> tuple[int | None, int | None]:
        """(bytes of the files of these batches, bytes of those that were not read since the eviction)."""
        known, size = self.whole(), self.config.compute.batch_size
        if known is None or self.access != "files":
            return None, None
        first, count = first_batch * size, batches * size
        delivered = known.delivered_bytes(first, count)
        if not isinstance(known, BatchFiles):
            return delivered, None
        return delivered, known.distinct_bytes(max(0, min(self.evicted_at, first_batch)) * size, first, count)
