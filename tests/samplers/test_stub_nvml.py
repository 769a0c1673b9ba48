"""The real pynvml on a driver library that is compiled here: struct layouts, errors and traps as they come.

As a program: runs the sampler in scenarios from standard input, and prints what it found, as JSON. A scenario is the
environment of the stub library, which reads it at every call.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from ctypes import CDLL
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure.capabilities import gpu_counters
from loaderprobe.records.measurement import Series
from loaderprobe.render.capability_words import why_words
from loaderprobe.render.remarks import NVML_ERRORS
from loaderprobe.samplers.nvml import FATAL, FIGURES, METRICS, UNSUPPORTED, NvmlSampler
from loaderprobe.testing import FakeClock
from tests.said import said
from tests.samplers.fake_nvml import NVML_ERRORS

UUID = "GPU-00000000-0000-0000-0000-000000000001"
NO_GPM = said(UNSUPPORTED)
COMPILER = shutil.which("cc")
GPM = {metric.name for metric in METRICS}
PLAIN = {figure.name for figure in FIGURES}
ERRORS = {**NVML_ERRORS, 1234: "NVML error 1234"}
FAILING = {"INIT": PLAIN | GPM, "POWER": {"gpu_power"}, "GPM_SAMPLE": GPM}
SCENARIOS = {
    "gpm": {"STUB_GPM": "1"},
    "plain": {"STUB_PIDS": "7"},
    "no driver": {"STUB_INIT": "9"},
    "unknown": {"UUID": "GPU-2"},
    "a metric fails": {"STUB_GPM": "1", "STUB_TENSOR": "3"},
    "mig": {"STUB_GPM": "1", "STUB_INSTANCE": "3", "STUB_UTILIZATION": "3"},
    **{
        f"{call} {value}": {"STUB_GPM": "1", f"STUB_{call}": str(value)}
        for call in FAILING
        for value in ERRORS
        if value
    },
}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler named cc")
Found = Mapping[str, Mapping[str, Any]]


def run_on_stub(environment: dict[str, str]) -> dict[str, Any]:
    """Series and reasons of one scenario, and what stays open in the library after it."""
    os.environ.update(environment)
    clock = FakeClock()
    with NvmlSampler(clock, environment.get("UUID", UUID)) as sampler:
        for _ in range(5):
            sampler.sample()
            clock.sleep(0.2)
    found = list(sampler.series())
    library = CDLL("libnvidia-ml.so.1")
    result = {
        "values": {item.name: item.values for item in found if isinstance(item, Series)},
        "missing": {item.name: said(item.reason) for item in found if not isinstance(item, Series)},
        "left": [library.stub_open(), library.stub_samples()],
        "doctor": [(each.name, each.state, why_words(each)) for each in gpu_counters(FakeClock())],
    }
    for name in environment:
        del os.environ[name]
    return result


def on_driver(folder: Path, *flags: str) -> Found:
    """What is found in all scenarios on a driver compiled with these flags, in one process."""
    assert COMPILER is not None
    source = Path(__file__).parent / "nvml.c"
    flags = ("-Wall", "-Werror", "-shared", "-fPIC", *flags)
    subprocess.run([COMPILER, *flags, "-o", folder / "libnvidia-ml.so.1", source], check=True)
    done = subprocess.run(
        [sys.executable, "-m", __name__], input=json.dumps(SCENARIOS), capture_output=True, text=True, timeout=60,
        cwd=Path(__file__).parents[2], env={**os.environ, "LD_LIBRARY_PATH": str(folder)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: Found = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """On a driver as it is now."""
    return on_driver(tmp_path_factory.mktemp("driver"))


def test_gpm_comes_through_the_real_binding(found: Found) -> None:
    """Neighbouring samples and first and last are compared as they should be, in pynvml's own structs."""
    gpm = found["gpm"]
    # Samples are numbered 1 to 5; the stub's metric m between a and b is m + a + b.
    assert gpm["values"]["gpu_sm_occupancy"] == pytest.approx([0.06, 0.08, 0.1, 0.12])
    assert gpm["values"]["gpu_sm_occupancy_mean"] == pytest.approx([0.09])
    assert gpm["values"]["gpu_jpeg_utilization"] == pytest.approx([0.5, 0.52, 0.54, 0.56])
    assert set(gpm["values"]) == PLAIN | GPM | {f"{name}_mean" for name in GPM}
    assert gpm["missing"] == {} and gpm["left"] == [0, 0]


def test_plain_figures_come_through_the_real_binding(found: Found) -> None:
    """Each figure has its unit; energy is more than 32 bits; without GPM there is one reason for all of it."""
    plain = found["plain"]
    assert {name: readings[0] for name, readings in plain["values"].items()} == {
        "gpu_utilization": 1.0,
        "gpu_power": 350.0,
        "gpu_energy": 5e9,
        "gpu_sm_clock": 1980.0,
        "gpu_memory_clock": 2619.0,
        "gpu_throttle": 0x44,
        "gpu_other_processes": 6.0,
    }
    assert plain["missing"] == dict.fromkeys(GPM, NO_GPM) and plain["left"] == [0, 0]


@pytest.mark.parametrize("call", FAILING)
def test_each_error_of_the_real_binding_is_a_reason(found: Found, call: str) -> None:
    """The figures of the call are missing with the error in words; the others are read unless the GPU is gone."""
    names = FAILING[call]
    for value, reason in ERRORS.items():
        if value:
            one = found[f"{call} {value}"]
            assert {one["missing"][name].removeprefix("GPM: ") for name in names} == {reason}
            assert not names & set(one["values"]) and one["left"] == [0, 0]
            assert value in FATAL or (PLAIN | GPM) - set(one["values"]) == names


def test_a_part_may_fail_alone(found: Found) -> None:
    """One metric's status leaves the others' values; a GPU that NVML does not list is not taken for another.

    pynvml's C integer for `is an instance` is read by value, and GPM asks the parent.
    """
    assert set(found["a metric fails"]["missing"]) == {"gpu_tensor_utilization", "gpu_tensor_utilization_mean"}
    for name in ("a metric fails", "mig"):
        assert len(found[name]["values"]["gpu_sm_occupancy"]) == 4
    assert "MIG instance" in found["mig"]["missing"]["gpu_utilization"]
    assert found["unknown"]["values"] == {} and found["unknown"]["missing"]["gpu_power"] == NVML_ERRORS[6]


def test_an_older_driver_gives_what_it_has(tmp_path: Path) -> None:
    """Functions that the library lacks have older names or a reason; pynvml's mismatch error is not met."""
    old = on_driver(tmp_path, "-DOLD")["gpm"]
    assert old["values"]["gpu_throttle"][0] == 4 and old["values"]["gpu_other_processes"][0] == 1
    assert old["missing"] == dict.fromkeys(GPM, f"GPM: {NVML_ERRORS[13]}")


@pytest.mark.parametrize(
    ("name", "states", "words"),
    [
        ("gpm", ["yes", "yes"], ("", "")),
        ("plain", ["yes", "no"], ("any kernel at all", NO_GPM)),
        ("no driver", ["no", "no"], ("Driver Not Loaded", "")),
    ],
)
def test_doctor_says_which_counter_is_there_and_why_not(
    found: Found, name: str, states: list[str], words: tuple[str, str]
) -> None:
    """Utilization and SM occupancy are separate, each tried, with the reason of what is missing."""
    doctor = found[name]["doctor"]
    assert [state for _, state, _ in doctor] == states
    assert all(part in why for part, (_, _, why) in zip(words, doctor, strict=True))


if __name__ == "__main__":
    json.dump({name: run_on_stub(environment) for name, environment in json.load(sys.stdin).items()}, sys.stdout)
