"""Results that are one JSON file, as `--json` prints them; in a directory of their own it is `result.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from loaderprobe.errors import BadValue, DamagedRun, ForeignDirectory, Refused
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.store.codec import check_numbers, read, write_atomically, write_error

RESULT = "result.json"
REPORT = "report.html"
_HINT = "loaderprobe bandwidth PATH --json > FILE"
MEASURE_AGAIN = "restore it from a copy, or measure it again"


def create_result(path: Path, texts: Mapping[str, str]) -> Path:
    """A new directory with these files; returns the path of its page.

    Raises Refused when `path` is not empty, MissingPart without permission, NoSpace on a full disk.
    """
    check_out(path)
    make_directory(path)
    return write_result(path, texts)


def make_directory(path: Path) -> None:
    """Raises MissingPart without permission, NoSpace on a full disk."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(error, path) from error


def write_result(path: Path, texts: Mapping[str, str]) -> Path:
    """These files in a directory that is there; returns the path of its page."""
    for name, text in texts.items():
        write_atomically(path / name, text.encode())
    return path / REPORT


TRACE_FIRST = "of a recording of torch.profiler: loaderprobe trace FILE --out DIR, then give DIR"


def check_out(path: Path) -> None:
    """Raises Refused, before anything is measured, when a result cannot be kept there."""
    if path.exists() and not path.is_dir():
        raise BadValue(f"{path} is a file", hint="name a directory for the result, with --out")
    if path.is_dir() and any(path.iterdir()):
        kept = Refused if (path / RESULT).exists() or (path / "run.json").exists() else ForeignDirectory
        raise kept(f"{path} is not empty", hint="choose another place with --out")


def read_result(path: Path, type_of: Callable[[str], type[Any] | None]) -> Any:
    """The result in a directory, or in a file; `type_of` gives the record's class for its schema.

    Raises BadValue, naming the file, when there is none, and DamagedRun when it cannot be used.
    """
    file = path / RESULT if path.is_dir() else path
    tree = _tree(file, MEASURE_AGAIN)
    schema = str(tree.get("schema")) if isinstance(tree, dict) else ""
    found = type_of(schema)
    if found is None:
        raise DamagedRun(str(file), f"is another result: its schema is {schema[:60]!r}", hint=MEASURE_AGAIN)
    return _record(tree, found, file, MEASURE_AGAIN)


def schema_in(path: Path) -> str:
    """The schema that a file of a result names; empty where it names none. Raises BadValue when it cannot be read."""
    tree = _tree(path, MEASURE_AGAIN)
    return str(tree.get("schema", "")) if isinstance(tree, dict) else ""


def read_bandwidth(path: Path) -> BandwidthReport:
    """The result that `loaderprobe bandwidth --json` wrote to a file. Raises BadValue, naming the file."""
    report: BandwidthReport = _record(_tree(path, _HINT), BandwidthReport, path, _HINT)
    try:
        _check(report)
    except BadValue as error:
        raise DamagedRun(str(path), f"is damaged: {error}", hint=_HINT) from error
    return report


def _tree(path: Path, hint: str) -> Any:
    data = read(path)
    if data is None:
        raise BadValue(f"{path} does not exist", hint=f"give a run's directory, or a file: {_HINT}")
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if path.name.endswith((".gz", ".trace.json")):
            raise BadValue(f"{path} is no result", hint=TRACE_FIRST) from error
        raise DamagedRun(str(path), f"is no JSON: {error}", hint=hint) from error
    if isinstance(tree, dict) and "traceEvents" in tree:
        raise BadValue(f"{path} is a recording of torch.profiler, and no result", hint=TRACE_FIRST)
    return tree


def _record(tree: Any, type_: type[Any], path: Path, hint: str) -> Any:
    """The record of that type, of the version that is written today. Raises DamagedRun."""
    usual = {field.name: field.default for field in fields(type_)}
    wanted = (usual["schema"], usual["schema_version"])
    found = (tree.get("schema"), tree.get("schema_version")) if isinstance(tree, dict) else (None, None)
    if found != wanted:
        raise DamagedRun(str(path), f"is no {wanted[0]} of version {wanted[1]}", hint=hint)
    try:
        check_numbers(tree)
        return msgspec.convert(tree, type_)
    except (msgspec.ValidationError, BadValue) as error:
        raise DamagedRun(str(path), f"is damaged: {error}", hint=hint) from error


def _check(report: BandwidthReport) -> None:
    """Raises BadValue for figures that no probe writes."""
    if not (0 <= report.mean_size_bytes < math.inf and report.files_used >= 0 and report.files_found >= 0):
        raise BadValue("a size or a count is below 0")
    for phase in report.phases:
        rates = (phase.bw_bytes, phase.bw_low, phase.bw_high, phase.files_per_s, float(phase.io_bytes))
        if phase.readers < 1 or not all(rate >= 0 for rate in rates) or (phase.storage_bytes or 0) < 0:
            raise BadValue(f"a phase of {phase.readers} readers has a rate below 0")
        if phase.file_ns is not None and not phase.file_ns.mean >= 0:
            raise BadValue(f"a phase of {phase.readers} readers has a time below 0")
        if phase.amplification is not None and not phase.amplification > 0:
            raise BadValue(f"a phase of {phase.readers} readers has an amplification of {phase.amplification:g}")
    for each in report.metadata:
        if each.readers < 1 or each.total_ops < 1 or not (each.ops_per_s > 0 and each.ops_high >= each.ops_per_s):
            raise BadValue(f"{each.operation}s of {each.readers} readers have no rate")
