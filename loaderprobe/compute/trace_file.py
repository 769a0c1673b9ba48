"""Recordings of torch.profiler (Chrome's trace format, plain or gzipped), read as a stream. Needs no torch.

A recording may have gigabytes. Its events are cut into slices at the bounds between two of them, and msgspec decodes
the few fields that count: a slice that was cut elsewhere is no JSON, so a wrong cut is noticed. What msgspec refuses
(raw control characters, NaN, bytes that are no UTF-8) is read again event by event with the standard library.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import sys
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from loaderprobe.compute.kineto import RawEvent
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.thresholds import LONG_NS
from loaderprobe.records.trace import HostSpan, HostSpans

SLICE_BYTES = 1 << 20
LONGEST_EVENT = 64 << 20
"""Bytes without a bound between two events, or before the first: no profiler writes as many."""
MOST_RECORDS = 200_000
"""Of GPU and calls, that are kept: about 40 steps of a large network. Of more, the first part is kept."""
SOME_MORE = 1.25
"""So many times as many are held while reading."""
MOST_SPANS = 100_000
"""Of each kind."""
MOST_NAMES = 1000
"""Of annotations and of categories, that are counted."""
LONGEST_NAME = 500
LAST_STAMP = 1 << 62

# The names of 2020 and 2021, and those of today.
CATEGORIES = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime", "Operator": "cpu_op",
}  # fmt: skip
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CALLS = frozenset({"cuda_runtime", "cuda_driver"})
HOST = frozenset({"cpu_op", "user_annotation"})
KEPT = DEVICE | CALLS | HOST | {"python_function"}
ACCELERATORS = {
    "mtia": "MTIA", "xpu": "Intel's XPU", "hpu": "Gaudi's HPU", "mlu": "Cambricon's MLU", "musa": "Moore Threads' MUSA",
    "privateuse1": "an accelerator of its own",
}  # fmt: skip
"""By the begin of a category, in lower case, as kineto and its copies by their makers write them."""

LOADER = re.compile(r"enumerate\(DataLoader\)#.*__next__|train_dataloader_next")
"""Annotations of torch and of Lightning."""
IN_STACK = re.compile(r"utils/data/dataloader\.py\(\d+\): __next__")
STEP, OPTIMIZER = "ProfilerStep", "Optimizer.step#"
CONVOLUTIONS = frozenset({"aten::conv2d", "aten::convolution", "aten::_convolution", "conv2d"})
COLOR_CHANNELS = 3

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUND = re.compile(rb"\}\s*,\s*\{")
_TEXT_BOUND = re.compile(r"\}\s*,\s*\{")
_CONTROL = bytes(max(32, code) for code in range(256))
"""Control characters become blanks: raw in a name they are no JSON, and between tokens they do not count."""
_FOREIGN = {
    b"SQLite format 3": "is a database (nsys exports such): only recordings of torch.profiler are read",
    b"PK\x03\x04": "is a zip archive: unpack it first",
    b"(\xb5/\xfd": "is compressed with zstd: unpack it first",
}
_ENDINGS = {
    ".nsys-rep": "of nsys", ".qdrep": "of nsys", ".sqlite": "of nsys", ".ncu-rep": "of ncu",
    ".pftrace": "of Perfetto", ".perfetto-trace": "of Perfetto", ".perfetto": "of Perfetto",
}  # fmt: skip
RECORD = "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"

Progress = Callable[[int, int], None]
"""Called with (bytes read of the file, its size)."""


_NOTHING = msgspec.Raw(b"null")


class _Args(msgspec.Struct, gc=False):
    """The arguments of an event that count."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    old_dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input dims")


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: float = 0.0
    args: _Args | None = None


_SLICE = msgspec.json.Decoder(list[_Event])
_ONE = msgspec.json.Decoder(_Event)
_LAX = json.JSONDecoder(strict=False, parse_float=str)


@dataclass(slots=True)
class Recording:
    """What counts of one file."""

    path: Path
    head: dict[str, Any] = field(default_factory=dict)
    """The fields beside the events."""
    events: list[RawEvent] = field(default_factory=list)
    spans: HostSpans = field(default_factory=HostSpans)
    kinds: Counter[str] = field(default_factory=Counter)
    """Events by category."""
    annotations: Counter[str] = field(default_factory=Counter)
    """By name, without ProfilerStep."""
    batch_size: int | None = None
    """By the shape of the first convolution of pictures."""
    unreadable: int = 0
    """Events that are no JSON."""
    cut_off: bool = False
    """The file ends before its list of events does."""
    records: int = 0
    """Of GPU and calls, also those that are not kept."""
    until_ns: int = LAST_STAMP
    """Records from here on are not kept: there are too many."""

    @property
    def complete(self) -> bool:
        """True where all records of GPU and calls are kept."""
        return self.until_ns == LAST_STAMP


def read_trace(path: Path, *, annotation: str = "", progress: Progress = lambda done, size: None) -> Recording:
    """The records of a recording, in memory that does not grow with the file.

    `annotation` names the span around asking for a batch, where the loader has none of its own. A file that was cut
    off is read as far as it goes. Raises BadValue for what is no recording, MissingPart without permission.
    """
    reader = _Reader(Recording(path=path), annotation)
    with _opened(path) as (raw, file):
        size = max(1, path.stat().st_size)
        stream = _Stream(file, lambda: progress(min(raw.tell(), size), size))
        for event in _events(stream, reader.recording):
            reader.take(event)
    progress(size, size)
    reader.keep_first()
    reader.recording.spans.waits = reader.recording.spans.waits or reader.in_stacks
    return reader.recording


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, io.BufferedReader | gzip.GzipFile]]:
    """A file, and the same without its compression. Raises BadValue or MissingPart for what cannot be read."""
    hint = "give files that torch.profiler wrote, .json or .json.gz, or a folder of them"
    try:
        if not path.exists():
            raise BadValue(f"{path} does not exist", hint=hint)
        if not path.is_file():
            raise BadValue(f"{path} is no regular file", hint=hint)
        with path.open("rb") as file:
            begin = file.read(16)
    except OSError as error:
        raise MissingPart(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    if not begin:
        raise BadValue(f"{path} is empty", hint=RECORD)
    of = _ENDINGS.get(path.suffix.lower())
    why = next((words for magic, words in _FOREIGN.items() if begin.startswith(magic)), f"is a file {of}" if of else "")
    if why:
        raise BadValue(f"{path} {why}", hint=RECORD)
    with path.open("rb") as raw:
        yield raw, gzip.GzipFile(fileobj=raw) if begin.startswith(b"\x1f\x8b") else raw


@dataclass(slots=True)
class _Stream:
    """Bytes that were read and not yet used; control characters are blanks."""

    file: io.BufferedReader | gzip.GzipFile
    on_read: Callable[[], None]
    buffer: bytes = b""
    ended: bool = False
    broken: bool = False
    """The compressed data end too early, or are damaged."""

    def more(self) -> None:
        """Read on: a slice, or as much again as is held, so that long events take linear time."""
        wanted = max(SLICE_BYTES, len(self.buffer))
        parts: list[bytes] = []
        try:
            # One read at a time: what was decompressed before an error is not lost.
            while wanted > 0 and (part := self.file.read1(wanted)):
                parts.append(part)
                wanted -= len(part)
        except (EOFError, OSError, zlib.error):
            self.broken = True
        self.ended = wanted > 0
        self.buffer += b"".join(parts).translate(_CONTROL)
        self.on_read()


def _events(stream: _Stream, recording: Recording) -> Iterator[_Event]:
    """All events; fills what is known of the whole file."""
    _to_first(stream, recording)
    while not stream.ended and not stream.buffer.startswith(b"]"):
        if len(stream.buffer) < SLICE_BYTES:
            stream.more()
            continue
        events = _quickly(stream)
        if events is not None:
            yield from events
        elif _BOUND.search(stream.buffer):
            # One of the events is no JSON to msgspec, or the list ends here.
            yield from _slowly(stream, recording)
        elif len(stream.buffer) > LONGEST_EVENT:
            raise BadValue(f"{recording.path} has an event of more than {LONGEST_EVENT >> 20} MiB", hint=RECORD)
        else:
            stream.more()
    while not stream.ended and len(stream.buffer) < LONGEST_EVENT:
        stream.more()
    yield from _slowly(stream, recording)
    recording.cut_off = not _tail(stream, recording) or stream.broken


def _to_first(stream: _Stream, trace: Recording) -> None:
    """Go to the first event; raises BadValue for what has none."""
    stream.more()
    text = stream.buffer.lstrip(b"\xef\xbb\xbf ")
    if text[:1] == b"[":
        stream.buffer = text[1:]
        return
    if text[:1] != b"{":
        why = "is damaged gzip" if stream.broken else "is no JSON"
        raise BadValue(f"{trace.path} {why}: it is no recording of torch.profiler", hint=RECORD)
    if b'"loaderprobe/' in text[:100]:
        raise BadValue(f"{trace.path} is a result of loaderprobe, and no recording", hint="loaderprobe report shows it")
    searched = 0
    while True:
        for match in _EVENTS.finditer(stream.buffer, searched):
            head = stream.buffer[: match.start()].decode(errors="replace").rstrip().rstrip(",").lstrip("\ufeff ") + "}"
            # The same words may stand within a text.
            if (fields := _object(head)) is not None:
                trace.head.update(fields)
                stream.buffer = stream.buffer[match.end() :]
                return
        if stream.ended or len(stream.buffer) > LONGEST_EVENT:
            raise BadValue(f"{trace.path} has no traceEvents: it is no recording of torch.profiler", hint=RECORD)
        searched = max(0, len(stream.buffer) - 64)
        stream.more()


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _quickly(stream: _Stream) -> list[_Event] | None:
    """The events up to one of the last bounds that are held; None where msgspec cannot read them so."""
    buffer = stream.buffer
    for back in (1 << 14, 1 << 18):
        bounds = [match.start() + 1 for match in _BOUND.finditer(buffer, max(0, len(buffer) - back))]
        for at in bounds[-1:-4:-1]:
            try:
                events = _SLICE.decode(b"[" + buffer[:at] + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            stream.buffer = buffer[at:].lstrip(b" ,")
            return events
    return None


def _slowly(stream: _Stream, recording: Recording) -> Iterator[_Event]:
    """The events that are held, one by one; what is no JSON is counted and left out.

    Keeps what may be the begin of an event, and the end of the list.
    """
    text = stream.buffer.decode(errors="replace")
    begins = [match.end() - 1 for match in _TEXT_BOUND.finditer(text)]
    end = len(text) if stream.ended else max(begins, default=0)
    at = 0
    while True:
        at = next(at for at in range(at, len(text) + 1) if text[at : at + 1] not in (" ", ","))
        if at >= end or text[at] == "]":
            break
        event, after = _event_at(text, at)
        if after is None:
            following = bisect_right(begins, at)
            if following == len(begins):
                break
            after = begins[following]
        at = after
        if event is None:
            recording.unreadable += 1
        else:
            yield event
    stream.buffer = text[at:].encode()


def _event_at(text: str, at: int) -> tuple[_Event | None, int | None]:
    """(the event there, where it ends); None for what is no event, and for what is no JSON."""
    try:
        plain, end = _LAX.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, None
    try:
        return _ONE.decode(text[at:end]), end
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _from_plain(plain), end


def _from_plain(plain: Any) -> _Event | None:
    """An event of the standard library, whose fractions are texts; None for what is none."""
    if not isinstance(plain, dict):
        return None
    args = plain.get("args")
    kept = {_ARGS[key]: _plain(value) for key, value in args.items() if key in _ARGS} if isinstance(args, dict) else {}
    dur = _plain(plain.get("dur", 0))
    return _Event(
        **{key: plain.get(key) for key in ("ph", "cat", "name", "pid", "tid")},
        ts=msgspec.Raw(str(plain.get("ts", 0)).encode(errors="replace")),
        dur=float(dur) if isinstance(dur, int | float) and abs(dur) < LAST_STAMP else math.nan,
        args=_Args(**kept),
    )


def _plain(value: Any) -> Any:
    try:
        return float(value) if type(value) is str else value
    except ValueError:
        return value


_ARGS = {entry.encode_name: entry.name for entry in msgspec.structs.fields(_Args) if "dims" not in entry.name}
"""Field by its name in a file; shapes are read only where msgspec can."""


def _tail(stream: _Stream, recording: Recording) -> bool:
    """The fields after the events; False where the list of events does not end."""
    text = stream.buffer.decode(errors="replace")
    if not text.startswith("]"):
        return False
    fields = _object("{" + text[1:].strip().strip(",").removesuffix("}") + "}")
    recording.head.update({key: value for key, value in (fields or {}).items() if key not in recording.head})
    return True


@dataclass(slots=True)
class _Reader:
    """Sorts events by what they are for."""

    recording: Recording
    annotation: str
    _threads: dict[Any, int] = field(default_factory=dict)
    in_stacks: list[HostSpan] = field(default_factory=list)

    def take(self, event: _Event) -> None:
        kind = event.cat
        if event.ph != "X" or type(kind) is not str:
            return
        kind = CATEGORIES.get(kind, kind)
        if kind in self.recording.kinds or len(self.recording.kinds) < MOST_NAMES:
            self.recording.kinds[kind] += 1
        if kind not in KEPT:
            return
        name = event.name if type(event.name) is str else str(event.name)
        if kind in HOST or kind == "python_function":
            self._host(kind, name, event)
        else:
            self._record(kind, name, event)

    def _record(self, kind: str, name: str, event: _Event) -> None:
        times = _times(event)
        if times is None:
            self.recording.unreadable += 1
            return
        recording = self.recording
        recording.records += 1
        if times[0] >= recording.until_ns:
            return
        args, on_gpu = event.args or _NO_ARGS, kind in DEVICE
        where = args.stream if on_gpu and args.stream is not None else event.tid
        recording.events.append(
            RawEvent(
                _text(name), kind, on_gpu, self._number(args.device if args.device is not None else event.pid),
                self._number(where), times[0], times[1], self._number(args.correlation), False,
                _details(args) if kind == "kernel" else _NO_DETAILS,
            )
        )  # fmt: skip
        if len(recording.events) > SOME_MORE * MOST_RECORDS:
            self.keep_first()

    def keep_first(self) -> None:
        """Of too many records, keep the first by time."""
        recording = self.recording
        if len(recording.events) > MOST_RECORDS:
            recording.events.sort(key=lambda record: record.begin_ns)
            recording.until_ns = recording.events[MOST_RECORDS].begin_ns
            del recording.events[MOST_RECORDS:]

    def _host(self, kind: str, name: str, event: _Event) -> None:
        """A span of the host, where it marks something or lasts."""
        kept = [spans for spans in (self._mark(kind, name),) if spans is not None]
        if event.dur * 1000 > LONG_NS and not name.startswith(STEP):
            kept.append(self.recording.spans.long)
        if kind == "user_annotation" and not name.startswith(STEP) and len(self.recording.annotations) < MOST_NAMES:
            self.recording.annotations[_text(name)] += 1
        if self.recording.batch_size is None and name in CONVOLUTIONS:
            self.recording.batch_size = _batch_of(event)
        if kept and (times := _times(event)):
            span = HostSpan(_text(name), self._number(event.tid), *times)
            for spans in kept:
                if len(spans) < MOST_SPANS:
                    spans.append(span)

    def _mark(self, kind: str, name: str) -> list[HostSpan] | None:
        """Where a span that marks something belongs; None for any other."""
        spans = self.recording.spans
        if kind == "python_function":
            return self.in_stacks if IN_STACK.search(name) else None
        if name.startswith(STEP):
            return spans.steps
        if name.startswith(OPTIMIZER):
            return spans.optimizer
        asks = name == self.annotation if self.annotation else LOADER.search(name)
        return spans.waits if asks else None

    def _number(self, value: Any) -> int:
        """A thread, a stream or a correlation as a number: some versions write texts, like `stream 7`."""
        if type(value) is int and -LAST_STAMP < value < LAST_STAMP:
            return value
        if value is None:
            return 0
        text = str(value)[:100]
        if text in self._threads:
            return self._threads[text]
        digits = text.removeprefix("stream ")
        number = int(digits) if re.fullmatch(r"-?[0-9]{1,18}", digits) else -2 - len(self._threads)
        return self._threads.setdefault(text, number) if len(self._threads) < MOST_SPANS else number


_NO_ARGS, _NO_DETAILS = _Args(), {}  # type: tuple[_Args, dict[str, Any]]


def _text(name: str) -> str:
    """One object for equal names, of which the begin is enough."""
    return sys.intern(name[:LONGEST_NAME])


def _details(args: _Args) -> dict[str, Any]:
    """The launch of a kernel; nothing where a field cannot be one."""
    sizes = (tuple(size) if isinstance(size, list) else size for size in (args.grid, args.block))
    try:
        return _launch(*sizes, args.registers, args.shared, args.blocks_per_sm, args.occupancy)
    except TypeError:
        return _NO_DETAILS


@lru_cache(MOST_SPANS, typed=True)
def _launch(*values: Any) -> dict[str, Any]:
    """One object for equal launches; nothing where a figure is no number, or larger than any GPU has."""
    names = ("grid", "block", "registers per thread", "shared memory", "blocks per SM", "est. achieved occupancy %")
    figures = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    flat = [number for value in figures.values() for number in (value if isinstance(value, tuple) else (value,))]
    plausible = len(flat) < 20 and all(type(number) in (int, float) and 0 <= number < 1 << 40 for number in flat)
    return figures if plausible else _NO_DETAILS


def _times(event: _Event) -> tuple[int, int] | None:
    """Begin and end in whole nanoseconds, exact from the text of a stamp; None where they are no times."""
    stamp = bytes(event.ts).strip(b'"')
    try:
        whole, _, rest = stamp.partition(b".")
        if len(stamp) > 40:
            return None
        exact = (whole + rest).isdigit()
        begin = int(whole) * 1000 + int((rest + b"000")[:3]) if exact else round(float(stamp) * 1000)
        end = begin + round(event.dur * 1000)
    except (ValueError, OverflowError):
        return None
    return (begin, end) if -LAST_STAMP < begin <= end < LAST_STAMP else None


def _batch_of(event: _Event) -> int | None:
    """The first dimension of what a convolution of pictures takes."""
    args = event.args or _NO_ARGS
    try:
        dims = msgspec.json.decode(args.dims) or msgspec.json.decode(args.old_dims)
    except (msgspec.DecodeError, RecursionError):
        return None
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list) or len(first) != 4 or any(type(dimension) is not int for dimension in first):
        return None
    return first[0] if first[1] == COLOR_CHANNELS and 0 < first[0] < 1 << 20 else None


def why_no_device(recording: Recording) -> str:
    """Why a recording has no work of a GPU, in words that follow its name; empty where it has."""
    kinds = {kind.lower() for kind in recording.kinds}
    vendor = next((name for begin, name in ACCELERATORS.items() if any(k.startswith(begin) for k in kinds)), "")
    if vendor and not kinds & CALLS:
        return f"is a recording of {vendor}: only GPUs of NVIDIA and AMD are read"
    if any(event.activity == "kernel" for event in recording.events):
        return ""
    if kinds & HOST:
        return "holds no work of a GPU: only the CPU was recorded"
    return "holds no event of torch.profiler"
