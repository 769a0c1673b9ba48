"""Searches for the fastest setting that measure little: what to ask next, and when to stop.

Running what is asked does not belong here.
"""
