"""`trace`: figures of recordings with known times and of real ones, ranks, doubts, and hostile files on a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.api.trace import Trace
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records.trace import TraceRank
from tests.examples.traces import FIXTURES, NEXT, event, ranks, training, written


def ms(found: Trace | TraceRank) -> dict[str, float]:
    return {name: round(1e3 * seconds, 2) for name, seconds in found.parts_s.items() if seconds > 2e-5}


@pytest.mark.parametrize(
    ("name", "cause", "busy", "marked"),
    [
        ("v100_2106_w0_a", "input", 0.569, "profiler_steps"),
        ("v100_2101_w4", "host", 0.582, "profiler_steps"),
        ("hta_diff_control", "communication", 0.813, "profiler_steps"),
        ("param_resnet", "input", 0.44, "batches"),
        ("tl_h100_nsfw", "host", 0.157, "profiler_steps"),
        ("tl_mi300_ddp_resnet18", "sync", 0.069, "optimizer_steps"),
    ],
)
def test_real_recordings_have_their_cause(name: str, cause: str, busy: float, marked: str) -> None:
    """Of NVIDIA and AMD, from 2020 to 2026; every moment goes to one part."""
    found = loaderprobe.trace(FIXTURES / f"{name}.json.gz")
    (rank,) = found.ranks
    assert (found.bound.cause, rank.marked) == (cause, marked)
    assert found.busy_fraction == pytest.approx(busy, abs=0.01)
    assert sum(found.shares.values()) == pytest.approx(1, abs=1e-12)
    assert sum(found.parts_s.values()) == pytest.approx(found.step_s, rel=1e-9)
    assert sum(rank.strip.columns) == 1000
    assert (found.occupancy is None) == (name in ("v100_2101_w4", "tl_mi300_ddp_resnet18"))


def test_parts_of_a_step_are_known(tmp_path: Path) -> None:
    """Input, kernels, communication alone and the host, each as long as it was made."""
    events = training(input_ms=6, compute_ms=10, communication_ms=3, host_ms=1)
    found = loaderprobe.trace(written(tmp_path / "t.json.gz", events))
    assert ms(found) == pytest.approx({"compute": 10, "communication": 3, "input": 6, "launch": 1}, abs=0.3)
    assert (found.bound.cause, found.bound.side) == ("input", "input")
    assert found.steps == 4 and found.step_s == pytest.approx(0.02, rel=0.02)
    free = {each.name: each for each in found.free}
    assert free["input"].step_s == pytest.approx(found.step_s - found.parts_s["input"])
    assert found.ranks[0].wait_s == pytest.approx(0.006) and found.occupancy == pytest.approx(1)
    assert "at most" in found.text() and "estimated" in found.text()


def test_each_step_has_its_parts(tmp_path: Path) -> None:
    """They sum to the step from mark to mark."""
    (rank,) = loaderprobe.trace(written(tmp_path / "t.json", training(input_ms=2, host_ms=1))).ranks
    whole = [sum(part) for part in zip(*rank.steps_parts_s.values(), strict=True)]
    assert whole == pytest.approx(rank.steps_s) and len(whole) == 4


def test_without_spans_of_a_loader_it_says_so(tmp_path: Path) -> None:
    """What it waits for counts as the host's; an annotation of one's own helps, and the page says how."""
    events = training(input_ms=6, loader="")
    found = loaderprobe.trace(written(tmp_path / "t.json", events))
    assert "no_loader_spans" in [note.code for note in found.ranks[0].notes]
    assert (found.parts_s["input"], found.bound.cause) == (0, "host")
    text = " ".join(found.text().split())
    assert "input cannot be separated from the host" in text and "--annotation load" in text
    events = training(input_ms=6, loader="load")
    path = written(tmp_path / "u.json", events)
    found = loaderprobe.trace(path, annotation="load")
    assert found.bound.cause == "input" and found.ranks[0].notes == ()
    with pytest.raises(BadValue, match="no span named 'lead'") as caught:
        loaderprobe.trace(path, annotation="lead")
    assert "load" in caught.value.hint


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
    assert "/app/augment.py(3): mix" in found.text(width=200)


def test_calls_that_block_are_named(tmp_path: Path) -> None:
    """With what they took while the GPU was idle, and how often."""
    events = training(compute_ms=4, host_ms=0)
    ends = [each["ts"] + each["dur"] for each in events if each["name"].startswith("ProfilerStep")]
    events = [each for each in events if not each["name"].startswith("ProfilerStep")]
    for number, end in enumerate(ends):
        events = [each | {"ts": each["ts"] + 3000 * (each["ts"] >= end + 3000 * number)} for each in events]
        events.append(event("cuda_runtime", "cudaFree", end + 3000 * number, 2900, correlation=900 + number))
    found = loaderprobe.trace(written(tmp_path / "t.json", events))
    (call,) = found.ranks[0].blocking
    assert (call.name, found.bound.cause) == ("cudaFree", "sync") and call.count == pytest.approx(1, abs=0.3)


def test_the_others_wait_for_the_rank_that_communicates_least(tmp_path: Path) -> None:
    """A folder of ranks: a row each, in their order, and the one to look at."""
    found = loaderprobe.trace(ranks(tmp_path / "r"))
    assert [each.rank for each in found.ranks] == [0, 1, 2] and found.waited_for == 2
    assert [each.parts_s["communication"] for each in found.ranks] == pytest.approx([0.004, 0.004, 0.001], abs=2e-5)
    assert found.parts_s["communication"] == pytest.approx(0.003, abs=2e-5)
    free = {each.name: each.step_s for each in found.free}
    assert free["communication"] == pytest.approx(0.013, abs=2e-5)
    assert "ranks_missing" in [note.code for note in loaderprobe.trace(tmp_path / "r" / "host_0.pt.trace.json").notes]
    text = " ".join(found.text().split())
    assert "The others wait for rank 2" in text and "--ranks 3" in text and "--nproc-per-node 3" in text
    assert loaderprobe.trace(ranks(tmp_path / "s", (3, 3, 3))).waited_for is None


def test_ranks_of_which_one_cannot_be_read(tmp_path: Path) -> None:
    """It is listed; where none is left, the first reason is the error."""
    folder = ranks(tmp_path / "r")
    (folder / "host_1.pt.trace.json").write_text("{}")
    found = loaderprobe.trace(folder)
    assert [each.rank for each in found.ranks] == [0, 2] and "has no traceEvents" in found.unread[0].reason
    assert "Not read" in found.text()
    for path in folder.iterdir():
        path.write_text("{}")
    with pytest.raises(BadValue, match=r"host_0.* has no traceEvents"):
        loaderprobe.trace(folder)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([event("cpu_op", "aten::add", 1, 1)], "only the CPU was recorded"),
        ([event("mtia_ccp_events", "add", 1, 1)], "MTIA"),
    ],
)
def test_a_recording_without_a_gpu_is_refused(events: list[dict[str, object]], says: str, tmp_path: Path) -> None:
    """By name, with what to record."""
    with pytest.raises(BadValue, match=says):
        loaderprobe.trace(written(tmp_path / "t.json", events))


def test_the_gpu_with_most_kernels_or_the_one_that_is_named(tmp_path: Path) -> None:
    """A GPU without kernels is refused with the others."""
    path = written(tmp_path / "t.json")
    assert loaderprobe.trace(path, device=0).ranks[0].device == 0
    with pytest.raises(BadValue, match="no kernel of GPU 3") as caught:
        loaderprobe.trace(path, device=3)
    assert caught.value.hint == "--device is one of 0"


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """With what it should hold."""
    with pytest.raises(BadValue, match=r"no file in it ends with \.json"):
        loaderprobe.trace(tmp_path)
    with pytest.raises(BadValue, match="no recording is given"):
        loaderprobe.trace([])


def test_a_result_is_kept_and_shown_again(tmp_path: Path) -> None:
    """With its strips; in a notebook, too."""
    found = loaderprobe.trace(ranks(tmp_path / "r"))
    page = found.save(tmp_path / "out")
    again = Trace.load(tmp_path / "out")
    assert again.text() == found.text() and again.html() == page.read_text()
    assert page.read_text().count("<svg") == 3 and 'class="legend"' in page.read_text()
    assert "The others wait for rank 2" in found._repr_html_() and len(found.to_frame()) == 3
    assert json.loads(found.json())["bound"]["sentence"].startswith("The GPU exchanges data")


EVIL = '<script>alert(1)</script>"&\x1b[2J\u202e'


def test_names_never_reach_a_page_raw(tmp_path: Path) -> None:
    """Of kernels, loaders, functions, GPUs and files: no tag, no control character, in any format."""
    events = training(input_ms=6, host_ms=9, loader=EVIL, function=EVIL)
    for each in events:
        each["name"] = EVIL if each["name"] == "gemm" else each["name"]
    path = written(tmp_path / "<img src=x>.json", events, deviceProperties=[{"id": 0, "name": EVIL}])
    found = loaderprobe.trace(path, annotation=EVIL)
    for text in (found.html(), found._repr_html_(), found.markdown(), found.text()):
        assert "\x1b" not in text and "\u202e" not in text and "alert(1)" in text
    for page in (found.html(), found._repr_html_()):
        assert "<script" not in page and "<img" not in page


def test_two_recordings_compare(tmp_path: Path) -> None:
    """Cause by cause, the whole step first, with the verdict of each; the machine that read them does not matter."""
    before, after = (
        loaderprobe.trace(written(tmp_path / f"{n}.json", training(steps=8, input_ms=n, host_ms=h)))
        for n, h in ((9, 2), (0.5, 6))
    )
    after = replace(after, origin=replace(after.origin, environment=replace(after.origin.environment, cpu_model="x")))
    found = loaderprobe.compare(before, after)
    assert {row.subject.name: row.word for row in found.rows} == {
        "compute": "same", "input": "faster", "launch": "slower",
    }  # fmt: skip
    assert found.whole and found.whole.word == "faster" and found.whole.verdict_changed
    text = " ".join(found.text().split())
    assert "1 verdict changed: the whole step: input → compute: host" in text
    assert "waiting for input" in text and found.html()
    assert not loaderprobe.compare(before, after, fail_if_verdict_changes=True).passed
    before.save(tmp_path / "a")
    assert loaderprobe.compare(tmp_path / "a", after).rows == found.rows
    other = replace(after, ranks=tuple(replace(each, gpu="Another") for each in after.ranks))
    with pytest.raises(NotComparable, match="gpus"):
        loaderprobe.compare(before, other)


def test_a_plan_takes_the_rate_without_input(tmp_path: Path) -> None:
    """That is its upper end; without a batch size it is refused."""
    path = written(tmp_path / "t.json", training(input_ms=6))
    with pytest.raises(BadValue, match="how many images a step takes"):
        loaderprobe.plan(loaderprobe.trace(path))
    found = loaderprobe.trace(path, batch_size=20)
    planned = loaderprobe.plan(found, accelerators=1, utilization=1, mean_size="100kB")
    need = next(each for each in planned.needs if each.name == "read_bytes")
    assert need.at_most.value == pytest.approx(100e3 * 20 / 0.01, rel=0.01)
    assert planned.source.kind == "trace" and "From the recording" in planned.text()
    found.save(tmp_path / "out")
    assert loaderprobe.plan(tmp_path / "out").source.path == str(tmp_path / "out")
    assert loaderprobe.plan(found, kind="mlperf-h100").source.accelerator == "mlperf-h100"


def test_a_recording_that_is_too_long_is_shown_as_far_as_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says how much that is."""
    from loaderprobe.compute import trace_file

    monkeypatch.setattr(trace_file, "MOST_RECORDS", 100)
    found = loaderprobe.trace(written(tmp_path / "t.json", training(steps=300, input_ms=2)))
    assert 20 < found.steps < 60 and found.step_s == pytest.approx(0.012, rel=0.02)
    assert "trace_too_long" in [note.code for note in found.ranks[0].notes]
    assert "The file has 600 records: its first" in " ".join(found.text().split())


def test_the_loader_is_that_of_torch(tmp_path: Path) -> None:
    """By its annotation, whose name stands in the result."""
    assert loaderprobe.trace(written(tmp_path / "t.json")).ranks[0].loader == NEXT
