"""What a batch is: tensors or arrays, alone or in tuples, lists and dicts of any nesting. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

IMAGES_DIMENSIONS = 4
MOST_CHANNELS = 4


def length_of(batches: Any) -> int | None:
    """Of a loader, a sampler or a data set; None where it does not know its length, as an iterable need not."""
    try:
        return len(batches)
    except (TypeError, NotImplementedError):
        return None


def samples_in(batch: Any) -> int:
    """Samples in a batch of any nesting: the length of the first tensor or array that has one; 0 without any."""
    shapes = (getattr(part, "shape", None) for part in parts_of(batch))
    return next((int(shape[0]) for shape in shapes if isinstance(shape, tuple) and shape), 0)


def samples_asked_for(index: Any) -> int | None:
    """Samples that a data set is asked for at once: the length of a list or an array of indices; None for one index."""
    if isinstance(index, list | range) or len(getattr(index, "shape", ())) == 1:
        return len(index)
    return None


def samples_without_collation(item: Any) -> int:
    """Samples in what a data set of a loader with batch_size=None yields: a batch of its own making, or one sample.

    A batch when its first array has four dimensions, or when all its arrays are of one length and nothing beside
    them is a plain number or text; images alone (three dimensions, up to four channels) are one sample.
    """
    leaves = list(parts_of(item))
    shapes = [tuple(leaf.shape) for leaf in leaves if hasattr(leaf, "shape")]
    if not shapes or not shapes[0]:
        return 1
    if len(shapes[0]) == IMAGES_DIMENSIONS:
        return int(shapes[0][0])
    if len(shapes) < len(leaves) or any(shape[:1] != shapes[0][:1] for shape in shapes):
        return 1
    alone = len(shapes) == 1 and len(shapes[0]) == 3 and min(shapes[0][0], shapes[0][-1]) <= MOST_CHANNELS
    return 1 if alone else int(shapes[0][0])


def holds_images(batch: Any) -> bool:
    """True when some tensor or array of a batch has four dimensions, as images have: N x C x H x W."""
    return any(len(getattr(leaf, "shape", ())) == IMAGES_DIMENSIONS for leaf in parts_of(batch))


def size_bytes(batch: Any) -> int:
    """Of the tensors and arrays of a batch."""
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in parts_of(batch))


def parts_of(batch: Any) -> Iterator[Any]:
    """The tensors, arrays, numbers and texts of a batch."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for part in batch:
            yield from parts_of(part)
    else:
        yield batch
