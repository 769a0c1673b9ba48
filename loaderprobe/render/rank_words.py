"""What is said of several ranks that are measured together, or are not."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.ranks import Apart
from loaderprobe.units import join_words

_SETTINGS = {
    "batch_size": "batch size", "workers": "number of workers", "prefetch_factor": "prefetch factor",
    "period": "number of batches an update", "exchanges": "exchange of gradients",
}  # fmt: skip


def ranks_named(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 1 and 3`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {join_words([str(rank) for rank in ranks])}"


def differs(rank: int, setting: str) -> tuple[str, str]:
    """(that the loader of a rank has another setting than that of rank 0, the next step)."""
    return _differ(ranks_named([rank]), _SETTINGS[setting])


def _differ(who: str, settings: str) -> tuple[str, str]:
    return f"the loader of {who} has another {settings} than that of rank 0", "give all ranks the same"


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
        "loaders_differ": _differ(who, settings),
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
