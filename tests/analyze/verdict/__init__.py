"""Tests of `loaderprobe.analyze.verdict`."""
