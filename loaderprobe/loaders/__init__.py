"""Loaders: each serves the batches of a file set, without end, in the set's own order; and the probe in its workers.

When which mode is measured does not belong here.
"""
