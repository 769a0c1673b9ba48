"""What was seen: raw times and counters of one configuration, or how it failed. Nothing here is derived."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records import check_at_least, check_equal_lengths
from loaderprobe.records.config import Decoder, RunConfig
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import Ablation
from loaderprobe.records.thresholds import LEAST_BYTES, LEAST_SAVED_S, MADE_AGAIN
from loaderprobe.records.waits import StackSamples, WaitSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """The first batches of a loader of one's own, taken while its files were as found and its data set was new.

    Sums over the batches, the first of each worker left out.
    """

    images: int
    wall_s: float
    """Of the workers, as are the other times; without the time that they waited for a core."""
    cpu_s: float
    read_bytes: int
    """From storage."""
    called_bytes: int
    """Returned by read calls, from storage, memory or a pipe."""
    again_wall_s: float
    """Of the same batches made once more, after their files had been evicted as far as they are known."""
    again_cpu_s: float
    again_read_bytes: int
    usual_wait_fraction: float = 1.0
    """Share of its time that the median batch waited in the first pass; 1 in results of older versions."""

    def __post_init__(self) -> None:
        check_at_least("first batches", self, dict.fromkeys(self.__dataclass_fields__, 0))

    @property
    def saved_s(self) -> float:
        """Worker time that making the batches again took less."""
        return self.wall_s - self.again_wall_s

    @property
    def quicker(self) -> bool:
        """True when samples were kept, in part at least: made again they take much less, and more than noise.

        Not where as much was read from storage and computed: then a disk was quicker that had saved credit meanwhile.
        """
        read = self.read_bytes >= LEAST_BYTES * max(1, self.images)
        read_again = read and self.again_read_bytes >= MADE_AGAIN * self.read_bytes
        as_much = read_again and self.again_cpu_s >= MADE_AGAIN * self.cpu_s
        return self.again_wall_s < MADE_AGAIN * self.wall_s and self.saved_s >= LEAST_SAVED_S and not as_much


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen:
    """What one of several ranks saw, by its own clock. Columns have an entry a segment of the measurement."""

    rank: int
    node: int
    host: str
    span_ns: tuple[int, ...]
    """From the first step of a segment to the end of its last, or of the device."""
    input_ns: tuple[int, ...]
    """In `next()`, mean of the steps."""
    meet_ns: tuple[int, ...]
    """Waiting for the other ranks, with a batch in hand; mean of the steps of a `loader_only` segment, 0 elsewhere."""
    steps: tuple[int, ...]
    """The same on all ranks, except where each was alone."""
    delivered_bytes: tuple[int | None, ...]
    read_bytes: tuple[int | None, ...] = ()
    """From storage, by the rank's workers for the batches of each segment: whether it was cold, or warm, on each rank.
    None where reads are not counted; empty where that was not kept."""

    def __post_init__(self) -> None:
        check_equal_lengths(f"rank {self.rank}", self, COLUMNS, optional=("read_bytes",))


COLUMNS = ("span_ns", "input_ns", "meet_ns", "steps", "delivered_bytes", "read_bytes")
"""With an entry a segment."""


DeviceKind = Literal["kernel", "h2d", "d2h", "d2d", "memset"]
"""What the device did: a kernel, a copy from host to device, back, or within it, or filling memory."""

CallKind = Literal["launch", "sync"]
"""launch: puts work on a stream. sync: blocks the host until the device is there (synchronising, a copy that
stages pageable memory, freeing)."""


def communicates(name: str) -> bool:
    """Whether a kernel exchanges data with other GPUs, by its name: NCCL's, and AMD's RCCL."""
    small = name.lower()
    return "nccl" in small or "rccl" in small


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecords:
    """Columns of equal length, one entry for each kernel, copy and fill on one GPU, ordered by their begin."""

    kind: tuple[DeviceKind, ...]
    name: tuple[int, ...]
    """Index into `Timeline.names`."""
    begin_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    stream: tuple[int, ...]
    correlation: tuple[int, ...]
    """Of the host call that issued it; all kernels of a CUDA graph share one."""
    loader: tuple[bool, ...]
    """Issued to make batches (decoding, augmenting on the GPU), not to train."""
    occupancy: tuple[float | None, ...]
    """Estimated share of an SM's warps that are active, 0 to 1; None where it cannot be computed, and for copies."""
    blocks_per_sm: tuple[float | None, ...]
    """Blocks of the kernel over the number of SMs; None for copies."""

    def __post_init__(self) -> None:
        check_equal_lengths("device records", self, tuple(self.__dataclass_fields__))
        check_at_least("device records", self, {"name": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """Columns of equal length, one entry for each call of the CUDA runtime or driver that counts."""

    kind: tuple[CallKind, ...]
    name: tuple[int, ...]
    """Index into `Timeline.names`."""
    begin_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    correlation: tuple[int, ...]
    training: tuple[bool, ...]
    """Made by a thread that trains: the training thread, or autograd's. Launches count whoever made them, syncs only
    where they hold up the training."""

    def __post_init__(self) -> None:
        check_equal_lengths("host calls", self, tuple(self.__dataclass_fields__))
        check_at_least("host calls", self, {"name": 0})


RejectedCode = Literal["no_stamp", "backwards", "outside", "too_early", "cut"]
"""Without a valid time; ended before it began; outside the window; began before it was launched; overlapped the next
record of its stream, and was cut there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Records of the profiler that cannot be true, and so were not kept."""

    reason: RejectedCode
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One profiler window of whole training steps, outside every timed segment; or one cut from a recorded trace.

    Times are Unix nanoseconds. At the ends of a window that is cut from a trace the device may be busy.
    """

    device: str
    steps: int
    batch_size: int
    begin_ns: int
    """The device was idle here: it had been waited for."""
    end_ns: int
    """The device had finished the last step."""
    wait_begin_ns: tuple[int, ...]
    wait_end_ns: tuple[int, ...]
    """When the training thread was inside `next()` of the loader."""
    step_begin_ns: tuple[int, ...]
    names: tuple[str, ...]
    records: DeviceRecords
    calls: HostCalls
    rejected: tuple[Rejected, ...]
    launches: int
    """Calls that should have left a record of the device."""
    launches_without_record: int
    plain_ns: int
    """What as many steps took just before, in the same way, without the profiler."""
    plain_wait_ns: int = 0
    """How much of that the training thread was inside `next()`."""
    clock_shift_ns: int = 0
    """By how much the host's clocks moved against each other during the window."""

    def __post_init__(self) -> None:
        check_equal_lengths("timeline", self, ("wait_begin_ns", "wait_end_ns"))
        check_at_least("timeline", self, dict.fromkeys(("steps", "launches", "launches_without_record"), 0))
        if max((*self.records.name, *self.calls.name), default=-1) >= len(self.names):
            raise BadValue("timeline: a record has a name that is not there")


Mode = Literal["baseline", Ablation, "resident", "no_exchange", "exchange", "one_thread"]
"""baseline: files in the state that is asked for (cold, or as found), whole pipeline. An ablation leaves a part out.
resident: no loader, one batch that stays on the device. Of several ranks: no_exchange is resident without the
exchange of gradients; exchange is nothing but that exchange. one_thread: as asked, but while the serial loader makes
a batch, torch computes on one thread; the step keeps its threads."""

Activity = Literal["loader_only", "training", "alone"]
"""loader_only: batches are taken and dropped; ranks take each in step. training: each is copied to the device and
trained on. alone: a rank takes batches without waiting for the others, for a time that is the same on all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Something that could not be measured, and why. Never stands for 0."""

    name: str
    reason: Remark


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Readings of one quantity over time."""

    name: str
    unit: str
    source: str
    """Where the figure comes from: a file of /proc, NVML."""
    time_ns: tuple[int, ...]
    """On the clock of the segments."""
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check_equal_lengths(f"series {self.name}", self, ("time_ns", "values"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What other processes did to the machine while a segment was timed, between one reading before and one after it.

    Own are the measuring process, its ancestors and all that it started, of several ranks those of all on the host.
    CPU time is counted in ticks of 10 ms (`SC_CLK_TCK`), of a core by sampling: a few ticks a core are noise.
    """

    span_ns: int
    """Between the two readings."""
    cores: int
    """That the times are of: those of the machine, or fewer where processes may run on fewer."""
    cpu_ns: int
    """User and system time of the cores (/proc/stat) less that of own processes (/proc/PID/stat). What the kernel
    does in threads of its own is in it; in a container, what the whole host does, unless lxcfs shows it its own."""
    own_cpu_ns: int
    """The same of own processes: workers, threads of libraries and what has ended meanwhile among them."""
    steal_ns: int
    """That a hypervisor gave other machines while this one had work (/proc/stat); 0 where it does not say."""
    own_read_bytes: int | None = None
    """That own processes but for the ancestors caused to be read from storage (/proc/PID/io); None where that is not
    readable, or one ended meanwhile, with which its count is lost."""

    def __post_init__(self) -> None:
        least = {"span_ns": 1, "cores": 1, "cpu_ns": 0, "own_cpu_ns": 0, "steal_ns": 0, "own_read_bytes": 0}
        check_at_least("other processes", self, least)

    @property
    def share(self) -> float:
        """Of the cores that other processes took."""
        return self.cpu_ns / (self.span_ns * self.cores)

    @property
    def steal_share(self) -> float:
        """Of the time of the cores that the hypervisor gave other machines."""
        return self.steal_ns / (self.span_ns * self.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of one mode, after its flush: per-step times in order.

    `begin_ns[i]`, `ready_ns[i]`, `copied_ns[i]`, `end_ns[i]` are the training thread entering `next()`,
    leaving it, having submitted the copy, and having submitted the step. Iteration i is
    begin[i] to begin[i+1], so that releasing a batch counts.
    """

    mode: Mode
    activity: Activity
    round: int
    first_batch: int
    """Number of the first batch of the segment, counted from the start of the loader; -1 without a loader."""
    batch_size: int
    begin_ns: tuple[int, ...]
    ready_ns: tuple[int, ...]
    copied_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    finished_ns: tuple[int, ...]
    """When the device finished each step; empty for the loader alone."""
    device_begin_ns: tuple[int, ...] = ()
    """When the device, done with all before, came to the copy of each step; empty where only the host is stamped.
    From `finished_ns[i]` to `device_begin_ns[i + 1]` it had nothing to do."""
    closed_ns: int
    """When the last batch had been released."""
    thread_cpu_ns: int
    """CPU time of the training thread over the segment."""
    process_cpu_ns: int | None = None
    """CPU time of all threads of the training process over the segment; None in runs of older versions."""
    receive_cpu_ns: int | None = None
    """CPU time of the training thread in `next()` alone; None where that was not taken apart."""
    delivered_bytes: int | None
    """Bytes of the files of this segment's batches; None when the loader hides its files."""
    distinct_bytes: int | None = None
    """Of those, the bytes of files that nothing had read since they were evicted: only they can come from storage."""
    disk_bytes: int | None
    """Bytes that the devices under the data read over the segment, for any process; None when not visible."""
    resident_before: float | None
    """Share of the segment's files in the page cache before it began; None when it may not be known."""
    without: int | None = None
    """The rank that took no input, in step with those that did; None where all did."""
    others: Others | None = None
    """What other processes did meanwhile, of several ranks on the host of the slowest; None where that was not read."""

    def __post_init__(self) -> None:
        what = f"segment {self.mode} {self.activity} of round {self.round}"
        check_equal_lengths(what, self, ("begin_ns", "ready_ns", "copied_ns", "end_ns"))
        check_equal_lengths(what, self, ("finished_ns", "device_begin_ns"), optional=("device_begin_ns",))
        check_at_least(what, self, _LEAST_OF_SEGMENT)
        if not self.begin_ns:
            raise BadValue(f"{what}: no step")
        next_ns = (*self.begin_ns[1:], self.closed_ns)
        for earlier, later in pairwise((self.begin_ns, self.ready_ns, self.copied_ns, self.end_ns, next_ns)):
            if any(end < begin for begin, end in zip(earlier, later, strict=True)):
                raise BadValue(f"{what}: time runs backwards")

    @property
    def steps(self) -> int:
        return len(self.begin_ns)

    @property
    def seconds(self) -> float:
        """Whole iterations, from the first `next()` to the release of the last batch."""
        return (self.closed_ns - self.begin_ns[0]) / 1e9

    @property
    def span_ns(self) -> int:
        """Nanoseconds from the first step to the end of the last, or of the device's work."""
        return max(self.closed_ns, *self.finished_ns[-1:], 0) - self.begin_ns[0]

    @property
    def kind(self) -> tuple[Mode, Activity, int | None]:
        """Segments of one kind repeat each other: mode, activity, and the rank that took no input."""
        return self.mode, self.activity, self.without


_LEAST_OF_SEGMENT = {
    "round": 0, "first_batch": -1, "batch_size": 1, "begin_ns": 0, "finished_ns": 0, "device_begin_ns": 0,
    "thread_cpu_ns": 0, "process_cpu_ns": 0, "receive_cpu_ns": 0, "delivered_bytes": 0, "distinct_bytes": 0,
    "resident_before": 0.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBatches:
    """What each batch cost the worker (or, for the serial loader, the training thread) that made it.

    Columns of equal length, one entry a batch. Source: clocks, /proc/thread-self/schedstat and
    getrusage around the fetcher's `fetch`, in the worker. Times are those of the thread that makes the batch.
    """

    batch: tuple[int, ...] = ()
    worker: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    wall_ns: tuple[int, ...] = ()
    cpu_ns: tuple[int, ...] = ()
    run_delay_ns: tuple[int, ...] = ()
    """Ready to run, but waiting for a core."""
    read_bytes: tuple[int, ...] = ()
    """Read from storage (page-cache hits do not count) by all threads of the worker since its batch before; of the
    serial loader, by those of the training process while the batch was made, in runs of older versions by the training
    thread alone. 0 on file systems that do not account reads."""
    images: tuple[int, ...] = ()
    collate_ns: tuple[int, ...] = ()
    """Wall time of putting the samples together into a batch, in shared memory; part of `wall_ns`. May be empty
    in runs of older versions, as may be the next."""
    instrument_ns: tuple[int, ...] = ()
    """CPU time that recording this took; part of no other column."""
    process_cpu_ns: tuple[int, ...] = ()
    """CPU time of all threads of the worker since its batch before, those of the data set among them; of the training
    thread alone for the serial loader. With that of commands that ended. May be empty in runs of older versions."""
    lost: int = 0
    """Batches whose record was overwritten before it was read."""

    def __post_init__(self) -> None:
        check_equal_lengths("worker batches", self, BATCH_COLUMNS, optional=_YOUNG)
        check_at_least("worker batches", self, dict.fromkeys((*BATCH_COLUMNS, "lost"), 0))


_YOUNG = ("collate_ns", "instrument_ns", "process_cpu_ns")
"""Columns that older versions did not write."""
BATCH_COLUMNS = (
    "batch", "worker", "start_ns", "wall_ns", "cpu_ns", "run_delay_ns", "read_bytes", "process_cpu_ns", "images",
    "collate_ns", "instrument_ns",
)  # fmt: skip
"""In the order of what workers write; the last two are of torch's workers alone."""


NO_STEP, OWN_STEP = "none", "step"
"""The compute of a loader that is judged alone, and that of a script's or a user's own step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInfo:
    """The device that trained, in words, and whether its rate was measured or given."""

    name: str
    device: str
    synchronous: bool
    """True when a step ends before the host goes on (a CPU; a tool that sleeps)."""
    specified_images_per_s: float | None
    """Set for an emulated accelerator: its rate is a datum, not a measurement."""
    source: str
    """Where a given rate comes from; how a measured one is made."""

    def __post_init__(self) -> None:
        if self.specified_images_per_s is not None and not self.specified_images_per_s > 0:
            raise BadValue(f"compute {self.name}: {self.specified_images_per_s:g} images/s is no rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """CPU time of one image in another way, beside that of the way at hand, on the same files in turn."""

    name: Decoder | Literal["uint8", "decoded"]
    """Another decoder, tensors sent as bytes, or an image that was decoded before: that is no change to advise."""
    cpu_s: float
    usual_cpu_s: float

    def __post_init__(self) -> None:
        if not (self.cpu_s >= 0 and self.usual_cpu_s > 0):
            raise BadValue(f"alternative {self.name}: an image takes CPU time")


Access = Literal["files", "parts", "fresh", "none"]
"""How the state of the data's files is brought about. files: the files of each batch are known, and read whole. parts:
the files are known, but not what a batch reads of them; warm by repetition. fresh: every cold segment takes batches
that were not taken before; warm by repetition. none: files are read as they are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything seen while one configuration ran, as raw values."""

    config: RunConfig
    compute: ComputeInfo
    started_utc: str
    first_batch_s: float
    """Waiting for the first batch, with loader and device already started; not part of any rate."""
    segments: tuple[Segment, ...]
    worker_batches: WorkerBatches
    series: tuple[Series, ...]
    missing: tuple[Missing, ...]
    cores_available: float
    storage_counts_reads: bool
    storage_kind: str
    access: Access = "files"
    first_pass: FirstPass | None = None
    """Of a loader of one's own."""
    sample_bytes: float | None = None
    """Of the files of a sample, where those of a batch are not known: what read calls return for it or, of mapped
    files, their size over the samples in them. None where neither is known."""
    waits: WaitSamples | None = None
    """What workers were seen waiting for; without it, `missing` has the reason under `waits`."""
    stacks: StackSamples | None = None
    """Where workers were in the code that makes batches; None where that was not looked at."""
    own_threads: bool = False
    """True where threads or processes of the loader's own make each batch together: they are recorded as one worker."""
    stream: bool = False
    """True where the data set gives its samples in an order of its own, so that one read may serve any number of them;
    False in runs of older versions."""
    images: bool = True
    """False when batches hold no images: then samples are counted wherever images are named."""
    modes: tuple[Mode, ...] = ("baseline", "warm")
    """The modes that this loader can be measured in."""
    alternatives: tuple[Alternative, ...] = ()
    timeline: Timeline | None = None
    """What the GPU did in one profiler window; without it, `missing` has the reason under `gpu_timeline`."""
    notes: tuple[Remark, ...] = ()
    ranks: int = 1
    """Processes that trained in step. Then batches, images and bytes are those of all of them together; times, workers
    and cores are those of one."""
    host_ranks: int | None = None
    """Of these, those on its host; None for one process, and in runs of older versions."""
    by_rank: tuple[RankSeen, ...] = ()
    """What each of several ranks saw, in their order; empty for one, and for the ranks of a script."""
    wall_s: float

    def __post_init__(self) -> None:
        check_at_least("measurement", self, {"first_batch_s": 0.0, "wall_s": 0.0, "ranks": 1})
        if not self.cores_available > 0:
            raise BadValue(f"measurement: {self.cores_available:g} cores cannot have measured it")

    @property
    def workers(self) -> int:
        """Workers that make batches side by side; 0 for the serial loader."""
        return min(self.config.loader.workers, 1) if self.own_threads else self.config.loader.workers

    @property
    def step_images(self) -> int:
        """Images of one step: of all ranks, where several were gathered."""
        return self.segments[0].batch_size if self.segments else self.config.compute.batch_size * self.config.ranks

    @property
    def as_found(self) -> bool:
        """True where the files were neither evicted nor warmed, since they are not known or it was not asked for."""
        return self.config.cache == "as-found" or self.access == "none"

    @property
    def judged(self) -> Activity:
        """What the verdict is on: training or, without a step, the loader alone."""
        return "loader_only" if self.compute.name == NO_STEP else "training"

    @property
    def ranks_here(self) -> int:
        """Ranks that share the cores of its host."""
        return self.host_ranks or max(1, self.ranks // self.config.nodes)

    @property
    def is_remote(self) -> bool:
        """True for objects behind a URL: all that is read comes over the network."""
        return self.storage_kind == "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """How a configuration ended without a measurement."""

    config: RunConfig
    stage: str
    """What the child was doing: `start`, `first batch`, `round 2 warm loader only`."""
    reason: str
    """One sentence for people."""
    hint: str
    exit_code: int | None = None
    signal: str | None = None
    log: tuple[str, ...] = ()
    """The last lines that the child wrote."""
    started_utc: str
    wall_s: float
    rank: int | None = None
    """Of several ranks, the one in which it began; None where that is not known, and for one."""
    host: str = ""
    """Of that rank."""


def segments_of(
    measurement: Measurement, mode: Mode, activity: Activity, *, without: int | None = None
) -> list[Segment]:
    """The segments of one mode and activity, by round: all ranks take input, but for the one in `without`."""
    segments = [segment for segment in measurement.segments if segment.kind == (mode, activity, without)]
    return sorted(segments, key=lambda segment: segment.round)
