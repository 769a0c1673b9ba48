"""Tests of `loaderprobe.analyze.tune`."""
