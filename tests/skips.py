"""What some tests need of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.system.device import locate


def needs_cold_reads(folder: Path) -> None:
    """Skips a test where what is written to this folder stays in memory, or where reads of it are not counted."""
    location = locate(folder)
    if not location.counts_reads or (location.layers or (location.kind,))[0] != "block":
        pytest.skip("the temporary directory is not on a block device, whose pages can be dropped")
