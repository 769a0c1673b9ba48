"""A user's own DataLoader with a user's own step, in this process: its files are learned, then it is measured."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderprobe.analyze.verdict.judge import Judged
from loaderprobe.batches import holds_images, length_of, size_bytes
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.ceilings import CEILING_S, ceiling_of
from loaderprobe.measure.further import BUDGET_STEP_S, enough_said
from loaderprobe.measure.pace import SEGMENTS_A_ROUND
from loaderprobe.measure.segment_runner import Parts
from loaderprobe.measure.session import GivenUp, Session
from loaderprobe.protocols import Compute, ComputeArguments, MakeCompute, OnStage, PageCache
from loaderprobe.records import values
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig, with_options
from loaderprobe.records.diagnosis import BatchFiles, DataFound, LoaderFiles, OwnMeasured, UnknownFiles
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.files import PartFiles, content_hash
from loaderprobe.records.measurement import Access, FirstPass, Measurement, WorkerBatches
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import LEAST_BYTES, LEAST_SAVED_S, MADE_AGAIN, NEGLIGIBLE_WAIT
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.stats import mean, median
from loaderprobe.system.device import locate, process_reads_counted
from loaderprobe.system.host import SystemClock
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import process_usage, threads_of
from loaderprobe.system.scratch import scratch_directory
from loaderprobe.units import format_duration

if TYPE_CHECKING:
    from loaderprobe.loaders.user_loader import UserLoader

# Discovery of a loader: which files it reads, and whether they can be made cold.
#
# The first batches are taken with the files as found. Then the known files are evicted and the same batches are taken
# again. The same bytes must come from storage again, and the data set must do as much work. Otherwise not all its files
# are known, or it keeps its samples, and only batches that were never taken are as cold as in a first epoch.

# A cold segment reads each file once, so a pool must hold its batches, those ahead and those flushed, twice.
POOL_BATCHES = 14
# And as many as a segment lasts; a quick loader makes more of them.
DISCOVERY_AT_LEAST_S = 1.0
DISCOVERY_SHARE = 0.2
# Compute alone uses so many batches of the pool in turn, because they may differ in cost.
MOST_RESIDENT = 64
MOST_RESIDENT_BYTES = 256 << 20
# Less than this share of the bytes the second time means that files stayed in memory.
STAYED_BELOW = 0.5
# Of a pass. Less may be the pages of a module that was imported meanwhile: one of 4096 bytes was seen in one of 8
# small files that were in memory.
LEAST_PASS_BYTES = 64 << 10
# Of the bytes from storage: where read calls return less, the files are mapped. Assumed:
# SQLite's calls returned 13 % behind a read-ahead of 8 MiB, those beside a mapped table under 0.1 %.
CALLED_AT_LEAST = 0.05
# Times the usual batch.
OUTLIER = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderProperties:
    """Properties of a loader, known before it is measured."""

    taken: int
    """Batches taken so far."""
    pool: int
    """Number of batches in the pool."""
    batch_size: int
    """Samples of a batch; the mean of the first, where the data set makes batches that differ."""
    images: bool
    """True when batches hold images."""
    files: LoaderFiles
    access: Access
    resident_batches: tuple[Any, ...]
    """Batches for steps without the loader."""
    first_pass: FirstPass | None
    sample_bytes: float | None = None
    """Bytes of the files of a sample, where those of a batch are not known."""
    stream: bool = False
    """True where the data set gives its samples in an order of its own."""
    read_again: float | None = None
    """Bytes from storage a sample, over all batches begun after the files were evicted."""


class Resident:
    """Batches for steps without the loader: the first, and further ones as far as their bytes allow."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self._room = MOST_RESIDENT_BYTES

    def keep(self, batch: Any) -> None:
        from loaderprobe.loaders.state import kept_batch

        self._room -= size_bytes(batch)
        if not self.batches or (len(self.batches) < MOST_RESIDENT and self._room > 0):
            self.batches.append(kept_batch(batch))


@dataclass(slots=True)
class Discovery:
    """Takes the first batches twice, within a share of the budget."""

    loader: UserLoader
    cache: PageCache
    workers: int
    ahead: int
    """Batches made ahead of the one that is taken."""
    spent_s: Callable[[], float]
    budget_s: float
    counts_reads: Callable[[LoaderFiles], bool] = lambda files: process_reads_counted(_location(files))
    samples: int | None = None
    """In the data set; None where it has no length."""

    def run(self) -> LoaderProperties:
        """Take the batches twice. Raises StopIteration when the loader yields too few."""
        taken, pool, images, resident = self._first()
        batch_size = _mean_size(self.loader.records())
        files = self.loader.files(batch_size)
        if not isinstance(files, UnknownFiles):
            self.loader.release(taken)
            self.cache.evict(files.absolute(0, files.count) if isinstance(files, BatchFiles) else files.paths)
        whole: Access = "files" if isinstance(files, BatchFiles) else "parts"
        read_before = process_usage().all_read_bytes
        last = self._again(taken, pool)
        first_pass = measured_first_pass(
            self.loader.records(),
            [reads.called_bytes for reads in self.loader.pool_reads()],
            pool=pool,
            skipped=max(self.workers, 1),
            again=range(taken + self.ahead + self.workers, last),
        )
        read_bytes = process_usage().all_read_bytes - read_before
        return self._decided(
            LoaderProperties(
                taken=last, pool=pool, batch_size=batch_size, images=images, files=files,
                access="none" if isinstance(files, UnknownFiles) else whole,
                resident_batches=tuple(resident), first_pass=first_pass,
                sample_bytes=bytes_of_sample(files, first_pass, self.samples), stream=not self.loader.repeats(),
                read_again=read_since(self.loader.records(), taken + self.ahead, 0 if self.workers else read_bytes),
            )
        )  # fmt: skip

    def _first(self) -> tuple[int, int, bool, list[Any]]:
        """Take batches until the pool has enough, or a share of the budget is spent; then all of the pool are made."""
        batches, taken, pool, must_take, images = self.loader.batches(), 0, 0, 0, False
        resident, begin_s = Resident(), 0.0
        wanted = POOL_BATCHES + 3 * self.ahead + 3 * self.workers
        while not pool or taken < must_take:
            batch = next(batches)
            # The start of the workers, which takes seconds where they are spawned, does not count.
            begin_s = begin_s or self.spent_s()
            spent_s = self.spent_s() - begin_s
            images = images or holds_images(batch)
            taken += 1
            resident.keep(batch)
            late = spent_s > DISCOVERY_SHARE * self.budget_s
            enough = taken >= wanted and spent_s >= DISCOVERY_AT_LEAST_S
            if not pool and (enough or late or self.loader.exhausted):
                self.loader.check()
                pool = self.loader.settle(taken)
                must_take = pool - self.ahead
            # What is ahead needs to be made and not taken: workers would begin as many again.
            if must_take <= taken < pool and not self.loader.finishes(taken):
                must_take = pool
        return taken, pool, images, resident.batches

    def _again(self, evicted_at: int, pool: int) -> int:
        """Take the pool once more, as far as time allows; returns the number of batches taken so far."""
        batches, begin_s, taken = self.loader.batches(), self.spent_s(), evicted_at
        # What is ahead was made before, as may be what is being made.
        first = evicted_at + self.ahead + self.workers
        while taken < first + pool:
            spent_s = self.spent_s() - begin_s
            late = spent_s > DISCOVERY_SHARE * self.budget_s
            if taken >= first + max(2, self.workers) and (late or spent_s > DISCOVERY_AT_LEAST_S):
                break
            next(batches)
            taken += 1
        return taken

    def _decided(self, properties: LoaderProperties) -> LoaderProperties:
        """Decide how files are made cold and warm, from the second run."""
        first_pass = properties.first_pass
        if first_pass is None or not first_pass.images:
            return properties
        kept_open = any(reads.kept_open for reads in self.loader.pool_reads())
        names_alone = isinstance(properties.files, PartFiles) and not kept_open
        if names_alone and self.counts_reads(properties.files) and _reads_nothing(properties, first_pass):
            properties = replace(properties, files=UnknownFiles(code="none_read"), access="none")
            kept = False
        elif self.counts_reads(properties.files):
            cold = first_pass.read_bytes >= max(LEAST_PASS_BYTES, LEAST_BYTES * first_pass.images)
            kept = cold and first_pass.again_read_bytes < STAYED_BELOW * first_pass.read_bytes
            if kept and properties.read_again is not None:
                # What the first batches read ahead served those that the two passes have in common.
                once = min(first_pass.read_bytes / first_pass.images, properties.sample_bytes or math.inf)
                kept = properties.read_again < STAYED_BELOW * once
        else:
            waited, again = first_pass.wall_s - first_pass.cpu_s, first_pass.again_wall_s - first_pass.again_cpu_s
            kept = (
                waited > STAYED_BELOW * first_pass.wall_s
                and again < STAYED_BELOW * waited
                and first_pass.saved_s >= LEAST_SAVED_S
            )
        if not (first_pass.quicker or kept):
            return properties
        # A round takes two cold segments at least, each after a flush.
        if self.loader.new_left() < 4 * (self.ahead + 4 * max(self.workers, 1)):
            keeps_samples = first_pass.quicker and first_pass.again_cpu_s < MADE_AGAIN * first_pass.cpu_s
            return replace(properties, access="none" if kept and not keeps_samples else properties.access)
        self.loader.take_new()
        return replace(properties, access="fresh")


def _reads_nothing(properties: LoaderProperties, first_pass: FirstPass) -> bool:
    """True for samples that come from memory: what is named or open beside them is read neither by calls nor mapped.

    Of what a process reads by the way, a module that is imported or the indices of a batch, no sample has much.
    """
    read = max(first_pass.called_bytes, first_pass.read_bytes, first_pass.again_read_bytes)
    return read < LEAST_BYTES * first_pass.images and (properties.read_again or 0.0) < LEAST_BYTES


def _waits_for_nothing(properties: LoaderProperties) -> bool:
    """True where no file is known, and making samples read nothing and waited for nothing: none can be cold or warm."""
    first = properties.first_pass
    if first is None or not isinstance(properties.files, UnknownFiles) or not _reads_nothing(properties, first):
        return False
    return first.usual_wait_fraction < NEGLIGIBLE_WAIT


def _mean_size(records: WorkerBatches) -> int:
    return max(1, round(mean([float(count) for count in records.images])))


def read_since(records: WorkerBatches, first: int, by_all_threads: int = 0) -> float | None:
    """Bytes from storage a sample, of the batches from number `first` on; None without such batches.

    Without workers the data set may read in other threads than the one that makes its batches.
    """
    rows = [row for row, number in enumerate(records.batch) if number >= first]
    images = sum(records.images[row] for row in rows)
    return max(by_all_threads, sum(records.read_bytes[row] for row in rows)) / images if images else None


def bytes_of_sample(files: LoaderFiles, first_pass: FirstPass | None, samples: int | None) -> float | None:
    """Bytes of the files of a sample; None where they are known batch by batch, or where nothing shows it."""
    if isinstance(files, BatchFiles) or first_pass is None or not first_pass.images:
        return None
    from_storage = max(first_pass.read_bytes, first_pass.again_read_bytes)
    if from_storage < LEAST_BYTES * first_pass.images:
        return None  # what read calls return may come over sockets and pipes
    if first_pass.called_bytes >= max(LEAST_BYTES * first_pass.images, CALLED_AT_LEAST * from_storage):
        return first_pass.called_bytes / first_pass.images
    size = sum(files.file_bytes.values()) / samples if isinstance(files, PartFiles) and samples else 0.0
    # Windows of a text that begin at each of its tokens share their bytes: then this is no sample's size.
    return size if size >= LEAST_BYTES else None


def measured_first_pass(
    records: WorkerBatches, called: Sequence[int], *, pool: int, skipped: int, again: range
) -> FirstPass | None:
    """Sums over the batches that were made twice: first as found, then as numbers `again`; None without such batches.

    The first `skipped` batches are left out because they include imports.
    """
    row = {number: index for index, number in enumerate(records.batch)}
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

    return FirstPass(
        images=total(records.images, 0),
        wall_s=total(ran_ns, 0) / 1e9,
        cpu_s=total(records.cpu_ns, 0) / 1e9,
        read_bytes=total(records.read_bytes, 0),
        called_bytes=sum(called[number] for _, _, number in pairs if number < len(called)),
        again_wall_s=total(ran_ns, 1) / 1e9,
        again_cpu_s=total(records.cpu_ns, 1) / 1e9,
        again_read_bytes=total(records.read_bytes, 1),
        usual_wait_fraction=median([1 - records.cpu_ns[first] / max(1, ran_ns[first]) for first, _, _ in pairs]),
    )


# A budget is kept between rounds; within one it may be overrun so far, for batches and steps that take seconds.
OVERRUN_TIMES = 2.0
OVERRUN_S = 10.0
# A batch that does not come at all, with workers.
PATIENCE_S = 60.0
# Folders above this depth may hold anything: no advice to read them whole.
LEAST_DEPTH = 3
ENDED, INTERRUPTED = Remark(code="script_ended"), Remark(code="script_interrupted")
BROKEN_OFF = Remark(code="broken_off")
HIDDEN = StorageLocation(path="", filesystem="unknown", kind="unknown", mount="", source="", devices=())


class OutOfTimeError(LoaderprobeError):
    """More time has gone than the budget allows to overrun."""


class Deadline(SystemClock):
    """A clock for the step, and a check before each batch: both raise OutOfTimeError once it is too late.

    From where a rank has `begun` with the others, rank 0 decides for all when time is over, and nothing is raised.
    """

    def __init__(self, budget_s: float, begun: Callable[[], bool] = lambda: False) -> None:
        self._begin_ns = super().now_ns()
        self._most_s = OVERRUN_TIMES * budget_s + OVERRUN_S
        self._begun = begun
        self.patience_s = self._most_s + PATIENCE_S

    @property
    def spent_s(self) -> float:
        return (super().now_ns() - self._begin_ns) / 1e9

    def now_ns(self) -> int:
        self.check()
        return super().now_ns()

    @property
    def late(self) -> bool:
        return self.spent_s > self._most_s

    def error(self) -> OutOfTimeError:
        return OutOfTimeError(f"not even one round fitted into {format_duration(self._most_s)}")

    def check(self) -> None:
        if not self._begun() and self.late:
            raise self.error()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRequest:
    """How a loader is to be measured."""

    cache: CacheState = "cold"
    budget_s: float
    beyond_s: float = 0.0
    """Seconds beyond the budget, for further rounds while the verdict is open."""
    rounds: int = 3
    period: int | None = None
    """Batches that an update of the model takes, where the step is the loop of a script."""
    among: Callable[[Parts, RunConfig, LoaderProperties], Parts] = lambda parts, *_: parts
    """Joins the other ranks, once all is known of the loader: the parts of a session in step with theirs."""
    ceiling: bool = True
    """Whether to measure what the storage delivers, too."""
    deadline: Callable[[float], Deadline] = Deadline
    """Makes what ends a measurement that takes too long, of the budget with what goes beyond it."""
    joined: Callable[[Measurement], Measurement] = lambda measured: measured
    """Makes one measurement of those of all ranks."""
    ranks: int = 1
    """Ranks that are asked for; a script has ranks by itself."""
    nodes: int = 1


def compute_of(step: Callable[[Any], Any] | None, *, in_ranks: bool = False) -> MakeCompute:
    """Makes the device of the user's step, in one of several ranks or alone, or of none."""

    def make(arguments: ComputeArguments) -> Compute:
        from loaderprobe.compute.step import NoCompute, StepCompute, step_in_ranks

        if step is None:
            return NoCompute(arguments)
        return step_in_ranks(step, arguments) if in_ranks else StepCompute(step, arguments)

    return make


def _folder(files: BatchFiles | PartFiles) -> Path:
    """The one that all lie under."""
    return Path(os.path.commonpath([Path(path).parent for path in files.file_bytes]))


def data_found(loader: Any, files: LoaderFiles) -> DataFound:
    """What is known of a whole data set, from what was learned of the files of some batches."""
    samples = length_of(loader.dataset)
    if not isinstance(files, BatchFiles):  # files that are opened only later are not among those read in parts
        hidden = files if isinstance(files, UnknownFiles) else None
        return DataFound(hidden=hidden, samples=samples, size_bytes=None, root="")
    size = None if samples is None else files.delivered_bytes(0, files.count) / files.count * samples
    root = _folder(files)
    folder = str(root) if len(root.parts) >= LEAST_DEPTH else ""
    return DataFound(hidden=None, samples=samples, size_bytes=size, root=folder)


def measure_loader(
    loader: Any, compute: MakeCompute, request: LoaderRequest, on_stage: OnStage, cache: PageCache | None = None
) -> OwnMeasured:
    """Measure one loader with one device.

    The loader is left as it was found. Raises BadValue for a loader that cannot be measured, or not in the time
    there is; LoaderprobeError, with its cause, for what the data set or the step raises.
    """
    from loaderprobe.loaders.iterable import OwnIterable, to_measure
    from loaderprobe.loaders.state import shared_state_kept
    from loaderprobe.loaders.unwrap import NotCopied, Otherwise, Unwrapped

    given: Any = loader if isinstance(loader, Unwrapped) else to_measure(loader)
    with shared_state_kept(given.loader) as of_state:
        while True:
            try:
                measured = _measure(given, compute, request, on_stage, cache or LinuxPageCache())
                notes = (*measured.measurement.notes, *of_state)
                return replace(measured, measurement=replace(measured.measurement, notes=notes))
            except Otherwise as error:
                given = error.instead  # without the wrapper, or with fewer workers: that ends
            except NotCopied:
                if isinstance(loader, Unwrapped) or request.period is not None:
                    raise  # of one of several ranks, or of a script, which goes on with it
                given = OwnIterable(loader)


def _measure(
    given: Any, compute: MakeCompute, request: LoaderRequest, on_stage: OnStage, cache: PageCache
) -> OwnMeasured:
    from loaderprobe.loaders.iterable import IterableLoader, OwnIterable
    from loaderprobe.loaders.state import random_state_kept
    from loaderprobe.loaders.user_loader import UserLoader

    loader, is_iterable = given.loader, isinstance(given, OwnIterable)
    limit = request.deadline(request.budget_s + request.beyond_s)
    clock = SystemClock()
    with scratch_directory() as scratch:
        driver: Any = (
            IterableLoader(given, clock, limit.check)
            if is_iterable
            else UserLoader(given, scratch, limit.check, limit.patience_s)
        )
        sampler = WaitsSampler(lambda: _threads(driver, loader, is_iterable=is_iterable), scratch)
        with random_state_kept(loader), driver, sampler:
            try:
                if is_iterable:
                    on_stage("learning how batches are made", 0, 0)
                    driver.new_processes = sampler.follow_threads
                    properties = _learned(driver, limit, request)
                else:
                    on_stage("learning which files are read", 0, 0)
                    properties = Discovery(
                        loader=driver, cache=cache, workers=loader.num_workers,
                        ahead=loader.num_workers * (loader.prefetch_factor or 0), spent_s=lambda: limit.spent_s,
                        budget_s=request.budget_s, samples=driver.samples_in_files(),
                    ).run()  # fmt: skip
                sampler.follow_threads()
                config = _config(driver, loader, request, properties)
                device = compute(ComputeArguments(spec=config.compute, loader=config.loader, clock=limit))
                location = _location(properties.files)
                parts = Parts(
                    loader=driver, compute=device, clock=clock, cache=cache, location=location,
                    waits=sampler.samples,
                )  # fmt: skip
                session = _session(config, parts, request, on_stage, properties)
                wanted = request.ceiling and process_reads_counted(location) and request.cache == "cold"
                spent_s = limit.spent_s + (CEILING_S if wanted else 0.0)
                session.budget_s = max(0.0, request.budget_s - spent_s)
                session.beyond_s = lambda so_far: request.beyond_s if Judged(measurement=so_far).is_unsure else 0.0
                notes = (*_run(session, driver, loader), *_uneven(driver.records(), properties.batch_size))
            except OutOfTimeError as error:
                raise _no_round(error, driver.records(), limit.spent_s, loader, request) from error
            except StopIteration as error:
                raise _ended(driver.taken, loader) from error
            measured = replace(session.measurement(), stacks=driver.stacks())
            measured = request.joined(replace(measured, notes=(*measured.notes, *driver.notes(), *notes)))
    # When the script ends, nothing can be started any more.
    wanted = wanted and not any(note in measured.notes for note in (ENDED, INTERRUPTED))
    if wanted:
        on_stage("what the storage delivers", 0, 0)
    ceiling = ceiling_of(measured, properties.files, cache) if wanted else None
    return OwnMeasured(
        config=measured.config,
        measurement=replace(measured, notes=_with_budget(measured, ceiling, session, request)),
        data=data_found(loader, properties.files),
        ceiling=ceiling,
    )


def _no_round(
    error: OutOfTimeError, made: WorkerBatches, spent_s: float, loader: Any, request: LoaderRequest
) -> BadValue:  # fmt: skip
    """The error; of batches that came, with the budget that a round fits into with what it may be overrun.

    Discovery makes what is ahead twice, and what a worker then begins; a segment drops both, and a batch of each
    worker, and takes one of each. Twice the present budget at least, for it may be the step that takes long.
    """
    if error.hint:
        return BadValue(error.message, hint=error.hint)
    longest_s, ahead = max(made.wall_ns, default=spent_s * 1e9) / 1e9, max(loader.prefetch_factor or 0, 2)
    most_s = longest_s * (2 * (ahead + 1) + SEGMENTS_A_ROUND * (ahead + 2))
    enough_s = max(most_s / OVERRUN_TIMES, 2 * (request.budget_s + request.beyond_s))
    return BadValue(
        f"{error.message}, in which the loader gave {len(made.batch)} batches",
        hint=f"give more time: --budget {math.ceil(enough_s / BUDGET_STEP_S) * BUDGET_STEP_S} (in Python budget_s)",
    )


def _with_budget(
    measured: Measurement, ceiling: StorageCeiling | None, session: Session, request: LoaderRequest
) -> tuple[Remark, ...]:
    """The notes; where the budget ended the session while the verdict is open, with the budget that it would take."""
    if session.more_s is None or session.budget_s is None:
        return measured.notes
    if not Judged(measurement=measured, ceiling=ceiling).is_unsure:
        return measured.notes
    # Discovery and the storage alone take their shares of a larger budget, too; of what is more, it takes two at most.
    share = max(session.budget_s / request.budget_s, 1 - 2 * DISCOVERY_SHARE)
    return enough_said(measured.notes, request.budget_s + session.more_s / share, session.enough_rounds)


def _threads(driver: Any, loader: Any, *, is_iterable: bool) -> list[tuple[int, int]]:
    """The threads that make batches; none before workers start, which some wrappers do with the first batch.

    An iterable's own threads are seen while this one waits for them.
    """
    return threads_of(driver.workers()) if is_iterable or driver.workers() or not loader.num_workers else []


def _learned(driver: Any, limit: Deadline, request: LoaderRequest) -> LoaderProperties:
    """Of an iterable that is no DataLoader: files are not looked for. Raises StopIteration where it ends."""
    begin_s, resident = limit.spent_s, Resident()
    enough_s = min(DISCOVERY_SHARE * request.budget_s, DISCOVERY_AT_LEAST_S)
    driver.learn(resident.keep, lambda: limit.spent_s - begin_s >= enough_s)
    return LoaderProperties(
        taken=driver.taken, pool=0, batch_size=_mean_size(driver.records()), images=holds_images(resident.batches),
        files=UnknownFiles(code="no_data_loader"), access="none", resident_batches=tuple(resident.batches),
        first_pass=None, stream=True,
    )  # fmt: skip


def _name(files: LoaderFiles, loader: Any) -> str:
    """The name of the folder that all files lie under, if it has one; else of the data set's class."""
    if not isinstance(files, UnknownFiles) and files.file_bytes:
        folder = _folder(files).name
        if folder:
            return folder.encode(errors="replace").decode()
    return str(getattr(loader, "name", type(loader.dataset).__name__))


def _location(files: LoaderFiles) -> StorageLocation:
    """The storage under the largest of the files: a small one beside the data may be anywhere."""
    if isinstance(files, UnknownFiles) or not files.file_bytes:
        return HIDDEN
    return locate(Path(max(files.file_bytes, key=lambda path: files.file_bytes[path])))


def _session(
    config: RunConfig, parts: Parts, request: LoaderRequest, on_stage: OnStage, properties: LoaderProperties
) -> Session:
    config = with_options(config, compute=parts.compute.info().name)
    return Session(
        **values(properties, "access", "first_pass", "sample_bytes", "images", "stream", "pool", "resident_batches"),
        config=config,
        files=None if isinstance(properties.files, UnknownFiles) else properties.files,
        begun_with=properties.taken,
        parts=request.among(parts, config, properties),
        on_stage=on_stage,
        period=request.period,
    )


def _run(session: Session, driver: Any, loader: Any) -> tuple[Remark, ...]:
    """Measure; a note says when a round was broken off. Raises OutOfTimeError or StopIteration when that was the first.

    KeyboardInterrupt ends a process by itself once whole rounds are there; else it is raised.
    """
    notes: tuple[Remark, ...] = ()
    try:
        session.run()
    except StopIteration:
        if not hasattr(loader, "begin_again") or not _has_round(session):
            raise
        return (Remark(code="iterable_ended"),)
    except (OutOfTimeError, GivenUp) as error:
        given_up = isinstance(error, GivenUp)
        if not _has_round(session):
            raise (BadValue("not even one round was measured") if given_up else error) from error
        notes = (ENDED if given_up else BROKEN_OFF,)
    except KeyboardInterrupt:
        if session.parts.collectives.size > 1 or not _has_round(session):
            raise
        notes = (INTERRUPTED,)
    driver.check(broken_off=bool(notes))
    return notes


def _has_round(session: Session) -> bool:
    measured = session.measurement()
    needed = {"loader_only", measured.judged}
    return needed <= {segment.activity for segment in measured.segments if segment.mode == session.config.mode}


def _ended(taken: int, loader: Any) -> BadValue:
    if taken:
        return BadValue(
            f"the loader ended after {taken} batch{'' if taken == 1 else 'es'} and did not begin again",
            hint=getattr(loader, "begin_again", "make the data set's __iter__ start from the beginning each time"),
        )
    count, size = length_of(loader.dataset), loader.batch_size
    if count == 0:
        return BadValue("the loader yields no batch: its data set is empty", hint="check where the data set looks")
    if count and size and count < size and loader.drop_last:
        return BadValue(
            f"the loader yields no batch: {size} are a batch, the data set has {count}, and drop_last=True drops those",
            hint="use a smaller batch_size, or drop_last=False",
        )
    return BadValue(
        "the loader yields no batch", hint="iterate it yourself; is its sampler empty, or its data set used up?"
    )


def _uneven(records: WorkerBatches, batch_size: int) -> tuple[Remark, ...]:
    """That batches differ in length, which those of a stream may; no other is taken."""
    least, most = min(records.images), max(records.images)
    facts: dict[str, float | str] = {"least": least, "most": most, "samples": batch_size}
    return () if least == most else (Remark(code="uneven_batches", facts=facts),)


def _config(driver: Any, loader: Any, request: LoaderRequest, properties: LoaderProperties) -> RunConfig:
    name = getattr(driver, "kind", "own")
    return RunConfig(
        data=content_hash([type(loader.dataset).__qualname__, repr(loader.batch_size)]),
        resolution=_name(properties.files, loader),
        loader=LoaderSpec(name=name, workers=loader.num_workers, prefetch_factor=loader.prefetch_factor or 0),
        compute=ComputeSpec(name="own", batch_size=properties.batch_size),
        cache="as-found" if properties.access == "none" or _waits_for_nothing(properties) else request.cache,
        rounds=request.rounds,
        ranks=request.ranks,
        nodes=request.nodes,
    )
