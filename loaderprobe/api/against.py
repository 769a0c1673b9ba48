"""`sweep --against`: each configuration of a run measured again, in turn with itself changed, and both compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loaderprobe.api.against_request import PAIRS, against_request, start_against
from loaderprobe.api.child import forkserver
from loaderprobe.api.compare import Comparison, compare
from loaderprobe.api.load import Run
from loaderprobe.api.page import save_report
from loaderprobe.api.policy import JUDGING
from loaderprobe.api.values import PathLike, heard_as, unheard
from loaderprobe.measure.ceilings import Ceilings
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.in_turn import measure_in_turn, plan_in_turn
from loaderprobe.measure.runner import Order, run_configuration
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.sweep import OnProgress
from loaderprobe.records.config import PlanInTurn
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.results import write_result
from loaderprobe.store.run_directory import RunDirectory

Sides = tuple[RunDirectory, RunDirectory]


def sweep_against(
    run: Run | PathLike,
    data: PathLike | None = None,
    *,
    rounds: int = PAIRS,
    thorough: bool = False,
    budget_s: float | None = None,
    time_limit_s: float = 600.0,
    out: PathLike | None = None,
    progress: OnStage | None = None,
    **changes: Any,
) -> Comparison:
    """Measure each configuration of a run again, in turn as it was and with `changes`, and compare the two.

    `changes` are options of `sweep`, such as `decoder="torchvision"`; `data` is a copy of the run's data, for B. Both
    sides are measured now, with the software of now, round by round: A B, then B A. They are kept as runs in `out`,
    as `a` and `b`, beside the comparison. `progress(stage, done, total)` hears what is done.

    KeyboardInterrupt keeps what is done, for `loaderprobe sweep --resume`. Raises BadValue for values that cannot be,
    and where nothing could be measured on both sides; MissingPart for a device or plug-in that is not there.
    """
    command = f"loaderprobe.sweep_against({_written(run, data, changes)})"
    request = against_request(
        run, data, rounds=rounds, budget_s=budget_s, time_limit_s=time_limit_s, thorough=thorough, out=out,
        changes=changes, command=(command,),
    )  # fmt: skip
    sides = start_against(request)
    try:
        measure_sides(sides, heard_as(progress or unheard))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"what was measured is kept; go on with: loaderprobe sweep --resume {request.out}")
        raise
    found = compared(sides, command)
    keep(sides, found)
    return found


def _written(run: Run | PathLike, data: PathLike | None, changes: Mapping[str, Any]) -> str:
    path = run.path if isinstance(run, Run) else run
    named = [f"{name}={value!r}" for name, value in changes.items()]
    return ", ".join([repr(str(path)), *([repr(str(data))] if data is not None else []), *named])


def plan_sides(sides: Sides) -> PlanInTurn:
    """What is still to be measured, and how long that takes."""
    return plan_in_turn(*sides)


def measure_sides(sides: Sides, on_progress: OnProgress) -> None:
    """Measure the pairs that are left. KeyboardInterrupt keeps what is done. Raises Locked."""
    ceilings = {side.path: Ceilings(run=side, judging=JUDGING) for side in sides}

    def on_kept(run: RunDirectory, order: Order, measured: Measurement) -> None:
        if order.earlier is None:
            ceilings[run.path].after(order, measured)

    a, b = sides
    with a.lock(), b.lock(), forkserver() as server:

        def run_one(order: Order, **options: Any) -> Measurement | RunFailure:
            return run_configuration(order, start=server.start, **options)

        measure_in_turn(a, b, clock=SystemClock(), on_progress=on_progress, run_one=run_one, on_kept=on_kept)


def compared(sides: Sides, command: str) -> Comparison:
    """A and B, as far as they are measured. Raises BadValue where a side has no measured configuration."""
    a, b = sides
    return compare(Run(a), Run(b), command=command)


def keep(sides: Sides, found: Comparison) -> Path:
    """Write the comparison, and the reports of both runs; returns the page of the comparison."""
    for side in sides:
        run = Run(side)
        save_report(side, run.report())
    return write_result(sides[0].path.parent, found.files())


def failures(sides: Sides) -> list[tuple[str, RunFailure]]:
    """(A or B, what failed there), of configurations that have no measurement."""
    named = zip(("A", "B"), sides, strict=True)
    results = ((name, side.result(config.key)) for name, side in named for config in side.record.spec.configs)
    return [(name, result) for name, result in results if isinstance(result, RunFailure)]
