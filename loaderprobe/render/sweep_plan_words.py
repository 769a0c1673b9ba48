"""What a sweep is about to measure, in words."""

from __future__ import annotations

from collections.abc import Iterator

from loaderprobe.records.config import Auto, StudyPlan, SweepPlan
from loaderprobe.render.format import counted
from loaderprobe.units import format_bytes, format_duration


def sweep_plan_words(plan: SweepPlan) -> Iterator[str]:
    """A sentence for the verdicts, one for the time, one for each study beside them."""
    if plan.configurations:
        screening = f"{_configurations(plan.configurations)}: the loader alone and in training, {plan.rounds} rounds"
        costly = "the same with warm files, cached samples and no transport"
        decided = f"then {costly}" + ("" if plan.thorough else ", where the cause is still open")
        yield f"Plan: {screening}; {decided}; in training itself, where the prediction error is too large."
        yield _time(plan)
        if plan.auto:
            yield _more(plan.auto)
    else:
        yield f"Plan: {'all verdicts are' if plan.beside else 'everything is'} already measured."
    yield from map(_study, plan.beside)


def _more(auto: Auto) -> str:
    """What follows from what is measured first."""
    counts = f"numbers of workers (up to {auto.most_workers})" if auto.workers else ""
    factors = "prefetch factors" if auto.prefetch_factor else ""
    both = " and ".join(filter(None, (counts, factors)))
    return (
        f"Then more {both}, until the fewest that train within 2 % of the best are known: how many configurations that "
        "takes is not known beforehand."
    )


def _configurations(count: int) -> str:
    return counted(count, "configuration")


def _time(plan: SweepPlan) -> str:
    expected = format_duration(plan.expected_s)
    if plan.auto:
        if plan.budget_s is None:
            return f"These take about {expected}; --budget SECONDS sets a limit for all."
        return f"All stays within the budget of {format_duration(plan.budget_s)}; what does not fit is for --resume."
    if plan.budget_s is None and plan.thorough:
        return f"It takes about {expected}; --budget SECONDS sets a limit."
    if plan.budget_s is None:
        return f"It takes about {expected}; --budget SECONDS gives it more or less, --thorough measures everything."
    share = f"{format_duration(plan.budget_s)}, {format_duration(plan.budget_s / plan.configurations)} each"
    if plan.budget_s >= plan.least_s:
        return f"It stays within the budget of {share}."
    return (
        f"The budget of {share}, is less than the {format_duration(plan.least_s)} that one round of all would take: "
        f"segments get short, and {plan.configurations - plan.fitting or 'none'} of them may be left for --resume."
    )


def _study(plan: StudyPlan) -> str:
    where, each = f"in {_configurations(plan.configurations)}", format_duration(plan.each_s)
    if plan.study == "prefilled":
        return f"Then training from a full buffer, {where}: about {each} each."
    size = format_bytes(plan.set_bytes)
    return (
        f"Then {plan.epochs} epochs of {plan.images} images (up to {size}), {where}: {each} each at "
        f"{plan.images_per_s:g} images/s; --images makes them shorter."
    )
