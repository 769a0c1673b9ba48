"""The commands, by name."""

from __future__ import annotations

from typing import Annotated

import typer

from loaderprobe import __version__
from loaderprobe.cli.bandwidth import bandwidth
from loaderprobe.cli.compare import compare
from loaderprobe.cli.devices import devices
from loaderprobe.cli.diagnose import diagnose
from loaderprobe.cli.doctor import doctor, explain
from loaderprobe.cli.generate import generate
from loaderprobe.cli.layers import layers
from loaderprobe.cli.plan import plan
from loaderprobe.cli.report import report
from loaderprobe.cli.run import run
from loaderprobe.cli.sweep import sweep
from loaderprobe.cli.trace import trace
from loaderprobe.cli.tune import batch_size, workers

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
    sweep, run, diagnose, trace, bandwidth, generate, report, plan, compare, layers, devices, doctor, explain,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
tune = typer.Typer(no_args_is_help=True, help="The fastest setting: batch size, workers.")
tune.command()(workers)
tune.command(name="batch-size")(batch_size)
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
