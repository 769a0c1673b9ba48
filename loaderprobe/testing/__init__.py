"""Fakes and record builders, for the tests of this product and of anything plugged into it.

Nothing here may be needed by a measurement.
"""

from loaderprobe.testing.batch_sizes import ScriptedMeter, ScriptedProber
from loaderprobe.testing.fakes import (
    FakeClock,
    FakePageCache,
    PlantedDisturbance,
    ProfiledCompute,
    ScriptedLoader,
    Service,
    example_arguments,
    example_config,
    example_environment,
    example_files,
    example_location,
)
from loaderprobe.testing.ranks import FakeCrew, FakeStore

__all__ = [
    "FakeClock",
    "FakeCrew",
    "FakePageCache",
    "FakeStore",
    "PlantedDisturbance",
    "ProfiledCompute",
    "ScriptedLoader",
    "ScriptedMeter",
    "ScriptedProber",
    "Service",
    "example_arguments",
    "example_config",
    "example_environment",
    "example_files",
    "example_location",
]
