"""Values as programs give them: lists, paths, progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loaderprobe.errors import BadValue
from loaderprobe.records.files import is_url
from loaderprobe.units import parse_count, parse_list

if TYPE_CHECKING:
    from loaderprobe.records.rank_processes import Node

T = TypeVar("T")
PathLike = str | os.PathLike[str]
IMAGENET_IMAGES = 1_281_167
"""Of its training set; a generated data set has only as many as the sweep needed."""


def listed(value: object, parse: Callable[[str], T]) -> tuple[T, ...]:
    """The distinct items of `[1, 2, 4]`, of `4`, or of `"1,2,4"` as on the command line. Raises BadValue."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return parse_list(",".join(map(str, value)) if several else str(value), parse)  # type: ignore[call-overload]  # several says that it can be iterated


def counts(value: object, option: str) -> tuple[int, ...]:
    """The whole numbers of such a list; the BadValue for another one names the option that it was given for."""
    try:
        return listed(value, parse_count)
    except BadValue as error:
        raise BadValue(
            f"{option}: {error.message}", hint=f"{option} takes numbers with commas, such as {option} 1,2,4"
        ) from error


def spreads_of(ranks: object, nodes: Sequence[Node] | None) -> tuple[tuple[int, int], ...]:
    """(ranks, nodes) of `"1,2,4x8"`, `2`, `[1, "4x8"]`; without it all that a launcher started, or one."""
    from loaderprobe.measure.ranks.launch import spread

    if ranks is not None:
        return tuple(dict.fromkeys(listed(ranks, lambda text: spread(text, nodes))))
    return ((len(nodes) * min(len(node.processes) for node in nodes), len(nodes)) if nodes else (1, 1),)


def data_path(given: PathLike) -> Path | str:
    """A path, or the URL of objects as it is; `file://` is a path."""
    text = os.fspath(given).removeprefix("file://")
    return text if is_url(text) else Path(text)


def no_progress(stage: str, done: int, total: int) -> None:
    """Progress that goes nowhere."""
