"""What a batch is: tensors or arrays, alone or in tuples, lists and dicts of any nesting. Needs no torch."""

from __future__ import annotations

from typing import Any


def samples_in(batch: Any) -> int:
    """Samples in a batch of any nesting: the length of the first tensor or array found; 1 when there is none."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    if isinstance(batch, list | tuple):
        return next((samples_in(part) for part in batch if not isinstance(part, str | bytes)), 1)
    return 1
