"""Several threads of torch wait for one another on busy cores."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _in_one_thread(one_thread: None) -> None:
    """In all tests here."""
