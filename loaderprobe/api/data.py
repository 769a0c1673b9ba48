"""The verbs of generated data sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from loaderprobe.datasets.generate.generate import generate as generate_set
from loaderprobe.datasets.generate.manifest import SPEC
from loaderprobe.datasets.generate.request import SetRequest
from loaderprobe.datasets.generate.verify import Damage, verify_set
from loaderprobe.errors import BadValue
from loaderprobe.units import format_resolution

OnData = Callable[[str, int, int], None]
"""Hears what is being prepared, how many images are done, and of how many."""


def generate(
    root: Path, requests: Sequence[SetRequest], *, count: int, processes: int, progress: OnData
) -> tuple[Path, ...]:
    """Make, complete or enlarge the data sets under `root`. Raises Refused and its kin rather than mix sets."""

    def one(request: SetRequest) -> Path:
        label = format_resolution(request.resolution)
        return generate_set(
            root,
            request,
            count=count,
            processes=processes,
            progress=lambda done, total: progress(f"generating {label}", done, total),
            on_picture=lambda done, total: progress(f"painting {label}", done, total),
        )

    return tuple(one(request) for request in requests)


def verify(root: Path, progress: OnData) -> dict[Path, tuple[Damage, ...]]:
    """What is wrong with each generated set in or directly under `root`. Raises BadValue when there is none."""
    found = [path for path in (root, *sorted(root.glob("*"))) if os.path.isfile(path / SPEC)]  # noqa: PTH113  # a directory that may not be entered is none of ours, and no error
    if not found:
        raise BadValue(f"{root} holds no generated data set", hint="give the directory that `generate` was given")
    return {
        path: verify_set(path, lambda done, total, path=path: progress(f"verifying {path.name}", done, total))  # type: ignore[misc]  # mypy cannot type a default argument of a lambda
        for path in found
    }
