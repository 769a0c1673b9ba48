"""Records as columns with units in their names, and columns as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from loaderprobe.records.verdict import Interval
from loaderprobe.render.format import visible

Value = str | int | float | bool | None


def interval_cells(name: str, interval: Interval | None, *more: str) -> dict[str, Any]:
    """The figure; the ends of its interval and what `more` it has in columns of their own. None where none is known."""
    parts = {name: "value", **{f"{name}_{part}": part for part in ("low", "high", *more)}}
    return {column: getattr(interval, part) if interval else None for column, part in parts.items()}


def as_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns, in the order in which their names first come; None where a row lacks one."""
    every = list(rows)
    names = dict.fromkeys(name for row in every for name in row)
    return {name: [row.get(name) for row in every] for name in names}


def csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """CSV of these columns, with a header line and LF line ends; None is an empty cell.

    A text that a spreadsheet would take for a formula begins with an apostrophe, as OWASP advises (CSV injection).
    Control characters are written out.
    """
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_inert, column) for column in columns.values()), strict=True))
    return out.getvalue()


def _inert(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    return f"'{visible(cell)}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else visible(cell)
