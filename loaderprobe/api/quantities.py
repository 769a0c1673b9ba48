"""Shares, sizes and rates that a plan or a gate is asked with, from texts of the command line or from numbers."""

from __future__ import annotations

import math
import re

from loaderprobe.errors import BadValue
from loaderprobe.records.supply import CacheAsked, CacheKind, CheckpointAsked
from loaderprobe.units import parse_bytes

MOST = 1e15
"""Of anything: more is a mistake, and arithmetic with it would overflow."""
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_COUNT = re.compile(rf"{_NUMBER}([kMG]?)")
_SHARE = re.compile(rf"{_NUMBER}\s*%")
_RATE = re.compile(rf"{_NUMBER}\s*([kMGT]i?)?(B|b|bit)/s")
_OPERATIONS = re.compile(rf"{_NUMBER}\s*([kMG]?)\s*(opens/s|files/s|IOPS)")
_TIME = re.compile(rf"{_NUMBER}\s*(us|ms|s)")
_THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def share(value: str | float, option: str) -> float:
    """A share above 0 and up to 1, from `90%` or `0.9`. Raises BadValue."""
    text = str(value).strip()
    match = _SHARE.fullmatch(text)
    found = float(match[1]) / 100 if match else _float(text)
    if not 0 < found <= 1:
        raise BadValue(f"{option} {text} is no share above 0 and up to 100 %", hint=f"write {option} 90%, or 0.9")
    return found


def count(value: str | float, option: str, *, most: float = 1e9) -> int:
    """A whole number of at least 1, from `64`, `1281167`, `1.28M`. Raises BadValue."""
    match = _COUNT.fullmatch(str(value).strip())
    found = float(match[1]) * _THOUSANDS[match[2]] if match else 0.0
    if not 1 <= found <= most or found != int(found):
        raise BadValue(f"{option} {value} is not a whole number from 1 to {most:g}")
    return int(found)


def factor(value: str | float, option: str) -> float:
    """A factor of at least 1 and at most 1000, from `1.5`. Raises BadValue."""
    found = _float(str(value))
    if not 1 <= found <= 1000:
        raise BadValue(f"{option} {value} is not a factor from 1 to 1000", hint=f"write {option} 1.5")
    return found


def size(value: str | float, option: str) -> float:
    """Bytes above 0, from `115kB` or a number. Raises BadValue."""
    text = f"{value:.0f}" if isinstance(value, float) and math.isfinite(value) else str(value)
    found = parse_bytes(text)
    if not 0 < found <= MOST:
        raise BadValue(f"{option} {value} is not a size above 0")
    return float(found)


def byte_rate(value: str | float, option: str) -> float:
    """Bytes/s from `12.5GB/s`, `100Gb/s` (bits) or a number. Raises BadValue."""
    found = _byte_rate(str(value).strip())
    if found is None:
        found = _float(str(value))
    if not 0 < found <= MOST:
        raise BadValue(
            f"{option} {value} is not a bandwidth", hint=f"write {option} 12.5GB/s (bytes), or 100Gb/s (bits)"
        )
    return found


def layout(text: str) -> int:
    """Images a file: 1 of `folder`, 1251 of `shards:1251`. Raises BadValue."""
    name, colon, number = text.strip().partition(":")
    if name == "folder" and not colon:
        return 1
    if name == "shards" and colon:
        found = count(number, "--layout shards:")
        if found > 1:
            return found
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
    found: dict[str, float] = {}
    for item in (word.strip() for word in text.split(",")):
        name, value = _figure(item)
        if name in found:
            raise BadValue(f"--storage {text} gives its {name} twice")
        if not 0 < value <= MOST:
            raise BadValue(f"--storage: {item} is no {name}")
        found[name] = value
    if set(found) == {"latency"}:
        raise BadValue(f"--storage {text} gives no limit", hint="add a bandwidth, like 5GB/s")
    return found


def _figure(item: str) -> tuple[str, float]:
    whole = item.removesuffix("/client").removesuffix("/node")
    rate = _byte_rate(whole)
    if rate is not None:
        return ("bandwidth" if whole == item else "client"), rate
    operations, time = _OPERATIONS.fullmatch(item), _TIME.fullmatch(item)
    if operations:
        name = "requests" if operations[3] == "IOPS" else "opens"
        return name, float(operations[1]) * _THOUSANDS[operations[2]]
    if time:
        return "latency", float(time[1]) * _SECONDS[time[2]]
    raise BadValue(
        f"--storage: '{item}' is no figure of a storage", hint="write 5GB/s,60kopens/s,100kIOPS,2ms,1.5GB/s/client"
    )


def _byte_rate(text: str) -> float | None:
    """Bytes/s; a small b is a bit."""
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    scale = {**_THOUSANDS, **_BINARY}[match[2] or ""]
    return float(match[1]) * scale / (1 if match[3] == "B" else 8)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
