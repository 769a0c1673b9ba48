"""Recordings as a page: the estimated verdict, ms a step by cause, a timeline of each rank, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from loaderprobe.analyze.trace import FREED
from loaderprobe.records.resources import MOMENTS
from loaderprobe.records.trace import MarkName, Named, TraceRank, TraceReport
from loaderprobe.records.verdict import TIME_PARTS, GapVerdict, TimePart
from loaderprobe.render.document import Command, Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.format import counted, first_upper, percent, times_as_fast, visible
from loaderprobe.render.gpu import common_length_ns, legend_of, occupancy_words, timeline_chart
from loaderprobe.render.rows import as_columns, own_cells
from loaderprobe.render.words import remark_words
from loaderprobe.units import join_words, significant

BAR = 20
SHOWN_RANKS = 32
"""Timelines and rows of a table: of more ranks, those that communicate least and most."""
LONGEST_NAME = 60
WORTH_A_WORD = 0.02
"""Of a step."""
FREE_WORDS = {"input": "input and copies", "copy": "copies", "host": "the host", "communication": "communication"}
_MARKED: dict[MarkName, str] = {
    "profiler_steps": "marks of the profiler",
    "batches": "batches asked for",
    "optimizer_steps": "steps of the optimizer",
    "none": "no mark: all of the recording is one window",
}
_HEADINGS = {
    "input": "input-bound",
    "copy": "input-bound by copies to the GPU",
    "host": "limited by the host",
    "sync": "limited by the host, which waits for the GPU",
    "communication": "limited by communication",
    "compute": "compute-bound",
    "inconclusive": "the limit is not known",
}
_SENTENCES = {
    "input": "The GPU waits for input.",
    "copy": "The GPU waits for batches that are copied from the host.",
    "host": "The GPU waits for the host, which launches its kernels late.",
    "sync": "The host stops to wait for the GPU, and then the GPU waits for the host.",
    "communication": "The GPU exchanges data with other ranks, or waits for them, and does nothing else.",
    "compute": "The GPU runs kernels of the training nearly all of the time.",
    "inconclusive": "What the GPU waits for is not on record.",
}
_ADVICE: dict[str, str] = {
    "host": "less work for the host: torch.compile, CUDA graphs, a fused optimizer, larger batches",
    "sync": "fewer waits for the GPU: no .item() or print of a loss in each step",
    "communication": "give the recordings of all ranks: the rank that communicates least is the one to look at",
    "compute": "faster kernels: lower precision, torch.compile, channels_last",
}
_FREES = {"cudaFree": "PYTORCH_NO_CUDA_MEMORY_CACHING", "hipFree": "PYTORCH_NO_HIP_MEMORY_CACHING"}
ESTIMATED = "Everything here is estimated from a recording. Under a profiler the host is slower than without one."
LETTERS = "Letters in brackets name the areas of the timelines (--html)."
NOT_SPLIT = (
    "A recording holds nothing of the loader's workers, so input is not split into storage, preprocessing and "
    "transport. What splits it, where the training runs:"
)
NO_SPAN = "No span of a loader is on record, so input cannot be separated from the host."
SPAN = (
    'To see the input: put with torch.profiler.record_function("load"): around next(), record again, and give '
    "--annotation load."
)


def _cause(bound: GapVerdict) -> str:
    """`sync` of a host that mostly waits for the GPU; else the cause."""
    return "sync" if bound.gap == "sync" else bound.cause


def bound_sentence(bound: GapVerdict) -> str:
    """The verdict in a sentence, without figures."""
    if bound.cause == "either":
        return f"{_names(bound)} take about as much of a step.".capitalize()
    return _SENTENCES[_cause(bound)]


def bound_heading(bound: GapVerdict) -> str:
    """`input-bound (estimated)`."""
    return f"{_HEADINGS.get(_cause(bound)) or f'limited by {_names(bound)} alike'} (estimated)"


def _names(bound: GapVerdict) -> str:
    return join_words([FREE_WORDS[name].removesuffix(" and copies") for name in bound.candidates])


def trace_document(found: TraceReport) -> Document:
    """The estimated verdict, where a step's time goes, what held the host up, the ranks, doubts, what to do next."""
    first = found.ranks[0]
    ranks = f"{len(found.ranks)} recordings, " if len(found.ranks) > 1 else ""
    gpu = f"{first.gpu or 'GPU (not named)'}, {ranks}"
    title = f"{gpu}{counted(found.steps, 'step')} of {_span(found)}: {bound_heading(found.bound)}"
    sections = [
        Section(parts=tuple(_answer(found))),
        Section(title="Where a step's time goes", name="time", parts=(_parts(found), Paragraph(text=LETTERS))),
        Section(title="If it cost nothing", parts=tuple(_free(found))),
        Section(title="What held the host up", parts=tuple(_host(found))),
        *([Section(title="Ranks", name="ranks", parts=tuple(_ranks(found)))] if len(found.ranks) > 1 else []),
        Section(title="Doubts", parts=tuple(_doubts(found))),
        Section(title="Do next", parts=tuple(_next(found))),
    ]
    return Document(title=title, sections=tuple(section for section in sections if section.parts))


def trace_columns(found: TraceReport) -> dict[str, list[Any]]:
    """One row a recording; units in the names."""
    return as_columns([_row(rank) for rank in found.ranks])


def trace_exhibits(found: TraceReport) -> dict[str, tuple[Exhibit, ...]]:
    """A typical stretch of each rank, and all of a single one, in the section of the times."""
    shown = _shown(found)
    length_ns = common_length_ns([rank.view for rank in shown])
    figures = [(f"{_name(rank)}: {bound_heading(rank.bound)}", rank, length_ns) for rank in shown]
    if len(shown) == 1 and length_ns < shown[0].view.window_ns:
        figures.append((f"all of it: {counted(found.steps, 'step')}", shown[0], shown[0].view.window_ns))
    more = len(found.ranks) - len(shown)
    timelines = Exhibit(
        title="Over time",
        text=f"A typical stretch{', and all of the recording' if len(figures) > len(shown) else ''}. Ticks above are "
        "begins of steps. The thin rows show the training thread inside next() and copies to the GPU: what of them "
        f"overlaps with kernels costs nothing.{f' {more} other ranks are left out.' if more else ''}",
        figures=tuple(
            (f"GPU timeline of {title}", timeline_chart(rank.view, title, span_ns)) for title, rank, span_ns in figures
        ),
        legend=legend_of(part for part in TIME_PARTS if any(part in rank.view.parts for rank in shown)),
    )
    return {"time": (timelines,)}


def _answer(found: TraceReport) -> Iterator[Part]:
    if found.waited_for is not None:
        slow = found.ranks[found.waited_for]
        least_s = slow.gaps.seconds("communication")
        more_s = max(rank.gaps.seconds("communication") for rank in found.ranks) - least_s
        yield Paragraph(
            text=f"The others wait for {_name(slow)}: it spends {_ms(least_s)} ms a step in communication alone, "
            f"another up to {_ms(more_s)} ms more. By itself it is {bound_heading(slow.bound)}.",
            strong=True,
        )
    yield Paragraph(text=f"{bound_sentence(found.bound)} {_figures(found)}".strip(), strong=True)
    found_by = {_MARKED[each.marked]: None for each in found.ranks if each.marked != "none"}
    steps = f" Steps are found by {join_words(list(found_by))}." if found_by else ""
    yield Paragraph(text=f"{_use(found)}, estimated from the kernels' grids. {ESTIMATED}{steps}")
    if not all(each.loader for each in found.ranks):
        yield Paragraph(text=NO_SPAN)


def _span(found: TraceReport) -> str:
    """`178 ms`, the mean; `116 to 1076 ms (mean 819)` where steps vary."""
    every = [step_s for rank in found.ranks for step_s in rank.steps_s]
    if not any(note.code == "steps_vary" for rank in found.ranks for note in rank.notes):
        return f"{_ms(found.step_s)} ms"
    return f"{_ms(min(every))} to {_ms(max(every))} ms (mean {_ms(found.step_s)})"


def _use(found: TraceReport) -> str:
    """`GPU busy 56 %, SM efficiency 55 %, occupancy 49 %`."""
    use = found.use
    return (
        f"GPU busy {percent(use.kernel_busy)}, SM efficiency {percent(use.sm_efficiency_estimated)}, occupancy "
        f"{occupancy_words(use)}"
    )


def _figures(found: TraceReport) -> str:
    """The share of what limits, and how much faster a step would be at most."""
    # Copies limit as a part of the input.
    names = ["input" if name == "copy" else name for name in found.bound.candidates or (found.bound.cause,)]
    said = []
    step = "the step of the slowest rank" if len(found.ranks) > 1 else "a step"
    for free in (each for name in names for each in found.free if each.name == name):
        take = "take" if free.name == "input" else "takes"
        share = found.gaps.share(*FREED[free.name])
        said.append(
            f"{first_upper(FREE_WORDS[free.name])} {take} {percent(share)} of a step (estimated). Without, {step} "
            f"would take {_ms(free.step_s)} ms instead of {_ms(found.step_s)}: "
            f"{times_as_fast(free.speedup, 'at most ')}."
        )
    if found.bound.cause == "compute":
        said.append(f"Kernels run {percent(found.use.kernel_busy)} of the time (estimated).")
    return " ".join(said)


def _parts(found: TraceReport) -> Table:
    shares = {part: found.gaps.share(part) for part in TIME_PARTS if found.gaps.of(part)}
    lines = [
        (
            f"{MOMENTS[part].moment} ({MOMENTS[part].letter})",
            _ms(found.gaps.seconds(part)),
            f"{100 * share:4.1f} % {'█' * round(BAR * share / max(shares.values()))}",
        )
        for part, share in shares.items()
    ]
    lines.append(("a step", _ms(found.step_s), " 100 %"))
    return Table(head=("", "ms a step", "share"), lines=tuple(lines), right=frozenset({1}))


def _free(found: TraceReport) -> Iterator[Part]:
    lines = tuple(
        (FREE_WORDS[each.name], _ms(each.step_s), f"at most {significant(each.speedup)}x")
        for each in found.free
        if each.speedup > 1 + WORTH_A_WORD / 4
    )
    if lines:
        yield Table(head=("without", "ms a step, at least", "as fast"), lines=lines, right=frozenset({1, 2}))
        if len(found.ranks) > 1:
            yield Paragraph(text="These are steps of the slowest rank; shares above are means of all ranks.")
        yield Paragraph(
            text="Upper bounds: what is taken from one cause may go to another, as workers take cores from the host."
        )


def _host(found: TraceReport) -> Iterator[Part]:
    rank = found.ranks[found.waited_for or 0]
    whose = f" ({_name(rank)})" if len(found.ranks) > 1 else ""
    least = WORTH_A_WORD * rank.step_s / 4
    stops = [each for each in rank.blocking if each.seconds > least]
    if stops:
        calls = "; ".join(f"{_short(stop.name)} {_ms(stop.seconds)} ms, {_calls(stop)}" for stop in stops)
        yield Item(subject=f"Calls that waited for the GPU{whose}", text=f"{calls}.")
    short = next((each for each in rank.held if each.name == "" and each.seconds > least), None)
    if short:
        yield Item(
            subject=f"Many short gaps (under 2 ms){whose}",
            text=f"{_ms(short.seconds)} ms a step: small kernels, launched one by one.",
        )
    held = [each for each in rank.held if each.name and each.seconds > least]
    if held:
        yield Item(
            subject=f"While the GPU was idle the host was in{whose}",
            text="; ".join(f"{_function(each.name)} {_ms(each.seconds)} ms a step" for each in held) + ".",
        )
    if rank.wait_s:
        yield Item(
            subject=f"Inside next() of {_loader(rank)}{whose}",
            text=f"{_ms(rank.wait_s)} ms a step, of which the GPU was idle for {_ms(rank.gaps.seconds('input'))} ms.",
        )


def _calls(each: Named) -> str:
    return f"{significant(each.count, 2)} a step"


def _function(name: str) -> str:
    return "no function on record (with_stack=True records them)," if name == "?" else _short(name)


def _short(name: str) -> str:
    plain = visible(name).replace("\n", " ")
    return plain if len(plain) <= LONGEST_NAME else f"…{plain[-LONGEST_NAME:]}"


def _loader(rank: TraceRank) -> str:
    return _short(rank.loader.removeprefix("enumerate(DataLoader)#_").removesuffix(".__next__"))


def _name(rank: TraceRank) -> str:
    return f"rank {rank.rank}" if rank.rank is not None else _short(PurePath(rank.path).name)


def _shown(found: TraceReport) -> tuple[TraceRank, ...]:
    """The ranks that are listed."""
    if len(found.ranks) <= SHOWN_RANKS:
        return found.ranks
    ordered = sorted(found.ranks, key=lambda rank: rank.gaps.communication_ns / rank.steps)
    half = SHOWN_RANKS // 2
    kept = {id(each) for each in (*ordered[:half], *ordered[-half:])}
    return tuple(each for each in found.ranks if id(each) in kept)


def _ranks(found: TraceReport) -> Iterator[Part]:
    names = [_name(each) for each in found.ranks]
    twice = {name for name in names if names.count(name) > 1}
    lines = tuple(
        (
            f"{_name(each)}, {_short(PurePath(each.path).name)}" if _name(each) in twice else _name(each),
            _ms(each.step_s),
            _cause(each.bound),
            *(f"{100 * each.gaps.share(*gaps):.0f} %" for gaps in _COLUMN_GAPS.values()),
        )
        for each in _shown(found)
    )
    yield Table(
        head=("rank", "ms a step", "limit", *_COLUMN_GAPS), lines=lines, right=frozenset({1, 3, 4, 5, 6}),
    )  # fmt: skip
    more = len(found.ranks) - len(lines)
    if more:
        yield Paragraph(text=f"{more} ranks are left out: those that communicate least and most are shown.")
    if found.waited_for is None and all(rank.gaps.communication_ns for rank in found.ranks):
        yield Paragraph(text="All ranks spend about as much time in communication: none waits for another for long.")


_COLUMN_GAPS: Mapping[str, tuple[TimePart, ...]] = {
    "compute": ("compute",), "comm.": FREED["communication"], "input": FREED["input"], "host": FREED["host"],
}  # fmt: skip


def _doubts(found: TraceReport) -> Iterator[Part]:
    """Each once, with the ranks that it is of where those are not all."""
    # Without any, the first lines say it.
    some_span = any(each.loader for each in found.ranks)
    of: dict[str, list[TraceRank]] = {}
    for rank in found.ranks:
        for note in (each for each in rank.notes if each.code != "no_loader_spans" or some_span):
            of.setdefault(remark_words(note), []).append(rank)
    for text, ranks in of.items():
        if len(ranks) < len(found.ranks):
            more = f" and {len(ranks) - 3} more" if len(ranks) > 4 else ""
            named = join_words([_name(each) for each in (ranks[:3] if more else ranks)])
            named = named if ranks[0].rank is None else first_upper(named)
            yield Item(subject=f"{named}{more}", text=f"{text}.")
        else:
            yield Item(subject=f"{first_upper(text)}.", text="")
    for note in found.notes:
        if note.code != "workers_not_recorded":
            yield Item(subject=f"{first_upper(remark_words(note))}.", text="")
    for each in found.unread:
        yield Item(subject="Not read", text=each.reason)


def _next(found: TraceReport) -> Iterator[Part]:
    """What to change or to run, by the cause."""
    rank = found.ranks[found.waited_for or 0]
    bound = found.bound if found.waited_for is None else rank.bound
    sides = bound.candidates or (_cause(bound),)
    if {"input", "copy"} & {*sides} and "SingleProcess" in rank.loader:
        yield Paragraph(
            text="The training loads its batches itself (num_workers=0): try DataLoader(num_workers=4) first."
        )
    freed = [each for each in rank.blocking if each.name in _FREES and each.count >= 1]
    for each in freed:
        yield Paragraph(
            text=f"{each.name} {_calls(each)}: memory of the GPU runs out, or {_FREES[each.name]} is set. Each call "
            "waits for the GPU."
        )
    for side in sides:
        if side == "sync" and freed:
            continue
        if side in _ADVICE and not (side == "communication" and len(found.ranks) > 1):
            hidden = any(note.code in ("perhaps_fed", "first_steps_fed") for each in found.ranks for note in each.notes)
            gain = " A faster loader gains little." if side == "compute" and not hidden else ""
            yield Paragraph(text=f"{first_upper(_ADVICE[side])}.{gain}")
    pageable_s = rank.gaps.pageable_ns / rank.steps / 1e9
    if pageable_s > WORTH_A_WORD * rank.step_s:
        yield Paragraph(
            text=f"Pinned memory: copies from pageable memory take {_ms(pageable_s)} ms a step. "
            "DataLoader(pin_memory=True) and .to(device, non_blocking=True) hide them."
        )
    if not all(each.loader for each in found.ranks):
        yield Paragraph(text=SPAN)
    yield Paragraph(text=NOT_SPLIT)
    for command in commands(found):
        yield Command(text=command)


def commands(found: TraceReport) -> tuple[str, ...]:
    """What splits the input: the script itself, and the loader beside an accelerator as fast as this one without it."""
    rank = found.ranks[0]
    ranks = max(len(found.ranks), rank.world_size or 1)
    start = f"torchrun --nproc-per-node {min(ranks, 8)} train.py" if ranks > 1 else "python train.py"
    options = [f"--ranks {ranks}" if ranks > 1 else "", f"--batch-size {rank.batch_size}" if rank.batch_size else ""]
    if rate := images_per_s(rank):
        options.insert(0, f"--compute emulated:{rate:.0f}")
    workers = "--workers 0,2,4,8" if "SingleProcess" in rank.loader else "--workers 2,4,8"
    sweep = " ".join(option for option in ("loaderprobe sweep IMAGES", *options, workers) if option)
    return f"loaderprobe run -- {start}", sweep


def images_per_s(rank: TraceRank) -> float | None:
    """Images/s of one rank if input cost nothing, at most; None where the batch size is not known."""
    if not rank.batch_size:
        return None
    free_s = next((each.step_s for each in rank.free if each.name == "input"), rank.step_s)
    return rank.batch_size / free_s


def _row(rank: TraceRank) -> dict[str, Any]:
    return {
        **own_cells(rank, "path", "rank", "gpu", "device", "steps"),
        "marked": _MARKED[rank.marked],
        "step_s": rank.step_s,
        **own_cells(rank.bound, "side", "cause", "gap", "how"),
        **{f"{part}_s": rank.gaps.seconds(part) for part in TIME_PARTS},
        "busy_fraction": rank.use.kernel_busy,
        "sm_efficiency": rank.use.sm_efficiency_estimated,
        "occupancy": rank.use.occupancy_estimated,
        "occupancy_coverage": rank.use.occupancy_coverage,
        **own_cells(rank, "wait_s", "syncs"),
    }


def _ms(seconds: float) -> str:
    return significant(seconds * 1e3)
