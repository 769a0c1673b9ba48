"""Tests of `loaderprobe.analyze.forecast`."""
