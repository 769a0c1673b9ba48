"""The panels that options stand in, in the order of `--help`."""

DATA = "Data"
LOADER = "Loader"
COMPUTE = "Compute"
STORAGE = "Storage"
MEASURING = "Measuring"
OUTPUT = "Output"
