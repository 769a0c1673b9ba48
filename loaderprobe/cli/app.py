"""The commands, by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loaderprobe import __version__
from loaderprobe.cli import commands
from loaderprobe.cli.border import report_error
from loaderprobe.cli.sweep import sweep
from loaderprobe.errors import BadValue

RETIRED = {
    "devices": "loaderprobe sweep --model mlp,convnet --compute cpu,cuda --ranks 1,2",
    "tune": "loaderprobe sweep --workers auto, or loaderprobe batch-size",
}
"""Commands that went: what answers their question now."""


class Commands(TyperGroup):
    """The commands; one that went says what came in its place."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Exits with code 2 for a command that went, and as usual for a name that is none."""
        if instead := RETIRED.get(args[0]):
            error = BadValue(f"'{args[0]}' is no command any more", hint=f"{instead}; see loaderprobe explain changes")
            raise typer.Exit(report_error(error))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    epilog="Your own DataLoader: loaderprobe explain diagnose.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    sweep, commands.run, commands.diagnose, commands.trace, commands.bandwidth, commands.generate, commands.report,
    commands.plan, commands.compare, commands.batch_size, commands.layers, commands.doctor, commands.explain,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"loaderprobe {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Is this training compute-bound or input-bound, which part of the input limits it, and what would change that?"""
