"""Shares, sizes and rates that a plan or a gate is asked with, from texts of the command line or from numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from loaderprobe.errors import BadValue
from loaderprobe.records.supply import CacheAsked, CacheKind, CheckpointAsked
from loaderprobe.units import parse_bytes

MOST = 1e15
"""Of anything: more is a mistake, and arithmetic with it would overflow."""
_FIGURE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(.*)", re.DOTALL)
_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_PREFIXES = {**_THOUSANDS, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTE_RATES = {
    f"{prefix}{unit}/s": scale * size for prefix, scale in _PREFIXES.items()
    for unit, size in {"B": 1.0, "b": 1 / 8, "bit": 1 / 8}.items()
}  # fmt: skip
_OF_STORAGE: dict[str, Mapping[str, float]] = {
    "bandwidth": _BYTE_RATES,
    "client": {f"{unit}/{of}": scale for unit, scale in _BYTE_RATES.items() for of in ("client", "node")},
    "opens": {f"{prefix}{unit}": scale for prefix, scale in _THOUSANDS.items() for unit in ("opens/s", "files/s")},
    "requests": {f"{prefix}IOPS": scale for prefix, scale in _THOUSANDS.items()},
    "latency": {"us": 1e-6, "ms": 1e-3, "s": 1.0},
}
"""The units of each figure of a storage."""


def _scaled(text: str, units: Mapping[str, float]) -> float | None:
    """The number that the text begins with, in one of these units; None for any other text."""
    match = _FIGURE.fullmatch(text.strip())
    scale = units.get(match[2].lstrip()) if match else None
    return float(match[1]) * scale if match and scale else None


def share(value: str | float, option: str) -> float:
    """A share above 0 and up to 1, from `90%` or `0.9`. Raises BadValue."""
    text = str(value).strip()
    percent = _scaled(text, {"%": 1.0})
    number = _float(text) if percent is None else percent / 100
    if not 0 < number <= 1:
        raise BadValue(f"{option} {text} is no share above 0 and up to 100 %", hint=f"write {option} 90%, or 0.9")
    return number


def count(value: str | float, option: str, *, most: float = 1e9) -> int:
    """A whole number of at least 1, from `64`, `1281167`, `1.28M`. Raises BadValue."""
    number = _scaled(str(value), _THOUSANDS) or 0.0
    if not 1 <= number <= most or number != int(number):
        raise BadValue(f"{option} {value} is not a whole number from 1 to {most:g}")
    return int(number)


def factor(value: str | float, option: str) -> float:
    """A factor of at least 1 and at most 1000, from `1.5`. Raises BadValue."""
    number = _float(str(value))
    if not 1 <= number <= 1000:
        raise BadValue(f"{option} {value} is not a factor from 1 to 1000", hint=f"write {option} 1.5")
    return number


def size(value: str | float, option: str) -> float:
    """Bytes above 0, from `115kB` or a number. Raises BadValue."""
    text = f"{value:.0f}" if isinstance(value, float) and math.isfinite(value) else str(value)
    size_bytes = parse_bytes(text)
    if not 0 < size_bytes <= MOST:
        raise BadValue(f"{option} {value} is not a size above 0")
    return float(size_bytes)


def byte_rate(value: str | float, option: str) -> float:
    """Bytes/s from `12.5GB/s`, `100Gb/s` (bits) or a number. Raises BadValue."""
    bytes_per_s = _scaled(str(value), _BYTE_RATES)
    if bytes_per_s is None:
        bytes_per_s = _float(str(value))
    if not 0 < bytes_per_s <= MOST:
        raise BadValue(
            f"{option} {value} is not a bandwidth", hint=f"write {option} 12.5GB/s (bytes), or 100Gb/s (bits)"
        )
    return bytes_per_s


def layout(text: str) -> int:
    """Images a file: 1 of `folder`, 1251 of `shards:1251`. Raises BadValue."""
    name, colon, number = text.strip().partition(":")
    if name == "folder" and not colon:
        return 1
    if name == "shards" and colon:
        images = count(number, "--layout shards:")
        if images > 1:
            return images
    raise BadValue(f"'{text}' is no layout", hint="use folder, or shards:IMAGES such as shards:1251")


def cache(text: str) -> CacheAsked:
    """`none`, `page:1TB` or `pinned:1TB`, of one node. Raises BadValue."""
    name, colon, bytes_ = text.strip().partition(":")
    if name == "none" and not colon:
        return CacheAsked()
    if name in ("page", "pinned") and colon:
        kind: CacheKind = "page" if name == "page" else "pinned"
        return CacheAsked(kind=kind, bytes=size(bytes_, f"--cache {name}:"))
    raise BadValue(f"'{text}' is no cache", hint="use none, page:SIZE or pinned:SIZE, such as page:1TB, of one node")


def checkpoint(text: str) -> CheckpointAsked:
    """`205MB:600`, bytes and the seconds between two. Raises BadValue."""
    bytes_, colon, every = text.strip().partition(":")
    every_s = _float(every) if colon else 0.0
    if not 0 < every_s <= MOST:
        raise BadValue(f"--checkpoint {text} is no SIZE:SECONDS", hint="write --checkpoint 205MB:600")
    return CheckpointAsked(bytes=size(bytes_, "--checkpoint"), every_s=every_s)


def storage_figures(text: str) -> dict[str, float]:
    """`5GB/s,60kopens/s,2ms,1.5GB/s/client` as figures by resource, and `latency`. Raises BadValue."""
    figures: dict[str, float] = {}
    for item in (word.strip() for word in text.split(",")):
        values = {name: value for name, units in _OF_STORAGE.items() if (value := _scaled(item, units)) is not None}
        if not values:
            hint = "write 5GB/s,60kopens/s,100kIOPS,2ms,1.5GB/s/client"
            raise BadValue(f"--storage: '{item}' is no figure of a storage", hint=hint)
        ((name, value),) = values.items()
        if name in figures:
            raise BadValue(f"--storage {text} gives its {name} twice")
        if not 0 < value <= MOST:
            raise BadValue(f"--storage: {item} is no {name}")
        figures[name] = value
    if set(figures) == {"latency"}:
        raise BadValue(f"--storage {text} gives no limit", hint="add a bandwidth, like 5GB/s")
    return figures


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
