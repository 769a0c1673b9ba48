"""The command line: the only package that prints, exits, and reads argv or the environment.

Whatever a Python program may want as well belongs into `api/`.
"""

from __future__ import annotations


def main() -> int:
    """Run the command in argv; returns the exit code."""
    from loaderprobe.cli.app import app

    try:
        app(prog_name="loaderprobe")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
