"""The command line in the tests' own process, where torch is imported once for all of them."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from loaderprobe.cli.commands import app


def invoke(*arguments: object) -> Result:
    """Exit code, standard output and standard error of a command, shown 200 columns wide."""
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"}, prog_name="loaderprobe")
