"""Runs the sampler on the real pynvml in scenarios from standard input; prints what it found, as JSON.

A scenario is the environment of the stub library, which reads it at every call.
"""

from __future__ import annotations

import json
import os
import sys
from ctypes import CDLL
from typing import Any

from loaderprobe.measure.capabilities import gpu_counters
from loaderprobe.records.measurement import Series
from loaderprobe.render.capability_words import why_words
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.testing import FakeClock
from tests.said import said

UUID = "GPU-00000000-0000-0000-0000-000000000001"
READINGS = 5


def run(environment: dict[str, str]) -> dict[str, Any]:
    """Series and reasons of one scenario, and what stays open in the library after it."""
    os.environ.update(environment)
    clock = FakeClock()
    with NvmlSampler(clock, environment.get("UUID", UUID)) as sampler:
        for _ in range(READINGS):
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


if __name__ == "__main__":
    json.dump([run(environment) for environment in json.load(sys.stdin)], sys.stdout)
