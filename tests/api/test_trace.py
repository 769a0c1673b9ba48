"""`trace`: figures of recordings with known times and of real ones, ranks, doubts, and hostile files on a page."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.api.trace import Trace
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.trace import TraceRank
from loaderprobe.records.verdict import TIME_PARTS, TimePart
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
    "param_resnet": (
        "input", "batches", 2, {"compute": 44.0, "input": 45.4, "launch": 5.2, "copy": 5.1, "sync": 0.2},
    ),
    "tl_h100_nsfw": (
        "host", "profiler_steps", 1, {"compute": 15.7, "launch": 79.0, "device": 3.3, "sync": 2.0},
    ),
    "tl_mi300_ddp_resnet18": (
        "host", "optimizer_steps", 564, {"compute": 6.9, "sync": 93.0, "launch": 0.1},
    ),
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
    assert (found.gaps.input_ns, found.bound.cause) == (0, "host")
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
    assert (call.name, found.bound.cause, found.bound.gap) == (
        "cudaFree",
        "host",
        "sync",
    ) and call.count == pytest.approx(1, abs=0.3)


def test_the_others_wait_for_the_rank_that_communicates_least(tmp_path: Path) -> None:
    """A folder of ranks: a row each, in their order, and the one to look at."""
    found = loaderprobe.trace(ranks(tmp_path / "r"))
    assert [each.rank for each in found.ranks] == [0, 1, 2] and found.waited_for == 2
    assert [rank.gaps.seconds("communication") for rank in found.ranks] == pytest.approx(
        [0.004, 0.004, 0.001], abs=2e-5
    )
    assert found.gaps.seconds("communication") == pytest.approx(0.003, abs=2e-5)
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


def test_the_gpu_with_most_kernels_or_the_one_that_is_named(tmp_path: Path) -> None:
    """A GPU without kernels is refused with the others."""
    path = written(tmp_path / "t.json")
    assert loaderprobe.trace(path, device=0).ranks[0].device == 0
    with pytest.raises(BadValue, match="no kernel of GPU 3") as caught:
        loaderprobe.trace(path, device=3)
    assert caught.value.hint == "--device is one of 0"


def test_no_recording_is_refused() -> None:
    """Where Python gives an empty list."""
    with pytest.raises(BadValue, match="no recording is given"):
        loaderprobe.trace([])


def test_a_result_is_kept_and_shown_again(tmp_path: Path) -> None:
    """With its timelines; in a notebook, too."""
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


def stepped(path: Path, inputs_ms: tuple[float, ...]) -> Trace:
    """A recording whose steps wait so long for input."""
    events: list[Event] = []
    for number, input_ms in enumerate(inputs_ms):
        begin_us = events[-1]["ts"] + events[-1]["dur"] if events else 1e6
        events += training(steps=1, input_ms=input_ms, first=number, begin_us=begin_us)
    return loaderprobe.trace(written(path, events))


@pytest.mark.parametrize(
    ("inputs_ms", "code", "says"),
    [
        ((0, 0, 0, 30, 0, 30), "first_steps_fed", "The first 3 steps did not wait for input: batches loaded ahead may"),
        ((0, 0, 0, 0, 0, 0), "perhaps_fed", "6 steps on record, where workers have loaded batches ahead"),
        ((0, 0, 30, 0, 0, 30), "", ""),
        ((0, 0, 0, 0, 5, 0, 0, 0, 0), "", ""),
        ((0,) * 40, "", "A faster loader gains little"),
    ],
)
def test_batches_loaded_ahead_may_hide_input(
    inputs_ms: tuple[float, ...], code: str, says: str, tmp_path: Path
) -> None:
    """Where the first steps alone do not wait, and in a short recording without any wait; else it is not said."""
    found = stepped(tmp_path / "t.json", inputs_ms)
    codes = {note.code for note in found.ranks[0].notes}
    assert codes & {"first_steps_fed", "perhaps_fed"} == ({code} if code else set())
    text = " ".join(found.text().split())
    assert says in text and not (code and "gains little" in text)
    if code == "first_steps_fed":
        assert "From step 4 on input and copies take 67 %. Without, it would be at most 3.00 times as fast" in text


@pytest.mark.parametrize(
    ("head", "loader", "says"),
    [
        ({"deviceProperties": [{"id": 0, "name": "Another"}]}, NEXT, r"GPU differs \(Test GPU, Another\)"),
        ({"distributedInfo": {"rank": 1, "world_size": 8}}, NEXT, r"number of ranks differs \(2, 8\)"),
        ({"distributedInfo": {"rank": 1, "world_size": 2}}, "train_dataloader_next", "loader differs"),
        ({"distributedInfo": {"rank": 0, "world_size": 2}}, NEXT, "both are of rank 0"),
    ],
)
def test_recordings_that_are_not_of_one_training_are_refused(
    head: dict[str, object], loader: str, says: str, tmp_path: Path
) -> None:
    """Their mean would be of nothing."""
    one = written(tmp_path / "a.json", distributedInfo={"rank": 0, "world_size": 2})
    two = written(tmp_path / "b.json", training(loader=loader), **head)
    if "distributedInfo" not in head:
        one = written(tmp_path / "a.json")
    with pytest.raises(BadValue, match=says) as caught:
        loaderprobe.trace([one, two])
    assert "by itself" in caught.value.hint


def test_that_ranks_wait_alike_is_said_of_ranks_that_communicate(tmp_path: Path) -> None:
    """Without communication nothing is said of it."""
    says = "All ranks spend about as much time in communication"
    assert says in " ".join(loaderprobe.trace(ranks(tmp_path / "r", (3, 3))).text().split())
    assert says not in " ".join(loaderprobe.trace(ranks(tmp_path / "s", (0, 0))).text().split())


def test_a_folder_without_permission_is_a_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, wherever the operating system refuses."""

    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("is_dir", "exists"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, name, refused)
            with pytest.raises(MissingPart, match="cannot be read: Permission denied"):
                loaderprobe.trace(tmp_path / "t.json")


def cut(path: Path, events: list[Event]) -> Path:
    """A file that ends within the list of these events, marks and spans of the host first as torch writes them."""
    host = [each for each in events if each["cat"] == "user_annotation"]
    whole = written(path, [*host, *(each for each in events if each["cat"] != "user_annotation")]).read_text()
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


def test_steps_that_vary_are_shown_as_a_range(tmp_path: Path) -> None:
    """With their mean and a doubt; others by their mean alone. What marks steps is said."""
    text = " ".join(stepped(tmp_path / "t.json", (1, 30, 1, 30)).text().split())
    assert "4 steps of 11.0 to 40.0 ms (mean 25.5)" in text and "Steps vary by more than 20 %" in text
    text = " ".join(stepped(tmp_path / "u.json", (5, 5, 5, 5)).text().split())
    assert "4 steps of 15.0 ms:" in text and "vary" not in text
    assert "Steps are found by marks of the profiler." in text


def test_advice_fits_what_is_on_record(tmp_path: Path) -> None:
    """Of a training that loads by itself, and of one whose memory is given back in each step; never both causes."""
    alone = training(input_ms=6, loader=NEXT.replace("Multi", "Single"))
    text = " ".join(loaderprobe.trace(written(tmp_path / "t.json", alone)).text().split())
    assert "Do next The training loads its batches itself (num_workers=0): try DataLoader(num_workers=4)" in text
    assert "num_workers=0" not in loaderprobe.trace(written(tmp_path / "u.json", training(input_ms=6))).text()
    amd = loaderprobe.trace(FIXTURES / "tl_mi300_ddp_resnet18.json.gz")
    text = " ".join(amd.text().split())
    assert "hipFree 270 a step: memory of the GPU runs out, or PYTORCH_NO_HIP_MEMORY_CACHING is set" in text
    assert ".item()" not in text and "registers" not in text


def test_of_several_ranks_bounds_are_of_the_slowest(tmp_path: Path) -> None:
    """As they do not follow from the shares, which are means; of one recording they do."""
    text = " ".join(loaderprobe.trace(ranks(tmp_path / "r")).text().split())
    assert "Without, the step of the slowest rank would take" in text and "steps of the slowest rank; shares" in text
    one = written(tmp_path / "t.json", training(input_ms=6))
    assert "slowest rank" not in loaderprobe.trace(one).text()


def test_a_name_of_a_file_stays_as_it_is(tmp_path: Path) -> None:
    """Also where it begins a line."""
    one = written(tmp_path / "a.json", training(steps=2, input_ms=6))
    two = written(tmp_path / "b.json", training(steps=8, input_ms=6))
    assert "  a.json: only 2 steps" in loaderprobe.trace([one, two]).text()


def test_sentences_are_there_in_python(tmp_path: Path) -> None:
    """As in JSON: of the verdict, and of notes; and the signature shows no function of this machine."""
    found = loaderprobe.trace(written(tmp_path / "t.json", training(input_ms=6, steps=2)))
    assert found.bound.sentence == found.ranks[0].bound.sentence == "The GPU waits for input."
    assert all(note.sentence for note in (*found.notes, *found.ranks[0].notes)) and found.ranks[0].notes
    assert "lambda" not in str(inspect.signature(loaderprobe.trace))
