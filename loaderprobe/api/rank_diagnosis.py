"""`diagnose` by ranks: the user's own loader, made by a function of the user's in each of them, measured in step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from loaderprobe.api.child import forkserver
from loaderprobe.api.diagnose import DataSeen, Diagnosis, check_asked, diagnosis_of, judge_loader
from loaderprobe.api.own_loader import made, module_file
from loaderprobe.api.rank_request import layouts_of
from loaderprobe.api.user_loader import Asked
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart, Refused
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import Event, Order
from loaderprobe.measure.seat import Lead, parse_layout, spread
from loaderprobe.measure.session import OnStage
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.diagnosis import OwnLoader, OwnMeasured
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.remark import Remark

BUDGET_S, RANKS_BUDGET_S = 30.0, 60.0
"""Unless asked for: of one process, and of ranks, which measure more."""
LIMIT_S, LIMIT_TIMES = 1200.0, 4.0
"""After which the ranks are ended, or so many times the budget. A quarter of it a rank may take longer than the others
to make its loader: looking for files on remote storage takes minutes."""
KINDS: tuple[type[LoaderprobeError], ...] = (BadValue, MissingPart, Refused)
"""What a rank ended with keeps its exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAsked:
    """Whose loader is measured, and how."""

    own: OwnLoader
    cache: CacheState = "cold"
    budget_s: float | None = None
    """None for the usual one."""
    command: str = ""


def diagnose_own(asked: OwnAsked, progress: OnStage) -> Diagnosis:
    """Measure the loader in this process, by itself. Raises what `diagnose` raises, and what its function does."""
    budget_s = BUDGET_S if asked.budget_s is None else asked.budget_s
    check_asked(None, budget_s, asked.cache)
    loader, step = made(asked.own)
    return judge_loader(
        loader, step, Asked(cache=asked.cache, budget_s=budget_s), _over(budget_s, progress), asked.command
    )


def diagnose_ranks(lead: Lead, asked: OwnAsked, ranks: str | None, progress: OnStage) -> Diagnosis:
    """Measure it in as many ranks as are asked for, or as there are processes, each in a child of one of them.

    Raises what the rank ended with in which it began, named with its host; BadValue for what the processes cannot do.
    """
    budget_s = RANKS_BUDGET_S if asked.budget_s is None else asked.budget_s
    check_asked(None, budget_s, asked.cache)
    count, over = one_layout(ranks, lead)
    if count == 1:
        raise BadValue("one rank is measured by a process that no launcher started", hint="start it without one")
    files = module_file(asked.own)
    config = _config(asked, files.fingerprint, count, over)
    lead.admit((config,), (files,), what="module of")
    heard = _over(budget_s, progress)
    order = Order(config=config, files=files, budget_s=budget_s, begin_ns=time.perf_counter_ns(), own=asked.own)

    def on_event(event: Event) -> None:
        heard(event.stage, event.done, event.total)

    with forkserver() as server:
        found = lead.run(
            order, OwnMeasured, clock=SystemClock(), time_limit_s=max(LIMIT_S, LIMIT_TIMES * budget_s),
            on_event=on_event, start=server.start,
        )  # fmt: skip
    if isinstance(found, RunFailure):
        raise failed(found)
    return concluded(found, asked.command)


def one_layout(ranks: str | None, lead: Lead) -> tuple[int, int]:
    """(ranks, nodes) that are asked for, or all that there are. Raises BadValue for several, or too many."""
    (layout, *others) = layouts_of(ranks, lead.nodes)
    if others:
        raise BadValue(f"--ranks {ranks} names several numbers, and diagnose measures one", hint="give one number")
    return spread(layout, lead.nodes)


def ranks_here(ranks: str) -> int:
    """That `--ranks` asks for on this machine. Raises BadValue, also for several numbers or nodes."""
    if "," in ranks:
        raise BadValue(f"--ranks {ranks} names several numbers, and diagnose measures one", hint="give one number")
    return spread(parse_layout(ranks), None)[0]


def concluded(found: OwnMeasured, command: str) -> Diagnosis:
    """The verdict on what all ranks measured."""
    measured = found.measurement
    exchange = "compute" if found.with_step and "no_exchange" not in {each.mode for each in measured.segments} else ""
    facts: dict[str, float | str] = {
        "ranks": measured.ranks, "hosts": len({each.host for each in measured.by_rank}), "exchange": exchange,
    }  # fmt: skip
    measured = replace(measured, notes=(Remark(code="ranks_in_step", facts=facts), *measured.notes))
    data = DataSeen(**{each.name: getattr(found.data, each.name) for each in fields(found.data)})
    return diagnosis_of(measured, found.ceiling, data, found.with_step, command)


def failed(failure: RunFailure) -> LoaderprobeError:
    """Of the rank in which it began, by its own exit code."""
    kind = next((each for each in KINDS if each.exit_code == failure.exit_code), LoaderprobeError)
    who = "" if failure.rank is None else f"rank {failure.rank} ({failure.host}): "
    last = next((line for line in reversed(failure.log) if line.strip()), "")
    late = failure.reason.startswith("timeout")
    hint = "look for a hang in it" if late else failure.hint or (f"its last line: {last}" if last else "")
    return kind(f"{who}{failure.reason} ({failure.stage})", hint=hint)


def _config(asked: OwnAsked, module: str, ranks: int, nodes: int) -> RunConfig:
    """As far as it is known before the loader is made: the rest each rank learns."""
    return RunConfig(
        data=module, resolution=asked.own.name, loader=LoaderSpec(name="own", workers=0, prefetch_factor=0),
        compute=ComputeSpec(name="own", batch_size=1), cache=asked.cache, ranks=ranks, nodes=nodes,
    )  # fmt: skip


def _over(budget_s: float, progress: OnStage) -> Callable[[str, int, int], None]:
    """Progress in seconds of the budget, of stages as they begin."""
    begun_s = time.monotonic()

    def heard(stage: str, *_: int) -> None:
        done = round(time.monotonic() - begun_s)
        progress(stage, done, max(done, round(budget_s)))

    return heard
