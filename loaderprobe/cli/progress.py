"""Progress on standard error: the current stage, how much is done, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from loaderprobe.cli.border import stderr
from loaderprobe.units import format_duration

if TYPE_CHECKING:
    from loaderprobe.measure.sweep import Progress as SweepProgress

Counted = Callable[[str, int, int], None]


@contextmanager
def counting(quiet: bool) -> Iterator[Counted]:
    """A progress bar for counted items; a new text starts a new bar."""
    with ExitStack() as shown:
        bars = _bars(quiet)
        tasks: dict[str, TaskID] = {}

        def update(text: str, done: int, total: int) -> None:
            if not tasks:
                # Without a bar it would leave a blank line.
                shown.enter_context(bars)
            if text not in tasks:
                tasks[text] = bars.add_task(text, left="")
            bars.update(tasks[text], completed=done, total=max(total, 1), left=f"{done} of {total}")

        yield update


@contextmanager
def sweeping(quiet: bool) -> Iterator[Callable[[SweepProgress], None]]:
    """One bar for a sweep, with the current configuration and the time left."""
    with _bars(quiet) as bars:
        task = bars.add_task("starting", total=1.0, left="")

        def update(progress: SweepProgress) -> None:
            bars.update(
                task,
                completed=progress.share,
                description=": ".join(
                    filter(None, (progress.study, f"{progress.number}/{progress.total} {progress.config.title()}"))
                ),
                left=f"about {format_duration(progress.left_s)} left",
            )

        yield update


@contextmanager
def timed(quiet: bool) -> Iterator[Counted]:
    """One bar over a budget of seconds, with what is being measured; what is counted before it is shown beside it."""
    with _bars(quiet) as bars:
        task = bars.add_task("starting", left="")

        def update(text: str, done: int, total: int) -> None:
            bars.update(
                task, description=text, completed=done, total=max(total, 1),
                left=f"at most {format_duration(max(total - done, 0))} left",
            )  # fmt: skip

        yield update


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
