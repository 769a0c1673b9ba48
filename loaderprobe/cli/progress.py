"""Progress bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from loaderprobe.protocols import OnStage
from loaderprobe.units import format_duration


@contextmanager
def counting(console: Console, quiet: bool) -> Iterator[OnStage]:
    """A progress bar for counted items; a new text starts a new bar."""
    with ExitStack() as shown:
        bars = _bars(console, quiet)
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
def timed(console: Console, quiet: bool, left: str, ends: str) -> Iterator[OnStage]:
    """One bar over seconds, with what is being measured and the time left, `at most` or `about`; its last text."""
    with _bars(console, quiet) as bars:
        task = bars.add_task("starting", left="")

        def update(text: str, done: int, total: int) -> None:
            bars.update(
                task, description=text, completed=done, total=max(total, 1),
                left=f"{left} {format_duration(total - done)} left" if done < total else "",
            )  # fmt: skip

        try:
            yield update
        except BaseException:
            # An error stands alone: nothing is left of a bar that went no further.
            bars.live.transient = True
            raise
        if ends:
            bars.update(task, description=ends, completed=1, total=1, left="")


def _bars(console: Console, quiet: bool) -> Progress:
    """Where they do not fit into a line, what is measured is cut, and the time left stays."""
    return Progress(
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
        console=console,
        disable=quiet,
        expand=True,
    )
