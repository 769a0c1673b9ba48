"""A copy of an iterable data set, for loaders without workers: iterating it would move on the user's own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from loaderprobe.loaders.held import MOST, held

MOST_BYTES = 64 * 2**20
"""Tensors and arrays that are copied at most; a data set that holds more is iterated itself."""


def copied_iterable(dataset: Any) -> Any:
    """A deep copy, such as a worker would have; None where it is too large, or does not let itself be copied."""
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
