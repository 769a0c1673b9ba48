"""The nouns: frozen values with their units in their names.

No behaviour beyond reading themselves, and nothing that measures, judges or words.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def values(record: Any) -> dict[str, Any]:
    """The values of a record by name: what a record of a class that has the same fields and more is made of."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
