"""Many configurations in sequence; each result is stored at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loaderprobe.errors import DamagedRun
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.plan import expected_seconds, usual_seconds
from loaderprobe.protocols import Clock
from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.run_directory import RunDirectory

# Of a budget; a round that has begun is ended, and the storage is measured after it.
DEALT = 0.95
# Of its usual time a configuration has this much in any case, whatever earlier ones took.
LEAST_SHARE = 0.5
# Seconds beyond the whole budget until a child runs into the timeout.
GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a sweep."""

    number: int
    """Number of this configuration among those to measure, from 1."""
    total: int
    config: RunConfig
    stage: str
    share: float
    """Completed share of the sweep, 0 to 1."""
    left_s: float
    """Estimated seconds left, from the configurations so far."""


OnProgress = Callable[[Progress], None]
Run = Callable[..., Measurement | RunFailure]


def pending(run: RunDirectory) -> list[RunConfig]:
    """The configurations that have no measurement yet; failed ones are tried again."""
    return [config for config in run.record.spec.configs if not run.has_measurement(config.key)]


def sweep(run: RunDirectory, *, clock: Clock, on_progress: OnProgress, run_one: Run) -> None:
    """Measure the pending configurations of `run`, and store each result at once.

    The budget is divided evenly over the remaining configurations, so after a slow one the later ones get
    shorter segments. Configurations that have not begun when it is spent stay pending. Without a budget the
    usual times of all are divided so, and none is left out; nothing is divided where all is to be measured. On
    KeyboardInterrupt all results are kept.
    """
    todo = pending(run)
    spec = run.record.spec
    start_ns = clock.now_ns()
    for index, config in enumerate(todo):
        spent_s = (clock.now_ns() - start_ns) / 1e9
        budget_s = _dealt_s(spec, todo, index, spent_s)
        if budget_s is not None and budget_s <= 0:
            return
        usual_s = spent_s / index if index else budget_s or expected_seconds(spec, config)

        def report(event: Event, index: int = index, config: RunConfig = config, usual_s: float = usual_s) -> None:
            within = event.done / event.total if event.total else 0.0
            on_progress(
                Progress(
                    number=index + 1,
                    total=len(todo),
                    config=config,
                    stage=event.stage,
                    share=(index + within) / len(todo),
                    left_s=(len(todo) - index - within) * usual_s,
                )
            )

        report(Event(stage="start"))
        try:
            files = run.files(config.data)
        except DamagedRun as error:
            run.save(_without_files(config, error))
            continue
        order = Order(
            config=config,
            files=files,
            budget_s=budget_s,
            begin_ns=clock.now_ns(),
            thorough=spec.thorough,
        )
        left_s = None if spec.budget_s is None else spec.budget_s - spent_s + GRACE_S
        limit_s = spec.time_limit_s if left_s is None else min(spec.time_limit_s, left_s)
        run.save(run_one(order, clock=clock, time_limit_s=limit_s, on_event=report))


def _dealt_s(spec: SweepSpec, todo: Sequence[RunConfig], index: int, spent_s: float) -> float | None:
    """Seconds for the configuration of this index; None where it may take all it needs."""
    left = len(todo) - index
    if spec.budget_s is not None:
        return (DEALT * spec.budget_s - spent_s) / left
    if spec.thorough:
        return None
    usual_s = sum(usual_seconds(config) for config in todo)
    return max(LEAST_SHARE * usual_s / len(todo), (usual_s - spent_s) / left)


def _without_files(config: RunConfig, error: DamagedRun) -> RunFailure:
    """A configuration whose list of files cannot be used; the others go on."""
    return RunFailure(
        config=config,
        stage="reading the run",
        reason=error.message,
        hint="measure its data again, into a new directory",
        exit_code=None,
        signal=None,
        log=(),
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_s=0.0,
    )
