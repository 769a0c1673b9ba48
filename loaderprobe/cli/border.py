"""Where the library's errors become messages and exit codes."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

import typer
from rich.console import Console

from loaderprobe.errors import EXIT_INTERRUPTED, LoaderprobeError

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
