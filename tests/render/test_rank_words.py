"""Why ranks are not measured together is said by name, and what their rates are."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.together import Apart, ApartCode
from loaderprobe.render.rank_words import apart


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
