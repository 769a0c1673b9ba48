"""`trace`: what limits the training in recordings of torch.profiler. Measures nothing and needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike as PathLikeOf
from pathlib import Path
from statistics import fmean
from typing import Any

from loaderprobe.analyze import trace as recorded
from loaderprobe.analyze.gpu import attribute, syncs_per_step, timeline_view, use_of
from loaderprobe.analyze.verdict.judge import judged_by_gaps
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.values import PathLike, no_progress
from loaderprobe.compute.kineto import KERNEL_LAUNCH, DeviceLimits, RawEvent, Window, convert
from loaderprobe.compute.trace_file import MOST_RECORDS, RECORD, Recording, read_trace, why_no_device
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.protocols import OnStage
from loaderprobe.records.files import SkippedFile
from loaderprobe.records.measurement import Timeline
from loaderprobe.records.options import TRACE, check
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import TimePart
from loaderprobe.records.thresholds import FEW_STEPS, LEAST_IDLE, LOADED_AHEAD, STEPS_VARY
from loaderprobe.records.trace import HostSpan, StepSpans, TraceRank, TraceReport
from loaderprobe.render.json import worded
from loaderprobe.render.trace import trace_columns, trace_document

ENDINGS = (".json", ".json.gz")
MOST_FILES = 4096
COLUMNS_A_STEP, MOST_COLUMNS = 200, 4000
"""Of the timeline that is kept of a recording."""
SHORTER = "let the recording begin with a step, and a step be shorter: fewer batches to an update"
COPY_AGAIN = "copy it again, or record again: the training may have ended while the file was written"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trace(Documented, TraceReport):
    """What limits the training in some recordings, rank by rank. Shows itself."""

    table_name = "trace.csv"
    document = trace_document
    columns = trace_columns


def trace(
    files: PathLike | Iterable[PathLike],
    *,
    annotation: str = "",
    device: int | None = None,
    batch_size: int | None = None,
    progress: OnStage | None = None,
    command: str = "loaderprobe.trace(...)",
) -> Trace:
    """Estimate what limits the training that torch.profiler recorded in `files`, several of them as ranks.

    A file is `.json` or `.json.gz`; a folder stands for all of them in it. `annotation` is the name of the span around
    asking for a batch (`record_function`), where the loader writes none. `device` is the index of a GPU; without it,
    the one with most kernels. `batch_size` is images a step, where no shapes were recorded. `progress(file, done,
    total)` hears of the bytes of a file.

    Raises BadValue for what is no recording of a GPU, and MissingPart for what cannot be read. Of several files, those
    are listed in `unread`, and only if none is left an error is raised.
    """
    check(TRACE, locals())
    paths = _paths([files] if isinstance(files, str | PathLikeOf) else list(files))
    ranks, unread = [], []
    trouble: LoaderprobeError | None = None
    for path in paths:
        try:
            ranks.append(_rank(path, annotation, device, batch_size, progress or no_progress))
        except LoaderprobeError as error:
            trouble = trouble or error
            unread.append(SkippedFile(path=str(path), reason=error.message))
    if not ranks:
        assert trouble is not None
        raise trouble
    _check_one_training(ranks)
    ranks.sort(key=lambda rank: (rank.rank is None, rank.rank or 0, rank.path))
    gaps = recorded.mean_gaps(ranks)
    estimate = Trace(
        origin=origin_now(command),
        bound=judged_by_gaps(gaps),
        gaps=gaps,
        use=recorded.mean_use(ranks),
        free=recorded.free_of([rank.gaps for rank in ranks]),
        ranks=tuple(ranks),
        waited_for=recorded.waited_for(ranks),
        notes=tuple(_notes_of_all(ranks)),
        unread=tuple(unread),
    )
    return worded(estimate)


def _paths(given: Sequence[PathLike]) -> list[Path]:
    """All files, those of folders by name. Raises BadValue where there is none."""
    files: list[Path] = []
    for name in given:
        path = Path(name)
        try:
            inside = sorted(p for p in path.rglob("*.json*") if p.name.endswith(ENDINGS)) if path.is_dir() else [path]
        except OSError as error:
            raise MissingPart(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
        if not inside:
            raise BadValue(f"{path} holds no recording: no file in it ends with .json or .json.gz", hint=RECORD)
        files += inside
    if not files:
        raise BadValue("no recording is given", hint="loaderprobe trace FILE")
    if len(files) > MOST_FILES:
        raise BadValue(f"{len(files)} files are too many", hint=f"give {MOST_FILES} at most")
    return list(dict.fromkeys(files))


def _check_one_training(ranks: Sequence[TraceRank]) -> None:
    """Raises BadValue where recordings cannot be ranks of one training: their mean would be of nothing."""
    first = ranks[0]
    for other in ranks[1:]:
        for what, ours, theirs in (
            ("GPU", first.gpu, other.gpu),
            ("number of ranks", first.world_size, other.world_size),
            ("loader", first.loader, other.loader),
        ):
            if ours != theirs:
                raise _not_one_training(first, other, f"their {what} differs ({ours or 'none'}, {theirs or 'none'})")
    by_rank: dict[int, TraceRank] = {}
    for rank in ranks:
        if rank.rank is not None and (same := by_rank.setdefault(rank.rank, rank)) is not rank:
            raise _not_one_training(same, rank, f"both are of rank {rank.rank}, as where a schedule repeats")


def _not_one_training(first: TraceRank, second: TraceRank, why: str) -> BadValue:
    return BadValue(
        f"{first.path} and {second.path} are not two ranks of one training: {why}",
        hint="give each to loaderprobe trace by itself",
    )


def _rank(path: Path, annotation: str, device: int | None, batch_size: int | None, progress: OnStage) -> TraceRank:
    """What one recording shows. Raises BadValue where it shows nothing."""
    recording = read_trace(path, annotation=annotation, progress=lambda done, size: progress(path.name, done, size))
    kernels = Counter(event.device for event in recording.events if event.activity == "kernel")
    if not kernels and recording.cut_off:
        raise BadValue(f"{path} ends before its first kernel: it is cut off", hint=COPY_AGAIN)
    if why := why_no_device(recording):
        raise BadValue(f"{path} {why}", hint=RECORD)
    if device is not None and device not in kernels:
        raise BadValue(
            f"{path} holds no kernel of GPU {device}", hint=f"--device is one of {', '.join(map(str, sorted(kernels)))}"
        )
    if annotation and not recording.spans.waits:
        names = ", ".join(name for name, _ in recording.annotations.most_common(8))
        hint = f"it has {names}" if names else "wrap next() in torch.profiler.record_function(NAME)"
        raise BadValue(f"{path} has no span named {annotation!r}", hint=hint)
    chosen = kernels.most_common(1)[0][0] if device is None else device
    try:
        return _read(recording, chosen, batch_size)
    except LoaderprobeError as error:
        raise BadValue(f"{path}: {error.message}", hint=error.hint) from error


def _read(recording: Recording, device: int, batch_size: int | None) -> TraceRank:
    calls = [event for event in recording.events if not event.on_gpu]
    work = [event for event in recording.events if event.on_gpu and event.device == device]
    steps = _steps(recording, calls, work)
    timeline = _timeline(recording, work + calls, device, steps)
    attribution = attribute(timeline)
    count = len(steps.steps)
    gaps = attribution.gaps_of(count)
    use = use_of(timeline, gaps.window_ns)
    waits = recording.spans.waits
    ranks = recording.head.get("distributedInfo")
    steps_parts_s = recorded.parts_of_steps(attribution, steps.steps)
    gpu = _gpu(recording, device)
    return TraceRank(
        path=str(recording.path),
        rank=_whole(ranks, "rank"),
        world_size=_whole(ranks, "world_size"),
        gpu=str(gpu.get("name", ""))[:100],
        device=device,
        amd=_amd(recording),
        marked=steps.marked,
        steps_s=tuple((end - begin) / 1e9 for begin, end in steps.steps),
        bound=judged_by_gaps(gaps),
        gaps=gaps,
        steps_parts_s=steps_parts_s,
        free=recorded.free_of([gaps]),
        use=use,
        loader=Counter(wait.name for wait in waits).most_common(1)[0][0] if waits else "",
        wait_s=sum(end - begin for begin, end in attribution.waits) / count / 1e9 if waits else None,
        syncs=syncs_per_step(timeline, own=0),
        blocking=recorded.blocking_calls(timeline, attribution.parts["sync"], count),
        held=recorded.held_up(attribution.parts["launch"], recording.spans.long, steps.thread, count),
        batch_size=batch_size or recording.batch_size,
        notes=(
            *_notes(recording, timeline, steps, gaps.share("launch"), use.occupancy_estimated is None),
            *(_fed(steps_parts_s) if waits and "SingleProcess" not in waits[0].name else ()),
        ),
        view=recorded.coarse(timeline_view(timeline, attribution), min(MOST_COLUMNS, COLUMNS_A_STEP * count)),
    )


def _steps(recording: Recording, calls: Sequence[RawEvent], work: Sequence[RawEvent]) -> StepSpans:
    issued = {call.correlation: call.begin_ns for call in reversed(calls)}
    until_ns = recording.until_ns
    if recording.cut_off:
        # Behind the last record of either kind others are missing: records of a file are in the order of their time.
        lasts = (max((event.begin_ns for event in events), default=until_ns) for events in (calls, work))
        until_ns = min(until_ns, *lasts)
    launches = [call for call in calls if KERNEL_LAUNCH.match(call.name)]
    steps = recorded.step_spans(
        recording.spans,
        [HostSpan(call.name, call.resource, call.begin_ns, call.end_ns) for call in launches],
        [recorded.TracedWork(event.begin_ns, event.end_ns, issued.get(event.correlation)) for event in work],
        until_ns,
    )
    if steps.marked != "none" and len(steps.steps) == 1 and steps.steps[0][1] >= until_ns:
        if recording.complete:
            raise BadValue("the file ends before its first step does: it is cut off", hint=COPY_AGAIN)
        raise BadValue(f"its first {MOST_RECORDS:,} records end before its first step does", hint=SHORTER)
    return steps


def _timeline(recording: Recording, events: Sequence[RawEvent], device: int, steps: StepSpans) -> Timeline:
    begins = tuple(begin for begin, _ in steps.steps)
    waits = ((wait.begin_ns, wait.end_ns) for wait in recording.spans.waits if wait.thread == steps.thread)
    window = Window(
        begin_ns=begins[0],
        end_ns=steps.steps[-1][1],
        device=device,
        training_threads=frozenset() if steps.thread is None else frozenset({steps.thread}),
        limits=DeviceLimits.recorded(_gpu(recording, device)),
        waits=tuple(sorted(waits)),
        whole=False,
    )
    name = str(_gpu(recording, device).get("name", ""))
    return convert(events, window, device=name, steps=len(begins), batch_size=0, step_begin_ns=begins, plain_ns=0)


def _notes(
    recording: Recording, timeline: Timeline, steps: StepSpans, launch: float, no_occupancy: bool
) -> Iterable[Remark]:
    count, lost = float(len(steps.steps)), float(recorded.without_launch(timeline))
    times = [end - begin for begin, end in steps.steps]
    mean = fmean(times)
    doubts: dict[str, tuple[bool, Facts]] = {
        "no_loader_spans": (not recording.spans.waits, {}),
        "no_step_marks": (steps.marked == "none", {}),
        "few_steps": (steps.marked != "none" and count < FEW_STEPS, {"steps": count}),
        "first_steps_left_out": (steps.left_out > 0, {"steps": float(steps.left_out)}),
        "host_slowed_by_profiler": (launch > LEAST_IDLE, {}),
        "occupancy_not_known": (no_occupancy and not _amd(recording), {}),
        "occupancy_of_nvidia": (no_occupancy and _amd(recording), {}),
        "steps_vary": (any(abs(time - mean) > STEPS_VARY * mean for time in times), {}),
        "trace_cut_off": (recording.cut_off, {}),
        "trace_too_long": (not recording.complete, {"steps": count, "records": float(recording.records)}),
        "trace_unreadable": (recording.unreadable > 0, {"events": float(recording.unreadable)}),
        "launches_not_recorded": (lost > 0, {"kernels": lost}),
    }
    for code, (holds, facts) in doubts.items():
        if holds:
            yield Remark(code=code, facts=facts)
    for group in timeline.rejected:
        yield Remark(code="records_rejected", facts={"records": float(group.count), "because": group.reason})


def _fed(parts_s: Mapping[TimePart, Sequence[float]]) -> Iterable[Remark]:
    """That batches loaded ahead may hide a wait for input."""
    fed, count = recorded.fed_steps(parts_s), len(parts_s["input"])
    lost, whole = (sum(sum(parts_s[name][fed:]) for name in names) for names in (recorded.FREED["input"], parts_s))
    if fed == count and count < LOADED_AHEAD:
        yield Remark(code="perhaps_fed", facts={"steps": float(count)})
    elif 0 < fed < count and LEAST_IDLE * whole < lost < whole:
        facts = {"steps": float(fed), "next": fed + 1.0, "input_share": lost / whole, "speedup": whole / (whole - lost)}
        yield Remark(code="first_steps_fed", facts={**facts})


def _notes_of_all(ranks: Sequence[TraceRank]) -> Iterable[Remark]:
    """What no recording shows, and what is missing of the group."""
    yield Remark(code="workers_not_recorded")
    world = max(rank.world_size or 1 for rank in ranks)
    if len(ranks) < world and any(rank.gaps.communication_ns for rank in ranks):
        yield Remark(code="ranks_missing", facts={"given": float(len(ranks)), "ranks": float(world)})


def _gpu(recording: Recording, device: int) -> Mapping[str, Any]:
    listed = recording.head.get("deviceProperties")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return next((entry for entry in entries if entry.get("id") == device), {})


def _amd(recording: Recording) -> bool:
    return any(not event.on_gpu and event.name.startswith("hip") for event in recording.events)


def _whole(fields: Any, name: str) -> int | None:
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if type(value) is int and 0 <= value < 1 << 31 else None
