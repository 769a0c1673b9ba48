"""What A and B of a sweep against a run are, before they are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaderprobe.records.compare import Difference
from loaderprobe.records.config import OPTIONS, RunConfig
from loaderprobe.render.wording import counted
from loaderprobe.units import join_words


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
