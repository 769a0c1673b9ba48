"""Results that are one JSON file, as `--json` prints them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from loaderprobe.errors import BadValue, DamagedRun
from loaderprobe.records.bandwidth import BANDWIDTH_SCHEMA, BANDWIDTH_VERSION, BandwidthReport
from loaderprobe.store.codec import check_numbers, read

_HINT = "loaderprobe bandwidth PATH --json > FILE"


def read_bandwidth(path: Path) -> BandwidthReport:
    """The result that `loaderprobe bandwidth --json` wrote to a file. Raises BadValue, naming the file."""
    data = read(path)
    if data is None:
        raise BadValue(f"{path} does not exist", hint=f"give a sweep's directory, or a file: {_HINT}")
    try:
        tree: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRun(str(path), f"is no JSON: {error}", hint=_HINT) from error
    found = (tree.get("schema"), tree.get("schema_version")) if isinstance(tree, dict) else (None, None)
    if found != (BANDWIDTH_SCHEMA, BANDWIDTH_VERSION):
        reason = f"is no {BANDWIDTH_SCHEMA} of version {BANDWIDTH_VERSION}"
        raise DamagedRun(str(path), reason, hint=_HINT)
    try:
        check_numbers(tree)
        report = msgspec.convert(tree, BandwidthReport)
        _check(report)
    except (msgspec.ValidationError, BadValue) as error:
        raise DamagedRun(str(path), f"is damaged: {error}", hint=_HINT) from error
    return report


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
