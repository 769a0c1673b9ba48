"""A result with its sentences, beside every code with its facts, as it leaves the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from operator import is_
from typing import Any, TypeVar, cast

from loaderprobe.records import values
from loaderprobe.records.bandwidth import DeviceKind, Limit
from loaderprobe.records.environment import Capability
from loaderprobe.records.remark import Remark
from loaderprobe.records.trace import TraceBound
from loaderprobe.records.verdict import Advice, Bound, Evidence, Forecast, Knee
from loaderprobe.render.capability_words import why_words
from loaderprobe.render.device_words import kind_words, limit_words
from loaderprobe.render.figures import evidence_words
from loaderprobe.render.forecast_words import action_words, knee_words
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.trace import bound_sentence
from loaderprobe.render.verdict_words import sentence

T = TypeVar("T")
_WORDS: dict[type, Callable[[Any], str]] = {
    Advice: lambda advice: action_words(advice.action),
    Bound: lambda bound: sentence([bound]),
    Capability: why_words,
    DeviceKind: kind_words,
    Evidence: evidence_words,
    Forecast: lambda forecast: remark_words(forecast.refused) if forecast.refused else "",
    Knee: lambda knee: knee_words([knee]),
    Limit: limit_words,
    TraceBound: bound_sentence,
    Remark: remark_words,
}
"""What makes the `sentence` of a record."""
_PLAIN = (int, float, str)


def worded(value: T) -> T:
    """The same record, or tuple or dict of records, with the sentence of every one in it that has none yet."""
    return cast("T", _worded(value))


def _worded(value: Any) -> Any:
    """The same object where nothing in it gets a sentence."""
    if isinstance(value, tuple):
        # A column may be long.
        parts = value if value and isinstance(value[0], _PLAIN) else tuple(map(_worded, value))
        return value if all(map(is_, parts, value)) else parts
    if isinstance(value, dict):
        said = {name: _worded(each) for name, each in value.items()}
        return value if all(said[name] is value[name] for name in value) else said
    if not is_dataclass(value) or isinstance(value, type):
        return value
    held = values(value)
    changed = {name: words for name, each in held.items() if (words := _worded(each)) is not each}
    make = _WORDS.get(type(value))
    if make and not held["sentence"]:
        changed["sentence"] = make(value)
    return replace(value, **changed) if changed else value
