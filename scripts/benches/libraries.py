"""Loaders of other libraries: diagnosed or refused, and the same samples as without loaderprobe.

Ends with the rows of the table in loaderprobe/guide/loaders.md. Arguments go to pytest. Runs in an environment of
its own, .venv-libraries: these libraries ask for older versions of what the others need.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "tests/libraries", *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
