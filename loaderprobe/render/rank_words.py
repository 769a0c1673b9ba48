"""What is said of several ranks that are measured together, or are not."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.together import Apart
from loaderprobe.render.wording import counted
from loaderprobe.units import format_duration, join_words

WORTH_A_WORD = 0.02
"""Of a training step: what the meeting after it takes."""
_SETTINGS = {
    "batch_size": "batch size", "workers": "number of workers", "prefetch_factor": "prefetch factor",
    "period": "number of batches an update",
}  # fmt: skip


def ranks_named(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 1 and 3`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {join_words([str(rank) for rank in ranks])}"


def together(size: int, hosts: int, meeting_s: float, step_s: float) -> tuple[str, ...]:
    """What the rates of `size` ranks are; and the time of meeting after each step, where that is worth a word."""
    on = f" on {counted(hosts, 'host')}" if hosts > 1 else ""
    found = [
        f"{counted(size, 'rank')}{on}, measured together: rates are those of all of them, which train in step. Times "
        "of workers are those of the slowest rank. The exchange of gradients counts as compute"
    ]
    if meeting_s > WORTH_A_WORD * step_s:
        found.append(
            f"to stay in step, ranks met after each step, which takes {format_duration(meeting_s)}: about "
            f"{100 * meeting_s / step_s:.0f} % of a training step, in every rate"
        )
    return tuple(found)


def apart(why: Apart) -> tuple[str, str]:
    """(the reason, the next step)."""
    who = ranks_named(why.ranks) if why.ranks else "a rank"
    one = len(why.ranks) == 1
    settings = join_words([_SETTINGS.get(each, each) for each in why.detail.split(", ")])
    found = {
        "silent": (
            f"{who} took no batches from a torch DataLoader to train on, and all ranks are measured or none",
            "loaderprobe run --loader NUMBER, if one of the loaders below trains",
        ),
        "other_thread": (
            f"on {who}, batches are taken in another thread than the one that trains",
            "loaderprobe.diagnose(loader, step) in Python, with one rank",
        ),
        "another_process": ("another training of the command is measured already", ""),
        "loaders_differ": (
            f"the loader of {who} has another {settings} than that of rank 0",
            "give all ranks the same",
        ),
        "out_of_step": (
            f"{who} {'was' if one else 'were'} not at the same step as the others",
            "start it with one rank",
        ),
        "no_group": (
            f"the ranks could not meet over gloo: {why.detail}",
            "GLOO_SOCKET_IFNAME names the network interface that joins them",
        ),
        "refused": (f"{why.detail} (on {who})", why.hint),
        "ended": ("the script ended before all ranks agreed on a step", "let it train for longer"),
        "lost": (why.detail or "another rank does not answer", why.hint),
    }
    return found[why.code]
