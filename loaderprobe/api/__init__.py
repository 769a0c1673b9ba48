"""The verbs: what loaderprobe does, for the command line and for programs."""

from loaderprobe.api.data import generate, verify
from loaderprobe.api.stored import foreign_modules
from loaderprobe.api.verbs import (
    SweepRequest,
    bandwidth,
    data_to_make,
    doctor,
    plan,
    report,
    save_report,
    start_sweep,
    sweep,
    usual_batch_size,
)
from loaderprobe.datasets.generate.request import SetRequest

__all__ = [
    "SetRequest",
    "SweepRequest",
    "bandwidth",
    "data_to_make",
    "doctor",
    "foreign_modules",
    "generate",
    "plan",
    "report",
    "save_report",
    "start_sweep",
    "sweep",
    "usual_batch_size",
    "verify",
]
