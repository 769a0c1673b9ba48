"""The real pynvml on a driver library that is compiled here: figures, GPM's averages, and every way in which they fail.

Struct layouts, errors and traps of the binding come as they are. The library, `nvml.c`, answers from the environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure.capabilities import gpu_counters
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.render.doctor import why_words
from loaderprobe.render.messages import MESSAGES
from loaderprobe.samplers.nvml import FATAL, FIGURES, METRICS, UNSUPPORTED, NvmlSampler
from loaderprobe.system.environment import list_gpus
from loaderprobe.testing import FakeClock
from tests.said import said

pynvml: Any = pytest.importorskip("pynvml")
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler named cc")

NVML_ERRORS = {
    int(code.removeprefix("error.nvml.")): text for code, text in MESSAGES.items() if code.startswith("error.nvml.")
}
UUID = "GPU-00000000-0000-0000-0000-000000000001"
PLAIN = {figure.name for figure in FIGURES}
GPM = {metric.name for metric in METRICS}
NO_GPM = said(UNSUPPORTED)
ERRORS = {**{value: words for value, words in NVML_ERRORS.items() if value}, 1234: "NVML error 1234"}
CALLS = ("UTILIZATION", "POWER", "ENERGY", "SM_CLOCK", "MEMORY_CLOCK", "THROTTLE", "PROCESSES")
FAILING = {
    **{call: {figure.name} for call, figure in zip(CALLS, FIGURES, strict=True)},
    **dict.fromkeys(("INIT", "HANDLE"), PLAIN | GPM),
    **dict.fromkeys(("GPM_SUPPORT", "GPM_ALLOC", "GPM_SAMPLE", "GPM_METRICS"), GPM),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CDLL]:
    """The library, compiled with these flags."""

    def make(*flags: str) -> CDLL:
        path = tmp_path_factory.mktemp("driver") / "libnvidia-ml.so.1"
        source = Path(__file__).with_name("nvml.c")
        subprocess.run([str(COMPILER), "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o", path, source], check=True)
        return CDLL(str(path))

    return make


@pytest.fixture(scope="module")
def driver(compiled: Callable[..., CDLL]) -> CDLL:
    return compiled()


class Gpu:
    """One GPU of the driver, and a sampler's readings of it. Settings are those of `nvml.c`, without their prefix."""

    def __init__(self, driver: CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
        self._driver, self._monkeypatch = driver, monkeypatch
        self.use(driver)

    def use(self, driver: CDLL) -> None:
        self._monkeypatch.setattr(pynvml, "nvmlLib", driver)
        self._monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def set(self, **settings: object) -> None:
        """These and no others."""
        for name in [name for name in os.environ if name.startswith("STUB_")]:
            self._monkeypatch.delenv(name)
        for name, value in settings.items():
            self._monkeypatch.setenv(f"STUB_{name}", str(value))

    def sample(
        self, *settings: Mapping[str, object], times: int = 1, period_s: float = 0.2, uuid: str | None = UUID
    ) -> list[Series | Missing]:
        """Everything after a reading with each of the settings, or so many with those that there are."""
        clock = FakeClock()
        self.set(**(settings[0] if settings else {}))
        with NvmlSampler(clock, uuid) as sampler:
            for each in settings if len(settings) > 1 else [{}] * times:
                if len(settings) > 1:
                    self.set(**each)
                sampler.sample()
                clock.sleep(period_s)
        return list(sampler.series())

    @property
    def left(self) -> tuple[int, int]:
        """How often NVML is open, and samples of GPM that were not given back."""
        return self._driver.stub_open(), self._driver.stub_samples()


@pytest.fixture
def gpu(driver: CDLL, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(driver, monkeypatch)


def values(found: Sequence[Series | Missing]) -> dict[str, tuple[float, ...]]:
    return {item.name: item.values for item in found if isinstance(item, Series)}


def reasons(found: Sequence[Series | Missing]) -> dict[str, str]:
    return {item.name: said(item.reason) for item in found if isinstance(item, Missing)}


def series(found: Sequence[Series | Missing], name: str) -> Series:
    return next(item for item in found if isinstance(item, Series) and item.name == name)


def test_units(gpu: Gpu) -> None:
    """Shares, watts, joules of more than 32 bits, MHz, the bits of throttling, and processes less this one.

    A GPU of another kind has one reason for all of GPM. When even closing NVML fails, the readings stay.
    """
    found = gpu.sample({"PIDS": 7, "SHUTDOWN": 15})
    assert values(found) == {
        "gpu_utilization": (1.0,),
        "gpu_power": (350.0,),
        "gpu_energy": (5e9,),
        "gpu_sm_clock": (1980.0,),
        "gpu_memory_clock": (2619.0,),
        "gpu_throttle": (0x44,),
        "gpu_other_processes": (5.0,),
    }
    assert series(found, "gpu_utilization").source.endswith("any kernel at all")
    assert {reasons(found)[name] for name in GPM} == {NO_GPM} and gpu.left == (0, 0)


@pytest.mark.parametrize("call", FAILING)
@pytest.mark.parametrize("value", ERRORS)
def test_no_error_is_ever_a_reading(gpu: Gpu, call: str, value: int) -> None:
    """Whichever call fails: its figures have the reason, the others stay, samples are given back, NVML is closed."""
    found = gpu.sample({"GPM": 1, "OLDER": 13, call: value}, times=3)
    failed = FAILING[call]
    why = NO_GPM if (call, value) == ("GPM_SUPPORT", 3) else ERRORS[value]
    assert {reasons(found)[name].removeprefix("GPM: ").split("; its readings")[0] for name in failed} == {why}
    assert not failed & set(values(found))
    assert value in FATAL or (PLAIN | GPM) - set(values(found)) == failed
    assert gpu.left == (0, 0)


def test_nvml_may_not_be_asked_at_all(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no GPU trains; nor is one that it does not list taken for another. Without nvidia-ml-py the command that
    brings it is reported."""
    unknown = gpu.sample(uuid="GPU-2")
    assert values(unknown) == {} and reasons(unknown)["gpu_power"] == ERRORS[6]
    found = gpu.sample({"INIT": 12}, uuid=None)
    assert reasons(found)["gpu_utilization"] == "no GPU trains in this configuration"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in reasons(gpu.sample())["gpu_utilization"]


@pytest.mark.parametrize(
    ("settings", "memory_bytes"),
    [
        ({"COUNT": 2}, [2**34] * 2),
        ({"MEMORY": 3}, [None]),
        ({"MEMORY": 4}, [None]),
        ({"COUNT": 3, "LOST": 1}, [2**34] * 2),
        ({"COUNT": 2, "LOST": 2}, []),
        ({"COUNT": 0}, []),
    ],
)
def test_one_unanswered_question_removes_no_other_gpu(
    gpu: Gpu, settings: dict[str, int], memory_bytes: list[int | None]
) -> None:
    """Memory that may not be asked for, as in a MIG container, is unknown. A lost GPU is left out, and why is said
    where none is left."""
    gpu.set(**settings)
    gpus, reason = list_gpus()
    assert [each.memory_bytes for each in gpus] == memory_bytes and all(each.uuid == UUID for each in gpus)
    lost = "gpus_not_listed" if "LOST" in settings else "no_gpu_listed"
    assert (reason and reason.code) == (None if gpus else lost) and gpu.left == (0, 0)


def test_a_lost_gpu_keeps_what_was_read_and_is_asked_no_more(gpu: Gpu) -> None:
    """After GPU_IS_LOST every figure has its readings, the reason, and when they ended; no call follows.

    Readings of GPM up to the loss stay, too; a failing free stops nothing.
    """
    found = gpu.sample({}, {}, {"ENERGY": 15}, {}, period_s=3.0)
    assert len(values(found)["gpu_utilization"]) == 3 and len(values(found)["gpu_sm_clock"]) == 2
    assert reasons(found)["gpu_sm_clock"] == "the GPU has been lost; its readings end 3.0 s after sampling began"
    assert set(reasons(found)) >= PLAIN
    found = gpu.sample({}, {"ENERGY": 999}, {"ENERGY": 15})
    assert reasons(found)["gpu_energy"].startswith("the GPU has been lost")
    found = gpu.sample(*[{"GPM": 1}] * 3, {"GPM_SAMPLE": 15, "GPM_FREE": 15}, {"GPM_FREE": 15})
    assert values(found)["gpu_sm_occupancy"] == pytest.approx([0.06, 0.08])
    assert reasons(found)["gpu_sm_occupancy"].startswith("GPM: the GPU has been lost; its readings end 400 ms")


def test_a_figure_that_comes_back_is_not_missing(gpu: Gpu) -> None:
    """NO_DATA between readings leaves them and no reason; GPM's next average reaches back to the last good sample."""
    well, no_data = {"GPM": 1}, {"GPM": 1, "POWER": 21, "GPM_SAMPLE": 21}
    found = gpu.sample(well, well, no_data, well, well)
    assert len(values(found)["gpu_power"]) == 4
    # Samples 1 and 2, 2 and 4 (the third failed), 4 and 5.
    assert values(found)["gpu_sm_occupancy"] == pytest.approx([0.06, 0.09, 0.12])
    assert not {"gpu_power", "gpu_sm_occupancy"} & set(reasons(found))


def test_calls_have_older_names(gpu: Gpu, compiled: Callable[..., CDLL]) -> None:
    """They are asked where the newer ones are missing, and only there; for GPM an older driver has a reason."""
    found = values(gpu.sample({"THROTTLE": 13, "PROCESSES": 13}))
    assert (found["gpu_throttle"], found["gpu_other_processes"]) == ((4.0,), (1.0,))
    assert "gpu_throttle" not in values(gpu.sample({"THROTTLE": 4}))
    gpu.use(compiled("-DOLD"))
    old = gpu.sample({"GPM": 1})
    assert values(old)["gpu_throttle"][0] == 4 and values(old)["gpu_other_processes"][0] == 1
    assert reasons(old) == dict.fromkeys(GPM, f"GPM: {ERRORS[13]}")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"INSTANCE": 3, "UUID": UUID.replace("GPU", "MIG")}, "for a MIG instance"),
        ({"MIG": 1}, "split by MIG"),
        ({"MIG_MODE": 3}, ERRORS[3]),
    ],
)
def test_mig_is_named_where_it_is_why(gpu: Gpu, settings: dict[str, object], words: str) -> None:
    """Utilization is not supported under MIG; GPM takes an instance's samples on the whole GPU, by its number."""
    found = gpu.sample({"GPM": 1, "UTILIZATION": 3, **settings}, times=5)
    assert words in reasons(found)["gpu_utilization"]
    assert len(values(found)["gpu_sm_occupancy"]) == 4


def test_a_reading_is_the_average_since_the_one_before(gpu: Gpu) -> None:
    """The first sample alone is no reading; each later one is compared with its neighbour, in our units."""
    found = gpu.sample({"GPM": 1}, times=5)
    # Samples are numbered 1 to 5; metric m between a and b is m + a + b.
    assert values(found)["gpu_sm_occupancy"] == pytest.approx([0.06, 0.08, 0.1, 0.12])
    assert values(found)["gpu_pcie_to_device"] == pytest.approx([each * 2**20 for each in (24, 26, 28, 30)])
    assert set(values(found)) == PLAIN | GPM and gpu.left == (0, 0)
    constants = ("GRAPHICS_UTIL", "SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "DRAM_BW_UTIL", "PCIE_RX_PER_SEC")
    numbers = [getattr(pynvml, f"NVML_GPM_METRIC_{name}") for name in (*constants, "PCIE_TX_PER_SEC", "NVJPG_7_UTIL")]
    first = [values(found)[metric.name][0] / metric.scale for metric in METRICS]
    assert first == pytest.approx([number + 3 for number in numbers])


def test_samples_are_never_closer_than_the_driver_refreshes(gpu: Gpu) -> None:
    """However often it is asked, two samples are at least 110 ms apart, and none is lost by waiting."""
    times = series(gpu.sample({"GPM": 1}, times=100, period_s=0.03), "gpu_sm_occupancy").time_ns
    assert {later - earlier for earlier, later in pairwise(times)} == {120_000_000} and len(times) == 24


@pytest.mark.parametrize("status", [3, 4, 6, 21, 999, 1234])
def test_each_metric_has_a_status_of_its_own(gpu: Gpu, status: int) -> None:
    """One that failed is missing with its reason, and the others stay; of the JPEG engines the busiest counts."""
    found = gpu.sample({"GPM": 1, "STATUS_3": status, "STATUS_46": 3, "STATUS_47": 3}, times=2)
    assert reasons(found) == {"gpu_sm_occupancy": f"GPM: {ERRORS[status]}"}
    assert GPM - set(values(found)) == {"gpu_sm_occupancy"}
    assert values(found)["gpu_jpeg_utilization"] == pytest.approx([0.48])
    found = gpu.sample({"GPM": 1, **{f"STATUS_{engine}": status for engine in range(40, 48)}}, times=2)
    assert reasons(found)["gpu_jpeg_utilization"] == f"GPM: {ERRORS[status]}"


@pytest.mark.parametrize(
    ("settings", "missing", "why"),
    [({"PIDS": 0}, {"gpu_other_processes"}, "not even this one"), ({"NAN": 1}, GPM, "GPM gave no number")],
    ids=["an empty list of processes", "no number"],
)
def test_an_answer_that_says_nothing_is_missing(
    gpu: Gpu, settings: dict[str, object], missing: set[str], why: str
) -> None:
    """This process is on the GPU, so an empty list hides them all; NaN with status success is no reading."""
    found = gpu.sample({"GPM": 1, **settings}, times=2)
    assert all(why in reasons(found)[name] for name in missing) and not missing & set(values(found))


@pytest.mark.parametrize(
    ("settings", "states", "words"),
    [
        ({"GPM": 1}, ["yes", "yes"], ("", "")),
        ({}, ["yes", "no"], ("any kernel at all", NO_GPM)),
        ({"INIT": 9}, ["no", "no"], ("Driver Not Loaded", "")),
    ],
)
def test_doctor_says_which_counter_is_there_and_why_not(
    gpu: Gpu, settings: dict[str, object], states: list[str], words: tuple[str, str]
) -> None:
    """Utilization and SM occupancy are separate, each tried, with the reason of what is missing."""
    gpu.set(**settings)
    doctor = gpu_counters(FakeClock())
    assert [each.state for each in doctor] == states
    assert all(part in why_words(each) for part, each in zip(words, doctor, strict=True))
