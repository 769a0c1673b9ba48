"""NVML on a fake of pynvml: figures, GPM's averages, and every way in which they are not there."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.render.remarks import NVML_ERRORS
from loaderprobe.samplers.nvml import FATAL, FIGURES, METRICS, UNSUPPORTED, NvmlSampler, reason_for
from loaderprobe.testing import FakeClock
from tests.said import said

CALLS = ("utilization", "power", "energy", "sm_clock", "memory_clock", "throttle", "processes")
PLAIN = {figure.name for figure in FIGURES}
GPM = {metric.name for metric in METRICS}
NO_GPM = said(UNSUPPORTED)
ERRORS = {**NVML_ERRORS, 1234: "NVML error 1234"}


class NvmlError(Exception):
    """As the real one, it cannot be hashed and does not compare with numbers."""

    __hash__ = None  # type: ignore[assignment]  # the trap of the real class, reproduced

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other.value)  # type: ignore[attr-defined]  # the trap again


class MetricsGet:
    """As c_nvmlGpmMetricsGet_t: version 0 until the caller sets it."""

    def __init__(self) -> None:
        self.version = 0
        self.numMetrics = 0
        self.sample1: Any = None
        self.sample2: Any = None
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=999, value=math.nan) for _ in range(333)]


class FakeNvml:
    """One GPU without GPM, unless `gpm` is set. `failing` maps a call to the number of its error.

    GPM's value of metric n is n plus the seconds between the two samples, so that a test sees what was compared.
    """

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = MetricsGet

    def __init__(self, *, gpm: bool = False, **failing: int) -> None:
        self.failing = failing
        self.clock = FakeClock()
        self.gpm = gpm
        self.open = 0
        self.samples = 0
        self.known = ("GPU-1",)
        self.instance: int | None = None
        self.mig_mode = [0, 0]
        self.pids = [4711, 4711]
        self.metric_status: dict[int, int] = {}
        self.taken_on: list[tuple[Any, ...]] = []

    def _answer(self, call: str, value: Any) -> Any:
        if call in self.failing:
            raise NvmlError(self.failing[call])
        return value

    def nvmlInit(self) -> None:
        self._answer("init", None)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1
        self._answer("shutdown", None)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._answer("handle", None)
        if uuid not in self.known:
            raise NvmlError(6)
        return uuid

    def nvmlDeviceIsMigDeviceHandle(self, handle: str) -> Any:
        # As pynvml: an object that is true whatever its value.
        return self._answer("is_mig", SimpleNamespace(value=int(self.instance is not None)))

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        return "parent"

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int | None:
        return self.instance

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return list(self._answer("mig_mode", self.mig_mode))

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._answer("utilization", SimpleNamespace(gpu=40))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._answer("power", 350_000))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return int(self._answer("energy", 5_000))

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return int(self._answer({1: "sm_clock", 2: "memory_clock"}[which], {1: 1980, 2: 2619}[which]))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return int(self._answer("throttle", 4))

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._answer("processes", self.pids)]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return self._answer("gpm_support", SimpleNamespace(isSupportedDevice=int(self.gpm)))

    def nvmlGpmSampleAlloc(self) -> Any:
        self._answer("gpm_alloc", None)
        self.samples += 1
        return SimpleNamespace(at_ns=0)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self._answer("gpm_free", None)
        self.samples -= 1

    def nvmlGpmSampleGet(self, handle: str, sample: Any) -> None:
        self._answer("gpm_sample", None)
        self.taken_on.append((handle,))
        sample.at_ns = self.clock.now_ns()

    def nvmlGpmMigSampleGet(self, handle: str, instance: int, sample: Any) -> None:
        self.nvmlGpmSampleGet(handle, sample)
        self.taken_on[-1] = (handle, instance)

    def nvmlGpmMetricsGet(self, asked: MetricsGet) -> None:
        if asked.version != 1:
            raise NvmlError(25)
        self._answer("gpm_metrics", None)
        seconds = (asked.sample2.at_ns - asked.sample1.at_ns) / 1e9
        assert seconds > 0, "a sample was compared with itself or overwritten"
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = self.metric_status.get(metric.metricId, 0)
            metric.value = math.nan if metric.nvmlReturn else metric.metricId + seconds


def sample(
    nvml: FakeNvml, uuid: str | None = "GPU-1", times: int = 1, *, before: Callable[[int], object] = lambda _: None,
    period_s: float = 0.2,
) -> list[Series | Missing]:  # fmt: skip
    """Everything after so many readings on the fake's clock; `before` is called with the number of each."""
    with NvmlSampler(nvml.clock, uuid, nvml) as sampler:
        for number in range(times):
            before(number)
            sampler.sample()
            nvml.clock.sleep(period_s)
    return list(sampler.series())


def values(found: Sequence[Series | Missing]) -> dict[str, tuple[float, ...]]:
    return {item.name: item.values for item in found if isinstance(item, Series)}


def reasons(found: Sequence[Series | Missing]) -> dict[str, str]:
    return {item.name: said(item.reason) for item in found if isinstance(item, Missing)}


def series(found: Sequence[Series | Missing], name: str) -> Series:
    return next(item for item in found if isinstance(item, Series) and item.name == name)


def test_units() -> None:
    """Shares, watts, joules, MHz, the bits of throttling, and processes less this one; NVML is closed again.

    A GPU of another kind has one reason for all of GPM. When even closing NVML fails, the readings stay.
    """
    nvml = FakeNvml(shutdown=15)
    nvml.pids = [10, 11, 11, 12]
    found = sample(nvml)
    assert values(found) == {
        "gpu_utilization": (0.4,),
        "gpu_power": (350.0,),
        "gpu_energy": (5.0,),
        "gpu_sm_clock": (1980.0,),
        "gpu_memory_clock": (2619.0,),
        "gpu_throttle": (4.0,),
        "gpu_other_processes": (2.0,),
    }
    assert series(found, "gpu_utilization").source.endswith("any kernel at all")
    assert {reasons(found)[name] for name in GPM} == {NO_GPM} and nvml.open == 0


@pytest.mark.parametrize("call", ["init", "handle", *CALLS, "gpm_support", "gpm_alloc", "gpm_sample", "gpm_metrics"])
@pytest.mark.parametrize("value", ERRORS)
def test_no_error_is_ever_a_reading(call: str, value: int) -> None:
    """Whichever call fails and however: its figures have the reason and no reading, the others stay, NVML is closed.

    Without a handle that is every figure; every sample of GPM is given back.
    """
    nvml = FakeNvml(gpm=True, **{call: value})
    found = sample(nvml, times=3)
    failed = {FIGURES[CALLS.index(call)].name} if call in CALLS else GPM if "gpm" in call else PLAIN | GPM
    why = NO_GPM if (call, value) == ("gpm_support", 3) else ERRORS[value]
    assert {reasons(found)[name].removeprefix("GPM: ").split("; its readings")[0] for name in failed} == {why}
    assert not failed & set(values(found))
    assert value in FATAL or (PLAIN | GPM) - set(values(found)) == failed
    assert (nvml.open, nvml.samples) == (0, 0)


def test_known_numbers_are_those_of_the_library() -> None:
    """Errors are those that pynvml raises for what the words say; metrics those that the names say."""
    pynvml: Any = pytest.importorskip("pynvml")
    expected = {
        "no value": pynvml.NVML_SUCCESS,
        "not initialised": pynvml.NVML_ERROR_UNINITIALIZED,
        "rejects": pynvml.NVML_ERROR_INVALID_ARGUMENT,
        "support": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "permission": pynvml.NVML_ERROR_NO_PERMISSION,
        "does not know this GPU": pynvml.NVML_ERROR_NOT_FOUND,
        "changed size": pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        "not loaded": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        "too long": pynvml.NVML_ERROR_TIMEOUT,
        "no NVIDIA driver library": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "too old": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "lost": pynvml.NVML_ERROR_GPU_IS_LOST,
        "reset": pynvml.NVML_ERROR_RESET_REQUIRED,
        "operating system": pynvml.NVML_ERROR_OPERATING_SYSTEM,
        "versions differ": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        "in use": pynvml.NVML_ERROR_IN_USE,
        "memory": pynvml.NVML_ERROR_MEMORY,
        "no data": pynvml.NVML_ERROR_NO_DATA,
        "structure version": pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        "container": pynvml.NVML_ERROR_UNKNOWN,
    }
    assert set(expected.values()) == NVML_ERRORS.keys()
    for words, number in expected.items():
        assert words in said(reason_for(pynvml.NVMLError(number).value))
    metrics = {
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
        name: getattr(pynvml, f"NVML_GPM_METRIC_{constant}") for name, constant in metrics.items()
    }
    assert sum(len(metric.ids) for metric in METRICS) < pynvml.NVML_GPM_METRIC_MAX
    assert pynvml.NVML_GPM_METRIC_NVJPG_7_UTIL == 47


def test_nvml_may_not_be_asked_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no GPU trains, and without nvidia-ml-py, which is reported with the command that brings it."""
    assert reasons(sample(FakeNvml(init=12), uuid=None))["gpu_utilization"] == "no GPU trains in this configuration"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with NvmlSampler(FakeClock(), "GPU-1") as sampler:
        sampler.sample()
    assert "pip install nvidia-ml-py" in reasons(sampler.series())["gpu_utilization"]


def test_a_lost_gpu_keeps_what_was_read_and_is_asked_no_more() -> None:
    """After GPU_IS_LOST every figure has its readings, the reason, and when they ended; no call follows."""
    nvml = FakeNvml()
    failing: list[dict[str, int]] = [{}, {}, {"energy": 15}, {}]
    found = sample(nvml, times=4, before=lambda number: setattr(nvml, "failing", failing[number]), period_s=3.0)
    assert len(values(found)["gpu_utilization"]) == 3 and len(values(found)["gpu_sm_clock"]) == 2
    assert reasons(found)["gpu_sm_clock"] == "the GPU has been lost; its readings end 3.0 s after sampling began"
    assert set(reasons(found)) >= PLAIN


def test_a_gpu_lost_midway_keeps_its_averages() -> None:
    """Readings and the mean up to the loss stay, with the reason for the rest; a failing free stops nothing."""
    nvml = FakeNvml(gpm=True)
    lost = {"gpm_sample": 15, "gpm_free": 15}
    found = sample(nvml, times=5, before=lambda number: nvml.failing.update(lost if number == 3 else {}))
    assert len(values(found)["gpu_sm_occupancy"]) == 2
    assert values(found)["gpu_sm_occupancy_mean"] == pytest.approx([0.034])
    assert reasons(found)["gpu_sm_occupancy"].startswith("GPM: the GPU has been lost; its readings end 0.4 s")


def test_a_figure_that_comes_back_is_not_missing() -> None:
    """NO_DATA between readings leaves them and no reason; GPM's next average reaches back to the last good sample."""
    nvml = FakeNvml(gpm=True)
    no_data = {"power": 21, "gpm_sample": 21}
    found = sample(nvml, times=5, before=lambda number: setattr(nvml, "failing", no_data if number == 2 else {}))
    assert len(values(found)["gpu_power"]) == 4
    assert values(found)["gpu_sm_occupancy"] == pytest.approx([0.032, 0.034, 0.032])
    assert not {"gpu_power", "gpu_sm_occupancy"} & set(reasons(found))


class Old(FakeNvml):
    """A driver or pynvml with the older names."""

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x40

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=1), SimpleNamespace(pid=2)]


def test_calls_have_older_names() -> None:
    """They are asked where the newer ones are missing, and only there."""
    found = values(sample(Old(throttle=13, processes=13)))
    assert (found["gpu_throttle"], found["gpu_other_processes"]) == ((64.0,), (1.0,))
    assert "gpu_throttle" not in values(sample(Old(throttle=4)))


def test_an_empty_list_of_processes_is_not_zero() -> None:
    """This process is on the GPU: an empty list hides them all."""
    nvml = FakeNvml()
    nvml.pids = []
    found = sample(nvml)
    assert "gpu_other_processes" not in values(found)
    assert "not even this one" in reasons(found)["gpu_other_processes"]


@pytest.mark.parametrize(
    ("instance", "mode", "error", "words"),
    [
        (3, [1, 1], {}, "for a MIG instance"),
        (None, [1, 1], {}, "split by MIG"),
        (None, [0, 0], {"mig_mode": 3}, NVML_ERRORS[3]),
    ],
)
def test_mig_is_named_where_it_is_why(instance: int | None, mode: list[int], error: dict[str, int], words: str) -> None:
    """Utilization is not supported under MIG, and the reason says so; a UUID may be known as an instance's only.

    GPM takes an instance's samples on the whole GPU, by the instance's number.
    """
    nvml = FakeNvml(gpm=True, utilization=3, **error)
    nvml.instance, nvml.mig_mode = instance, mode
    nvml.known = ("MIG-1",) if instance else ("GPU-1",)
    assert words in reasons(sample(nvml, times=2))["gpu_utilization"]
    assert nvml.taken_on == [("parent", 3) if instance else ("GPU-1",)] * 2


def test_a_reading_is_the_average_since_the_one_before() -> None:
    """The first sample alone is no reading; each later one is compared with its neighbour, in our units.

    The mean of each metric compares the first sample with the last, and says over how long.
    """
    found = sample(FakeNvml(gpm=True), times=6)
    assert values(found)["gpu_sm_occupancy"] == pytest.approx([0.032] * 5)
    assert values(found)["gpu_sm_utilization"] == pytest.approx([0.022] * 5)
    assert values(found)["gpu_pcie_to_device"] == pytest.approx([21.2 * 2**20] * 5)
    assert values(found)["gpu_pcie_from_device"] == pytest.approx([20.2 * 2**20] * 5)
    mean = series(found, "gpu_sm_occupancy_mean")
    assert mean.values == pytest.approx([0.04]) and "over the 1.0 s before" in mean.source
    assert mean.time_ns == (series(found, "gpu_sm_occupancy").time_ns[-1],)
    assert {f"{name}_mean" for name in GPM} <= set(values(found))


def test_samples_are_never_closer_than_the_driver_refreshes() -> None:
    """However often it is asked, two samples are at least 110 ms apart, and none is lost by waiting."""
    times = series(sample(FakeNvml(gpm=True), times=100, period_s=0.03), "gpu_sm_occupancy").time_ns
    gaps = {later - earlier for earlier, later in pairwise(times)}
    assert gaps == {120_000_000} and len(times) == 24


@pytest.mark.parametrize("status", [3, 4, 6, 21, 999, 1234])
def test_each_metric_has_a_status_of_its_own(status: int) -> None:
    """A metric that failed within a good answer is missing with its reason, series and mean, and the others stay.

    Of the JPEG engines the busiest counts, and those that are absent do not.
    """
    nvml = FakeNvml(gpm=True)
    nvml.metric_status = {3: status, 46: 3, 47: 3}
    found = sample(nvml, times=3)
    assert set(reasons(found).values()) == {f"GPM: {ERRORS[status]}"}
    assert reasons(found).keys() == {"gpu_sm_occupancy", "gpu_sm_occupancy_mean"}
    assert GPM - set(values(found)) == {"gpu_sm_occupancy"}
    assert values(found)["gpu_jpeg_utilization"] == pytest.approx([0.452] * 2)
    nvml.metric_status = dict.fromkeys(range(40, 48), status)
    assert reasons(sample(nvml, times=2))["gpu_jpeg_utilization"] == f"GPM: {ERRORS[status]}"


def test_a_number_that_is_none_is_missing() -> None:
    """NaN with status success is no reading."""

    class Odd(FakeNvml):
        def nvmlGpmMetricsGet(self, asked: MetricsGet) -> None:
            super().nvmlGpmMetricsGet(asked)
            for metric in asked.metrics:
                metric.value = math.nan

    found = sample(Odd(gpm=True), times=2)
    assert reasons(found)["gpu_sm_occupancy"] == "GPM gave no number"
    assert not GPM & set(values(found))
