"""What is said of a training script that is measured, in it and after it."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.diagnosis import Attached, SeenLoader, SeenOutside
from loaderprobe.records.ranks import Apart
from loaderprobe.render.format import counted, percent, workers_words
from loaderprobe.units import format_duration, join_words, significant

# What is said of several ranks that are measured together, or are not.

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
    settings = join_words([_SETTINGS.get(word, word) for word in why.detail.split(", ")])
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


NEXT_EPOCH = "the loop began its next epoch"
NO_PASS = "a batch was taken without a backward pass after it"
PAUSED = "the script paused between two batches"
ONE_PROCESS = "start the script with one process that trains"
MEASURED = "loaderprobe has measured the training, and ends the script here"
NOT_MEASURED = "loaderprobe cannot go on measuring, and ends the script here"
MOST_FILES = 5


def loader_name(seen: SeenLoader) -> str:
    """`loader 0 (ImageFolder, batch size 32, 2 workers)`."""
    size = f"batch size {seen.batch_size}, " if seen.batch_size is not None else ""
    workers = workers_words(seen.workers)
    return f"loader {seen.number} ({seen.dataset}, {size}{workers})"


def loader_names(seen: Sequence[SeenLoader]) -> str:
    """All of them; empty for none."""
    return join_words([loader_name(each) for each in seen])


def iterated(seen: SeenLoader) -> str:
    """Why a segment is measured again."""
    return f"{loader_name(seen)} was iterated"


def begins(seen: SeenLoader, budget_s: float, others: Sequence[SeenLoader], ranks: int = 1) -> str:
    """Said before anything is changed."""
    together = f" on {ranks} ranks together" if ranks > 1 else ""
    said = (
        f"measuring {loader_name(seen)}{together} for about {format_duration(budget_s)}, with this script's loop as "
        "the step. "
        "The training from here on is thrown away; the script ends when the verdict stands."
    )
    if others:
        said += f" A step also takes from {loader_names(others)}: that counts as compute."
    return said


def no_loader_yet(passes: int) -> str:
    """Said once while the script trains."""
    return (
        f"{passes} backward pass{'' if passes == 1 else 'es'} without a new batch of a torch DataLoader, so nothing is "
        "measured. The script trains on, and saves, as without loaderprobe; what its thread does meanwhile is "
        "estimated"
    )


def paused(seconds: float, places: str, budget_s: float) -> str:
    """Said once a long pause is over."""
    inside = f", most of it in {places}" if places else ""
    return (
        f"the script did something else than train for {format_duration(seconds)} between two batches{inside}. That "
        f"counts towards the budget of {format_duration(budget_s)}"
    )


def others_train(count: int | str) -> str:
    """Why one of several processes is not measured."""
    return (
        f"{count} processes of the command train at the same time, not joined by torch.distributed. One alone would be "
        "measured beside the others"
    )


def going_on(round_: str) -> str:
    """Once a round."""
    return f"{round_} …"


def stopped_before(path: str) -> str:
    """Before a file that was there would be lost."""
    return f"stopped before the script would write over or remove {path}: nothing of it is changed"


def saved(files: Sequence[str]) -> str:
    """What the script made meanwhile."""
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    return f"the script made files meanwhile, which hold nothing of use: {', '.join(files[:MOST_FILES])}{more}"


def not_measured(attached: Attached) -> str:
    """Why there is no verdict, and what to do."""
    reason, hint = _why_not(attached)
    return f"no verdict: {reason}" + (f". Try: {hint}" if hint else "")


def _why_not(attached: Attached) -> tuple[str, str]:
    """(the reason, the next step)."""
    detail, hint = attached.detail, attached.hint
    if attached.why_not == "ended_early" and attached.endangered:
        return (
            f"the script was stopped before it would write over or remove {attached.endangered}, and no round was "
            "measured until then",
            "another, empty directory for what it saves",
        )
    found = {
        "no_loader": (
            "hardly any backward pass was on a new batch of a torch DataLoader: the script makes its batches in "
            "another way",
            "loaderprobe.diagnose(loader, step) in Python, with a DataLoader around what makes them",
        ),
        "script_error": (f"the script ended with an error of its own: {detail}", "run it without loaderprobe"),
        "several_processes": (others_train(detail), ONE_PROCESS),
        "no_backward": (
            "batches were taken, but torch made no backward pass after them in this process",
            "loaderprobe run --loader NUMBER, if one of the loaders below trains",
        ),
        "too_few_steps": ("the script ended after too few training steps", "let it train for longer"),
        "no_such_loader": ("there is no loader of that number", "one of the numbers below"),
        "other_thread": (
            "batches are taken in another thread than the one that trains",
            "loaderprobe.diagnose(loader, step) in Python",
        ),
        "ranks": (
            f"the script trains on {detail} ranks that are not joined by torch.distributed, and one alone cannot be "
            "stopped",
            "start it with one rank",
        ),
        "ranks_apart": apart(attached.apart) if attached.apart else ("the ranks are not measured together", ""),
        "follows": ("this process trains with rank 0, which has the verdict or the reason", ""),
        "another_process": ("another process of the command is measured already", ""),
        "refused": (detail, hint),
        "begun_each_batch": (
            "the script iterates its loader from the start for each batch, so its workers start each time, too",
            "batches = iter(loader) before the loop, and next(batches) in it",
        ),
        "not_seen_again": (
            f"the script trained on, on {detail or 'batches of no DataLoader'}, and took no more batches of the loader "
            "that was measured, before a round was complete",
            "make the DataLoader once, before the epochs; or loaderprobe.diagnose(loader, step) in Python",
        ),
        "ended_early": ("the script ended before a round was measured", "let it train for longer"),
    }
    return found[attached.why_not] if attached.why_not else ("", "")


def seen_lines(attached: Attached) -> list[str]:
    """A line a loader."""
    return [
        f"{loader_name(loader)}: {loader.batches} batches taken, {loader.backward_passes} backward passes"
        for loader in attached.loaders
    ]


def outside_lines(seen: SeenOutside) -> list[str]:
    """What can be said of a training without a DataLoader."""
    lines = [
        f"estimated from {counted(seen.timed, 'step')} in which the loop's calls were timed, of "
        f"{format_duration(seen.step_s)} each:"
    ]
    if seen.place:
        most = f". Free, it would make training at most {significant(1 / max(0.01, 1 - seen.share), 2)}x"
        lines.append(
            f"{percent(seen.share)} (±{percent(seen.share_off)}) of a step is in {seen.place}, outside the model and "
            f"the optimizer{most if seen.share < 0.99 else ''}"
        )
    else:
        lines.append("a step is in the model, its backward pass, the optimizer and the loop's own code")
    if seen.running_share is not None and seen.storage_share is not None:
        lines.append(
            f"the thread runs {percent(seen.running_share)} of the time, and waits for storage "
            f"{percent(seen.storage_share)}"
        )
    return lines


def without_verdict(processes: Sequence[Attached], exit_code: int = 0, *, imported_torch: bool = False) -> list[str]:
    """What to say after a command that was not measured: the reasons, and the loaders that were seen."""
    # Of ranks, rank 0 speaks, unless it ran on another machine.
    processes = [process for process in processes if process.why_not != "follows"] or processes[:1]
    if not processes and exit_code:
        return [f"no verdict: the command ended with exit code {exit_code}, and none of its processes was measured"]
    if not processes and imported_torch:
        return [
            "no verdict: torch was imported, but no DataLoader was iterated and no backward pass made in a process "
            "that ended by itself. Try: let it train, and end by itself"
        ]
    if not processes:
        return [
            "no verdict: no torch DataLoader was iterated in a Python process that ended by itself. "
            "Try: install loaderprobe for the Python that trains; python -I, -E and -S keep it out"
        ]
    found = []
    for process in processes:
        lines = [*seen_lines(process), *(outside_lines(process.outside) if process.outside else ())]
        found += [not_measured(process) if process.why_not else "no verdict", *(f"  {line}" for line in lines)]
    if {"no_backward", "no_loader"} <= {process.why_not for process in processes}:
        found.append("One process takes batches from a DataLoader, and another trains: only both in one are measured")
    return found
