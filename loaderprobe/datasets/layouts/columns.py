"""Images and classes in the columns of rows that others wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
LABELS = ("label", "labels", "cls", "class")
"""Columns of classes: the first that is there counts."""


def named(columns: Mapping[Any, T], names: Sequence[str], default: T) -> T:
    """The column of the first of these names that is there, else the first column."""
    return next((columns[name] for name in (*names, *columns) if name in columns), default)


def class_of(text: str | bytes) -> int:
    """Of a number, else 0. Raises ValueError for digits that `int` does not take."""
    return int(text) if text.isdigit() else 0
