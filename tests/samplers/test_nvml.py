"""Every way in which NVML says no."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.samplers.nvml import REASONS, NvmlSampler, reason_for
from loaderprobe.testing import FakeClock
from tests.samplers.test_samplers import FakeNvml, NvmlError

CALLS = ("init", "handle", "utilization", "power", "clock")


def _sample(nvml: FakeNvml) -> list[Series | Missing]:
    with NvmlSampler(FakeClock(), "GPU-1", nvml) as sampler:
        sampler.sample()
    return list(sampler.series())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [*REASONS, 1234])
def test_no_error_is_ever_a_reading(call: str, value: int) -> None:
    """Whichever call fails and however, its figure is Missing with the reason in words, and NVML is closed."""
    nvml = FakeNvml(**{call: value})
    found = _sample(nvml)
    (missing,) = [item for item in found if isinstance(item, Missing)]
    assert missing.reason == REASONS.get(value, "NVML error 1234: error 1234")
    assert all(reading > 0 for item in found if isinstance(item, Series) for reading in item.values)
    assert len(found) == (1 if call in ("init", "handle") else 3)
    assert nvml.open == 0


def test_known_numbers_are_those_of_the_library() -> None:
    """The table's numbers are those that pynvml raises for what the words say."""
    pynvml: Any = pytest.importorskip("pynvml")
    expected = {
        "not initialised": pynvml.NVML_ERROR_UNINITIALIZED,
        "support": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "permission": pynvml.NVML_ERROR_NO_PERMISSION,
        "does not know": pynvml.NVML_ERROR_NOT_FOUND,
        "not loaded": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        "no NVIDIA driver library": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "too old": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "lost": pynvml.NVML_ERROR_GPU_IS_LOST,
        "versions differ": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        "container": pynvml.NVML_ERROR_UNKNOWN,
    }
    assert {number: words for words, number in expected.items()}.keys() == REASONS.keys()
    for words, number in expected.items():
        assert words in reason_for(pynvml.NVMLError(number))


def test_a_gpu_lost_while_leaving_costs_nothing() -> None:
    """When even closing NVML fails, the readings stay and the measurement goes on."""

    class Lost(FakeNvml):
        def nvmlShutdown(self) -> None:
            raise NvmlError(15)

    assert [type(item) for item in _sample(Lost())] == [Series] * 3


def test_a_figure_that_stops_coming_keeps_its_readings() -> None:
    """A GPU that fails after some readings gives those, and no 0 after them."""
    nvml = FakeNvml()
    sampler = NvmlSampler(FakeClock(), "GPU-1", nvml)
    with sampler:
        sampler.sample()
        nvml._failing.update(utilization=15, power=15, clock=15)
        sampler.sample()
    assert [len(item.values) for item in sampler.series() if isinstance(item, Series)] == [1, 1, 1]
