"""Fakes and record builders, for the tests of this product and of anything plugged into it."""

from loaderprobe.testing.bandwidth import example_bandwidth
from loaderprobe.testing.machine import example_environment, example_location
from loaderprobe.testing.reports import example_report, example_row

__all__ = ["example_bandwidth", "example_environment", "example_location", "example_report", "example_row"]
