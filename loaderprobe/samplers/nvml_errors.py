"""NVML's errors by value, because its exceptions cannot be hashed or compared reliably."""

from __future__ import annotations

from loaderprobe.records.unavailable import Unavailable

NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
# After these nothing more comes from this GPU, and asking a lost one may block.
FATAL = frozenset({1, 9, 12, 15, 16, 18})
# These answers do not change while a process runs.
FINAL = frozenset({2, NOT_SUPPORTED, 4, FUNCTION_NOT_FOUND, 25})


def reason_for(status: int) -> Unavailable:
    """The reason of an error, or of the status of a single figure within a successful answer."""
    return Unavailable(code="nvml", facts={"status": status})
