"""Learn a user's loader before it is measured: which files it reads, and whether they can be made cold.

The first batches are taken with the files as found. Then the known files are evicted and the same batches are taken
again. The same bytes must come from storage again, and the data set must do as much work. Otherwise not all its files
are known, or it keeps its samples, and only batches that were never taken are as cold as in a first epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from loaderprobe.batches import copied, holds_images, size_bytes
from loaderprobe.protocols import Loader, PageCache, Renewing
from loaderprobe.records.files import BatchFiles, LoaderFiles, PartFiles, UnknownFiles
from loaderprobe.records.measurement import LEAST_BYTES, LEAST_SAVED_S, TIME_AGAIN, Access, FirstLap, WorkerBatches
from loaderprobe.stats import median
from loaderprobe.system.process import process_usage

# A cold segment reads each file once, so a pool must hold its batches, those ahead and those flushed, twice.
POOL_BATCHES = 14
# And as many as a segment lasts; a quick loader makes more of them.
LEARN_AT_LEAST_S = 1.0
LEARN_SHARE = 0.2
# Compute alone uses so many batches of the pool in turn, because they may differ in cost.
MOST_HELD = 64
MOST_HELD_BYTES = 256 << 20
# Less than this share of the bytes the second time means that files stayed in memory.
READ_AGAIN = 0.5
# Of a lap. Less may be the pages of a module that was imported meanwhile: one of 4096 bytes was seen in a lap of 8
# small files that were in memory.
LEAST_LAP_BYTES = 64 << 10
# Of the bytes from storage: where read calls return less, the files are mapped. Assumed:
# SQLite's calls returned 13 % behind a read-ahead of 8 MiB, those beside a mapped table under 0.1 %.
CALLED_AT_LEAST = 0.05
# Times the usual batch.
OUTLIER = 4.0


class Learnable(Loader, Renewing, Protocol):
    """A loader whose workers record which files they open."""

    def settle(self, taken: int) -> int:
        """Make the batches requested so far the pool; returns how many must be taken until its files are learned."""
        ...

    def check(self) -> None:
        """Raise when the loader does not iterate as torch's DataLoader does."""
        ...

    def files(self, batch_size: int) -> LoaderFiles:
        """The files of the settled pool's batches; or the reason why they are unknown."""
        ...

    def holds_files(self) -> bool:
        """True where files were open, or mapped, while batches of the settled pool were made."""
        ...

    def called_bytes(self) -> tuple[int, ...]:
        """Bytes that read calls returned, by batch of the pool."""
        ...

    @property
    def exhausted(self) -> bool:
        """True when the sampler has no more batches."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Properties of a loader, known before it is measured."""

    taken: int
    """Batches taken so far."""
    pool: int
    """Number of batches in the pool."""
    images: bool
    """True when batches hold images."""
    files: LoaderFiles
    access: Access
    held: tuple[Any, ...]
    """Batches for steps without the loader."""
    lap: FirstLap | None
    keeps_samples: bool
    """True when the data set did not repeat its work the second time."""
    sample_bytes: float | None = None
    """Of the files of a sample, where those of a batch are not known."""
    read_again: float | None = None
    """Bytes from storage a sample, over all batches begun after the files were evicted."""


@dataclass(slots=True)
class Learning:
    """Takes the first batches twice, within a share of the budget."""

    loader: Learnable
    cache: PageCache
    workers: int
    ahead: int
    """Batches made ahead of the one that is taken."""
    spent_s: Callable[[], float]
    budget_s: float | None
    ended: Callable[[int], Exception]
    """The error for a loader that ends after so many batches."""
    counts_reads: Callable[[LoaderFiles], bool]
    samples: int | None = None
    """In the data set; None where it has no length."""

    def run(self) -> Learned:
        """Take the batches twice. Raises the error from `ended` when the loader yields too few."""
        taken, pool, images, held = self._first()
        files = self.loader.files(max(1, self.loader.records().images[0]))
        self._evict(files, taken)
        _, read_before = process_usage()
        last = self._again(taken, pool)
        lap = first_lap(
            self.loader.records(),
            self.loader.called_bytes(),
            pool=pool,
            skipped=max(self.workers, 1),
            again=range(taken + self.ahead + self.workers, last),
        )
        return self._decided(
            Learned(
                taken=last, pool=pool, images=images, files=files, access=_usual(files), held=tuple(held), lap=lap,
                keeps_samples=False, sample_bytes=bytes_of_sample(files, lap, self.samples),
                read_again=read_since(
                    self.loader.records(), taken + self.ahead, 0 if self.workers else process_usage()[1] - read_before
                ),
            )
        )  # fmt: skip

    def _first(self) -> tuple[int, int, bool, list[Any]]:
        """Take batches until the pool has enough, or a share of the budget is spent."""
        batches, taken, pool, images = self.loader.batches(), 0, 0, False
        held: list[Any] = []
        wanted = POOL_BATCHES + 3 * self.ahead + 3 * self.workers
        room, begin_s = MOST_HELD_BYTES, 0.0
        while not pool or taken < pool:
            batch = next(batches, _END)
            if batch is _END:
                raise self.ended(taken)
            # The start of the workers, which takes seconds where they are spawned, does not count.
            begin_s = begin_s or self.spent_s()
            spent_s = self.spent_s() - begin_s
            images = images or holds_images(batch)
            taken += 1
            room -= size_bytes(batch)
            if not held or (len(held) < MOST_HELD and room > 0):
                held.append(copied(batch))
            late = self.budget_s is not None and spent_s > LEARN_SHARE * self.budget_s
            enough = taken >= wanted and spent_s >= LEARN_AT_LEAST_S
            if not pool and (enough or late or self.loader.exhausted):
                self.loader.check()
                pool = self.loader.settle(taken)
        return taken, pool, images, held

    def _evict(self, files: LoaderFiles, taken: int) -> None:
        """Evict the known files."""
        if isinstance(files, UnknownFiles):
            return
        self.loader.release(taken)
        self.cache.evict(files.absolute(0, files.count) if isinstance(files, BatchFiles) else files.paths)

    def _again(self, evicted_at: int, pool: int) -> int:
        """Take the pool once more, as far as time allows; returns the number of batches taken so far."""
        batches, begin_s, taken = self.loader.batches(), self.spent_s(), evicted_at
        # What is ahead was made before, as may be what is being made.
        first = evicted_at + self.ahead + self.workers
        while taken < first + pool:
            spent_s = self.spent_s() - begin_s
            late = self.budget_s is not None and spent_s > LEARN_SHARE * self.budget_s
            if taken >= first + max(2, self.workers) and (late or spent_s > LEARN_AT_LEAST_S):
                break
            if next(batches, _END) is _END:
                raise self.ended(taken)
            taken += 1
        return taken

    def _decided(self, found: Learned) -> Learned:
        """Decide how files are made cold and warm, from the second run."""
        lap = found.lap
        if lap is None or not lap.images:
            return found
        names_alone = isinstance(found.files, PartFiles) and not self.loader.holds_files()
        if names_alone and self.counts_reads(found.files) and _reads_nothing(found, lap):
            found = replace(found, files=UnknownFiles(code="none_read"), access="none")
            kept = False
        elif self.counts_reads(found.files):
            cold = lap.read_bytes >= max(LEAST_LAP_BYTES, LEAST_BYTES * lap.images)
            kept = cold and lap.again_read_bytes < READ_AGAIN * lap.read_bytes
            if kept and found.read_again is not None:
                # What the first batches read ahead served those that the two laps have in common.
                once = min(lap.read_bytes / lap.images, found.sample_bytes or math.inf)
                kept = found.read_again < READ_AGAIN * once
        else:
            waited, again = lap.wall_s - lap.cpu_s, lap.again_wall_s - lap.again_cpu_s
            kept = waited > READ_AGAIN * lap.wall_s and again < READ_AGAIN * waited and lap.saved_s >= LEAST_SAVED_S
        if not (lap.quicker or kept):
            return found
        found = replace(found, keeps_samples=lap.quicker and lap.again_cpu_s < TIME_AGAIN * lap.cpu_s)
        # A round takes two cold segments at least, each after a flush.
        if self.loader.new_left() < 4 * (self.ahead + 4 * max(self.workers, 1)):
            return replace(found, access="none" if kept and not found.keeps_samples else found.access)
        self.loader.take_new()
        return replace(found, access="fresh")


def _reads_nothing(found: Learned, lap: FirstLap) -> bool:
    """True for samples that come from memory: what is named or open beside them is read neither by calls nor mapped.

    Of what a process reads by the way, a module that is imported or the indices of a batch, no sample has much.
    """
    read = max(lap.called_bytes, lap.read_bytes, lap.again_read_bytes)
    return read < LEAST_BYTES * lap.images and (found.read_again or 0.0) < LEAST_BYTES


def _usual(files: LoaderFiles) -> Access:
    if isinstance(files, UnknownFiles):
        return "none"
    return "files" if isinstance(files, BatchFiles) else "parts"


def read_since(records: WorkerBatches, first: int, by_all_threads: int = 0) -> float | None:
    """Bytes from storage a sample, of the batches from number `first` on; None without such batches.

    Without workers the data set may read in other threads than the one that makes its batches.
    """
    rows = [row for row, number in enumerate(records.batch) if number >= first]
    images = sum(records.images[row] for row in rows)
    return max(by_all_threads, sum(records.read_bytes[row] for row in rows)) / images if images else None


def bytes_of_sample(files: LoaderFiles, lap: FirstLap | None, samples: int | None) -> float | None:
    """Bytes of the files of a sample; None where they are known batch by batch, or where nothing shows it."""
    if isinstance(files, BatchFiles) or lap is None or not lap.images:
        return None
    from_storage = max(lap.read_bytes, lap.again_read_bytes)
    if from_storage < LEAST_BYTES * lap.images:
        return None  # what read calls return may come over sockets and pipes
    if lap.called_bytes >= max(LEAST_BYTES * lap.images, CALLED_AT_LEAST * from_storage):
        return lap.called_bytes / lap.images
    size = sum(files.file_bytes.values()) / samples if isinstance(files, PartFiles) and samples else 0.0
    # Windows of a text that begin at each of its tokens share their bytes: then this is no sample's size.
    return size if size >= LEAST_BYTES else None


def first_lap(
    records: WorkerBatches, called: tuple[int, ...], *, pool: int, skipped: int, again: range
) -> FirstLap | None:
    """Sums over the batches that were made twice: first as found, then as numbers `again`; None without such batches.

    The first `skipped` batches are left out because they include imports.
    """
    row = {number: place for place, number in enumerate(records.batch)}
    pairs = [
        (row[later % pool], row[later], later % pool)
        for later in again
        if later in row and later % pool in row and later >= pool and later % pool >= skipped
    ]
    if not pairs:
        return None
    # Waiting for a core, or a stall of the machine, must not look like a sample that was kept.
    times = zip(records.wall_ns, records.cpu_ns, records.run_delay_ns, strict=True)
    ran_ns = tuple(max(cpu, wall - delay) for wall, cpu, delay in times)
    usual_ns = median([ran_ns[first] for first, _, _ in pairs])
    pairs = [pair for pair in pairs if ran_ns[pair[0]] <= OUTLIER * usual_ns]

    def total(column: tuple[int, ...], which: int) -> int:
        return sum(column[pair[which]] for pair in pairs)

    return FirstLap(
        images=total(records.images, 0),
        wall_s=total(ran_ns, 0) / 1e9,
        cpu_s=total(records.cpu_ns, 0) / 1e9,
        read_bytes=total(records.read_bytes, 0),
        called_bytes=sum(called[number] for _, _, number in pairs if number < len(called)),
        again_wall_s=total(ran_ns, 1) / 1e9,
        again_cpu_s=total(records.cpu_ns, 1) / 1e9,
        again_read_bytes=total(records.read_bytes, 1),
    )


_END = object()
