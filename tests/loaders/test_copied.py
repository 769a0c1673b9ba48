"""Iterable data sets are copied where nothing speaks against it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from loaderprobe.loaders import state
from loaderprobe.loaders.state import copied_iterable
from tests.api.samples import Shared


def test_a_copy_moves_on_by_itself() -> None:
    """Also what it holds."""
    data = Shared(["a"])
    copy = copied_iterable(data)
    copy.used, copy.paths[0] = True, "b"
    assert (data.used, data.paths) == (False, ["a"])


@pytest.mark.parametrize("held", [threading.Lock(), (each for each in "a"), open])
def test_what_does_not_let_itself_be_copied_stays(held: Any) -> None:
    """Locks and generators; functions are shared."""
    data = Shared(["a"])
    vars(data)["held"] = held
    assert (copied_iterable(data) is None) == (held is not open)


def test_what_is_too_large_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes, or by the number of things."""
    data = Shared(["a", "b", "c"])
    vars(data)["table"] = np.zeros(1000)
    assert copied_iterable(data) is not None
    monkeypatch.setattr(state, "MOST_BYTES", 7999)
    assert copied_iterable(data) is None
    monkeypatch.undo()
    monkeypatch.setattr(state, "MOST", 3)
    assert copied_iterable(data) is None
