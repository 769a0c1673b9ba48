"""Results of earlier versions, as today's version has them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from loaderprobe.records.diagnosis import DIAGNOSIS_SCHEMA

_DERIVED = {
    "one_round", "reads_no_files", "files_hidden", "samples_kept", "fits_in_memory", "read_ahead", "small_set",
    "storage_alone", "threads_spin", "threads_spin_in_training", "others_took", "others_read_too", "host_took",
    "ranks_in_step",
}  # fmt: skip
"""Notes that follow from a measurement, its data and the ceiling of its storage."""


def _second_diagnosis(tree: dict[str, Any]) -> dict[str, Any]:
    """As version 2 has it: figures are derived again, and what no measurement has is taken from notes and advice."""
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


Later = Callable[[dict[str, Any]], dict[str, Any]]
EARLIER: tuple[tuple[tuple[str, int], Later], ...] = (((DIAGNOSIS_SCHEMA, 1), _second_diagnosis),)
"""By schema and version, what makes the next version of a decoded result. It raises LookupError or TypeError for a
damaged one."""
