"""A command from the rows of its options: how it is called, what it prints and keeps, and with which code it exits."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, get_args, get_origin

import typer
from rich.console import Console
from rich.text import Text

from loaderprobe.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_SOME_FAILED,
    MASK,
    BadValue,
    LoaderprobeError,
    MissingPart,
)
from loaderprobe.records.files import masked
from loaderprobe.records.options import ARGUMENT, JOIN, QUIET, REQUIRED, Option
from loaderprobe.store.codec import file_to_write, write_atomically, write_error, writing
from loaderprobe.store.results import check_out
from loaderprobe.units import join_words

if TYPE_CHECKING:
    from loaderprobe.api.shown import Documented, Tabled

FORMS = ("md", "json", "html")
"""That a result is shown in, one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How a command was called: which of its options were typed, and what it shows and keeps."""

    options: Sequence[Option]
    typed: Collection[str]
    """The names of those that were typed."""
    out: Path | None = None
    html: Path | None = None
    md: bool = False
    json: bool = False
    quiet: bool = False

    @property
    def silent(self) -> bool:
        return self.quiet or self.json

    def check(self) -> None:
        """Raises BadValue for more than one form, and for paths what `file_to_write` and `check_out` raise."""
        if self.md + self.json + (self.html is not None) > 1:
            there = {option.name for option in self.options}
            forms = join_words([f"--{form}" for form in FORMS if form in there])
            raise BadValue(f"{forms} exclude each other", hint="use one of them")
        if self.html is not None:
            file_to_write(self.html, "--html")
        if self.out is not None:
            check_out(self.out)

    def show(self, result: Tabled) -> None:
        """Print it for the terminal, or in one of two formats."""
        width, color = width_and_color()
        show(result.json() if self.json else result.markdown() if self.md else result.text(width=width, color=color))

    def show_then_keep(self, result: Documented, page: str = "", *, beside: bool = False) -> None:
        """Show it (`beside` a page in a file, too), write that, called `page`, and keep it: each, also if one fails."""
        alone = self.html is not None and is_stdout(self.html)
        with ExitStack() as rest:
            if self.out is not None:
                rest.callback(self._keep, result, self.out, said=not (self.json or self.md or alone))
            if self.html is not None:
                rest.callback(write_file, self.html, result.html().encode(), "--html", page)
            if self.html is None or (beside and not alone):
                self.show(result)

    def _keep(self, result: Documented, folder: Path, *, said: bool) -> None:
        page = result.save(folder)
        if said:
            show(f"\nReport: {page}")

    def kept(self, kind: str) -> Invocation:
        """The same, kept in any case: in a new directory of this kind without one of its own. Raises as `check`."""
        from loaderprobe.api.shown import usual_out

        call = self if self.out is not None else replace(self, out=usual_out(kind))
        call.check()
        return call


def command(options: Sequence[Option]) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """A command with these options; its body takes the `Invocation`, and by name what the call does not have.

    What the body returns, or raises, becomes the exit code. Where it has progress, SIGTERM is as Ctrl-C. With `--join`
    among them it is that of rank 0, and takes the `coordinator` of the other processes that a launcher started.
    """

    def made(body: Callable[..., int]) -> Callable[..., None]:
        def run(context: typer.Context, **given: Any) -> None:
            before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)}
            code = exit_code_of(lambda: begun(context, given))
            for number, handler in before.items():
                if signal.getsignal(number) in (as_ctrl_c, _ignore):  # a body may have another
                    signal.signal(number, handler or signal.SIG_DFL)
            raise typer.Exit(code)

        def begun(context: typer.Context, given: Mapping[str, Any]) -> int:
            if QUIET in options:
                signal.signal(signal.SIGTERM, as_ctrl_c)
            call, values = called(options, context, given)
            if JOIN not in options:
                return body(call, **values)
            from loaderprobe.cli.ranks import in_ranks

            join = values.pop("join")
            return in_ranks(join, values["ranks"], lambda coordinator: body(call, coordinator=coordinator, **values))

        parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context), *map(_parameter, options)]
        run.__name__, run.__doc__, run.__annotations__ = body.__name__, body.__doc__, {}
        vars(run)["__signature__"] = Signature(parameters)
        return run

    return made


def as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Another signal as SIGINT: what is done is kept. Workers may get it, too: torch's handler raises for each of them.

    In its place is one of ours, as Python has an error for a signal that came before it had none.
    """
    signal.signal(signal.SIGCHLD, _ignore)
    signal.default_int_handler(number, frame)


def _ignore(number: int, frame: FrameType | None) -> None: ...


def called(
    options: Sequence[Option], context: typer.Context, given: Mapping[str, Any]
) -> tuple[Invocation, dict[str, Any]]:
    """(the call, the values of the options that it does not have): as Python has them, by name."""
    values = {option.name: _python_value(option, given[option.name]) for option in options}
    sources = {name: context.get_parameter_source(name) for name in values}
    typed = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    shown = {option.name for option in options if option.name in ("out", "quiet", *FORMS) and option.typed_only}
    return Invocation(options=options, typed=typed, **{name: values.pop(name) for name in shown}), values


def _python_value(option: Option, given: Any) -> Any:
    if option.type is bool and option.default is True:  # typed to be off: --no-serial
        return not given
    for path in given if isinstance(given, list) else [given]:
        if isinstance(path, Path):
            _check_path(option, path)
    if given is not None:
        option.check(given)
    return option.default if given is None else given


def _check_path(option: Option, path: Path) -> None:
    """Raises BadValue for what no file can be called: whatever asks for it would raise."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise BadValue(f"{option.said}: {error.strerror}: {str(path)[:40]}…", hint="give another path") from error


VALUES: Mapping[Any, str] = {bool: " ", int: "N", float: "SECONDS", Path: "PATH"}
"""What `--help` shows for a value of an option of each type; of others TEXT."""
NARROW = 16
"""Columns for the choices of an option; longer ones would break within a word, and stand in its sentence."""


def _parameter(option: Option) -> Parameter:
    names = get_args(option.type) if get_origin(option.type) is Literal else ()
    kind = str if option.several or names else option.type  # a name is checked as Python's arguments are
    default = option.default
    if option.several and isinstance(default, tuple):
        default = ",".join(map(str, default))
    elif kind is bool:
        default = False
    elif get_origin(kind) is list and default is not REQUIRED:
        default = None
    value = "|".join(names) or VALUES.get(option.type, "TEXT")
    shown = "NAME" if len(value) > NARROW else f"{value},…" if option.several else value
    about: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar or (None if option.panel == ARGUMENT else shown),
        "autocompletion": (lambda: names) if names else None,
        "min": option.least,
        "max": option.most,
        "show_default": option.usual or default not in (None, REQUIRED),
    }
    if option.panel == ARGUMENT:
        info = typer.Argument(**about)
    else:
        info = typer.Option(*option.flags, rich_help_panel=option.panel or None, **about)
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if default is REQUIRED else default,
        annotation=Annotated[kind | None if default is None else kind, info],
    )


BROKEN = {errno.EIO, errno.ESTALE, errno.EREMOTEIO}
"""What a disk that fails, or a file server that is gone, answers, as ENOTCONN of a file does: no bug of ours."""


def exit_code_of(body: Callable[[], int]) -> int:
    """That of a command: what it returns, or that of the error that it raises, which is printed."""
    try:
        code = body()
        # What others printed.
        show(b"")
        return code
    except LoaderprobeError as error:
        return report_error(error)
    except KeyboardInterrupt:
        stderr().print("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the border of the program: exit code 1 means a bug
        if isinstance(error, OSError) and error.errno in BROKEN | (
            {errno.ENOTCONN, errno.ETIMEDOUT} if error.filename else set()
        ):
            what = f"{error.filename} cannot be read" if error.filename else "a file cannot be read"
            hint = "check the disk, or the server of these files; dmesg has what the kernel saw"
            return report_error(MissingPart(f"{what}: {error.strerror}", hint=hint))
        traceback.print_exc()
        stderr().print("This is a bug in loaderprobe: please report the lines above.", style="bold")
        return LoaderprobeError.exit_code


def ended(*, interrupted: bool, failed: bool = False) -> int:
    """The exit code of a result that is there, as far as it was measured."""
    return EXIT_INTERRUPTED if interrupted else EXIT_SOME_FAILED if failed else EXIT_DONE


def report_error(error: LoaderprobeError) -> int:
    """Print the error and its hint; returns the exit code."""
    from loaderprobe.render.format import visible

    for title, style, text in (("error:", "bold red", error.message), ("try:", "bold", error.hint)):
        if text:
            stderr().print(Text.assemble((title, style), " ", visible(text)))
    return error.exit_code


class Stderr(Console):
    """The command goes on when its reader has left, or what it writes to is full or gone; rich would end it."""

    def on_broken_pipe(self) -> None:
        _to_null_device(sys.stderr)

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)
        except OSError:
            self.on_broken_pipe()


def _to_null_device(stream: TextIO) -> None:
    """What is still buffered, and what follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def stderr() -> Console:
    """The console for progress and errors."""
    return Stderr(stderr=True, emoji=False)


def say(text: str, **how: Any) -> None:
    """Print a sentence to standard error, as it is: names and paths in it have no markup."""
    stderr().print(text, highlight=False, markup=False, **how)


def show(result: str | bytes) -> None:
    """Print a result to standard output, unchanged; a character that its encoding lacks is written out.

    Where its reader has left, nothing is printed. Raises NoSpace on a full disk, MissingPart for other trouble.
    """
    out = sys.stdout
    if isinstance(out, TextIOWrapper) and out.errors in ("strict", "surrogateescape"):
        out.reconfigure(errors="backslashreplace")
    try:
        if isinstance(result, bytes):
            out.buffer.write(result)
        else:
            out.write(result if result.endswith("\n") else f"{result}\n")
        out.flush()
    except OSError as error:
        _to_null_device(out)
        if not isinstance(error, BrokenPipeError):
            raise write_error(error, Path("standard output"), "standard output") from error


def write_file(path: Path, data: bytes, option: str, title: str) -> None:
    """Write the file that `option` names and say so; what is no file of its own takes the data alone, at its end.

    Raises what `file_to_write` does, and NoSpace on a full disk.
    """
    target = file_to_write(path, option)
    if target is not None:
        write_atomically(target, data, option)
        show(f"{title}: {path}")
    elif is_stdout(path):
        show(data)  # opened again it would have a position of its own, and what is printed next be written over it
    else:
        with writing(path, option), path.open("ab") as stream:
            stream.write(data)


def is_stdout(path: Path) -> bool:
    """True for what standard output goes to, as `/dev/stdout`."""
    with suppress(OSError):  # either is not there
        return os.path.samestat(path.stat(), os.fstat(1))
    return False


def width_and_color() -> tuple[int, bool]:
    """(columns of the terminal, whether it shows colour); 80 and False when output is not a terminal."""
    console = Console()
    return (console.width, bool(console.color_system and not console.no_color)) if console.is_terminal else (80, False)


_SECRET = r"(?<![a-z])(?:api|access|secret)?(?:token|key|secret|password|passwd|passphrase|credentials?|authorization)"
_OPTION = re.compile(rf"--?[\w.-]*{_SECRET}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"""({_SECRET}(?:=|\s|["']\s*:)).+""", re.IGNORECASE | re.DOTALL)


def command_line(script: Sequence[str] = ()) -> str:
    """As it was typed, without secrets (in URLs, values as of `--token` and `API_KEY=`), with `--` before `script`."""
    typed, own = sys.argv[1:], len(sys.argv) - 1 - len(script)
    if script and typed[own:] == [*script] and typed[own - 1] != "--":
        typed.insert(own, "--")
    words = [
        MASK if _OPTION.fullmatch(before) else masked(_ASSIGNED.sub(rf"\1{MASK}", word))
        for before, word in zip(["", *typed], typed, strict=False)
    ]
    return shlex.join(("loaderprobe", *words))
