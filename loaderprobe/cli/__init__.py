"""The command line: the only package that prints, exits, and reads argv or the environment.

Whatever a Python program may want as well belongs into `api/`.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command in argv; returns the exit code."""
    from loaderprobe.cli.commands import app

    # Where it is closed, a file that is opened later would get its number.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        app(prog_name="loaderprobe")
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        return end.code or 0
    return 0
