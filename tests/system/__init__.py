"""Tests of loaderprobe.system."""
