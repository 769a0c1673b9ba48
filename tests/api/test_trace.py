"""`trace`: figures of recordings with known times and of real ones, ranks, and doubts; which spans are steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import loaderprobe
from loaderprobe.analyze.trace import TracedWork, held_up, step_spans
from loaderprobe.api.trace import Trace
from loaderprobe.compute import trace_file
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.resources import TIME_PARTS, TimePart
from loaderprobe.records.trace import HostSpan, HostSpans, Named, TraceRank
from loaderprobe.render.charts import Chart
from tests.cli.invoke import invoke
from tests.examples.traces import FIXTURES, NEXT, Event, event, ranks, training, written


def ms(found: Trace | TraceRank) -> dict[str, float]:
    times = {part: found.gaps.seconds(part) for part in TIME_PARTS}
    return {part: round(1e3 * seconds, 2) for part, seconds in times.items() if seconds > 2e-5}


REAL: dict[str, tuple[str, str, float, dict[TimePart, float]]] = {
    "v100_2106_w0_a": (
        "input", "profiler_steps", 2,
        {"compute": 56.9, "input": 32.1, "launch": 8.4, "device": 1.3, "copy": 1.2, "sync": 0.2},
    ),
    "v100_2101_w4": (
        "host", "profiler_steps", 2,
        {"compute": 58.2, "launch": 37.1, "copy": 2.3, "device": 1.4, "input": 0.5, "sync": 0.4},
    ),
    "hta_diff_control": (
        "communication", "profiler_steps", 10,
        {"compute": 63.2, "communication": 18.8, "launch": 11.5, "copy": 4.0, "device": 2.0},
    ),
    "param_resnet": ("input", "batches", 2, {"compute": 44.0, "input": 45.4, "launch": 5.2, "copy": 5.1, "sync": 0.2}),
    "tl_h100_nsfw": ("host", "profiler_steps", 1, {"compute": 15.7, "launch": 79.0, "device": 3.3, "sync": 2.0}),
    "tl_mi300_ddp_resnet18": ("host", "optimizer_steps", 564, {"compute": 6.9, "sync": 93.0, "launch": 0.1}),
}  # fmt: skip
"""Of NVIDIA and AMD, from 2020 to 2026. By name: the cause, what marks steps, waits for the device a step (`.item()`, a
copy from pageable memory, AMD's hipMalloc and hipFree count once), and percent of the time as a reader that shares no
code with this one splits the same files."""


@pytest.mark.parametrize("name", REAL)
def test_real_recordings_have_their_cause(name: str) -> None:
    """Every moment goes to one part; all records are kept, and none is taken for the loader's."""
    cause, marked, syncs, percent = REAL[name]
    found = loaderprobe.trace(FIXTURES / f"{name}.json.gz")
    (rank,) = found.ranks
    assert (found.bound.cause, rank.marked, rank.syncs) == (cause, marked, syncs)
    assert (found.bound.gap == "sync") == rank.amd == (name == "tl_mi300_ddp_resnet18")
    shares = {part: 100 * found.gaps.share(part) for part in TIME_PARTS}
    # That reader has no `unknown`: what the device took after the call counts as the device's.
    shares["device"] += shares.pop("unknown")
    assert {part: shares[part] for part in percent} == pytest.approx(percent, abs=0.15)
    assert shares["loader"] == 0 and (shares["communication"] > 0) == (name == "hta_diff_control")
    assert not {"records_rejected", "launches_not_recorded"} & {note.code for note in rank.notes}
    assert sum(high - low for ranges in rank.view.parts.values() for low, high in ranges) == rank.view.window_ns
    # Of AMD's GPUs, and of that year, records have no registers.
    unknown = name in ("v100_2101_w4", "tl_mi300_ddp_resnet18")
    assert (found.use.occupancy_estimated is None) == unknown and found.use.occupancy_coverage == (not unknown)
    assert found.use.kernel_busy >= found.use.training_busy > 0


def test_parts_of_a_step_are_known(tmp_path: Path) -> None:
    """Input, kernels, communication alone and the host, each as long as it was made."""
    events = training(input_ms=6, compute_ms=10, communication_ms=3, host_ms=1)
    found = loaderprobe.trace(written(tmp_path / "t.json.gz", events))
    assert ms(found) == pytest.approx({"compute": 10, "communication": 3, "input": 6, "launch": 1}, abs=0.3)
    assert (found.bound.cause, found.bound.side) == ("input", "input")
    assert found.steps == 4 and found.step_s == pytest.approx(0.02, rel=0.02)
    free = {each.name: each for each in found.free}
    assert free["input"].step_s == pytest.approx(found.step_s - found.gaps.seconds("input"))
    assert found.ranks[0].wait_s == pytest.approx(0.006) and found.use.occupancy_estimated == pytest.approx(1)
    (rank,) = found.ranks
    whole = [sum(parts) for parts in zip(*rank.steps_parts_s.values(), strict=True)]
    assert whole == pytest.approx(rank.steps_s) and len(whole) == 4


def test_stacks_show_a_loader_without_annotations(tmp_path: Path) -> None:
    """Its line in torch's loader, and the function that held the host up."""
    name = "torch/utils/data/dataloader.py(701): __next__"
    events = training(input_ms=3, host_ms=8, loader="", function="/app/augment.py(3): mix")
    at = [each["ts"] for each in events if each["name"].startswith("ProfilerStep")]
    events += [event("python_function", name, begin, 3000) for begin in at]
    found = loaderprobe.trace(written(tmp_path / "t.json", events))
    assert ms(found)["input"] == pytest.approx(3, abs=0.1)
    assert found.ranks[0].held[0].name == "/app/augment.py(3): mix"
    assert found.ranks[0].held[0].seconds == pytest.approx(0.008, rel=0.3)


def test_the_others_wait_for_the_rank_that_communicates_least(tmp_path: Path) -> None:
    """A folder of ranks: a row each, in their order, and the one to look at."""
    found = loaderprobe.trace(ranks(tmp_path / "r"))
    assert [each.rank for each in found.ranks] == [0, 1, 2] and found.waited_for == 2
    seconds = [rank.gaps.seconds("communication") for rank in found.ranks]
    assert seconds == pytest.approx([0.004, 0.004, 0.001], abs=2e-5)
    assert found.gaps.seconds("communication") == pytest.approx(0.003, abs=2e-5)
    free = {each.name: each.step_s for each in found.free}
    assert free["communication"] == pytest.approx(0.013, abs=2e-5)
    assert "ranks_missing" in [note.code for note in loaderprobe.trace(tmp_path / "r" / "host_0.pt.trace.json").notes]
    said = " ".join(found.text().split())
    assert "14.0 ms: The GPU waits for other ranks" in said and "ms: The GPU computes nearly all the time" in said
    alike, apart = (loaderprobe.trace(ranks(tmp_path / str(each_ms), (each_ms,) * 3)) for each_ms in (3, 0))
    says = "no rank waits for another for long"
    assert alike.waited_for is None and says in " ".join(alike.text().split()) and says not in apart.text()
    assert found.html().count('<figure class="bars"') == 4 and len(found.to_frame()) == 3


def test_ranks_of_which_one_cannot_be_read(tmp_path: Path) -> None:
    """It is listed; where none is left, the first reason is the error."""
    folder = ranks(tmp_path / "r")
    (folder / "host_1.pt.trace.json").write_text("{}")
    found = loaderprobe.trace(folder)
    assert [each.rank for each in found.ranks] == [0, 2] and "has no traceEvents" in found.unread[0].reason
    for path in folder.iterdir():
        path.write_text("{}")
    with pytest.raises(BadValue, match=r"host_0.* has no traceEvents"):
        loaderprobe.trace(folder)
    with pytest.raises(BadValue, match="no recording is given"):
        loaderprobe.trace([])


def test_recordings_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """By their folders, where none says its rank."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "t.json", training(input_ms=6))
    document = loaderprobe.trace(tmp_path).document()
    (chart,) = (section.parts[0] for section in document.sections if section.title == "Ranks")
    assert isinstance(chart, Chart) and [row.label[-8:] for row in chart.rows] == ["a/t.json", "b/t.json"]


def test_a_plan_takes_the_rate_without_input(tmp_path: Path) -> None:
    """That is its upper end; without a batch size it is refused."""
    path = written(tmp_path / "t.json", training(input_ms=6))
    with pytest.raises(BadValue, match="how many images a step takes"):
        loaderprobe.plan(loaderprobe.trace(path))
    found = loaderprobe.trace(path, batch_size=20)
    planned = loaderprobe.plan(found, accelerators=1, utilization=1, mean_size="100kB")
    need = next(each for each in planned.needs if each.name == "read_bytes")
    assert need.at_most.value == pytest.approx(100e3 * 20 / 0.01, rel=0.01)
    assert need.at_utilization.high <= need.at_most.value
    assert planned.source.kind == "trace"
    assert loaderprobe.plan(found, kind="mlperf-h100").source.accelerator == "mlperf-h100"


def stepped(path: Path, inputs_ms: tuple[float, ...]) -> Trace:
    """A recording whose steps wait so long for input."""
    events: list[Event] = []
    for number, input_ms in enumerate(inputs_ms):
        begin_us = events[-1]["ts"] + events[-1]["dur"] if events else 1e6
        events += training(steps=1, input_ms=input_ms, first=number, begin_us=begin_us)
    return loaderprobe.trace(written(path, events))


FED = [
    ((0, 0, 0, 30, 0, 30), "first_steps_fed"),
    ((0, 0, 0, 0, 0, 0), "perhaps_fed"),
    ((0, 0, 30, 0, 0, 30), ""),
    ((0, 0, 0, 0, 5, 0, 0, 0, 0), ""),
    ((0,) * 40, ""),
]


@pytest.mark.parametrize(("inputs_ms", "code"), FED)
def test_batches_loaded_ahead_may_hide_input(inputs_ms: tuple[float, ...], code: str, tmp_path: Path) -> None:
    """Where the first steps alone do not wait, and in a short recording without any wait; else it is not said."""
    found = stepped(tmp_path / "t.json", inputs_ms)
    codes = {note.code for note in found.ranks[0].notes}
    assert codes & {"first_steps_fed", "perhaps_fed"} == ({code} if code else set())
    text = " ".join(found.text().split())
    assert "gains little" in text if len(inputs_ms) == 40 else not (code and "gains little" in text)
    if code == "first_steps_fed":
        assert "From step 4 on input and copies take 67 %. Without, it would be at most 3.00 times as fast" in text


def test_a_folder_without_permission_is_a_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, wherever the operating system refuses."""
    for name in ("is_dir", "exists"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, name, Mock(side_effect=PermissionError(13, "Permission denied")))
            with pytest.raises(MissingPart, match="cannot be read: Permission denied"):
                loaderprobe.trace(tmp_path / "t.json")


def cut(path: Path, events: list[Event]) -> Path:
    """A file that ends within the list of these events."""
    whole = written(path, events).read_text()
    path.write_text(whole[: whole.rindex("]")])
    return path


def test_a_step_that_was_cut_off_is_no_step(tmp_path: Path) -> None:
    """Its records are missing; where none is whole, or no kernel is on record, that is the error."""
    events = training(steps=4, input_ms=2)
    gpu = [each for each in events if each["cat"] != "user_annotation"]
    host = [each for each in events if each["cat"] == "user_annotation"]
    found = loaderprobe.trace(cut(tmp_path / "t.json", [*host, *gpu[:6]]))
    assert found.steps == 2 and found.step_s == pytest.approx(0.012, rel=0.01)
    assert "trace_cut_off" in [note.code for note in found.ranks[0].notes]
    for kept, says in ((2, "ends before its first step does"), (1, "ends before its first kernel")):
        with pytest.raises(BadValue, match=says) as caught:
            loaderprobe.trace(cut(tmp_path / "u.json", [*host, *gpu[:kept]]))
        assert "copy it again" in caught.value.hint


@pytest.mark.parametrize("mark_us", [1e6, 1.03e6])
def test_a_step_beyond_the_records_is_refused(mark_us: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has too many of them, or begins behind them: what is kept of it says nothing."""
    monkeypatch.setattr(trace_file, "MOST_RECORDS", 2)
    records = [each for each in training(steps=3, host_ms=5, loader="") if each["cat"] != "user_annotation"]
    path = written(tmp_path / "t.json", [*records, event("user_annotation", "ProfilerStep#0", mark_us, 1e5)])
    with pytest.raises(BadValue, match="records end before its first step does") as caught:
        loaderprobe.trace(path)
    assert "begin with a step" in caught.value.hint


def test_steps_that_vary_and_a_loader_without_workers_are_noted(tmp_path: Path) -> None:
    """As doubts, each where it holds; sentences are there in Python, as in JSON."""
    for inputs_ms, varies in (((1, 30, 1, 30), True), ((5, 5, 5, 5), False)):
        found = stepped(tmp_path / "t.json", inputs_ms)
        assert ("vary" in found.text()) == varies
    for kind, alone in (("Single", True), ("Multi", False)):
        events = training(input_ms=6, loader=NEXT.replace("Multi", kind))
        found = loaderprobe.trace(written(tmp_path / "t.json", events))
        assert ("num_workers=0" in found.text()) == alone
    one, two = (written(tmp_path / f"{steps}.json", training(steps=steps, input_ms=6)) for steps in (2, 8))
    assert "  2.json: only 2 steps" in loaderprobe.trace([one, two]).text()
    assert found.bound.sentence == found.ranks[0].bound.sentence != "" and all(note.sentence for note in found.notes)


def test_a_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    """Instead of the text but its first line; beside a kept result it hides none. An unreadable one has exit code 4."""
    page = tmp_path / "page.html"
    done = invoke("trace", written(tmp_path / "t.json"), tmp_path / "none.json", "--quiet", "--html", page)
    assert done.exit_code == 4 and "Trace:" in done.stdout and "<svg" in page.read_text()
    alone = invoke("trace", tmp_path / "t.json", "--quiet", "--html", page).stdout.splitlines()
    assert len(alone) == 2 and alone[1] == f"Trace: {page}"
    beside = invoke("trace", tmp_path / "t.json", "--quiet", "--html", page, "--out", tmp_path / "found").stdout
    assert invoke("report", tmp_path / "found").stdout in beside and "Trace:" in beside and "Report:" in beside


MS = 1_000_000


def span(name: str, begin_ms: float, end_ms: float, thread: int = 1) -> HostSpan:
    return HostSpan(name, thread, round(begin_ms * MS), round(end_ms * MS))


def each_ms(*begins: float) -> tuple[list[HostSpan], list[TracedWork]]:
    """A launch in each, with a kernel of 1 ms right behind it."""
    calls = [span("cudaLaunchKernel", at, at + 0.005) for at in begins]
    return calls, [TracedWork(each.end_ns, each.end_ns + MS, each.begin_ns) for each in calls]


MARKS = HostSpans(steps=[span(f"ProfilerStep#{n}", 10 * n, 10 * n + 10) for n in range(4)])
ASKED = HostSpans(waits=[span("next", 10 * n, 10 * n + 1) for n in range(4)])
BEGINS = (2, 12, 22, 32)


OPTIMIZER = HostSpans(optimizer=[span("Optimizer.step#SGD", 10 * n + 8, 10 * n + 9) for n in range(4)])
SLOW_FIRST = HostSpans(steps=[span("ProfilerStep#0", 0, 100), *(span("P", 100 + n, 101 + n) for n in range(5))])
# Spans, begins of the work and the last ms that is kept; the mark, the begins of the steps, and how many are left out.
MARKED: dict[str, tuple[HostSpans, tuple[int, ...], float, tuple[str, list[float], int]]] = {
    "marks of the profiler come first": (
        replace(MARKS, waits=ASKED.waits), BEGINS, 1e6, ("profiler_steps", [0, 10, 20, 30], 0),
    ),
    "unless each holds several batches": (
        replace(ASKED, steps=[span("ProfilerStep#0", 0, 40)]), BEGINS, 1e6, ("batches", [0, 10, 20, 30], 0),
    ),
    "the next() that ends an epoch is no step": (
        replace(ASKED, waits=[*ASKED.waits, span("next", 33.9, 34)]), BEGINS, 1e6, ("batches", [0, 10, 20, 30], 0),
    ),
    "of several loaders in a step the first wait begins it": (
        replace(ASKED, waits=[*ASKED.waits, *(span("next", 10 * n + 1, 10 * n + 1.5) for n in range(4))]),
        BEGINS, 1e6, ("batches", [0, 10, 20, 30], 0),
    ),
    "and they are no several batches of a mark": (
        replace(MARKS, waits=[span("next", at, at + 1) for n in range(4) for at in (10 * n, 10 * n + 1)]),
        BEGINS, 1e6, ("profiler_steps", [0, 10, 20, 30], 0),
    ),
    "then the optimizer": (OPTIMIZER, BEGINS, 1e6, ("optimizer_steps", [9, 19, 29], 0)),
    "or nothing": (HostSpans(), BEGINS, 1e6, ("none", [2.005], 0)),
    # Compiling and filling caches are no training; at most half of the steps are.
    "slow first steps are left out": (
        SLOW_FIRST, (50, 100, 101, 102, 103, 104), 1e6, ("profiler_steps", [100, 101, 102, 103, 104], 1),
    ),
    "of a recording that is too long whole steps count": (MARKS, BEGINS, 25, ("profiler_steps", [0, 10], 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", MARKED)
def test_marks_batches_or_the_optimizer_are_steps(name: str) -> None:
    """In that order."""
    spans, begins, until_ms, expected = MARKED[name]
    found = step_spans(spans, *each_ms(*begins), round(until_ms * MS))
    assert found.steps[0][0] < found.steps[-1][1]
    assert (found.marked, [begin / MS for begin, _ in found.steps], found.left_out) == expected


@pytest.mark.parametrize(
    ("functions", "named"),
    [
        ([span("outer", 0, 20), span("inner", 1, 9), span("other", 1, 9, thread=2)], "inner"),
        ([span("outer", 0, 20), span("short", 1, 5)], "outer"),
        ([span("other", 0, 20, thread=2)], "?"),
        ([], "?"),
    ],
)
def test_the_innermost_function_held_the_host_up(functions: list[HostSpan], named: str) -> None:
    """Of the thread that trains, if it covers most of the gap; short gaps have none."""
    gaps = ((1 * MS, 9 * MS), (12 * MS, 12 * MS + 1000))
    assert held_up(gaps, functions, 1, 2) == (
        Named(name=named, seconds=0.004), Named(name="", seconds=0.0000005),
    )  # fmt: skip


def test_many_functions_at_once_take_little_time() -> None:
    """A file of 100,000 functions that are all open at once is no reason to hang."""
    functions = [span(f"f{n}", n * 1e-3, 1e6 + n) for n in range(20_000)]
    gaps = tuple((n * 20 * MS, n * 20 * MS + 10 * MS) for n in range(1, 200))
    assert sum(each.seconds for each in held_up(gaps, functions, 1, 1)) <= 0.01 * 199
