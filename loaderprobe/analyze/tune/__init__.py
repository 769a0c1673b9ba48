"""Strategies that search for the fastest setting: pure functions of what was measured so far."""
