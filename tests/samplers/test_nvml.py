"""What NVML reports without GPM, and every way in which it says no."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.samplers.nvml import FATAL, FIGURES, NvmlSampler, reason_for
from loaderprobe.testing import FakeClock
from tests.said import said
from tests.samplers.fake_nvml import NVML_ERRORS, FakeNvml, NvmlError

CALLS = ("utilization", "power", "energy", "sm_clock", "memory_clock", "throttle", "processes")
NAMES = {figure.name for figure in FIGURES}


def sample(nvml: FakeNvml, uuid: str | None = "GPU-1", times: int = 1) -> list[Series | Missing]:
    """Everything after so many readings, 0.2 s apart on the fake's clock."""
    with NvmlSampler(nvml.clock, uuid, nvml) as sampler:
        for _ in range(times):
            sampler.sample()
            nvml.clock.sleep(0.2)
    return list(sampler.series())


def values(found: Sequence[Series | Missing]) -> dict[str, tuple[float, ...]]:
    return {item.name: item.values for item in found if isinstance(item, Series)}


def reasons(found: Sequence[Series | Missing]) -> dict[str, str]:
    return {item.name: said(item.reason) for item in found if isinstance(item, Missing)}


def test_units() -> None:
    """Shares, watts, joules, MHz, the bits of throttling, and processes less this one; NVML is closed again."""
    nvml = FakeNvml()
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
    assert next(item.source for item in found if isinstance(item, Series)).endswith("any kernel at all")
    assert nvml.open == 0


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [*NVML_ERRORS, 1234])
def test_no_error_is_ever_a_reading(call: str, value: int) -> None:
    """Whichever call fails and however, its figure has the reason and no reading, and NVML is closed."""
    nvml = FakeNvml()
    nvml.failing[call] = value
    found = sample(nvml)
    expected = NVML_ERRORS.get(value, "NVML error 1234")
    gone = {name for name, reason in reasons(found).items() if reason == expected}
    first = FIGURES[CALLS.index(call)].name
    assert first in gone and first not in values(found)
    assert value in FATAL or NAMES - set(values(found)) == {first}
    assert nvml.open == 0


@pytest.mark.parametrize("call", ["init", "handle"])
@pytest.mark.parametrize("value", [*NVML_ERRORS, 1234])
def test_a_gpu_that_cannot_be_opened_is_a_reason_for_every_figure(call: str, value: int) -> None:
    """Nothing is read, everything has the same reason, and NVML is closed when it was open."""
    nvml = FakeNvml()
    nvml.failing[call] = value
    found = sample(nvml)
    assert values(found) == {}
    assert set(reasons(found)) >= NAMES | {"gpu_sm_occupancy"}
    assert set(reasons(found).values()) == {NVML_ERRORS.get(value, "NVML error 1234")}
    assert nvml.open == 0


def test_known_numbers_are_those_of_the_library() -> None:
    """The table's numbers are those that pynvml raises for what the words say."""
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


def test_no_gpu_in_use_is_a_reason() -> None:
    """A configuration that trains elsewhere does not ask NVML at all."""
    assert reasons(sample(FakeNvml(init=12), uuid=None))["gpu_utilization"] == "no GPU trains in this configuration"


def test_without_pynvml_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing nvidia-ml-py is reported with the command that brings it, and stops nothing."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with NvmlSampler(FakeClock(), "GPU-1") as sampler:
        sampler.sample()
    assert "pip install nvidia-ml-py" in reasons(sampler.series())["gpu_utilization"]


def test_a_gpu_lost_while_leaving_costs_nothing() -> None:
    """When even closing NVML fails, the readings stay and the measurement goes on."""

    class Lost(FakeNvml):
        def nvmlShutdown(self) -> None:
            raise NvmlError(15)

    assert set(values(sample(Lost()))) == NAMES


def test_a_lost_gpu_keeps_what_was_read_and_is_asked_no_more() -> None:
    """After GPU_IS_LOST every figure has its readings, the reason, and when they ended; no call follows."""
    nvml = FakeNvml()
    with NvmlSampler(nvml.clock, "GPU-1", nvml) as sampler:
        sampler.sample()
        nvml.clock.sleep(3.0)
        sampler.sample()
        nvml.failing["energy"] = 15
        sampler.sample()
        nvml.failing.clear()
        sampler.sample()
    found = list(sampler.series())
    assert len(values(found)["gpu_utilization"]) == 3 and len(values(found)["gpu_sm_clock"]) == 2
    assert reasons(found)["gpu_sm_clock"] == "the GPU has been lost; its readings end 3.0 s after sampling began"
    assert set(reasons(found)) >= NAMES


def test_a_figure_that_comes_back_is_not_missing() -> None:
    """One answer of NO_DATA between two readings leaves both readings and no reason."""
    nvml = FakeNvml()
    with NvmlSampler(nvml.clock, "GPU-1", nvml) as sampler:
        sampler.sample()
        nvml.failing["power"] = 21
        sampler.sample()
        nvml.failing.clear()
        sampler.sample()
    found = list(sampler.series())
    assert len(values(found)["gpu_power"]) == 2 and "gpu_power" not in reasons(found)


def test_throttling_has_an_older_name() -> None:
    """A driver or pynvml without the clocks event reasons is asked for throttle reasons."""

    class Old(FakeNvml):
        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
            return 0x40

    assert values(sample(Old(throttle=13)))["gpu_throttle"] == (64.0,)
    assert "gpu_throttle" not in values(sample(Old(throttle=4)))


def test_processes_have_an_older_name() -> None:
    """Where the third version of the call is missing, the second is asked."""

    class Old(FakeNvml):
        def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: str) -> list[Any]:
            return [SimpleNamespace(pid=1), SimpleNamespace(pid=2)]

    assert values(sample(Old(processes=13)))["gpu_other_processes"] == (1.0,)


def test_an_empty_list_of_processes_is_not_zero() -> None:
    """This process is on the GPU: an empty list hides them all."""
    nvml = FakeNvml()
    nvml.pids = []
    found = sample(nvml)
    assert "gpu_other_processes" not in values(found)
    assert "not even this one" in reasons(found)["gpu_other_processes"]


def test_a_uuid_without_its_prefix_may_be_an_instance() -> None:
    """A UUID that NVML knows only as a MIG instance is found."""
    nvml = FakeNvml()
    nvml.known = ("MIG-1",)
    assert values(sample(nvml))["gpu_utilization"] == (0.4,)


@pytest.mark.parametrize(
    ("instance", "mode", "words"), [(3, [1, 1], "for a MIG instance"), (None, [1, 1], "split by MIG")]
)
def test_mig_is_named_where_it_is_why(instance: int | None, mode: list[int], words: str) -> None:
    """Utilization is not supported under MIG, and the reason says so."""
    nvml = FakeNvml(utilization=3)
    nvml.instance = instance
    nvml.nvmlDeviceGetMigMode = lambda handle: mode  # type: ignore[method-assign]  # this GPU is split
    assert words in reasons(sample(nvml))["gpu_utilization"]


def test_a_gpu_without_mig_says_only_what_it_lacks() -> None:
    """When asking for MIG fails too, the reason is the first one's."""
    assert reasons(sample(FakeNvml(utilization=3, mig_mode=3)))["gpu_utilization"] == NVML_ERRORS[3]
