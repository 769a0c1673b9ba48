"""From the results of a run to the `Report` that renderers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loaderprobe.analyze.forecast.advice import Place, Recommendation
from loaderprobe.analyze.forecast.groups import Known, recommend_groups
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.analyze.gpu.window import Seen, held_against, look
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rounds import why
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import FileSet, RunConfig
from loaderprobe.records.environment import Environment
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.report import (
    SUMMARY_SCHEMA,
    SUMMARY_VERSION,
    ConfigurationRow,
    DataInfo,
    Detail,
    Report,
    RunInfo,
    Status,
    Summary,
)
from loaderprobe.records.verdict import Verdict

Result = Measurement | RunFailure | None


def build_report(
    *, name: str, created_utc: str, command: str, environment: Environment,
    files: Sequence[FileSet], results: Sequence[tuple[RunConfig, Result]],
    ceilings: Mapping[str, StorageCeiling], accelerators: Mapping[str, float] | None = None,
) -> Report:  # fmt: skip
    """Judge every result and put them together, in the order of the sweep.

    `ceilings` of the storage are by file set; `accelerators` gives images/s by name.
    """
    rows: list[ConfigurationRow] = []
    details: list[Detail] = []
    recommendations, knees = recommend_groups(
        [result for _, result in results if isinstance(result, Measurement)],
        _known(files, environment, ceilings, accelerators or {}),
    )
    for config, result in results:
        if isinstance(result, Measurement):
            seen = look(result)
            judged = verdict(result, ceilings.get(config.data), seen)
            rows.append(_measured_row(result, judged, recommendations[config.key], seen))
            details.append(_detail(result, seen))
        else:
            rows.append(_unmeasured_row(config, result))
    run = _run_info(name, created_utc, command, files, [result for _, result in results])
    summary = Summary(
        schema=SUMMARY_SCHEMA,
        schema_version=SUMMARY_VERSION,
        run=run,
        environment=environment,
        configurations=tuple(rows),
        knees=knees,
    )
    return Report(summary=summary, details=tuple(details))


def _run_info(
    name: str, created_utc: str, command: str, files: Sequence[FileSet], results: Sequence[Result]
) -> RunInfo:
    pending = sum(result is None for result in results)
    return RunInfo(
        name=name,
        created_utc=created_utc,
        command=command,
        complete=pending == 0,
        pending=pending,
        wall_s=sum(result.wall_s for result in results if result is not None),
        data=tuple(_data_info(file_set) for file_set in files),
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


def _measured_row(measurement: Measurement, judged: Verdict, advised: Recommendation, seen: Seen) -> ConfigurationRow:
    return ConfigurationRow(
        config=measurement.config,
        status="measured",
        reason=None,
        verdict=replace(judged, advice=advised.advice),
        emulated=measurement.compute.specified_images_per_s is not None,
        forecasts=advised.forecasts,
        gpu_window=held_against(seen.window, judged.accelerator_utilization),
    )


def _unmeasured_row(config: RunConfig, failure: RunFailure | None) -> ConfigurationRow:
    status: Status = "skipped" if failure is None else "failed"
    reason = "not measured yet"
    if failure is not None:
        reason = f"{failure.reason} (at: {failure.stage}){f'; {failure.hint}' if failure.hint else ''}"
    emulated = config.compute.name.startswith("emulated")
    return ConfigurationRow(config=config, status=status, reason=reason, verdict=None, emulated=emulated)


def _detail(measurement: Measurement, seen: Seen) -> Detail:
    return Detail(
        key=measurement.config.key,
        compute_device=measurement.compute.device,
        compute_source=measurement.compute.source,
        first_batch_s=measurement.first_batch_s,
        notes=measurement.notes,
        decided=why(measurement),
        picture=seen.picture,
    )
