"""Fakes and record builders, for the tests of this product and of anything plugged into it.

Nothing here may be needed by a measurement.
"""

from loaderprobe.testing.fakes import (
    FakeClock,
    FakePageCache,
    ProfiledCompute,
    ScriptedLoader,
    Service,
    example_arguments,
    example_config,
    example_environment,
    example_files,
    example_location,
)
from loaderprobe.testing.ranks import FakeGroup, FakeStore

__all__ = [
    "FakeClock",
    "FakeGroup",
    "FakePageCache",
    "FakeStore",
    "ProfiledCompute",
    "ScriptedLoader",
    "Service",
    "example_arguments",
    "example_config",
    "example_environment",
    "example_files",
    "example_location",
]
