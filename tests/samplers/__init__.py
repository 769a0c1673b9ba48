"""Tests of loaderprobe.samplers."""
