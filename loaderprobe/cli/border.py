"""Where the library's errors become messages and exit codes."""

from __future__ import annotations

import functools
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from loaderprobe.errors import EXIT_INTERRUPTED, BadValue, LoaderprobeError, MissingPart, NoSpace
from loaderprobe.store.codec import write_atomically
from loaderprobe.units import format_duration

if TYPE_CHECKING:
    from loaderprobe.measure.sweep import Progress as SweepProgress


P = ParamSpec("P")

DEFAULT_WIDTH = 80


def command(body: Callable[P, int]) -> Callable[P, None]:
    """Run a command's body; its return value, or its error, becomes the exit code."""

    @functools.wraps(body)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            code = body(*arguments, **options)
            sys.stdout.flush()
        except LoaderprobeError as error:
            code = report_error(error)
        except KeyboardInterrupt:
            stderr().print("interrupted")
            code = EXIT_INTERRUPTED
        except BrokenPipeError:
            # The reader of our output has left; the null device takes what is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except Exception:  # noqa: BLE001  # the border of the program: exit code 1 means a bug
            traceback.print_exc()
            stderr().print("This is a bug in loaderprobe: please report the lines above.", style="bold")
            code = LoaderprobeError.exit_code
        raise typer.Exit(code)

    # typer reads the parameters from the annotations, and a command returns nothing.
    run.__annotations__ = {**body.__annotations__, "return": None}
    return run


def report_error(error: LoaderprobeError) -> int:
    """Print the error and its hint; returns the exit code."""
    from loaderprobe.render.wording import visible

    console = stderr()
    console.print(f"[bold red]error:[/] {_escape(visible(error.message))}", highlight=False)
    if error.hint:
        console.print(f"[bold]try:[/] {_escape(visible(error.hint))}", highlight=False)
    return error.exit_code


def stderr() -> Console:
    """The console for progress and errors."""
    return Console(stderr=True, emoji=False)


def show(text: str) -> None:
    """Print a result to standard output, unchanged."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def width_and_color() -> tuple[int, bool]:
    """(columns of the terminal, whether it shows colour); 80 and False when output is not a terminal."""
    console = Console()
    return (console.width, not console.no_color) if console.is_terminal else (DEFAULT_WIDTH, False)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")


# How commands with a result of their own show it and keep it.

if TYPE_CHECKING:
    from loaderprobe.api.load import Run
    from loaderprobe.api.shown import Documented, Shown, ShownRecord


Found = TypeVar("Found", bound="Documented")


def typed() -> str:
    """The command line as it was typed."""
    return shlex.join(("loaderprobe", *sys.argv[1:]))


def show_result(found: ShownRecord | Run, *, json: bool, markdown: bool = False) -> None:
    """Print it for the terminal, or in one of two formats."""
    width, color = width_and_color()
    show(found.json() if json else found.markdown() if markdown else found.text(width=width, color=color))


def write_page(found: Shown, path: Path, title: str) -> None:
    """Write the page of `--html` and say so; an error says what to do."""
    try:
        write_atomically(path, found.html().encode())
    except (NoSpace, MissingPart) as error:
        error.hint = "choose another path for --html"
        raise
    show(f"{title}: {path}")


def check_place(path: Path | None, option: str) -> None:
    """Raises MissingPart, before anything takes long, where the nearest folder does not let `path` be written."""
    if path is None:
        return
    try:
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        allowed = os.access(nearest, os.W_OK)
    except PermissionError:
        allowed = False
    if not allowed:
        raise MissingPart(f"{path} cannot be written: permission denied", hint=f"choose another path for {option}")


def refuse_several(*, md: bool, json: bool, html: Path | None) -> None:
    """Raises BadValue for more than one of the forms that a stored result is shown in."""
    if md + json + (html is not None) > 1:
        raise BadValue("--md, --json and --html exclude each other", hint="use one of them")


def show_and_keep(measure: Callable[[], Found], *, kind: str, out: Path | None, json: bool, markdown: bool) -> Found:
    """Measure once it is sure that the result can be kept; print it, keep it in `out` with its report, return it."""
    from loaderprobe.api.shown import usual_out
    from loaderprobe.store.results import check_out

    check_shown(json=json, markdown=markdown)
    place = usual_out(kind) if out is None else out
    check_out(place)
    found = measure()
    shown_and_kept(found, place, json=json, markdown=markdown)
    return found


def check_shown(*, json: bool, markdown: bool) -> None:
    """Raises BadValue for two forms at once."""
    if markdown and json:
        raise BadValue("--md and --json exclude each other", hint="use one of them")


def shown_and_kept(found: Documented, out: Path | None, *, json: bool, markdown: bool) -> None:
    """Print a result, then keep it in `out` with its report, if that is given."""
    # Shown before it is saved: a full disk must not hide what was measured.
    show_result(found, json=json, markdown=markdown)
    if out is None:
        return
    page = found.save(out)
    if not (json or markdown):
        show(f"\nReport: {page}")


# Progress on standard error: the current stage, how much is done, and the time left.

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
        bars.update(task, completed=1.0, description="measured", left="")


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
        bars.update(task, description="measured", completed=1, total=1, left="")


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
