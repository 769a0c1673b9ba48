"""Tests of loaderprobe.storage."""
