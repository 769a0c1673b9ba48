"""One formatter for every text of the catalogue, and the figures as every renderer shows them.

A field in braces is a fact, shown as the word after its colon says:

    {rate:rate}             205, 1786 (images/s)        {share:percent}         62 %
    {size:bytes}            3.20 MB                     {size:bytes/s}          3.20 MB/s
    {seconds:duration}      1.20 ms, 3 min 20 s         {ahead:KiB}             128 KiB
    {speedup:times}         2.81                        {rises:2}               2.8 (figures)
    {rate:interval}         205 ±6
    {count:count worker}    1 worker, 2 workers         {workers:workers}       serial, 2 workers
    {workers:loader}        the serial loader           {resource:noun}         CPU cores
    {name:accelerator}      mlperf-h100                 {low-high:range ...}    15 to 33 %, each end as the rest says
    {resources:nouns}       storage and transport       {resources:speedups}    storage 2.0, transport 1.1
    {ranks:ranks}           rank 1, ranks 1 and 3       {budget:g}              as Python formats it
    {code:code PREFIX}      the text of `PREFIX.code` with the same facts, of `PREFIX` where there is no such text;
                            with `Code` it begins a sentence
    {codes:list PREFIX}     the same of several words, joined; a word without a text is itself
    {record:each CODE}      the text of CODE with the fields of a record, or of each of several, joined

A field without a word is shown as it is. `[...]` is left out where one of its own facts is missing or empty; of
`[this|that|else]` the first is said that has all its facts, and the last where none has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Any

from loaderprobe.records import values
from loaderprobe.records.resources import BOTTLENECKS, RESOURCE
from loaderprobe.records.verdict import Interval, Speedup
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

Facts = Mapping[str, Any]
Part = str | tuple["Parts", ...]
"""Text with fields, or the alternatives in brackets."""
Parts = tuple[Part, ...]

MISSING = "\N{EN DASH}"
"""Stands for a figure that does not exist; every renderer lists the reasons."""


def interval(value: Interval | None, gap: str = " ") -> str:
    """`205 ±6`: three figures, or as many as stay within it, and half the 95 % interval; a single round has none."""
    if value is None:
        return MISSING
    return within(value.value, value.half) + (f"{gap}{plus_minus(value.value, value.half)}" if value.half else "")


def times(speedup: Speedup) -> str:
    """`2.30x`; `≤64.0x` where only the most that can be had is known."""
    return f"{'≤' * speedup.at_most}{significant(speedup.value)}x"


def within(value: float, half: float) -> str:
    """Three significant figures, or as many as stay within half an interval, which is 0 where there is none."""
    shown = significant(value)
    if not half or abs(float(shown) - value) <= half:
        return shown
    return f"{value:.{len(plus_minus(value, half).partition('.')[2])}f}"


def plus_minus(value: float, half: float) -> str:
    """`±6`, to the decimal place of the value with three figures; `half` is above 0."""
    decimals = len(significant(value).partition(".")[2])
    spread = f"{half:.{decimals}f}"
    return f"±{spread if float(spread) else significant(half, 1)}"


def rate(images_per_s: float) -> str:
    """Images/s, whole from 1000 on: a specified rate is known to the last digit."""
    return f"{images_per_s:.0f}" if images_per_s >= 1000 else significant(images_per_s)


def grouped(value: float, half: float = 0.0) -> str:
    """The figures of `within`, thousands apart: `103,000`, `4.02`."""
    shown = within(value, half)
    return f"{float(shown):,.0f}" if value >= 1000 else shown


def percent(fraction: float | None) -> str:
    """`62 %`; below 1 %, two figures."""
    if fraction is None:
        return MISSING
    return f"{_at_least(fraction * 100, 2 if abs(fraction) < 0.995 else 3, 0.01)} %"


def megabytes_per_s(bytes_per_s: float | None) -> str:
    """A bandwidth as a number of MB/s, without the unit."""
    return figure(None if bytes_per_s is None else bytes_per_s / 1e6)


def figure(value: float | None, figures: int = 3) -> str:
    """A number, or the sign for a missing one."""
    return MISSING if value is None else _at_least(value, figures, 0.001)


def _at_least(value: float, figures: int, least: float) -> str:
    """Nothing that is measured is known to 16 decimals: what is smaller than `least` is said to be."""
    return f"<{least:g}" if 0 < value < least else significant(value, figures)


def counted(count: float, noun: str) -> str:
    """`1 configuration`, `12 configurations`, `2 passes`."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:.10g} {noun}{'' if count == 1 else plural}"


def workers_words(count: float) -> str:
    """`serial`, `1 worker`, `4 workers`."""
    return counted(count, "worker") if count else "serial"


def named(accelerator: str, counts: str = "") -> str:
    """`mlperf-h100`, `1, 8 and 64 x mlperf-h100`; of a rate `accelerator of 500 images/s`, `64 accelerators of ...`."""
    if accelerator[:1].isdigit():
        return f"{counts} accelerator{'s' * (counts not in ('', '1'))} of {rate(float(accelerator))} images/s".lstrip()
    return f"{counts} x {accelerator}" if counts else accelerator


def first_upper(words: str) -> str:
    """The same words at the begin of a sentence."""
    return words[:1].upper() + words[1:]


def visible(text: str) -> str:
    """`text` with control characters and undecodable bytes written out, so that no path can act on a reader."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def ranged(low: str, high: str) -> str:
    """`15 to 33 %` of `15 %` and `33 %`; one of them where both read the same."""
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith((f' {unit}', f' {unit}s')) else low} to {high}"


def span(values: Collection[float], show: Callable[[float], str] = significant) -> str:
    """From the least to the most: `15 to 33 %`; one of them where both read the same."""
    return ranged(show(min(values)), show(max(values)))


def noun(name: str) -> str:
    """How sentences call a resource, or what limits a forecast."""
    return (RESOURCE.get(name) or BOTTLENECKS[name]).noun


# A word after the colon, and what it makes of a fact.
_SHOWN: dict[str, Callable[[Any], str]] = {
    "rate": rate,
    "percent": percent,
    "bytes": format_bytes,
    "bytes/s": format_rate,
    "duration": format_duration,
    "KiB": lambda size: f"{size / 1024:.0f} KiB",
    "times": significant,
    "interval": interval,
    "workers": workers_words,
    "loader": lambda count: counted(count, "worker") if count else "the serial loader",
    "noun": noun,
    "accelerator": named,
    "ranks": lambda ranks: f"rank{'s' * (len(ranks) > 1)} {join_words(list(map(str, ranks)))}" if ranks else "a rank",
    "nouns": lambda names: join_words([noun(name) for name in names]),
    "speedups": lambda values: ", ".join(f"{noun(name)} {significant(value, 2)}" for name, value in values.items()),
}


class Sentence(Formatter):
    """Fills the texts of a catalogue with the facts of one record."""

    def __init__(self, texts: Mapping[str, str], facts: Facts) -> None:
        self.texts = texts
        self.facts = facts

    def of(self, code: str) -> str:
        """The text of a code. Raises KeyError for a code without one, and where a fact is missing."""
        return self.filled(self.texts[code])

    def filled(self, template: str) -> str:
        return self._said(parsed(template))

    def _said(self, parts: Parts) -> str:
        return "".join(
            self.vformat(part, (), self.facts) if isinstance(part, str) else self._first(part) for part in parts
        )

    def _first(self, alternatives: tuple[Parts, ...]) -> str:
        """The first that has all its facts; the last of several where none has, and nothing of one."""
        complete = (parts for parts in alternatives if all(self._is_there(name) for name in fields_of(parts)))
        return self._said(next(complete, alternatives[-1] if len(alternatives) > 1 else ()))

    def _is_there(self, name: str) -> bool:
        return all(self.facts.get(end) not in (None, "", (), []) for end in name.split("-"))

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """The fact; of `low-high` both."""
        names = field_name.split("-")
        return (kwargs[field_name] if len(names) == 1 else tuple(kwargs[name] for name in names)), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """The fact as the word after the colon says."""
        word, _, rest = format_spec.partition(" ")
        if word == "range":
            return ranged(*(self.format_field(end, rest) for end in value))
        if word == "count":
            return counted(value, rest)
        if word == "code":
            return self._code(value, rest)
        if word == "Code":
            return first_upper(self._code(value, rest))
        if word == "list":
            return join_words([self.texts.get(f"{rest}.{name}", name) for name in re.findall(r"\w+", value)])
        if word == "each":
            records = value if isinstance(value, list | tuple) else [value]
            return join_words([Sentence(self.texts, values(record)).of(rest) for record in records])
        if word in _SHOWN:
            return _SHOWN[word](value)
        if word.isdigit():
            return significant(value, int(word))
        if not word and isinstance(value, float):
            return f"{value:.10g}"
        return format(value, format_spec)

    def _code(self, value: Any, prefix: str) -> str:
        """A code is a word, or the number of an error."""
        word = value if isinstance(value, str) else f"{value:g}"
        code = f"{prefix}.{word}" if prefix else word
        return self.of(code if code in self.texts else prefix)


@cache
def parsed(template: str) -> Parts:
    """The parts of a text."""
    # The alternatives of each bracket that is open, around them the text itself, which has one.
    nested: list[list[Parts]] = [[()]]
    for token in re.split(r"([\[\]|])", template):
        if token == "[":
            nested.append([()])
        elif token == "|":
            nested[-1].append(())
        elif token:
            part = tuple(nested.pop()) if token == "]" else token
            if not nested:
                break
            nested[-1][-1] += (part,)
    if len(nested) != 1 or len(nested[0]) != 1:
        raise ValueError(f"a bracket without its partner: {template}")
    return nested[0][0]


def fields_of(parts: Parts) -> tuple[str, ...]:
    """The names of the facts outside further brackets."""
    return tuple(
        name for part in parts if isinstance(part, str) for _, name, _, _ in Formatter().parse(part) if name is not None
    )
