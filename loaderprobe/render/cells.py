"""Flat tables, with units in the names of their columns, and CSV of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from loaderprobe.records.verdict import Interval

Cell = str | int | float | bool | None


def interval_cells(name: str, found: Interval | None) -> dict[str, float | None]:
    """The figure, and the ends of its interval in columns of their own; None where it is not known."""
    ends = {name: "value", f"{name}_low": "low", f"{name}_high": "high"}
    return {column: getattr(found, end) if found else None for column, end in ends.items()}


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns, in the order in which their names first come; None where a row lacks one."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """CSV of these columns, with a header line and LF line ends; None is an empty cell."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()
