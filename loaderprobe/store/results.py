"""Results that are one JSON file, as `--json` prints them; in a directory of their own it is `result.json`."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from loaderprobe.errors import BadValue, DamagedRun, ForeignDirectory, LoaderprobeError, Refused, masked_text
from loaderprobe.records.files import ONE_AT_A_TIME, from_json
from loaderprobe.store.codec import check_folder, check_numbers, read, write_atomically, writing

RESULT = "result.json"
REPORT = "report.html"
MEASURE_AGAIN = "restore it from a copy, or measure it again"


def make_directory(path: Path) -> None:
    """Raises MissingPart without permission, NoSpace on a full disk."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_result(path: Path, texts: Mapping[str, str]) -> Path:
    """These files in a directory that is there, with masked URLs; returns the path of its page."""
    for name, text in texts.items():
        write_atomically(path / name, masked_text(text).encode())
    return path / REPORT


def holds_result(path: Path) -> bool:
    """True for the directory of a run, or of another result."""
    return (path / RESULT).exists() or (path / "run.json").exists()


TRACE_FIRST = "of a recording of torch.profiler: loaderprobe trace FILE --out DIR, then give DIR"
RUN_FIRST = "of a script: loaderprobe run -- python train.py, then give the directory that it names"


def check_out(path: Path, ours: Container[str] = ()) -> None:
    """Raises Refused, BadValue or MissingPart, before anything is measured, when nothing can be kept beside `ours`."""
    with writing(path):
        if path.is_dir() and any(entry.name not in ours for entry in path.iterdir()):
            kept = Refused if holds_result(path) else ForeignDirectory
            raise kept(f"{path} is not empty", hint="choose another place with --out")
    check_folder(path)


def read_result(path: Path, type_of: Callable[[str], type[Any] | None]) -> Any:
    """The result in a directory, or in a file; `type_of` gives the record's class for its schema.

    Raises BadValue, naming the file, when there is none, and DamagedRun when it cannot be used.
    """
    file = path / RESULT if path.is_dir() else path
    tree = _tree(file)
    schema = str(tree.get("schema")) if isinstance(tree, dict) else ""
    record_type = type_of(schema)
    if record_type is None:
        raise DamagedRun(str(file), f"is another result: its schema is {schema[:60]!r}", hint=MEASURE_AGAIN)
    return _record(tree, record_type, file)


def _tree(path: Path) -> Any:
    data = read(path)
    if data is None:
        raise BadValue(
            f"{path} does not exist", hint="give a run's directory, or a file: loaderprobe bandwidth PATH --json > FILE"
        )
    try:
        tree = from_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        trace = path.name.endswith((".gz", ".trace.json"))
        if trace or not (path.suffix == ".json" or data.lstrip().startswith(b"{")):
            raise BadValue(f"{path} is no result of loaderprobe", hint=TRACE_FIRST if trace else RUN_FIRST) from error
        raise DamagedRun(str(path), f"is no JSON: {error}", hint=MEASURE_AGAIN) from error
    if isinstance(tree, dict) and "traceEvents" in tree:
        raise BadValue(f"{path} is a recording of torch.profiler, and no result", hint=TRACE_FIRST)
    return tree


def _record(tree: Any, type_: type[Any], path: Path) -> Any:
    """The record of that type, of the version that is written today or of one before it. Raises DamagedRun."""
    usual = {field.name: field.default for field in fields(type_)}
    wanted = (usual["schema"], usual["schema_version"])
    written = (tree.get("schema"), tree.get("schema_version")) if isinstance(tree, dict) else (None, None)
    later = None
    if written != wanted:
        from loaderprobe.store.earlier import EARLIER

        later = next((make for known, make in EARLIER if known == written and known[0] == wanted[0]), None)
        if later is None:
            raise DamagedRun(str(path), f"is no {wanted[0]} of version {wanted[1]}", hint=MEASURE_AGAIN)
    try:
        tree = later(tree) if later else tree
        check_numbers(tree)
        with ONE_AT_A_TIME:
            return msgspec.convert(tree, type_)
    except (msgspec.ValidationError, LoaderprobeError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise DamagedRun(str(path), f"is damaged: {error}", hint=MEASURE_AGAIN) from error
