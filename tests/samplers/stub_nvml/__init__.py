"""A driver library without a driver, to put under the real pynvml."""
