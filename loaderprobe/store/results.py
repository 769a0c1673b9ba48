"""Results that are one JSON file, as `--json` prints them; in a directory of their own it is `result.json`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from loaderprobe.errors import BadValue, DamagedRun, ForeignDirectory, LoaderprobeError, Refused
from loaderprobe.records.diagnosis import DIAGNOSIS_SCHEMA
from loaderprobe.store.codec import check_numbers, read, write_atomically, write_error

RESULT = "result.json"
REPORT = "report.html"
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
    tree = _tree(file)
    schema = str(tree.get("schema")) if isinstance(tree, dict) else ""
    found = type_of(schema)
    if found is None:
        raise DamagedRun(str(file), f"is another result: its schema is {schema[:60]!r}", hint=MEASURE_AGAIN)
    return _record(tree, found, file)


def _tree(path: Path) -> Any:
    data = read(path)
    if data is None:
        raise BadValue(
            f"{path} does not exist", hint="give a run's directory, or a file: loaderprobe bandwidth PATH --json > FILE"
        )
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if path.name.endswith((".gz", ".trace.json")):
            raise BadValue(f"{path} is no result", hint=TRACE_FIRST) from error
        raise DamagedRun(str(path), f"is no JSON: {error}", hint=MEASURE_AGAIN) from error
    if isinstance(tree, dict) and "traceEvents" in tree:
        raise BadValue(f"{path} is a recording of torch.profiler, and no result", hint=TRACE_FIRST)
    return tree


def _record(tree: Any, type_: type[Any], path: Path) -> Any:
    """The record of that type, of the version that is written today or of one before it. Raises DamagedRun."""
    usual = {field.name: field.default for field in fields(type_)}
    wanted = (usual["schema"], usual["schema_version"])
    found = (tree.get("schema"), tree.get("schema_version")) if isinstance(tree, dict) else (None, None)
    earlier = wanted[0] == DIAGNOSIS_SCHEMA and found == (wanted[0], 1)
    if found != wanted and not earlier:
        raise DamagedRun(str(path), f"is no {wanted[0]} of version {wanted[1]}", hint=MEASURE_AGAIN)
    try:
        tree = _second_diagnosis(tree) if earlier else tree
        check_numbers(tree)
        return msgspec.convert(tree, type_)
    except (msgspec.ValidationError, LoaderprobeError, LookupError, TypeError, ArithmeticError) as error:
        raise DamagedRun(str(path), f"is damaged: {error}", hint=MEASURE_AGAIN) from error


# A diagnosis of version 1 as one of version 2: figures are derived again, and what no measurement has is in notes.

_DERIVED = {
    "one_round", "reads_no_files", "files_hidden", "samples_kept", "fits_in_memory", "read_ahead", "small_set",
    "storage_alone", "threads_spin", "threads_spin_in_training", "others_took", "others_read_too", "host_took",
    "ranks_in_step",
}  # fmt: skip
"""Notes that follow from a measurement, its data and the ceiling of its storage."""


def _second_diagnosis(tree: dict[str, Any]) -> dict[str, Any]:
    """Raises KeyError or TypeError for what is none of version 1."""
    measured, notes = tree["measurement"], tree["notes"]
    facts = {note["code"]: note["facts"] for note in notes}
    hidden = "none_read" if "reads_no_files" in facts else facts.get("files_hidden", {}).get("because")
    there = [(note["code"], note["facts"]) for note in measured["notes"]]
    kept = [note for note in notes if note["code"] not in _DERIVED and (note["code"], note["facts"]) not in there]
    size_bytes, root = facts.get("fits_in_memory", {}).get("size_bytes"), ""
    for advice in tree["advice"]:
        given = advice["action"]["facts"]
        if advice["action"]["code"] in ("files_in_memory", "files_pinned"):
            size_bytes = given["bytes"] / given["share"]
            root = shlex.split(advice["command"])[1] if advice["command"] else ""
    return {
        "schema": DIAGNOSIS_SCHEMA,
        "schema_version": 2,
        "origin": tree["origin"],
        "measurement": {**measured, "notes": [*kept, *measured["notes"]]},
        "ceiling": tree.get("ceiling"),
        "data": {
            "hidden": hidden and {"code": hidden},
            "size_bytes": size_bytes,
            "root": root,
            "samples": tree.get("dataset_samples"),
        },
    }
