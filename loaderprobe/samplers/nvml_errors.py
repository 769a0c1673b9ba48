"""Texts of NVML's errors by value, because its exceptions cannot be hashed or compared reliably."""

from __future__ import annotations

from typing import Any

NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13

REASONS = {
    0: "NVML has no value for it",
    1: "NVML was not initialised",
    2: "NVML rejects this query for this GPU",
    3: "this GPU does not support it",
    4: "no permission to ask NVML",
    6: "NVML does not know this GPU",
    7: "NVML's answer changed size while it was read",
    9: "the NVIDIA driver is not loaded",
    10: "NVML took too long to answer",
    12: "there is no NVIDIA driver library (libnvidia-ml.so.1)",
    13: "the driver or nvidia-ml-py is too old for it",
    15: "the GPU has been lost",
    16: "the GPU must be reset",
    17: "the operating system blocks NVML; a container may lack this GPU's device files",
    18: "driver and library versions differ: reboot after the driver's update",
    19: "the GPU is in use in a way that forbids it",
    20: "NVML found too little memory",
    21: "NVML had no data yet",
    25: "the driver does not support the structure version of nvidia-ml-py",
    999: "NVML failed; a container may have lost access to the GPU",
}

# After these nothing more comes from this GPU, and asking a lost one may block.
FATAL = frozenset({1, 9, 12, 15, 16, 18})
# These answers do not change while a process runs.
FINAL = frozenset({2, NOT_SUPPORTED, 4, FUNCTION_NOT_FOUND, 25})


def reason_for(error: Any) -> str:
    """The text of an NVML error."""
    return REASONS.get(error.value, f"NVML error {error.value}: {error}")


def reason_for_status(status: int) -> str:
    """The text for the status of a single figure within a successful answer."""
    return REASONS.get(status, f"NVML error {status}")
