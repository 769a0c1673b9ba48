"""The figures that a verdict follows from, in words: those of the table of figures, and ratios of its own."""

from __future__ import annotations

from loaderprobe.records.verdict import Evidence, EvidenceCode
from loaderprobe.render.figures import words_of

_OWN: dict[EvidenceCode, str] = {
    "gpu_window.gaps.waiting": "GPU idle: input or loader",
    "loader_over_training": "loader alone over training, at least",
    "free_input_at_most": "speed-up if all input were free, at most, from times within training",
    "compute_over_training": "compute alone over training",
    "run_delay_fraction": "share of worker time waiting for a core",
    "loader_cores": "cores in use by the loader",
    "training_cores": "cores in use by training and its workers",
    "warm_file_wait_fraction": "share of time waiting for a file, warm",
    "cold_over_warm_wait": "wait for a file, cold over warm",
    "rise_of_ladder": "rate of the most readers over that of one",
    "paced_reading_time": "reading time with pauses over that without",
}
_BAR = {
    "input_wait_fraction": "threshold: XProf, moderately input-bound",
    "accelerator_utilization": "threshold: MLPerf Storage",
}
"""Whose threshold it is."""


def evidence_words(evidence: Evidence) -> str:
    """`speed-up if storage were free (measured)`."""
    words = _OWN.get(evidence.metric) or words_of(evidence.metric)
    beside = evidence.how or _BAR.get(evidence.metric)
    return f"{words} ({beside})" if beside else words
