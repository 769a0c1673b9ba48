"""The real pynvml on a driver library that is compiled here: struct layouts, errors and traps as they come."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.samplers.nvml import FATAL, FIGURES, METRICS, UNSUPPORTED
from tests.said import said
from tests.samplers.fake_nvml import NVML_ERRORS

NO_GPM = said(UNSUPPORTED)
HERE = Path(__file__).parent / "stub_nvml"
ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("cc")
GPM = {metric.name for metric in METRICS}
PLAIN = {figure.name for figure in FIGURES}
NEEDS_COMPILER = "needs a C compiler named cc"
ERRORS = [value for value in NVML_ERRORS if value != 0] + [1234]

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NEEDS_COMPILER)
Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Folders with the compiled library: a driver as it is now, and an old one without the newer calls."""
    assert COMPILER is not None, NEEDS_COMPILER
    folders = {False: tmp_path_factory.mktemp("driver"), True: tmp_path_factory.mktemp("old_driver")}
    for old, folder in folders.items():
        flags = ["-Wall", "-Werror", "-shared", "-fPIC", *(["-DOLD"] if old else [])]
        subprocess.run([COMPILER, *flags, "-o", folder / "libnvidia-ml.so.1", HERE / "nvml.c"], check=True)
    return folders


@pytest.fixture(scope="module")
def run(drivers: dict[bool, Path]) -> Run:
    """Runs scenarios (the stub's environment), all in one process."""

    def run_on_stub(*scenarios: dict[str, str], old: bool = False) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.samplers.stub_nvml.run"],
            input=json.dumps(scenarios), capture_output=True, text=True, cwd=ROOT, timeout=60,
            env={**os.environ, "LD_LIBRARY_PATH": str(drivers[old])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return run_on_stub


def test_gpm_comes_through_the_real_binding(run: Run) -> None:
    """Neighbouring samples and first and last are compared as they should be, in pynvml's own structs."""
    (found,) = run({"STUB_GPM": "1"})
    # Samples are numbered 1 to 5; the stub's metric m between a and b is m + a + b.
    assert found["values"]["gpu_sm_occupancy"] == pytest.approx([0.06, 0.08, 0.1, 0.12])
    assert found["values"]["gpu_sm_occupancy_mean"] == pytest.approx([0.09])
    assert found["values"]["gpu_jpeg_utilization"] == pytest.approx([0.5, 0.52, 0.54, 0.56])
    assert set(found["values"]) == PLAIN | GPM | {f"{name}_mean" for name in GPM}
    assert found["missing"] == {} and found["left"] == [0, 0]


def test_plain_figures_come_through_the_real_binding(run: Run) -> None:
    """Each figure has its unit; energy is more than 32 bits; without GPM there is one reason for all of it."""
    (found,) = run({"STUB_PIDS": "7"})
    assert {name: readings[0] for name, readings in found["values"].items()} == {
        "gpu_utilization": 1.0,
        "gpu_power": 350.0,
        "gpu_energy": 5e9,
        "gpu_sm_clock": 1980.0,
        "gpu_memory_clock": 2619.0,
        "gpu_throttle": 0x44,
        "gpu_other_processes": 6.0,
    }
    assert found["missing"] == dict.fromkeys(GPM, NO_GPM) and found["left"] == [0, 0]


@pytest.mark.parametrize(("call", "names"), [("INIT", PLAIN | GPM), ("POWER", {"gpu_power"}), ("GPM_SAMPLE", GPM)])
def test_each_error_of_the_real_binding_is_a_reason(run: Run, call: str, names: set[str]) -> None:
    """The figures of the call are missing with the error in words; the others are read unless the GPU is gone."""
    scenarios = [{"STUB_GPM": "1", f"STUB_{call}": str(value)} for value in ERRORS]
    for value, found in zip(ERRORS, run(*scenarios), strict=True):
        reason = NVML_ERRORS.get(value, "NVML error 1234")
        assert {found["missing"][name].removeprefix("GPM: ") for name in names} == {reason}
        assert not names & set(found["values"]) and found["left"] == [0, 0]
        assert value in FATAL or (PLAIN | GPM) - set(found["values"]) == names


def test_a_metric_may_fail_alone(run: Run) -> None:
    """One metric's status leaves the others' values alone."""
    (found,) = run({"STUB_GPM": "1", "STUB_TENSOR": "3"})
    assert set(found["missing"]) == {"gpu_tensor_utilization", "gpu_tensor_utilization_mean"}
    assert len(found["values"]["gpu_sm_occupancy"]) == 4


def test_an_instance_of_mig_is_sampled_by_its_number(run: Run) -> None:
    """pynvml's C integer for `is an instance` is read by value, and GPM asks the parent."""
    (found,) = run({"STUB_GPM": "1", "STUB_INSTANCE": "3", "STUB_UTILIZATION": "3"})
    assert len(found["values"]["gpu_sm_occupancy"]) == 4
    assert "MIG instance" in found["missing"]["gpu_utilization"]


def test_an_older_driver_gives_what_it_has(run: Run) -> None:
    """Functions that the library lacks have older names or a reason; pynvml's mismatch error is not met."""
    (found,) = run({"STUB_GPM": "1"}, old=True)
    assert found["values"]["gpu_throttle"][0] == 4 and found["values"]["gpu_other_processes"][0] == 1
    assert set(found["missing"].values()) == {f"GPM: {NVML_ERRORS[13]}"} and set(found["missing"]) == GPM


def test_an_unknown_uuid_is_a_reason(run: Run) -> None:
    """A GPU that NVML does not list is not taken for another."""
    (found,) = run({"UUID": "GPU-2"})
    assert found["values"] == {} and found["missing"]["gpu_power"] == NVML_ERRORS[6]


def test_doctor_says_which_counter_is_there_and_why_not(run: Run) -> None:
    """Utilization and SM occupancy are separate, each tried, with the reason of what is missing."""
    both, plain, neither = run({"STUB_GPM": "1"}, {}, {"STUB_INIT": "9"})
    assert [state for _, state, _ in both["doctor"]] == ["yes", "yes"]
    assert [state for _, state, _ in plain["doctor"]] == ["yes", "no"]
    assert NO_GPM in plain["doctor"][1][2] and "any kernel at all" in plain["doctor"][0][2]
    assert [state for _, state, _ in neither["doctor"]] == ["no", "no"]
    assert "Driver Not Loaded" in neither["doctor"][0][2]
