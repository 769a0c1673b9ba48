"""What a sweep is about to measure, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaderprobe.records.compare import Difference
from loaderprobe.records.config import FEWEST_PAIRS, OPTIONS, PlanInTurn, RunConfig, StudyPlan, SweepPlan
from loaderprobe.render.wording import counted
from loaderprobe.units import format_bytes, format_duration, join_words


def sweep_plan_words(plan: SweepPlan) -> Iterator[str]:
    """A sentence for the verdicts, one for the time, one for each study beside them."""
    if plan.configurations:
        screening = f"{_configurations(plan.configurations)}: the loader alone and in training, {plan.rounds} rounds"
        costly = "the same with warm files, cached samples and no transport"
        decided = f"then {costly}" + ("" if plan.thorough else ", where the cause is still open")
        yield f"Plan: {screening}; {decided}; in training itself, where the prediction error is too large."
        yield _time(plan)
    else:
        yield f"Plan: {'all verdicts are' if plan.beside else 'everything is'} already measured."
    yield from map(_study, plan.beside)


def _configurations(count: int) -> str:
    return counted(count, "configuration")


def _time(plan: SweepPlan) -> str:
    expected = format_duration(plan.expected_s)
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


def in_turn_words(plan: PlanInTurn) -> Iterator[str]:
    """A sentence for what is measured, one for the time."""
    if not plan.pairs:
        yield "Plan: everything is already measured."
        return
    many = _configurations(plan.configurations)
    yield f"Plan: {many}, each as A and as B in turn (A B, B A), {plan.rounds} pairs of rounds."
    expected = format_duration(plan.expected_s)
    if plan.budget_s is None:
        yield f"It takes about {expected}; --rounds asks for more or fewer pairs, --budget SECONDS sets a limit."
        return
    within = f"It stays within the budget of {format_duration(plan.budget_s)} for both sides"
    if plan.fitting >= plan.rounds:
        yield f"{within}."
        return
    few = f", and fewer than {FEWEST_PAIRS} are not compared as pairs" if plan.fitting < FEWEST_PAIRS else ""
    yield (
        f"{within}, which has time for about {plan.fitting} of the {plan.rounds} pairs{few}; the rest is for --resume."
    )


# What A and B of a sweep against a run are, before they are measured.


def against_words(
    run: str, pairs: Sequence[tuple[RunConfig, RunConfig]], changes: Sequence[str], *, roots: Sequence[str],
    moved: bool, left_out: int, since: Sequence[Difference],
) -> Iterator[str]:  # fmt: skip
    """What B is, what is left out, and what has changed since the run was measured. `roots` are of A, then of B."""
    said = [_change(name, pairs) for name in changes]
    said += [f"data in {join_words(roots[len(roots) // 2 :])}"] if moved else []
    if said:
        yield f"A is {run} as it was asked; B is the same with {'; '.join(said)}."
    else:
        yield f"A and B are both {run} as it was asked: what differs between them is noise."
    if left_out:
        verb = "is" if left_out == 1 else "are"
        yield f"{counted(left_out, 'configuration')} of {run} {verb} left out: this changes nothing there."
    if since:
        fields = "; ".join(f"{each.field} {each.before}, now {each.after}" for each in since)
        yield f"Changed since {run} was measured, for A and for B, and so not in the comparison: {fields}."


def _change(name: str, pairs: Sequence[tuple[RunConfig, RunConfig]]) -> str:
    """`decoder torchvision (A: pillow)`."""
    before, after = (dict.fromkeys(str(OPTIONS[name].of(pair[side])) for pair in pairs) for side in (0, 1))
    return f"{name.replace('_', ' ')} {join_words(list(after))} (A: {join_words(list(before))})"
