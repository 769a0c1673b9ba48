"""Numbers that cannot be, refused by the records they are in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import Measurement
from loaderprobe.testing import example_config, example_files
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.examples import timelines
from tests.examples.bandwidth import example_phase

MADE: Measurement = measured(Truth(), 2)
SEGMENT, RECORDS = MADE.segments[0], MADE.worker_batches


@pytest.mark.parametrize(
    ("record", "changes", "says"),
    [
        (SEGMENT, {"begin_ns": SEGMENT.begin_ns[:-1]}, "columns differ in length"),
        (SEGMENT, {"begin_ns": (), "ready_ns": (), "copied_ns": (), "end_ns": ()}, "no step"),
        (SEGMENT, {"ready_ns": (-1, *SEGMENT.ready_ns[1:])}, "time runs backwards"),
        (SEGMENT, {"closed_ns": 0}, "time runs backwards"),
        (SEGMENT, {"batch_size": 0}, "batch_size is 0, below 1"),
        (SEGMENT, {"delivered_bytes": -5}, "delivered_bytes is -5, below 0"),
        (RECORDS, {"cpu_ns": RECORDS.cpu_ns[1:]}, "columns differ in length"),
        (RECORDS, {"wall_ns": (-1, *RECORDS.wall_ns[1:])}, "wall_ns is -1"),
        (MADE, {"cores_available": 0.0}, "0 cores"),
        (MADE, {"wall_s": -1.0}, "wall_s"),
        (MADE.compute, {"specified_images_per_s": -7.0}, "-7 images/s is no rate"),
        (timelines.starved(), {"names": ()}, "a name that is not there"),
        (timelines.starved(), {"wait_end_ns": ()}, "columns differ in length"),
        (example_files(2), {"paths": (), "classes": (), "size_bytes": ()}, "no file"),
        (example_files(2), {"size_bytes": (1, -1)}, "below 0"),
        (example_config(), {"workers": 10**30}, "for workers is more than"),
        (StorageCeiling(data="", phases=()), {"phases": (example_phase(1, 1e6, io_bytes=0),)}, "has no rate"),
    ],
)
def test_a_record_that_cannot_be_is_not_made(record: Any, changes: dict[str, Any], says: str) -> None:
    """Whoever wrote it, the error says what is wrong; what is left could only mislead or divide by 0."""
    with pytest.raises(BadValue, match=says):
        replace(record, **changes)


def test_columns_of_older_versions_may_be_empty() -> None:
    """What was not recorded then is no damage."""
    assert replace(RECORDS, collate_ns=(), instrument_ns=()).collate_ns == ()
