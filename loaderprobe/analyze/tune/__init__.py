"""Searches for the fastest setting that measure little."""
