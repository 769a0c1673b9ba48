"""The steps of a recording, the estimated verdict, and who held the host up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.trace import TracedWork, free_of, held_up, step_spans
from loaderprobe.records.resources import TIME_PARTS
from loaderprobe.records.trace import HostSpan, HostSpans, Named
from loaderprobe.records.verdict import Gaps

MS = 1_000_000


def test_a_step_without_a_side_is_a_bound() -> None:
    """Input with copies and the loader's kernels, copies alone, the host, communication; nothing that takes nothing."""
    parts = dict.fromkeys([f"{part}_ns" for part in TIME_PARTS], 0)
    parts |= {"compute_ns": 100, "input_ns": 40, "copy_ns": 10, "launch_ns": 50}
    found = {each.name: each for each in free_of([Gaps(steps=2, window_ns=200, pageable_ns=0, **parts)])}
    assert found.keys() == {"input", "copy", "host"}
    assert (found["input"].step_s, found["input"].speedup) == pytest.approx((75e-9, 4 / 3))
    assert found["copy"].speedup == pytest.approx(1 / 0.95)


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
