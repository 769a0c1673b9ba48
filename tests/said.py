"""The sentences of codes with facts, for tests that read what users read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.records.remark import Remark
from loaderprobe.render.json import worded


def said(record: Any) -> str:
    """What a reason, a note, a limit or another record with a sentence says."""
    sentence: str = worded(record).sentence
    return sentence


def all_said(records: Sequence[Any]) -> list[str]:
    """The same of several."""
    return [said(each) for each in records]


def quoted(text: str) -> Remark:
    """A note of these words."""
    return Remark(code="quoted", facts={"text": text})
