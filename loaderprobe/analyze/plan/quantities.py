"""Figures with ranges and labels, and the two ways to put them together: products and sums.

Relative half-widths of a product, absolute ones of a sum, add in quadrature: the inputs were measured independently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.records.plan import WEAKNESS, Label, Quantity


def known(
    value: float, unit: str, label: Label, source: str, *, half: float = 0.0, low: float | None = None
) -> Quantity:
    """A figure that is an input: measured, given, published or assumed. `half` is half its 95 % interval."""
    least = max(0.0, value - half) if low is None else low
    return Quantity(
        value=value, low=least, high=value + half, unit=unit, label=label, weakest=label, source=source
    )  # fmt: skip


def weakest(inputs: Sequence[Quantity]) -> Label:
    """The weakest label among the inputs: a derived figure is no better than that."""
    return max((each.weakest for each in inputs), key=WEAKNESS.index)


def product(
    inputs: Sequence[Quantity], unit: str, formula: str, *, factor: float = 1.0, over: Sequence[Quantity] = ()
) -> Quantity:
    """The inputs multiplied with each other and with `factor`, divided by those in `over`."""
    value = factor * math.prod(each.value for each in inputs) / math.prod(each.value for each in over)
    half = min(1.0, math.sqrt(math.fsum(_relative(each) ** 2 for each in (*inputs, *over))))
    return _derived(value, value * half, unit, formula, (*inputs, *over))


def total(inputs: Sequence[Quantity], unit: str, formula: str) -> Quantity:
    """The inputs added up."""
    value = math.fsum(each.value for each in inputs)
    half = math.sqrt(math.fsum(((each.high - each.low) / 2) ** 2 for each in inputs))
    return _derived(value, half, unit, formula, inputs)


def scaled(quantity: Quantity, factor: float, formula: str) -> Quantity:
    """The same figure times an exact number."""
    return replace(
        quantity,
        value=quantity.value * factor,
        low=quantity.low * factor,
        high=quantity.high * factor,
        label="derived",
        formula=formula,
    )


def assumed_too(quantity: Quantity) -> Quantity:
    """The same figure, when an assumption went into it besides."""
    return replace(quantity, label="derived", weakest="assumed")


def _relative(quantity: Quantity) -> float:
    return (quantity.high - quantity.low) / 2 / quantity.value if quantity.value else 0.0


def _derived(value: float, half: float, unit: str, formula: str, inputs: Sequence[Quantity]) -> Quantity:
    return Quantity(
        value=value, low=max(0.0, value - half), high=value + half, unit=unit, label="derived",
        weakest=weakest(inputs), source="", formula=formula,
    )  # fmt: skip
