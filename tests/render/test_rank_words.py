"""Why ranks are not measured together is said by name, and what their rates are."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.diagnosis import Attached, WhyNot
from loaderprobe.records.ranks import Apart, ApartCode
from loaderprobe.render.attachment_words import apart, without_verdict


@pytest.mark.parametrize("code", get_args(ApartCode))
def test_every_reason_has_words(code: ApartCode) -> None:
    """With an error's own, where it has some."""
    reason, _ = apart(Apart(code=code, ranks=(1, 3), detail="workers, period", hint="try"))
    assert reason and "{" not in reason


def test_ranks_and_settings_are_named() -> None:
    """One, or several."""
    assert apart(Apart(code="silent", ranks=(1, 3)))[0].startswith("ranks 1 and 3 took no batches")
    differing = apart(Apart(code="loaders_differ", ranks=(2,), detail="workers, period"))[0]
    assert "the loader of rank 2 has another number of workers and number of batches an update" in differing


def process(why_not: WhyNot, apart: Apart | None = None) -> Attached:
    return Attached(pid=1, loaders=(), why_not=why_not, apart=apart)


def test_rank_0_speaks_for_the_others() -> None:
    """Unless it ran on another host: then one of them says where the verdict is."""
    refused = process("ranks_apart", Apart(code="ended", ranks=(1,)))
    said = without_verdict([process("follows"), refused, process("follows")])
    assert len(said) == 1 and "before all ranks agreed" in said[0]
    said = without_verdict([process("follows"), process("follows")])
    assert len(said) == 1 and "rank 0, which has the verdict" in said[0]


def test_a_command_that_failed_is_named_by_its_exit_code() -> None:
    """And not by its loaders, which it may not have come to."""
    assert "ended with exit code 137" in without_verdict([], 137)[0]
    assert "no torch DataLoader" in without_verdict([])[0]
