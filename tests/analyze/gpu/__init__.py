"""Tests of `loaderprobe.analyze.gpu`."""
