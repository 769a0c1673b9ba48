"""What a command says before it measures, and how far it is: its plan, its bars, the time left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from loaderprobe.cli.border import Invocation, say, stderr
from loaderprobe.protocols import OnStage
from loaderprobe.units import format_duration


@contextmanager
def counting(call: Invocation, plan: str = "") -> Iterator[OnStage]:
    """A progress bar for counted items, with about the time left; a new text starts a new bar.

    Before the first it says the plan. Of bars that count on from each other the time is that of all.
    """
    with ExitStack() as shown:
        bars = _bars(call.silent)
        tasks: dict[str, TaskID] = {}
        begin_s, first, last = 0.0, 0, -1

        def update(text: str, done: int, total: int) -> None:
            nonlocal begin_s, first, last
            if not tasks:
                if plan and not call.silent:
                    say(plan)
                # Without a bar it would leave a blank line.
                shown.enter_context(bars)
            if text not in tasks:
                tasks[text] = bars.add_task(text, left="")
                if not done or done != last + 1:
                    begin_s, first = monotonic(), done
            last, so_far = done, f"{done} of {total}"
            if first < done < total:
                each_s = (monotonic() - begin_s) / (done - first)
                so_far += f", about {format_duration(each_s * (total - done))} left"
            bars.update(tasks[text], completed=done, total=max(total, 1), left=so_far)

        yield update


@contextmanager
def timed(call: Invocation, plan: str = "", left: str = "at most", ends: str = "measured") -> Iterator[OnStage]:
    """One bar over seconds, with what is being measured and the time left, `at most` or `about`; its last text.

    Before the first it says the plan.
    """
    with _bars(call.silent) as bars:
        task = bars.add_task("starting", left="")

        def update(text: str, done: int, total: int) -> None:
            nonlocal plan
            if plan and not call.silent:
                bars.console.print(plan, highlight=False, markup=False)
            plan = ""
            until = f"{left} {format_duration(total - done)} left" if done < total else ""
            bars.update(task, description=text, completed=done, total=max(total, 1), left=until)

        try:
            yield update
        except BaseException:
            # An error stands alone: nothing is left of a bar that went no further.
            bars.live.transient = True
            raise
        if ends:
            bars.update(task, description=ends, completed=1, total=1, left="")


def _bars(quiet: bool) -> Progress:
    """Where they do not fit into a line, what is measured is cut, and the time left stays."""
    return Progress(
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
        console=stderr(),
        disable=quiet,
        expand=True,
    )


def diagnose_plan(values: Mapping[str, Any]) -> str:
    """For how long `diagnose` measures with these options."""
    from loaderprobe.api.diagnose import budget_of

    in_ranks = bool(values["coordinator"] or values["ranks"] not in (None, "1"))
    budget_s, beyond_s = budget_of(values["budget_s"], in_ranks=in_ranks)
    more = f", {format_duration(beyond_s)} more while the verdict is open" if beyond_s else ""
    end = "keeps nothing" if in_ranks else "ends with the rounds so far"
    return f"It measures for about {format_duration(budget_s)}{more}; Ctrl-C {end}."


def bandwidth_plan(values: Mapping[str, Any]) -> str:
    """How long its phases are and, in one process, about all of them. Raises BadValue for what no readers can be."""
    from loaderprobe.api.values import counts
    from loaderprobe.storage.probe import usual_seconds

    readers, seconds = values["readers"], values["seconds"]
    whole_s = usual_seconds(None if readers == "auto" else counts(readers, "--readers"), seconds)
    several = values["ranks"] or values["coordinator"]
    rest = ", once the processes of its ranks have started" if several else f": about {format_duration(whole_s)} in all"
    phases = f"Each phase reads for {seconds:g} s, up to five times that while its rate is not known"
    return f"{phases}{rest}. Ctrl-C ends with the phases so far."


def batch_size_plan(values: Mapping[str, Any]) -> str:
    """How many trainings of how many steps there may be: what a step takes is known after the first."""
    steps, short = values["iterations"], values["strategy"] == "throughput"
    count = "32 short trainings (probes)" if short else "100 trainings (loops)"
    length = f"{steps or 1000:,} steps" if steps or not short else "2 to 5 s, or of 5 steps where those take longer"
    return f"Up to {count} of {length}: the time left shows with the first. Ctrl-C ends with the sizes so far."


def layers_plan(values: Mapping[str, Any]) -> str:
    """How many steps there are."""
    return f"{values['steps']} training steps without a profiler, and as many with: the time left shows with the first."


GENERATE_PLAN = "Images are made as fast as the cores and the disk can: the time left shows with the first."
