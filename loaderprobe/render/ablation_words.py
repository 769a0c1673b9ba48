"""Which ablations were measured, in words."""

from __future__ import annotations

from loaderprobe.records.verdict import Ablations
from loaderprobe.render.verdict_words import NOUN
from loaderprobe.units import join_words, significant


def ablation_words(ablations: Ablations) -> str:
    """Which ablations were measured, and why no more, as a sentence."""
    facts = ablations.facts
    speedups = ", ".join(f"{NOUN.get(name, name)} {significant(value, 2)}" for name, value in facts.items())
    match ablations.code:
        case "in_training":
            return f"Ablations measured in training itself, {_rounds(facts['rounds'])}: the prediction did not fit."
        case "measured":
            nouns = join_words([NOUN[name] for name in facts], "and")
            return f"Ablations measured, {_rounds(max(facts.values()))}: {nouns}."
        case "no_complete_round":
            return "No round measured the loader, compute and training."
        case "cannot_matter":
            free, compute = significant(facts["input"]), significant(facts["compute"])
            return f"No ablation measured: the speed-up is {free} if all input were free, {compute} if compute were."
        case "not_possible":
            return f"No ablation that would decide was measured. Estimated speed-ups if free: {speedups}."
        case "not_needed":
            return f"No ablation needed: the workers' own times show the cause. Speed-ups if free: {speedups}."


def _rounds(count: float) -> str:
    return f"{count:.0f} round{'s' if count > 1 else ''}"
