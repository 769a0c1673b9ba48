"""The verbs: what loaderprobe does, for the command line and for programs."""

from loaderprobe.api.verbs import (
    SweepRequest,
    bandwidth,
    doctor,
    generate,
    plan,
    report,
    save_report,
    start_sweep,
    sweep,
    verify,
)
from loaderprobe.datasets.request import SetRequest

__all__ = [
    "SetRequest",
    "SweepRequest",
    "bandwidth",
    "doctor",
    "generate",
    "plan",
    "report",
    "save_report",
    "start_sweep",
    "sweep",
    "verify",
]
