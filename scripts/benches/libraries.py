"""Loaders of other libraries: diagnosed or refused, and the same samples as without loaderprobe.

Ends with the rows of the table in loaderprobe/guide/loaders.md. Other arguments go to pytest. With --rates: each loader
of `sweep --loader` through loaderprobe and bare in turn, on the same images in memory. Runs in an environment of its
own, .venv-libraries: these libraries ask for older versions of what the others need.
"""

from __future__ import annotations

import subprocess
import sys

from scripts.benches.harness import parser


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rates", action="store_true", help="compare rates of loaders, and run no tests")
    options.add_argument("--only", default="", help="loaders, with commas; all that are installed")
    options.add_argument("--rounds", type=int, default=24)
    options.add_argument("--seconds", type=float, default=0.6, help="of a turn (%(default)s)")
    asked, rest = options.parse_known_args()
    if asked.rates:
        from scripts.benches.library_rates import measure

        return measure(asked.only, asked.rounds, asked.seconds)
    return subprocess.run([sys.executable, "-m", "pytest", "tests/libraries", *rest], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
