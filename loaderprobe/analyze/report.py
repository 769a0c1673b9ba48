"""From the results of a run to the `Report` that renderers show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from loaderprobe.analyze.epochs import epochs_of
from loaderprobe.analyze.forecast.advice import Place, Recommendation
from loaderprobe.analyze.forecast.groups import Known, recommend_groups
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.analyze.gpu.window import WindowReading, checked_against_rates, read_window
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.outlook import outlooks
from loaderprobe.analyze.prefilled import buffer_effect
from loaderprobe.analyze.ranks_view import ranks_view
from loaderprobe.analyze.steps_view import steps_view
from loaderprobe.analyze.then import next_limits
from loaderprobe.analyze.verdict import one_thread
from loaderprobe.analyze.verdict.disturbance import disturbance_notes
from loaderprobe.analyze.verdict.rounds import ablations
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION, Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import (
    SUMMARY_SCHEMA,
    ConfigurationRow,
    DamagedFile,
    DataInfo,
    Detail,
    Report,
    RunInfo,
    Status,
    Summary,
)
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.records.verdict import Verdict

Result = Measurement | RunFailure | DamagedFile | None
Judged = tuple[Verdict, WindowReading]


@dataclass(frozen=True, slots=True, kw_only=True)
class Studies:
    """What was measured beside the verdicts, by key of the configuration."""

    prefilled: Mapping[str, Prefilled] = field(default_factory=dict)
    epochs: Mapping[str, EpochsMeasured] = field(default_factory=dict)


def build_report(
    *, name: str, created_utc: str, command: str, environment: Environment,
    files: Sequence[FileSet], results: Sequence[tuple[RunConfig, Result]],
    ceilings: Mapping[str, StorageCeiling], accelerators: Mapping[str, float] | None = None,
    damaged: Sequence[DamagedFile] = (), studies: Studies | None = None,
) -> Report:  # fmt: skip
    """Judge every result and put them together, in the order of the sweep.

    `ceilings` of the storage are by file set; `accelerators` gives images/s by name; `damaged` are files of the run
    beside its results; `studies` were measured beside the verdicts. A measurement that cannot be judged spoils its
    own row.
    """
    judged = {
        config.key: _judged(result, ceilings.get(config.data))
        for config, result in results
        if isinstance(result, Measurement)
    }
    results = [(config, _unless_damaged(result, judged.get(config.key))) for config, result in results]
    rows: list[ConfigurationRow] = []
    details: list[Detail] = []
    recommendations, knees = recommend_groups(
        [result for _, result in results if isinstance(result, Measurement)],
        _known(files, environment, ceilings, accelerators or {}),
    )
    for config, result in results:
        found = judged.get(config.key)
        if isinstance(result, Measurement) and isinstance(found, tuple):
            row = _measured_row(result, *found, recommendations[config.key])
            rows.append(_with_studies(row, result, studies or Studies(), files))
            details.append(_detail(result, *found))
        elif not isinstance(result, Measurement):
            rows.append(_unmeasured_row(config, result))
    summary = Summary(
        schema=SUMMARY_SCHEMA,
        schema_version=SCHEMA_VERSION,
        run=_run_info(name, created_utc, command, files, [result for _, result in results], damaged),
        environment=environment,
        configurations=tuple(rows),
        knees=knees,
    )
    measurements = {config.key: result for config, result in results if isinstance(result, Measurement)}
    return Report(
        summary=summary,
        details=tuple(details),
        outlooks=outlooks(rows, measurements, files, ceilings, accelerators or {}),
    )


def _judged(measurement: Measurement, ceiling: StorageCeiling | None) -> Judged | DamagedFile:
    """The verdict; or, where the arithmetic breaks down on what was stored, the file and the reason."""
    try:
        reading = read_window(measurement)
        found = verdict(measurement, ceiling, reading), reading
        if _all_finite(asdict(found[0])):
            return found
        reason = "a figure is infinite"
    except (LoaderprobeError, ArithmeticError, ValueError, LookupError) as error:
        reason = f"{type(error).__name__}: {error}"
    return DamagedFile(file=f"measurements/{measurement.config.key}.json", reason=f"cannot be judged: {reason}")


def _all_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_all_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _unless_damaged(result: Result, judged: Judged | DamagedFile | None) -> Result:
    return judged if isinstance(judged, DamagedFile) else result


def _run_info(
    name: str, created_utc: str, command: str, files: Sequence[FileSet], results: Sequence[Result],
    damaged: Sequence[DamagedFile],
) -> RunInfo:  # fmt: skip
    pending = sum(result is None for result in results)
    return RunInfo(
        name=name,
        created_utc=created_utc,
        command=command,
        complete=pending == 0,
        pending=pending,
        wall_s=sum(result.wall_s for result in results if isinstance(result, Measurement | RunFailure)),
        data=tuple(_data_info(file_set) for file_set in files),
        notes=disturbance_notes(result for result in results if isinstance(result, Measurement)),
        damaged=(*damaged, *dict.fromkeys(result for result in results if isinstance(result, DamagedFile))),
    )


def _data_info(files: FileSet) -> DataInfo:
    return DataInfo(
        label=files.label,
        root=files.root,
        generated=files.generated,
        images_found=files.images_found,
        images_used=len(files.paths),
        mean_size_bytes=files.mean_size_bytes,
        skipped_count=files.skipped_count,
        skipped=tuple(f"{file.path}: {file.reason}" for file in files.skipped),
    )


def _known(
    files: Sequence[FileSet],
    environment: Environment,
    ceilings: Mapping[str, StorageCeiling],
    accelerators: Mapping[str, float],
) -> Known:
    return Known(
        storage={each.fingerprint: Storage(ceiling=ceilings.get(each.fingerprint)) for each in files},
        places={
            each.fingerprint: Place(
                root=each.root,
                size_bytes=each.mean_size_bytes * each.images_found,
                memory_bytes=environment.memory_bytes,
            )
            for each in files
            if each.size_bytes
        },
        accelerators=accelerators,
    )


def _measured_row(
    measurement: Measurement, judged: Verdict, reading: WindowReading, advised: Recommendation
) -> ConfigurationRow:
    return ConfigurationRow(
        config=measurement.config,
        status="measured",
        reason=None,
        verdict=replace(judged, advice=advised.advice),
        emulated=measurement.compute.specified_images_per_s is not None,
        forecasts=advised.forecasts,
        gpu_window=checked_against_rates(reading.window, judged.accelerator_utilization),
    )


def _with_studies(
    row: ConfigurationRow, measurement: Measurement, studies: Studies, files: Sequence[FileSet]
) -> ConfigurationRow:
    assert row.verdict
    epochs = studies.epochs.get(row.key)
    own = next((each for each in files if each.fingerprint == row.config.data), None)
    return replace(
        row,
        buffer=buffer_effect(measurement, row.verdict, studies.prefilled.get(row.key)),
        epochs=None if epochs is None else epochs_of(epochs, own),
    )


def _unmeasured_row(config: RunConfig, failure: RunFailure | DamagedFile | None) -> ConfigurationRow:
    status: Status = "skipped" if failure is None else "failed"
    reason = Remark(code="not_measured")
    if isinstance(failure, DamagedFile):
        reason = Remark(code="result_damaged", facts={"file": failure.file, "error": failure.reason})
    elif failure is not None:
        facts: dict[str, float | str] = {"error": failure.reason, "stage": failure.stage, "hint": failure.hint}
        if failure.rank is not None:
            facts |= {"rank": str(failure.rank), "host": failure.host}
        reason = Remark(code="failed", facts=facts)
    emulated = config.compute.name.startswith("emulated")
    return ConfigurationRow(config=config, status=status, reason=reason, verdict=None, emulated=emulated)


def _detail(measurement: Measurement, judged: Verdict, reading: WindowReading) -> Detail:
    return Detail(
        key=measurement.config.key,
        compute_device=measurement.compute.device,
        compute_source=measurement.compute.source,
        first_batch_s=measurement.first_batch_s,
        notes=(*measurement.notes, *one_thread.notes(measurement)),
        ablations=ablations(measurement),
        view=reading.view,
        steps=None if reading.view else steps_view(measurement),
        ranks=ranks_view(measurement, judged),
        then=next_limits(judged, max(1, measurement.config.loader.workers) * measurement.ranks),
    )
