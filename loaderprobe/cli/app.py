"""The commands, by name."""

from __future__ import annotations

from typing import Annotated

import typer

from loaderprobe import __version__
from loaderprobe.cli import commands
from loaderprobe.cli.sweep import sweep

QUESTION = (
    "Is this training compute-bound or input-bound, which part of the input limits it, and what would change that?"
)

app = typer.Typer(
    help=QUESTION,
    epilog="Your own DataLoader: loaderprobe explain diagnose.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    sweep, commands.run, commands.diagnose, commands.trace, commands.bandwidth, commands.generate, commands.report,
    commands.plan, commands.compare, commands.layers, commands.devices, commands.doctor, commands.explain,
)  # fmt: skip
for each in COMMANDS:
    app.command()(each)
tune = typer.Typer(no_args_is_help=True, help="The fastest setting: batch size, workers.")
tune.command()(commands.workers)
tune.command()(commands.batch_size)
app.add_typer(tune, name="tune")


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
