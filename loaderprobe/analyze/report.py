"""From the results of a run to the `Report` that renderers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loaderprobe.analyze.forecast.advice import Place, Recommendation
from loaderprobe.analyze.forecast.groups import Known, recommend_groups
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.analyze.gpu.window import Seen, held_against, look
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rounds import ablations
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
_NOT_MEASURED = "this configuration was not measured"


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
            details.append(_detail(result, judged, seen))
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
    emulated = measurement.compute.specified_images_per_s is not None
    return replace(
        _row(measurement.config, "measured", None, emulated=emulated),
        images_per_s=judged.images_per_s,
        rates_images_per_s=judged.rates,
        gains=judged.gains,
        predicted_images_per_s=judged.predicted_images_per_s,
        prediction_error=judged.prediction_error,
        input_wait_fraction=judged.input_wait_fraction,
        accelerator_utilization=judged.accelerator_utilization,
        bytes_per_image=judged.bytes_per_image,
        disk_read_bytes_per_s=judged.disk_read_bytes_per_s,
        cold_fraction=judged.cold_fraction,
        disk_ceiling_fraction=judged.disk_ceiling_fraction,
        read_amplification=judged.read_amplification,
        other_read_bytes_per_s=judged.other_read_bytes_per_s,
        files_were=judged.files_were,
        instrument_cpu_fraction=judged.instrument_cpu_fraction,
        gpu=judged.gpu,
        bound=judged.bound,
        advice=advised.advice,
        forecasts=advised.forecasts,
        unavailable=judged.unavailable,
        gpu_window=held_against(seen.window, judged.accelerator_utilization),
    )


def _unmeasured_row(config: RunConfig, failure: RunFailure | None) -> ConfigurationRow:
    emulated = config.compute.startswith("emulated")
    if failure is None:
        return _row(config, "skipped", "not measured yet", emulated=emulated)
    hint = f"; {failure.hint}" if failure.hint else ""
    return _row(config, "failed", f"{failure.reason} (at: {failure.stage}){hint}", emulated=emulated)


def _row(config: RunConfig, status: Status, reason: str | None, *, emulated: bool) -> ConfigurationRow:
    """A row without figures."""
    return ConfigurationRow(
        key=config.key,
        resolution=config.resolution,
        workers=config.workers,
        batch_size=config.batch_size,
        prefetch_factor=config.prefetch_factor,
        loader=config.loader,
        pipeline=config.pipeline,
        decoder=config.decoder,
        tensor=config.tensor,
        compute=config.compute,
        emulated=emulated,
        cache=config.cache,
        status=status,
        reason=reason,
        images_per_s=None,
        rates_images_per_s=None,
        gains=None,
        predicted_images_per_s=None,
        prediction_error=None,
        input_wait_fraction=None,
        accelerator_utilization=None,
        bytes_per_image=None,
        disk_read_bytes_per_s=None,
        cold_fraction=None,
        disk_ceiling_fraction=None,
        read_amplification=None,
        other_read_bytes_per_s=None,
        instrument_cpu_fraction=None,
        gpu={"unavailable": _NOT_MEASURED},
        bound=None,
        advice=(),
        unavailable={"*": reason} if reason else {},
    )


def _detail(measurement: Measurement, judged: Verdict, seen: Seen) -> Detail:
    return Detail(
        key=measurement.config.key,
        step_time=judged.step_time,
        worker_time=judged.worker_time,
        compute_device=measurement.compute.device,
        compute_source=measurement.compute.source,
        first_batch_s=measurement.first_batch_s,
        notes=measurement.notes,
        ablations=ablations(measurement),
        picture=seen.picture,
    )
