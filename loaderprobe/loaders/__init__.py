"""Loaders: each serves the batches of a file set, without end, in the set's own order."""
