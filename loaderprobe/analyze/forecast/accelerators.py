"""Faster accelerators: the known ones, and one that is just fast enough for the loader."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.analyze.forecast.changes import accelerator, refused
from loaderprobe.analyze.forecast.fit import Fit
from loaderprobe.analyze.forecast.knee import WITHIN
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.records.forecast import Forecast, Refusal
from loaderprobe.records.verdict import WORTH, Action

# Storage is called faster than needed beyond this factor.
MOST_FACTOR = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A forecast, and how to bring it about."""

    forecast: Forecast
    action: Action | None = None
    """None where nothing can be done to bring it about."""
    command: str = ""


def accelerators(fitted: Fit, known: Mapping[str, float], found: Experiments) -> list[Option]:
    """The known ones that are faster, and one just fast enough for the loader; one for each rank.

    None where ranks exchange gradients for a time that counts: a faster device waits for them all the same.
    """
    gradients = found.speedups.get("gradients")
    if gradients is not None and gradients.value >= WORTH:
        return [Option(forecast=refused("accelerator", "a faster one", Refusal(code="exchange_of_gradients")))]
    alone, ranks = fitted.anchor.compute, fitted.anchor.ranks
    options = [
        Option(
            forecast=accelerator(fitted, rate * ranks, name),
            action=Action(code="accelerator", facts={"images_per_s": rate, "name": name, **_each(ranks)}),
        )
        for name, rate in known.items()
        if rate * ranks > alone
    ]
    least = alone * enough(lambda factor: accelerator(fitted, alone * factor))
    action = Action(code="accelerator", facts={"images_per_s": least / ranks, **_each(ranks)})
    return [*options, Option(forecast=accelerator(fitted, least), action=action)]


def _each(ranks: int) -> dict[str, float | str]:
    return {"ranks": ranks} if ranks > 1 else {}


def one_accelerator(options: Sequence[Option]) -> list[Option]:
    """Of several accelerators that all gain as much, the first is enough."""
    rates = {
        number: option.forecast.images_per_s.value
        for number, option in enumerate(options)
        if option.forecast.changed == "accelerator" and option.forecast.images_per_s
    }
    enough = next((number for number, rate in rates.items() if rate >= WITHIN * max(rates.values())), None)
    return [o for number, o in enumerate(options) if o.forecast.changed != "accelerator" or number == enough]


def enough(made: Callable[[float], Forecast]) -> float:
    """The smallest factor that gains all but 2 % of what any factor gains; the largest where that is refused."""
    best = made(MOST_FACTOR).images_per_s
    if best is None:
        return MOST_FACTOR
    low, high = 1.0, MOST_FACTOR
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        rate = made(middle).images_per_s
        low, high = (low, middle) if rate and rate.value >= WITHIN * best.value else (middle, high)
    return high
