"""A training without a DataLoader, from outside: what its loop does beside the model, and what its thread waits for."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from loaderprobe.protocols import Say
from loaderprobe.records.attached import SeenOutside
from loaderprobe.records.waits import WAIT_KINDS, CodePlace, WaitSamples
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.stats import half_width, mean, median
from loaderprobe.system.process import threads_of
from loaderprobe.system.stacks import CallTimes, Stack, StackLooks, called, of_the_script, shared, stack_of

LEAST_PASSES = 100
LEAST_S = 60.0
"""After so many backward passes, or seconds, without a batch of a DataLoader, there is none."""
KEPT_STEPS = 4000
"""The last ones, on which the estimate is."""
PASSES_OF_LOOP = 20
"""So many backward passes show which function is the loop that makes all of them."""
TIMED_STEPS = 32
"""In a row, in which calls are timed; again each time that twice as many steps are made."""
LEAST_TIMED = 8
LEAST_PAUSE_S = 5.0
NO_STEP_TIMES = 10
"""What takes so many times the usual step is a validation or a checkpoint."""
LOOK_AT_PAUSE_S = 1.0


class Outside:
    """Hears of batches, backward passes and updates. Where passes come without batches, says so and looks on.

    `scratch` is for the samples of what the thread waits for, `clock` gives ns.
    """

    def __init__(self, say: Say, scratch: Path, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._say, self._scratch, self._clock = say, scratch, clock
        self.looked = False
        """True while no DataLoader gives batches, which was said."""
        self._said = False
        self._without = 0
        self._since_ns = 0
        self._waits: WaitsSampler | None = None
        self._thread = 0
        """The one that is looked at."""
        self._loop: Stack | None = None
        self._loops = 0
        self._updated = self._updates = False
        self._begun_ns: int | None = None
        self._steps: deque[int] = deque(maxlen=KEPT_STEPS)
        self._count, self._time_at = 0, PASSES_OF_LOOP
        self._calls: CallTimes | None = None
        self._timed: list[tuple[int, Counter[CodePlace]]] = []

    def took(self) -> None:
        self._without = self._since_ns = 0
        if self.looked:
            self.close()
            self.looked = False

    def optimizer_stepped(self) -> None:
        self._updated = self._updates = True

    def backward(self) -> None:
        self._without += 1
        now_ns = self._clock()
        if self.looked:
            if threading.get_ident() == self._thread:
                self._passed(now_ns)
            return
        self._since_ns = self._since_ns or now_ns
        if not self._said and (self._without >= LEAST_PASSES or now_ns - self._since_ns >= LEAST_S * 1e9):
            self._said = self.looked = True
            self._say("script.no_loader_yet", {"passes": self._without})
            here, self._thread = threads_of(()), threading.get_ident()
            self._waits = WaitsSampler(lambda: here, self._scratch)
            self._waits.__enter__()

    def _passed(self, now_ns: int) -> None:
        """A step goes from the first backward pass after an update to the next such pass."""
        if self._loops < PASSES_OF_LOOP:
            stack = of_the_script(stack_of(sys._getframe()))
            self._loop = stack if self._loop is None else shared(self._loop, stack)
            self._loops += 1
        if self._updates and not self._updated:
            return
        self._updated = False
        self._count += 1
        if self._calls is not None and self._begun_ns is not None:
            self._timed.append((now_ns - self._begun_ns, self._calls.taken()))
            if len(self._timed) % TIMED_STEPS == 0:
                self._end_timing()
        elif self._begun_ns is not None:
            self._steps.append(now_ns - self._begun_ns)
        self._begun_ns = self._clock()
        if self._calls is None and self._loop is not None and self._count >= self._time_at:
            calls = CallTimes(self._loop, self._clock)
            self._calls = calls if calls.begin() else None
            self._time_at *= 2

    def _end_timing(self) -> None:
        if self._calls is not None:
            self._calls.end()
            self._calls = None

    def seen(self) -> SeenOutside | None:
        """What came of it; None where it was too short. Steps that hold an evaluation, say, are left out."""
        if not self._steps:
            return None
        usual = median([float(step) for step in self._steps])
        steps = [step / 1e9 for step in self._steps if step <= NO_STEP_TIMES * usual]
        step_s = mean(steps)
        timed = [(took_ns, calls) for took_ns, calls in self._timed if took_ns <= NO_STEP_TIMES * usual]
        if len(timed) < LEAST_TIMED:
            return None
        total: Counter[CodePlace] = Counter()
        for _, calls in timed:
            total.update(calls)
        slowest = max(total, key=lambda function: total[function], default=None)
        # Of the same steps: the hook slows the model's calls, too, so this is rather too low.
        shares = [calls[slowest] / max(took_ns, 1) for took_ns, calls in timed] if slowest else [0.0, 0.0]
        waits = self._waits.samples() if self._waits else None
        kinds = Counter(WAIT_KINDS[kind] for kind in waits.kind) if isinstance(waits, WaitSamples) else Counter[str]()
        known = kinds.total() or None
        return SeenOutside(
            steps=len(steps),
            step_s=step_s,
            timed=len(timed),
            place=str(slowest) if slowest else "",
            share=mean(shares),
            share_off=half_width(shares),
            running_share=kinds["running"] / known if known else None,
            storage_share=(kinds["storage"] + kinds["metadata"]) / known if known else None,
        )

    def close(self) -> None:
        self._end_timing()
        if self._waits is not None:
            self._waits.__exit__(None, None, None)


class Pauses:
    """What a loop does between two batches where that takes far longer than a step: for how long, and where."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self.total_s = 0.0
        self._least_s = LEAST_PAUSE_S
        self._begun_ns: int | None = None
        self._stacks: list[Stack] = []
        self._looks: StackLooks | None = None

    def watch(self, thread: int, step_s: float) -> None:
        """The loop is in this thread, and its steps take `step_s` seconds."""
        self._least_s = max(LEAST_PAUSE_S, NO_STEP_TIMES * step_s)
        self._looks = StackLooks(thread, LOOK_AT_PAUSE_S, self.on_stack)

    def begin(self) -> None:
        self._begun_ns, self._stacks = self._clock(), []

    def on_stack(self, stack: Stack) -> None:
        if self._begun_ns is not None and (self._clock() - self._begun_ns) / 1e9 >= self._least_s:
            self._stacks.append(stack)

    def end(self) -> tuple[float, str] | None:
        """The loop asks for its next batch: seconds since the last, and the function in which most of them passed.

        None after a usual step.
        """
        begun_ns, self._begun_ns = self._begun_ns, None
        seconds = 0.0 if begun_ns is None else (self._clock() - begun_ns) / 1e9
        if seconds < self._least_s:
            return None
        self.total_s += seconds
        loop = of_the_script(stack_of(sys._getframe()))
        functions = Counter(function for stack in self._stacks if (function := called(loop, stack)) is not None)
        return seconds, str(functions.most_common(1)[0][0]) if functions else ""

    def close(self) -> None:
        if self._looks is not None:
            self._looks.close()
