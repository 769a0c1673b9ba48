"""A copy of an iterable data set, for loaders without workers: iterating the original would advance it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from loaderprobe.loaders.held import MOST, held

MOST_BYTES = 64 * 2**20
"""Most bytes of tensors and arrays that are copied; a larger data set is iterated itself."""


def copied_iterable(dataset: Any) -> Any:
    """A deep copy, as a worker would have; None when it is too large or cannot be copied."""
    size = 0
    for number, value in enumerate(held([dataset]), 1):
        if issubclass(type(value), torch.Tensor | np.ndarray):
            size += value.nbytes
        if number >= MOST or size > MOST_BYTES:
            return None
    try:
        return copy.deepcopy(dataset)
    except Exception:  # noqa: BLE001  # whatever its own copying raises: files, locks and generators do
        return None
