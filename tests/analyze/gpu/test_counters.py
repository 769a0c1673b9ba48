"""Which readings of the GPU belong to training, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.gpu import gpu_figures, why_no_counters
from loaderprobe.records.measurement import Measurement, Missing, Segment, Series
from loaderprobe.records.remark import Remark, reported
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth

SECOND = 1_000_000_000
STEPS, BATCH = 10, 16


def _segment(begin_s: float, seconds: float) -> Segment:
    """Ten steps of 16 images, beginning and closing at these seconds."""
    begin_ns, step_ns = round(begin_s * SECOND), round(seconds * SECOND) // STEPS
    times = tuple(begin_ns + step * step_ns for step in range(STEPS))
    return Segment(
        mode="baseline", activity="training", round=0, first_batch=0, batch_size=BATCH, begin_ns=times, ready_ns=times,
        copied_ns=times, end_ns=times, finished_ns=times, closed_ns=begin_ns + STEPS * step_ns, thread_cpu_ns=0,
        delivered_bytes=None, disk_bytes=None, resident_before=None,
    )  # fmt: skip


def _series(name: str, *readings: tuple[float, float]) -> Series:
    times = tuple(round(seconds * SECOND) for seconds, _ in readings)
    return Series(name=name, unit="", source=f"source of {name}", time_ns=times, values=tuple(v for _, v in readings))


def _measurement(*series: Series, missing: tuple[Missing, ...] = (), images: bool = True) -> Measurement:
    truth = Truth(cpu_s=0.01, compute=1000.0, cores=2.0)
    return replace(measured(truth, 1), series=series, missing=missing, images=images)


TRAINING = [_segment(10, 1), _segment(20, 1)]
POWER = _series("gpu_power", (10.5, 300.0), (15, 50.0), (20.5, 340.0))


@pytest.mark.parametrize(
    ("series", "figures"),
    [
        # The mean of readings inside the segments, with its source; others do not count.
        (
            [_series("gpu_utilization", (9.9, 0.0), (10.5, 0.4), (15, 0.0), (21, 0.8))],
            {"utilization": pytest.approx(0.6), "source": "source of gpu_utilization"},
        ),
        # GPM's reading belongs to the time since the one before: only wholly inside ones count, by their length.
        (
            [_series("gpu_sm_occupancy", (9.9, 0.0), (10.1, 9.0), (10.3, 0.2), (10.9, 0.4), (20.1, 9.0), (20.3, 0.6))],
            {"sm_occupancy": pytest.approx((0.2 * 0.2 + 0.6 * 0.4 + 0.2 * 0.6) / 1.0)},
        ),
        # Joules between readings inside segments, over the images of that time: pauses between segments cost nothing.
        # 1 s of the 2 s of training, in which 160 of 320 images were trained on, took 400 J.
        (
            [
                _series("gpu_energy", (9, 0.0), (10.25, 1000.0), (10.75, 1160.0), (20.25, 9000.0), (20.75, 9240.0)),
                _series("gpu_power", (10.5, 77.0)),
            ],
            {"power_w": pytest.approx(400.0), "energy_j_per_image": pytest.approx(400 / 160)},
        ),
        # A counter that stands still, or was reset, is no energy; the power readings inside training remain.
        ([POWER, _series("gpu_energy", (10.2, 5.0), (10.8, 5.0))], {"power_w": pytest.approx(320.0)}),
        ([POWER, _series("gpu_energy", (10.2, 5.0), (10.8, 1.0))], {"power_w": pytest.approx(320.0)}),
        # Idleness is no throttling: the share of readings with another reason, and the reasons in words, known or not.
        (
            [_series("gpu_throttle", (10.1, 1), (10.2, 0), (10.3, 4), (10.4, 0x845), (15, 8))],
            {"throttled": 0.5, "throttle_reasons": "sw_power_cap, hw_thermal_slowdown, 0x800"},
        ),
        ([_series("gpu_throttle", (10.1, 1), (10.2, 0))], {"throttled": 0.0}),
        # Clocks are means over training; of other processes the most that were there at once counts.
        (
            [
                _series("gpu_sm_clock", (9, 200), (10.1, 1900), (20.1, 1800)),
                _series("gpu_memory_clock", (10.1, 2600)),
                _series("gpu_other_processes", (9, 5), (10.1, 0), (20.1, 2)),
            ],
            {"sm_clock_mhz": 1850.0, "memory_clock_mhz": 2600.0, "other_processes": 2},
        ),
    ],
)
def test_readings_inside_training_make_the_figures(series: list[Series], figures: dict[str, Any]) -> None:
    """Of each counter by its own rule, and nothing else."""
    assert gpu_figures(_measurement(*series), TRAINING) == figures


def test_a_single_average_in_a_segment_is_no_figure() -> None:
    """Where no reading lies wholly inside there is no occupancy, never 0."""
    measurement = _measurement(_series("gpu_sm_occupancy", (9.9, 0.1), (10.1, 0.9)))
    found = gpu_figures(measurement, TRAINING)
    assert found == {}
    assert why_no_counters(measurement, found) == {"gpu": Remark(code="no_reading_in_training")}


def test_every_gpm_series_has_its_figure() -> None:
    """Each series of the sampler comes out under its key, with bytes/s named."""
    shares = ("graphics_utilization", "sm_utilization", "sm_occupancy", "tensor_utilization", "dram_utilization")
    names = [*shares, "pcie_to_device", "pcie_from_device", "jpeg_utilization"]
    series = [_series(f"gpu_{name}", (10.2, 0.0), (10.4, float(n))) for n, name in enumerate(names, start=1)]
    found = gpu_figures(_measurement(*series), TRAINING)
    keys = [f"{name}_bytes_per_s" if name.startswith("pcie") else name for name in names]
    assert found == {key: float(n) for n, key in enumerate(keys, start=1)}


def test_samples_that_are_no_images_have_no_energy_an_image() -> None:
    """A data set without images gives power only."""
    energy = _series("gpu_energy", (10.25, 0.0), (10.75, 100.0))
    assert set(gpu_figures(_measurement(energy, images=False), TRAINING)) == {"power_w"}


def test_nothing_at_all_has_its_reason() -> None:
    """Without any reading the reason is the sampler's; without a sampler, that there was none."""
    missing = (Missing(name="gpu_utilization", reason=reported("the driver is not loaded")),)
    for measurement, reason in (
        (_measurement(missing=missing), reported("the driver is not loaded")),
        (_measurement(), Remark(code="no_gpu_sampled")),
    ):
        assert gpu_figures(measurement, TRAINING) == {}
        assert why_no_counters(measurement, {}) == {"gpu": reason}


def test_missing_occupancy_keeps_its_reason_beside_the_rest() -> None:
    """A GPU without GPM gives what it has, and why there is no occupancy."""
    missing = (
        Missing(name="gpu_sm_occupancy", reason=reported("no GPM")),
        Missing(name="gpu_power", reason=reported("not supported")),
    )
    measurement = _measurement(_series("gpu_utilization", (10.5, 0.4)), missing=missing)
    found = gpu_figures(measurement, TRAINING)
    assert why_no_counters(measurement, found) == {"gpu.sm_occupancy": reported("no GPM")}


def test_readings_that_ended_early_keep_their_reason() -> None:
    """A GPU lost midway leaves its figures, and why there are no more of each."""
    lost = Remark(code="nvml", facts={"status": 15, "ended_after_s": 3.0})
    missing = (Missing(name="gpu_utilization", reason=lost), Missing(name="gpu_sm_clock", reason=lost))
    series = (_series("gpu_utilization", (10.5, 0.4)), _series("gpu_sm_clock", (10.5, 1900)))
    measurement = _measurement(*series, missing=missing)
    found = gpu_figures(measurement, TRAINING)
    assert found["utilization"] == 0.4
    assert why_no_counters(measurement, found) == {"gpu.utilization": lost, "gpu.sm_clock_mhz": lost}
