"""SM occupancy from GPM: what is compared with what, how often, and every way in which it is not there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.samplers.nvml import FATAL, FIGURES, METRICS, UNSUPPORTED, NvmlSampler
from tests.said import said
from tests.samplers.fake_nvml import NVML_ERRORS, FakeNvml
from tests.samplers.test_nvml import reasons, sample, values

NO_GPM = said(UNSUPPORTED)
NAMES = {metric.name for metric in METRICS}


def _series(found: Sequence[Series | Missing], name: str) -> Series:
    return next(item for item in found if isinstance(item, Series) and item.name == name)


def test_a_reading_is_the_average_since_the_one_before() -> None:
    """The first sample alone is no reading; each later one is compared with its neighbour, in our units."""
    found = values(sample(FakeNvml(gpm=True), times=4))
    assert found["gpu_sm_occupancy"] == pytest.approx([0.032] * 3)
    assert found["gpu_sm_utilization"] == pytest.approx([0.022] * 3)
    assert found["gpu_pcie_to_device"] == pytest.approx([21.2 * 2**20] * 3)
    assert found["gpu_pcie_from_device"] == pytest.approx([20.2 * 2**20] * 3)


def test_the_whole_time_is_one_average_of_first_and_last() -> None:
    """The mean of each metric compares the first sample with the last, and says over how long."""
    found = sample(FakeNvml(gpm=True), times=6)
    mean = _series(found, "gpu_sm_occupancy_mean")
    assert mean.values == pytest.approx([0.04]) and "over the 1.0 s before" in mean.source
    assert mean.time_ns == (_series(found, "gpu_sm_occupancy").time_ns[-1],)
    assert {f"{name}_mean" for name in NAMES} <= set(values(found))


def test_samples_are_never_closer_than_the_driver_refreshes() -> None:
    """However often it is asked, two samples are at least 110 ms apart, and none is lost by waiting."""
    nvml = FakeNvml(gpm=True)
    with NvmlSampler(nvml.clock, "GPU-1", nvml) as sampler:
        for _ in range(100):
            sampler.sample()
            nvml.clock.sleep(0.03)
    series = _series(list(sampler.series()), "gpu_sm_occupancy")
    gaps = [b - a for a, b in zip(series.time_ns, series.time_ns[1:], strict=False)]
    assert min(gaps) == max(gaps) == 120_000_000 and len(gaps) == 23


def test_the_busiest_jpeg_engine_counts_and_absent_ones_do_not() -> None:
    """Engines with a bad status are left out; with none left there is a reason."""
    nvml = FakeNvml(gpm=True)
    nvml.metric_status = {46: 3, 47: 3}
    assert values(sample(nvml, times=2))["gpu_jpeg_utilization"] == pytest.approx([0.452])
    nvml = FakeNvml(gpm=True)
    nvml.metric_status = dict.fromkeys(range(40, 48), 3)
    assert reasons(sample(nvml, times=2))["gpu_jpeg_utilization"] == f"GPM: {NVML_ERRORS[3]}"


@pytest.mark.parametrize("status", [3, 4, 6, 21, 999, 1234])
def test_each_metric_has_a_status_of_its_own(status: int) -> None:
    """A metric that failed within a good answer is missing with its reason, series and mean, and the others stay."""
    nvml = FakeNvml(gpm=True)
    nvml.metric_status = {3: status}
    found = sample(nvml, times=3)
    expected = f"GPM: {NVML_ERRORS.get(status, 'NVML error 1234')}"
    assert reasons(found) == {"gpu_sm_occupancy": expected, "gpu_sm_occupancy_mean": expected}
    assert NAMES - set(values(found)) == {"gpu_sm_occupancy"}


def test_a_number_that_is_none_is_missing() -> None:
    """NaN with status success is no reading."""

    class Odd(FakeNvml):
        def nvmlGpmMetricsGet(self, asked: object) -> None:
            super().nvmlGpmMetricsGet(asked)  # type: ignore[arg-type]  # handed on as it came
            for metric in asked.metrics:  # type: ignore[attr-defined]  # a MetricsGet
                metric.value = math.nan

    found = sample(Odd(gpm=True), times=2)
    assert reasons(found)["gpu_sm_occupancy"] == "GPM gave no number"
    assert not NAMES & set(values(found))


def test_without_gpm_the_rest_is_read() -> None:
    """A GPU of another kind has one reason for all of GPM, is asked once, and gives all else."""
    found = sample(FakeNvml(), times=3)
    assert {reasons(found)[name] for name in NAMES} == {NO_GPM}
    assert set(values(found)) == {figure.name for figure in FIGURES}
    assert reasons(sample(FakeNvml(gpm_support=3)))["gpu_sm_occupancy"] == NO_GPM


@pytest.mark.parametrize("call", ["gpm_support", "gpm_alloc", "gpm_sample", "gpm_metrics"])
@pytest.mark.parametrize("value", [value for value in NVML_ERRORS if value != 3])
def test_no_error_is_ever_a_reading(call: str, value: int) -> None:
    """Whichever call of GPM fails and however: a reason, no reading, every sample given back, NVML closed."""
    nvml = FakeNvml(gpm=True)
    nvml.failing[call] = value
    found = sample(nvml, times=3)
    assert not NAMES & set(values(found))
    assert {reasons(found)[name] for name in NAMES} == {f"GPM: {NVML_ERRORS[value]}"}
    assert (nvml.open, nvml.samples) == (0, 0)
    assert value in FATAL or len(values(found)["gpu_utilization"]) == 3


def test_a_gpu_lost_midway_keeps_its_readings() -> None:
    """Readings and the mean up to the loss stay, with the reason for the rest; a failing free stops nothing."""
    nvml = FakeNvml(gpm=True)
    with NvmlSampler(nvml.clock, "GPU-1", nvml) as sampler:
        for number in range(5):
            if number == 3:
                nvml.failing.update(gpm_sample=15, gpm_free=15)
            sampler.sample()
            nvml.clock.sleep(0.2)
    found = list(sampler.series())
    assert len(values(found)["gpu_sm_occupancy"]) == 2
    assert values(found)["gpu_sm_occupancy_mean"] == pytest.approx([0.034])
    assert reasons(found)["gpu_sm_occupancy"].startswith("GPM: the GPU has been lost; its readings end 400 ms")


def test_a_sample_that_fails_once_makes_one_longer_average() -> None:
    """After a failure the next reading reaches back to the last good sample: nothing in between is lost."""
    nvml = FakeNvml(gpm=True)
    with NvmlSampler(nvml.clock, "GPU-1", nvml) as sampler:
        for failing in (False, False, True, False, False):
            nvml.failing = {"gpm_sample": 21} if failing else {}
            sampler.sample()
            nvml.clock.sleep(0.2)
    found = list(sampler.series())
    assert values(found)["gpu_sm_occupancy"] == pytest.approx([0.032, 0.034, 0.032])
    assert "gpu_sm_occupancy" not in reasons(found)


def test_a_mig_instance_is_sampled_on_its_parent() -> None:
    """GPM takes an instance's samples on the whole GPU, by the instance's number."""
    nvml = FakeNvml(gpm=True)
    nvml.instance = 7
    sample(nvml, times=2)
    assert nvml.taken_on == [("parent", 7)] * 2


def test_numbers_of_metrics_are_those_of_the_library() -> None:
    """The ids are pynvml's for what the names say, and its struct holds all of them."""
    pynvml = pytest.importorskip("pynvml")
    names = {
        "gpu_graphics_utilization": "GRAPHICS_UTIL",
        "gpu_sm_utilization": "SM_UTIL",
        "gpu_sm_occupancy": "SM_OCCUPANCY",
        "gpu_tensor_utilization": "ANY_TENSOR_UTIL",
        "gpu_dram_utilization": "DRAM_BW_UTIL",
        "gpu_pcie_to_device": "PCIE_RX_PER_SEC",
        "gpu_pcie_from_device": "PCIE_TX_PER_SEC",
        "gpu_jpeg_utilization": "NVJPG_0_UTIL",
    }
    assert {metric.name: metric.ids[0] for metric in METRICS} == {
        name: getattr(pynvml, f"NVML_GPM_METRIC_{constant}") for name, constant in names.items()
    }
    assert sum(len(metric.ids) for metric in METRICS) < pynvml.NVML_GPM_METRIC_MAX
    assert pynvml.NVML_GPM_METRIC_NVJPG_7_UTIL == 47
