"""What can be measured on a machine, and why not the rest, as a document."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.environment import Capability
from loaderprobe.render.document import Cell, Document, Section, Table
from loaderprobe.render.words import message, remark_words

_TONES = {"yes": "good", "limited": "warning", "no": "failed"}


def why_words(capability: Capability) -> str:
    """All that was found of it, with semicolons between."""
    return "; ".join(map(remark_words, capability.why))


def step_words(capability: Capability) -> str:
    """How to get the rest, quoting what was found; empty where there is nothing to get."""
    if capability.next_step is None:
        return ""
    facts = {name: value for why in capability.why for name, value in why.facts.items()}
    return message(f"step.{capability.next_step}", facts)


def capabilities_document(capabilities: Sequence[Capability]) -> Document:
    """A line for each, with the reason and how to get the rest."""
    ready = sum(capability.state == "yes" for capability in capabilities)
    table = Table(head=("measured", "here", "why"), lines=tuple(map(_line, capabilities)))
    return Document(title=f"{ready} of {len(table.lines)} can be measured in full", sections=(Section(parts=(table,)),))


def _line(capability: Capability) -> tuple[str | Cell, ...]:
    step = step_words(capability)
    why = "\n".join(filter(None, (why_words(capability), f"to get it: {step}" if step else "")))
    state = Cell(text=capability.state, tone=_TONES[capability.state])
    return message(f"capability.{capability.name}", {}), state, why
