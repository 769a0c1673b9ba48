"""Verdicts and forecasts of the cases in `study`."""

from __future__ import annotations

from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import (
    Action,
    Advice,
    Bound,
    Evidence,
    Forecast,
    Interval,
    Rates,
    Reason,
    Speedup,
    Speedups,
    StepTime,
    Verdict,
    WorkerTime,
)
from loaderprobe.testing.fakes import NO_GPU
from tests.examples.study import BATCH_SIZE, BYTES, CEILING, DISK_BYTES_PER_S, NO_TRANSPORT, Case


def _speedups(case: Case) -> Speedups:
    whole, without_storage, without_preprocessing = case.loader
    before = case.end_to_end(whole)

    def speedup(rate: float) -> Speedup:
        value = rate / before
        return Speedup(value=value, low=value * 0.96, high=value * 1.04, how=case.how)

    return Speedups(
        storage=speedup(case.end_to_end(without_storage)),
        preprocessing=speedup(case.end_to_end(without_preprocessing)),
        transport=None,
        compute=speedup(whole),
    )


def _bound(case: Case, speedups: Speedups) -> Bound:
    assert speedups.storage
    assert speedups.compute
    return Bound(
        side=case.side,
        cause=case.cause,
        candidates=case.candidates,
        reason=_reason(case, speedups),
        evidence=(
            Evidence(metric="speedups.storage", value=speedups.storage.value, threshold=1.05, unit="x"),
            Evidence(metric="speedups.compute", value=speedups.compute.value, threshold=1.05, unit="x"),
            Evidence(metric="cold_fraction", value=0.99, threshold=None, unit=""),
        ),
    )


def _reason(case: Case, speedups: Speedups) -> Reason:
    """With the facts that the rule would leave."""
    training = case.end_to_end(case.loader[0]) * (1 + case.drift)
    facts: dict[str, float | str] = {
        "judged": "training",
        "images_per_s": training,
        "loader_images_per_s": case.loader[0],
        "compute_images_per_s": CEILING[case.compute],
        "utilization": training / CEILING[case.compute],
        "device": "emulated" if case.compute.startswith("emulated:") else "measured",
    }
    if case.cause == "balanced":
        return Reason(code="no_speedup", facts={**facts, "least_speedup": 1.05})
    if case.cause == "inconclusive":
        return Reason(code="outside_noise_band", facts={**facts, "predicted_share": 1 + case.drift, "noise_band": 0.1})
    for name in case.candidates:
        facts[f"{name}_speedup"] = getattr(speedups, name).value
        facts[f"{name}_how"] = case.how
    if case.cause == "either":
        return Reason(code="speedups_alike", facts=facts)
    resource = "preprocessing" if case.cause == "cpu" else case.cause
    facts |= {"resource": resource, "speedup": getattr(speedups, resource).value, "how": case.how}
    if resource == "storage":
        share = training * BYTES[case.resolution] / DISK_BYTES_PER_S
        facts |= {"read_bytes_per_s": share * DISK_BYTES_PER_S, "ceiling_share": share}
        facts["concurrency"] = float(max(1, case.workers))
    if resource == "compute" and speedups.storage and speedups.storage.value >= 1.05:
        facts |= {"input": "storage", "input_speedup": speedups.storage.value, "input_how": case.how}
    return Reason(code="all_cores_busy" if case.cause == "cpu" else "largest_speedup", facts=facts)


def _rates(case: Case) -> Rates:
    return Rates(
        compute=CEILING[case.compute],
        loader=case.loader[0],
        loader_without_storage=case.loader[1],
        loader_without_preprocessing=case.loader[2],
        loader_without_transport=None,
        cpu_limit=660.0,
    )


def _advice(case: Case, speed: float, speedups: Speedups) -> tuple[Advice, ...]:
    """Files in memory where storage is the limit; no faster device where training is input-bound."""
    before = Interval(value=speed, low=speed * 0.97, high=speed * 1.03)
    wasted = Advice(
        action=Action(code="accelerator_gains_nothing", facts={"until_images_per_s": CEILING[case.compute]}),
        speedup=1.0, before=before, after=before, how="measured",
    )  # fmt: skip
    if case.cause != "storage" or not speedups.storage:
        return (wasted,) if case.side == "input" else ()
    speedup, after = speedups.storage.value, speed * speedups.storage.value
    cache = Advice(
        action=Action(code="files_in_memory", facts={"share": 1.0, "bytes": 1e9}),
        command="find /data/imagenet-like -type f -exec cat {} + >/dev/null",
        speedup=speedup,
        before=before,
        after=Interval(value=after, low=after * 0.9, high=after * 1.1),
        how=case.how,
        bottleneck="preprocessing",
    )
    return (cache, wasted)


def forecasts_of(case: Case, speed: float) -> tuple[Forecast, ...]:
    """One that was made and one that was refused."""
    return (
        Forecast(
            changed="accelerator", to="mlperf-a100", bottleneck="storage", how="estimated", refused=None,
            images_per_s=Interval(value=speed, low=speed * 0.9, high=speed * 1.1),
        ),
        Forecast(
            changed="workers", to="64", images_per_s=None, bottleneck=None, how="estimated",
            refused=Remark(code="more_than_cores", facts={"cores": 2.0}),
        ),
    )  # fmt: skip


def verdict_of(case: Case) -> Verdict:
    speedups, predicted = _speedups(case), case.end_to_end(case.loader[0])
    speed = predicted * (1 + case.drift)
    disk = speed * BYTES[case.resolution]
    step_time, worker_time = _times(case, speed)
    return Verdict(
        images_per_s=Interval(value=speed, low=speed * 0.97, high=speed * 1.03),
        complete_rounds=3,
        rates_images_per_s=_rates(case),
        speedups=speedups,
        predicted_images_per_s=predicted,
        prediction_error=case.drift,
        input_wait_fraction=max(0.0, 1 - speed / CEILING[case.compute]),
        accelerator_utilization=speed / CEILING[case.compute],
        bytes_per_image=BYTES[case.resolution],
        disk_read_bytes_per_s=disk,
        cold_fraction=0.99,
        disk_ceiling_fraction=disk / DISK_BYTES_PER_S,
        read_amplification=0.99,
        other_read_bytes_per_s=0.0,
        decoding_cpu_fraction=0.7,
        instrument_cpu_fraction=0.002,
        gpu={},
        bound=_bound(case, speedups),
        advice=_advice(case, speed, speedups),
        step_time=step_time,
        worker_time=worker_time,
        files_were=None,
        unavailable={
            **dict.fromkeys(("speedups.transport", "rates_images_per_s.loader_without_transport"), NO_TRANSPORT),
            "gpu": NO_GPU,
        },
    )


def _times(case: Case, speed: float) -> tuple[StepTime, WorkerTime]:
    per_batch = BATCH_SIZE / speed
    step = min(BATCH_SIZE / CEILING[case.compute], per_batch * 0.94)
    blocked = BYTES[case.resolution] / DISK_BYTES_PER_S
    share = max(0.0, max(1, case.workers) / speed - blocked)
    return (
        StepTime(
            wait_s=max(0.0, per_batch * 0.97 - step), copy_s=per_batch * 0.02, step_s=step, other_s=per_batch * 0.01
        ),
        WorkerTime(cpu_s=share * 0.9, run_delay_s=share * 0.1, blocked_s=blocked),
    )
