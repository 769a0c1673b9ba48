"""From a measurement to a verdict: pure functions over stored raw values. Needs no torch and no GPU."""
