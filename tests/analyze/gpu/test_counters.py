"""Which readings of the GPU, and which steps of the device, belong to training, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.gpu import gpu_figures, step_figures, why_no_counters
from loaderprobe.records.measurement import Missing, Segment, Series
from loaderprobe.records.remark import Remark, reported
from tests.analyze.scripted import Truth, measured

SECOND, MS = 1_000_000_000, 1_000_000
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


def _missing(reason: Remark, *names: str) -> tuple[Missing, ...]:
    return tuple(Missing(name=f"gpu_{name}", reason=reason) for name in names)


def _timed(*pairs: tuple[int, int], begin: int = 0) -> Segment:
    """Steps that the device began and ended at these milliseconds."""
    begun, ended = zip(*pairs, strict=True)
    return replace(
        _segment(begin / 1000, 1),
        device_begin_ns=tuple(at * MS for at in begun),
        finished_ns=tuple(at * MS for at in ended),
    )


TRAINING = [_segment(10, 1), _segment(20, 1)]
POWER = _series("gpu_power", (10.5, 300.0), (15, 50.0), (20.5, 340.0))


MEASURED = measured(Truth(cpu_s=0.01, compute=1000.0, cores=2.0), 1)
SHARES = ("graphics_utilization", "sm_utilization", "sm_occupancy", "tensor_utilization", "dram_utilization")
NAMES = (*SHARES, "pcie_to_device", "pcie_from_device", "jpeg_utilization")
KEYS = (*SHARES, "pcie_to_device_bytes_per_s", "pcie_from_device_bytes_per_s", "jpeg_utilization")
UTILIZATION = _series("gpu_utilization", (10.5, 0.4))
JOULES = _series("gpu_energy", (10.25, 0.0), (10.75, 100.0))
NO_DRIVER, NO_GPM = reported("the driver is not loaded"), reported("no GPM")
LOST = Remark(code="nvml", facts={"status": 15, "ended_after_s": 3.0})
# Fields of the measurement, the figures, and reasons for those that there are not.
COUNTERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Remark]]] = {
    "the mean of readings inside the segments, with its source": (
        {"series": [_series("gpu_utilization", (9.9, 0.0), (10.5, 0.4), (15, 0.0), (21, 0.8))]},
        {"utilization": pytest.approx(0.6), "source": "source of gpu_utilization"}, {},
    ),
    # GPM's reading belongs to the time since the one before.
    "of averages only those wholly inside, by their length": (
        {"series": [
            _series("gpu_sm_occupancy", (9.9, 0.0), (10.1, 9.0), (10.3, 0.2), (10.9, 0.4), (20.1, 9.0), (20.3, 0.6)),
        ]},
        {"sm_occupancy": pytest.approx((0.2 * 0.2 + 0.6 * 0.4 + 0.2 * 0.6) / 1.0)}, {},
    ),
    "a single average in a segment is no figure, never 0": (
        {"series": [_series("gpu_sm_occupancy", (9.9, 0.1), (10.1, 0.9))]}, {},
        {"gpu": Remark(code="no_reading_in_training")},
    ),
    "each series of the sampler under its key": (
        {"series": [_series(f"gpu_{name}", (10.2, 0.0), (10.4, float(n))) for n, name in enumerate(NAMES, 1)]},
        {key: float(n) for n, key in enumerate(KEYS, 1)}, {},
    ),
    # Pauses between segments cost nothing: 1 s of the 2 s of training, and 160 of its 320 images, took 400 J.
    "joules between readings inside segments, over the images of that time": (
        {"series": [
            _series("gpu_energy", (9, 0.0), (10.25, 1000.0), (10.75, 1160.0), (20.25, 9000.0), (20.75, 9240.0)),
            _series("gpu_power", (10.5, 77.0)),
        ]},
        {"power_w": pytest.approx(400.0), "energy_j_per_image": pytest.approx(400 / 160)}, {},
    ),
    "a counter that stands still is no energy": (
        {"series": [POWER, _series("gpu_energy", (10.2, 5.0), (10.8, 5.0))]}, {"power_w": pytest.approx(320.0)}, {},
    ),
    "nor is one that was reset": (
        {"series": [POWER, _series("gpu_energy", (10.2, 5.0), (10.8, 1.0))]}, {"power_w": pytest.approx(320.0)}, {},
    ),
    "samples that are no images have no energy an image": (
        {"series": [JOULES], "images": False}, {"power_w": pytest.approx(200.0)}, {},
    ),
    # Idleness is no throttling; reasons are in words, known or not.
    "the share of readings with another reason": (
        {"series": [_series("gpu_throttle", (10.1, 1), (10.2, 0), (10.3, 4), (10.4, 0x845), (15, 8))]},
        {"throttled": 0.5, "throttle_reasons": "sw_power_cap, hw_thermal_slowdown, 0x800"}, {},
    ),
    "no other reason": ({"series": [_series("gpu_throttle", (10.1, 1), (10.2, 0))]}, {"throttled": 0.0}, {}),
    "clocks are means, and of other processes the most at once counts": (
        {"series": [
            _series("gpu_sm_clock", (9, 200), (10.1, 1900), (20.1, 1800)), _series("gpu_memory_clock", (10.1, 2600)),
            _series("gpu_other_processes", (9, 5), (10.1, 0), (20.1, 2)),
        ]},
        {"sm_clock_mhz": 1850.0, "memory_clock_mhz": 2600.0, "other_processes": 2}, {},
    ),
    "no reading has the sampler's reason": ({"missing": _missing(NO_DRIVER, "utilization")}, {}, {"gpu": NO_DRIVER}),
    "or there was no sampler": ({}, {}, {"gpu": Remark(code="no_gpu_sampled")}),
    "a GPU without GPM has the rest, and why there is no occupancy": (
        {"series": [UTILIZATION], "missing": (*_missing(NO_GPM, "sm_occupancy"), *_missing(reported("no"), "power"))},
        {"utilization": 0.4, "source": "source of gpu_utilization"}, {"gpu.sm_occupancy": NO_GPM},
    ),
    "a GPU that was lost leaves its figures, and why there are no more of each": (
        {
            "series": [UTILIZATION, _series("gpu_sm_clock", (10.5, 1900))],
            "missing": _missing(LOST, "utilization", "sm_clock"),
        },
        {"utilization": 0.4, "source": "source of gpu_utilization", "sm_clock_mhz": 1900.0},
        {"gpu.utilization": LOST, "gpu.sm_clock_mhz": LOST},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTERS)
def test_readings_inside_training_make_the_figures(name: str) -> None:
    """Of each counter by its own rule, and nothing else; what is missing has its reason."""
    facts, figures, reasons = COUNTERS[name]
    measurement = replace(MEASURED, **{"series": (), "missing": (), **facts})
    found = gpu_figures(measurement, TRAINING)
    assert found == figures
    assert why_no_counters(measurement, found) == reasons


STEPPED: dict[str, tuple[list[Segment], dict[str, Any]]] = {
    # Steps of 10 ms with pauses of 20, 0, 30 and 10: on an H100, 16 workers that began together made one wait of all.
    "what lies before a step": (
        [_timed((20, 30), (30, 40), (70, 80), (90, 100))],
        {
            "exposed_wait_fraction": 60 / 100, "exposed_wait_ms_p50": 15, "exposed_wait_ms_p95": 28.5,
            "step_ms_p50": 10, "step_ms_p95": 10,
        },
    ),
    "pauses between segments are no wait": (
        [_timed((0, 10), (10, 20)), _timed((900, 910), (910, 920), begin=900)], {"exposed_wait_fraction": 0},
    ),
    "no events": ([_segment(0, 1)], {}),
    "a single step": ([_timed((10, 20))], {"exposed_wait_fraction": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_the_device_waits_between_its_steps(name: str) -> None:
    """By its own events; without them there is no figure."""
    segments, figures = STEPPED[name]
    found = step_figures(segments)
    assert {figure: found[figure] for figure in figures} == pytest.approx(figures)
    assert bool(found) == bool(figures)
