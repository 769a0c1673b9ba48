"""Records: their keys and hashes, options and figures in flat rows, the summary and labels, and tables that agree."""

from __future__ import annotations

import csv
import json
from dataclasses import fields, is_dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.errors import BadValue
from loaderprobe.records.config import OPTIONS, REQUIRED, ComputeSpec, LoaderSpec, RunConfig, with_options
from loaderprobe.records.files import content_hash
from loaderprobe.records.measurement import Alternative, Measurement
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.resources import (
    CAUSES,
    INPUTS,
    JUDGED,
    MOMENTS,
    RESOURCES,
    SPEEDUPS,
    TIME_PARTS,
    WAITED,
    Ablation,
    Remedy,
    ResourceName,
    SingleCause,
    SpeedupCode,
)
from loaderprobe.records.verdict import DeviceUse, Verdict
from loaderprobe.records.waits import WAIT_KINDS, StackSamples
from loaderprobe.render.figures import FIGURES, flat
from loaderprobe.render.groups import full_label
from loaderprobe.render.json import summary_json
from loaderprobe.testing import example_config, example_files
from tests.analyze.runs import looked
from tests.analyze.scripted import Truth, measured
from tests.examples import timelines
from tests.examples.bandwidth import example_phase
from tests.examples.reports import csv_report, example_report, example_row


def with_another(config: RunConfig, name: str) -> RunConfig:
    """The configuration with another value of this one option."""
    option = OPTIONS[name]
    beside = {"ranks": 2} if name == "nodes" else {}  # they are spread over the nodes evenly
    return with_options(config, **beside, **{name: another(option.type, option.of(config))})


def another(kind: Any, value: Any) -> Any:
    if kind is bool:
        return not value
    if kind is int:
        return value + 1
    return f"{value}x" if kind is str else next(each for each in get_args(kind) if each != value)


MADE: Measurement = measured(Truth(), 2)
SEGMENT, RECORDS = MADE.segments[0], MADE.worker_batches
FILES = replace(example_files(3), paths=("a", "b", "c"), size_bytes=(1, 2, 3))


def test_a_key_changes_with_every_option_and_with_nothing_else() -> None:
    """Resuming by content rests on it, in every process: no hash of one is in it. An option that is new tomorrow does
    not change what was measured today."""
    keys = {with_another(example_config(), name).key for name in OPTIONS}
    assert len(keys) == len(OPTIONS)
    assert example_config().key not in keys
    assert example_config(rounds=3, cache="cold").key == example_config().key
    usual = {"data": "0" * 16, "resolution": "500x375", "loader": {"workers": 2, "prefetch_factor": 2},
             "compute": {"name": "emulated:1000", "batch_size": 16}}  # fmt: skip
    assert example_config().key == content_hash(usual) == "79d899fe5ab7e8a7"
    changed = usual | {"compute": {"name": "emulated:1000", "batch_size": 16, "compile": True}}
    assert example_config(compile=True).key == content_hash(changed)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workers": -1}, ""), ({"batch_size": 0}, ""), ({"batch_size": -1}, ""), ({"rounds": 0}, ""),
        ({"rounds": -1}, ""), ({"prefetch_factor": -1}, ""), ({"workers": 1, "prefetch_factor": 0}, ""),
        ({"workers": 0, "prefetch_factor": 2}, "serial"), ({"workers": 10**30}, "for workers is more than"),
        ({"colour": "red"}, "no option 'colour'"),
    ],
)  # fmt: skip
def test_impossible_configurations_cannot_be_made(changes: dict[str, Any], says: str) -> None:
    """A config is checked when it is made. A serial loader has no prefetch factor, and makes nothing ahead."""
    with pytest.raises(BadValue, match=says or None):
        with_options(example_config(), **changes)
    assert example_config(workers=0).loader.batches_ahead == 0


@pytest.mark.parametrize(
    ("change", "fingerprint", "content"),
    [
        ({"root": "/elsewhere"}, False, True), ({"size_bytes": (1, 2, 4)}, False, False),
        ({"paths": ("b", "a", "c")}, False, False), ({"label": "other"}, True, True),
        ({"images_found": 99}, True, True), ({"skipped_count": 5}, True, True),
    ],
)  # fmt: skip
def test_a_fingerprint_depends_on_places_sizes_and_order(
    change: dict[str, Any], fingerprint: bool, content: bool
) -> None:
    """What describes the set does not change which files are read. The content is also that of a copy elsewhere."""
    other = replace(FILES, **change)
    assert ((other.fingerprint == FILES.fingerprint), (other.content == FILES.content)) == (fingerprint, content)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(0, 40), st.integers(0, 40))
def test_files_go_round(sizes: list[int], first: int, count: int) -> None:
    """Image k is file k modulo the number of files, wherever one begins; its bytes are delivered."""
    files = replace(example_files(len(sizes)), size_bytes=tuple(sizes))
    numbers = [k % len(sizes) for k in range(first, first + count)]
    assert files.absolute(first, count) == [Path("/nowhere", files.paths[number]) for number in numbers]
    assert files.delivered_bytes(first, count) == sum(sizes[number] for number in numbers)


@given(st.integers(1, 9), st.integers(1, 6))
def test_shards_of_ranks_are_disjoint_and_together_the_whole(count: int, size: int) -> None:
    """Of sizes that differ by one at most; fewer files than ranks are refused."""
    files = example_files(count)
    if count < size:
        with pytest.raises(BadValue, match="cannot be shared"):
            files.shard(0, size)
        return
    shards = [files.shard(rank, size) for rank in range(size)]
    assert sorted(path for each in shards for path in each.paths) == sorted(files.paths)
    assert max(each.count for each in shards) - min(each.count for each in shards) <= 1


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
        (Alternative(name="pillow", cpu_s=1.0, usual_cpu_s=1.0), {"usual_cpu_s": 0.0}, "takes CPU time"),
        (StackSamples(functions=(), stacks=(), counts=(), cpu_ns=0), {"stacks": ((0,),), "counts": (1,)}, "not there"),
        (looked(MADE, "network").waits, {"kind": (99,) * len(RECORDS.batch)}, "that is not there"),
        (FILES, {"paths": ("a",)}, "differ in number"),
        (FILES, {"classes": (0,)}, "differ in number"),
        (FILES, {"size_bytes": (1,)}, "differ in number"),
        (FILES, {"places": ((0, 0),)}, "differ in number"),
        (FILES, {"paths": (), "classes": (), "size_bytes": ()}, "no file"),
        (FILES, {"size_bytes": (1, -1, 1)}, "below 0"),
        (StorageCeiling(data="", phases=()), {"phases": (example_phase(1, 1e6, io_bytes=0),)}, "has no rate"),
    ],
)
def test_a_record_that_cannot_be_is_not_made(record: Any, changes: dict[str, Any], says: str) -> None:
    """Whoever wrote it, the error says what is wrong; what is left could only mislead or divide by 0."""
    with pytest.raises(BadValue, match=says):
        replace(record, **changes)
    older: dict[str, Any] = {"collate_ns": (), "instrument_ns": ()}
    assert replace(RECORDS, **older).collate_ns == (), "what older versions did not record is no damage"


def test_the_table_of_resources_is_what_codes_and_fields_say() -> None:
    """A row without its name in a type, or its field in a record, would fail where it is first a cause."""
    assert sorted(row.name for row in RESOURCES) == sorted(get_args(ResourceName))
    assert get_args(SingleCause) == CAUSES
    assert {*INPUTS, *JUDGED, *WAITED} <= {*CAUSES}
    assert [row.remedy for row in RESOURCES if row.remedy] == list(get_args(Remedy))
    assert [row.mode for row in RESOURCES if row.mode] == list(get_args(Ablation))
    assert [bool(row.advice) for row in RESOURCES] == [bool(row.remedy) for row in RESOURCES]
    assert get_args(SpeedupCode) == tuple(f"speedups.{name}" for name in SPEEDUPS)
    waits = [kind for row in RESOURCES for kind in row.waits]
    assert sorted(["running", *waits]) == sorted(WAIT_KINDS)
    assert {*MOMENTS} == {*TIME_PARTS}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_in_summary_csv_flat_row_and_label(name: str) -> None:
    """With the value that the configuration has, under a name of its own. In the label of a row alone where it has a
    default, else beside another value; the data set's name says its layout."""
    usual = example_row()
    row = replace(usual, config=with_another(usual.config, name))
    value = OPTIONS[name].of(row.config)
    report = example_report([row])
    (summary,) = json.loads(summary_json(report))["configurations"]
    (line,) = csv.DictReader(StringIO(csv_report(report)))
    assert summary[name] == flat(row)[name] == value and line[name] == str(value)
    beside = [usual, row] if name in REQUIRED else [row]
    words, others = full_label(row, beside), full_label(usual, [usual, *beside][:2])
    assert name == "layout" or (words != others)
    assert name == "layout" or type(value) is bool or str(value).removeprefix("emulated:") in words


def test_every_field_of_a_configuration_is_an_option() -> None:
    """Under a name that no other has, also where it is one of its two records."""
    assert len(OPTIONS) == sum(len(fields(record)) for record in (RunConfig, LoaderSpec, ComputeSpec)) - 2


def test_every_figure_of_a_verdict_has_a_column() -> None:
    """Walking the record finds no number that the table forgets."""
    numbers = {f"gpu_window.use.{each.name}" for each in fields(DeviceUse)}
    for name, kind in get_type_hints(Verdict).items():
        inner = next((each for each in (kind, *get_args(kind)) if is_dataclass(each)), None)
        if kind in (float, float | None) or name == "images_per_s":
            numbers.add(name)
        elif inner and name not in ("bound", "advice", "unavailable"):
            numbers |= {f"{name}.{each.name}" for each in fields(inner) if each.name not in ("waits", "loader_without")}
    numbers |= {f"rates_images_per_s.loader_without.{name}" for name in INPUTS} | {*get_args(SpeedupCode)}
    assert numbers - {each.at for each in FIGURES} == set()
