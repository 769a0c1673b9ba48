"""The measurement in place of a script's loop: what prevents it, how long it takes, and the turns of the loop."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from loaderprobe.api.diagnose import Diagnosis, judge_loader
from loaderprobe.api.script_ranks import Ranks
from loaderprobe.api.seen_loaders import Seen, SeenLoaders
from loaderprobe.api.user_loader import Asked
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.turns import LoopSession, Turns
from loaderprobe.records.diagnosis import AttachRequest, WhyNot
from loaderprobe.records.remark import Remark

BEGUN_EACH_BATCH = Remark(code="begun_each_batch")
LEAST_BUDGET_S = 60.0
BUDGET_STEPS = 60
"""The usual budget is that of so many steps: twenty to warm up, and three rounds of training and of compute alone."""


def prevented(
    request: AttachRequest, loaders: SeenLoaders, ranks: Ranks | None, launched: int
) -> tuple[WhyNot | None, str]:
    """What keeps this process from being measured, and a detail of it; `launched` processes train together."""
    if loaders.trained_in not in (0, threading.get_ident()):
        return "other_thread", ""
    from loaderprobe.loaders.attached import ranks_in_use

    count, scratch = max(launched, ranks_in_use()), Path(request.scratch)
    if ranks is None:
        if count > 1:
            return "ranks", str(count)
        if others := others_that_train(scratch):
            return "several_processes", str(others + 1)
    elif not ranks.leads:
        return None, ""
    return None if claimed(scratch) else "another_process", ""


TRAINS = "trains-"
SETTLED_S = 5.0
"""A process that another Python started may have siblings, which begin to train a little later."""


def announce(scratch: Path) -> None:
    """This process makes its first backward pass."""
    with suppress(OSError):  # the command that asked is over, and the script goes on
        (scratch / f"{TRAINS}{os.getpid()}").touch()


def others_that_train(scratch: Path) -> int:
    """Other processes of the command that have made a backward pass and run still."""
    found = (int(each.name.removeprefix(TRAINS)) for each in scratch.glob(f"{TRAINS}*"))
    return sum(1 for pid in found if pid != os.getpid() and _runs(pid))


def _runs(pid: int) -> bool:
    """False for one that has ended, also where its parent has not asked for that yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def settled(seen: Seen) -> bool:
    """True where siblings of this process, if it has any, train by now, too."""
    alone = multiprocessing.parent_process() is None
    return alone or time.perf_counter_ns() - seen.began_ns >= SETTLED_S * 1e9


def claimed(scratch: Path) -> bool:
    """True for the first process of a command that asks, while that command runs."""
    try:
        os.close(os.open(scratch / "claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:  # it exists, or the folder is gone with the command
        return False
    return True


def budget_of(request: AttachRequest, seen: Seen) -> float:
    """Seconds: those asked for, or those of `BUDGET_STEPS` steps like the script's own so far."""
    return request.budget_s or max(LEAST_BUDGET_S, BUDGET_STEPS * step_s(seen))


def step_s(seen: Seen) -> float:
    """Seconds of a step so far, with its waiting."""
    return (time.perf_counter_ns() - seen.began_ns) / max(seen.batches, 1) / 1e9


def turns_of(seen: Seen, request: AttachRequest, budget_s: float, ranks: Ranks | None, on_stage: OnStage) -> Turns:
    """Those of the loop over one loader, which measure it alone, or in step with the loops of all `ranks`."""

    def measure(step: Callable[[Any], None]) -> Diagnosis | None:
        if ranks is not None:
            return ranks.judge(seen, step, turns, request, budget_s, on_stage)

        def session(**given: Any) -> LoopSession:
            made = LoopSession(turns=turns, period=seen.period, **given)
            made.recorder.notes.extend([BEGUN_EACH_BATCH] if seen.begun_each_batch else [])
            return made

        asked = Asked(cache=request.cache, budget_s=budget_s, session=session)
        return judge_loader(seen.known.to_measure(), step, asked, on_stage, command=request.command)

    turns = ranks.turns(measure) if ranks is not None else Turns(measure)
    return turns
