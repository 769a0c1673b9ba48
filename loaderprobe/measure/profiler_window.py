"""The profiler window of a session: its length, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.segment_runner import WINDOW_WARM_UP
from loaderprobe.protocols import Compute, Profiling
from loaderprobe.records.config import RunConfig
from loaderprobe.records.measurement import NO_STEP, OWN_STEP, ComputeInfo, Missing, Mode, Segment, Timeline
from loaderprobe.records.remark import Remark

TIMELINE = "gpu_timeline"
USUAL_STEPS = 20
LEAST_STEPS = 5
# Assumed: seconds for a configuration's timeline. The steps without the profiler take as long again.
MOST_SECONDS = 45.0


def _none(code: str, **facts: float | str) -> Missing:
    return Missing(name=TIMELINE, reason=Remark(code=code, facts=facts))


NOT_ASKED = _none("window_not_asked")
OF_RANKS = _none("window_of_ranks")


def record_window(
    compute: Compute, config: RunConfig, segments: Sequence[Segment], feed: Callable[[int], Iterator[Any]], *,
    left_s: float | None, on_stage: Callable[[str], None],
) -> Timeline | Missing:  # fmt: skip
    """The window, or the reason why there is none: an error in it does not spoil the measurement.

    `feed(count)` flushes the loader and gives `count` batches; `left_s` is what is left of the budget.
    """
    step_s = seconds_a_step(segments, config.mode)
    if not isinstance(compute, Profiling):
        return why_not_profiled(compute.info())
    if step_s is None:
        return _none("window_without_steps")
    if left_s is not None and left_s <= 0:
        return _none("window_without_time")
    limit_s = MOST_SECONDS if left_s is None else min(MOST_SECONDS, left_s / 2)
    steps = window_steps(config, step_s, limit_s)
    if isinstance(steps, Missing):
        return steps
    on_stage("profiler window")
    try:
        return compute.profile(feed, steps=steps, warm_up=WINDOW_WARM_UP, batch_size=config.compute.batch_size)
    except Exception as error:  # noqa: BLE001  # a profiler's trouble must not cost the measurement
        why = error.message if isinstance(error, LoaderprobeError) else f"{type(error).__name__}: {error}"
        return _none("window_failed", error=why)


def why_not_profiled(info: ComputeInfo) -> Missing:
    """The reason for a compute that records no kernels."""
    if info.name == NO_STEP:
        return _none("window_without_gpu")
    if info.specified_images_per_s is not None:
        return _none("window_emulated")
    if info.name == OWN_STEP:
        return _none("window_own_step")
    return _none("window_other_device", device=info.device)


def seconds_wanted(compute: Compute, config: RunConfig, segments: Sequence[Segment]) -> float:
    """Seconds for a window of the usual length and as many steps before it; 0 where there will be none."""
    step_s = seconds_a_step(segments, config.mode)
    if not isinstance(compute, Profiling) or step_s is None:
        return 0.0
    steps = USUAL_STEPS + config.loader.batches_begun + WINDOW_WARM_UP
    return min(MOST_SECONDS, 2 * steps * step_s)


def seconds_a_step(segments: Sequence[Segment], mode: Mode) -> float | None:
    """Seconds of a step, by the last segment that trained from the loader in this mode; None without one."""
    trained = [s for s in segments if s.activity == "training" and s.mode == mode and s.steps]
    if not trained:
        return None
    return trained[-1].span_ns / trained[-1].steps / 1e9


def window_steps(config: RunConfig, step_s: float, limit_s: float) -> int | Missing:
    """Steps of the window: twice the batches made ahead, or as many as usual, where time allows.

    Fewer may use up what was made ahead, and look compute-bound. Returns the reason when the least would take longer
    than `limit_s`; a flush and the warm-up go before them.
    """
    usual, before = max(USUAL_STEPS, 2 * config.loader.batches_ahead), config.loader.batches_begun + WINDOW_WARM_UP
    fit = int(limit_s / step_s) - before if step_s > 0 else usual
    if fit < LEAST_STEPS:
        needed_s = (LEAST_STEPS + before) * step_s
        return _none("window_too_long", steps=LEAST_STEPS, needed_s=needed_s, limit_s=limit_s)
    return min(usual, fit)
