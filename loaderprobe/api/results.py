"""Whatever a directory holds: a sweep's run, or the result of another command."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from loaderprobe.api.load import Run, load
from loaderprobe.api.shown import Documented
from loaderprobe.records.batch_size import BATCH_SIZE_PAPER_SCHEMA, BATCH_SIZE_SCHEMA
from loaderprobe.records.compare import COMPARE_SCHEMA
from loaderprobe.records.devices import DEVICES_SCHEMA
from loaderprobe.records.diagnosis import DIAGNOSIS_SCHEMA
from loaderprobe.records.layers import LAYERS_SCHEMA
from loaderprobe.records.rank_bandwidth import RANK_BANDWIDTH_SCHEMA
from loaderprobe.records.trace import TRACE_SCHEMA
from loaderprobe.records.tune_workers import TUNE_WORKERS_SCHEMA
from loaderprobe.records.watch import WATCH_SCHEMA
from loaderprobe.store.results import RESULT, read_result

RESULTS = {
    BATCH_SIZE_SCHEMA: "batch_size:BatchSize",
    BATCH_SIZE_PAPER_SCHEMA: "batch_size_paper:BatchSizePaper",
    COMPARE_SCHEMA: "compare:Comparison",
    DEVICES_SCHEMA: "devices:Devices",
    DIAGNOSIS_SCHEMA: "diagnose:Diagnosis",
    LAYERS_SCHEMA: "layers:Layers",
    RANK_BANDWIDTH_SCHEMA: "rank_bandwidth:RankBandwidth",
    TRACE_SCHEMA: "trace:Trace",
    TUNE_WORKERS_SCHEMA: "tune_workers:WorkersTuning",
    WATCH_SCHEMA: "watch:Watch",
}
"""module:class of each kind of result, by its schema."""


def load_any(path: Path) -> Run | Documented:
    """The run or the result in a directory, or the result in a file. Raises BadValue when there is neither."""
    if not path.is_file() and not (path / RESULT).exists():
        return load(path)
    found: Documented = read_result(path, type_of)
    return found


def type_of(schema: str) -> type[Documented] | None:
    """The class of the results with this schema; None for one that has none."""
    module, _, name = RESULTS.get(schema, "").partition(":")
    found: type[Documented] | None = getattr(import_module(f"loaderprobe.api.{module}"), name) if module else None
    return found
