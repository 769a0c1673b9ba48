"""Counters read during training: disk, GPU, what workers wait for. An unavailable counter has a reason, never 0.

What a counter means does not belong here.
"""
