"""Recordings of torch.profiler as files: every format of them, and what is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.compute import trace_file
from loaderprobe.compute.trace_file import Recording, read_trace, why_no_device
from loaderprobe.errors import BadValue, MissingPart
from tests.examples.traces import FIXTURES, event, training, written

NAMES = sorted(path.name for path in FIXTURES.glob("*.json.gz"))


def same(one: Recording, two: Recording) -> bool:
    return (one.events, one.spans, one.kinds, one.cut_off) == (two.events, two.spans, two.kinds, two.cut_off)


def plain(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "plain.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", NAMES)
def test_slices_change_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does compression, or the way for damaged files, one event after the other, on a sound one."""
    whole = read_trace(FIXTURES / name)
    assert whole.events and whole.unreadable == 0 and not whole.cut_off and whole.complete
    path = plain(tmp_path, gzip.decompress((FIXTURES / name).read_bytes()))
    for size in (700, 10_000):
        monkeypatch.setattr(trace_file, "SLICE_BYTES", size)
        assert same(read_trace(path), whole)
    monkeypatch.setattr(trace_file, "_quickly", lambda stream: None)
    monkeypatch.setattr(trace_file, "SLICE_BYTES", 50_000)
    assert same(read_trace(FIXTURES / name), whole)


def test_stamps_are_exact(tmp_path: Path) -> None:
    """A float would lose up to 256 ns of a Unix time."""
    stamps = [("1719853884123456.789", 1.001), ('"1719853884123457"', 2), (12.5, 0.25), ("1.5e+2", 1)]
    events = [KERNEL % ('"k"', begin, duration, '{"device": 0}') for begin, duration in stamps]
    found = read_trace(plain(tmp_path, f"[{','.join(events)}]"))
    assert [(each.begin_ns, each.end_ns) for each in found.events] == [
        (1719853884123456789, 1719853884123457790), (1719853884123457000, 1719853884123459000), (12500, 12750),
        (150000, 151000),
    ]  # fmt: skip


def test_names_of_2021_and_a_bare_list(tmp_path: Path) -> None:
    """Categories begin with a capital, threads and streams are texts, and nothing surrounds the list."""
    events = [
        event("Runtime", "cudaLaunchKernel", 5, 3, tid="4093687616", correlation=3),
        event("Kernel", "gemm", 9, 3, tid="stream 7", device=0, correlation=3),
        event("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 3, tid="4093687616"),
    ]
    found = read_trace(plain(tmp_path, json.dumps(events)))
    assert [(each.activity, each.resource, each.correlation) for each in found.events] == [
        ("cuda_runtime", 4093687616, 3), ("kernel", 7, 3),
    ]  # fmt: skip
    assert [each.thread for each in found.spans.waits] == [4093687616]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(packed: bool, tmp_path: Path) -> None:
    """Within an event, and within compressed data; it says so."""
    data = written(tmp_path / "t.json", training(steps=40)).read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(data)[:-60] if packed else data[: 2 * len(data) // 3])
    found = read_trace(path)
    assert found.cut_off and 20 < len(found.events) < 80


KERNEL = '{"ph": "X", "cat": "kernel", "name": %s, "ts": %s, "dur": %s, "args": %s}'
HOSTILE: dict[str, tuple[str, int, int]] = {
    # the event, how many more kernels are read, and how many are unreadable
    "control characters": (KERNEL % ('"a\x01\n\x1b[2Jb"', 1, 1, "{}"), 1, 0),
    "no UTF-8": (KERNEL % ('"a\udcffb"', 1, 1, "{}"), 1, 0),
    "half a character": (KERNEL % ('"a\\ud800b"', 1, 1, "{}"), 1, 0),
    "a wrong escape": (KERNEL % ('"C:\\qux"', 1, 1, "{}"), 0, 1),
    "not a number": (KERNEL % ('"k"', "NaN", 1, "{}"), 0, 1),
    "NaN in its fields": (KERNEL % ('"k"', 1, 1, '{"x": NaN}'), 1, 0),
    "an infinite time": (KERNEL % ('"k"', "1e999", 1, "{}"), 0, 1),
    "an infinite duration": (KERNEL % ('"k"', 1, "1e999", "{}"), 0, 1),
    "a huge number": (KERNEL % ('"k"', "9" * 5000, 1, "{}"), 0, 1),
    "a huge stream": (KERNEL % ('"k"', 1, 0, f'{{"stream": {"9" * 500}}}'), 1, 0),
    "deep nesting": (KERNEL % ('"k"', 1, 1, "[" * 100000 + "]" * 100000), 0, 1),
    "no object": ('3, "text", null, [1, 2]', 0, 4),
    "other types": ('{"ph": ["X"], "cat": {}, "name": 3, "ts": {}, "dur": "long", "args": [1]}', 0, 0),
    "a name that is none": (KERNEL % ('{"a": 1}', 1, 1, "{}"), 1, 0),
    "a strange launch": (KERNEL % ('"k"', 1, 1, '{"grid": {"x": -1}, "block": 3}'), 1, 0),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_damaged_event_costs_only_itself(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before and after it is read, in whatever slice it lies."""
    text, more, lost = HOSTILE[what]
    good = ", ".join(map(json.dumps, training(steps=50)))
    path = plain(tmp_path, f"[{good}, {text}, {good}]".encode(errors="surrogateescape"))
    for size in (1 << 20, 3000):
        monkeypatch.setattr(trace_file, "SLICE_BYTES", size)
        found = read_trace(path)
        assert sum(each.activity == "kernel" for each in found.events) == 100 + more
        assert found.unreadable == lost and not found.cut_off


def test_of_too_many_records_the_first_part_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, whatever their order in the file, so that memory does not grow with it."""
    events = training(steps=500)
    kernels = [each for each in events if each["cat"] == "kernel"]
    calls = [each for each in events if each["cat"] == "cuda_runtime"]
    marks = [each for each in events if each["cat"] not in ("kernel", "cuda_runtime")]
    monkeypatch.setattr(trace_file, "MOST_RECORDS", 200)
    found = read_trace(written(tmp_path / "t.json", [*kernels[::-1], *marks, *calls]))
    assert not found.complete and found.records == 1000 and len(found.events) == 200
    assert {each.activity for each in found.events} == {"kernel", "cuda_runtime"}
    assert max(each.begin_ns for each in found.events) < found.until_ns


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.json", b"", "is empty"),
        ("t.json", b"\x00\x01\x02", "is no JSON"),
        ("t.json", b"hello", "is no JSON"),
        ("t.json", b"\x1f\x8b\x00", "is damaged gzip"),
        ("t.json", b'{"a": 1}', "has no traceEvents"),
        ("t.json", b'{"a": ' + b"[" * 200_000, "has no traceEvents"),
        ("t.json", b"SQLite format 3\x00abc", "is a database"),
        ("t.json", b"PK\x03\x04abc", "is a zip archive"),
        ("t.nsys-rep", b"anything", "is a file of nsys"),
        ("t.pftrace", b"\x0aanything", "is a file of Perfetto"),
    ],
)
def test_what_is_no_recording_is_refused_by_name(name: str, data: bytes, says: str, tmp_path: Path) -> None:
    """With what it is, and how to record."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadValue, match=says) as caught:
        read_trace(tmp_path / name)
    assert "torch.profiler" in caught.value.hint


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there, or none, as a pipe, which would block. Without permission the reason of the system is named."""
    with pytest.raises(BadValue, match="does not exist"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(BadValue, match="no regular file"):
        read_trace(tmp_path)
    path = written(tmp_path / "t.json")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(MissingPart, match="Permission denied"):
        read_trace(path)


def test_an_event_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it takes all memory."""
    monkeypatch.setattr(trace_file, "LONGEST_EVENT", 100_000)
    monkeypatch.setattr(trace_file, "SLICE_BYTES", 10_000)
    with pytest.raises(BadValue, match="has an event of more than"):
        read_trace(plain(tmp_path, '[{"name": "' + "a" * 1_000_000 + '"}]'))


@pytest.mark.parametrize(
    ("categories", "says"),
    [
        (("cpu_op", "user_annotation"), "only the CPU was recorded"),
        (("cpu_op", "mtia_ccp_events"), "MTIA"),
        (("cpu_op", "xpu_runtime"), "Intel's XPU"),
        (("cpu_op", "mlu_runtime", "kernel"), "Cambricon's MLU"),
        (("toplevel",), "no event of torch.profiler"),
    ],
)
def test_other_devices_are_named(categories: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """A CPU alone, and accelerators that are no GPU of NVIDIA or AMD."""
    path = written(tmp_path / "t.json", [event(each, "x", 1, 1) for each in categories])
    assert says in why_no_device(read_trace(path))
