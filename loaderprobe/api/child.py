"""The process that measures: `python -m loaderprobe.api.child LINK PARENT` is the forkserver of a sweep."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from loaderprobe.api.policy import JUDGING
from loaderprobe.measure.child import main
from loaderprobe.measure.runner import ForkServer


def forkserver(variables: Mapping[str, str] | None = None) -> ForkServer:
    """The forkserver whose children measure; entering it starts this module as a program.

    `variables` are those of its environment that this process does not set otherwise.
    """
    return ForkServer([sys.executable, "-P", "-m", "loaderprobe.api.child"], variables)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), JUDGING)
