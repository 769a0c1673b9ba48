"""What a kind of storage promises: an entry of the catalogue, its limits as published, with date and source."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.thresholds import STALE_AFTER_MONTHS

StorageFamily = Literal["block", "file", "parallel", "object", "design"]
"""design: a reference design that names rates, not a product."""
LimitName = Literal["read_bytes_per_s", "opens_per_s", "requests_per_s"]

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A limit that depends on the size that is bought: base + per_unit x size, up to at_most."""

    base: float = 0.0
    per_unit: float = 0.0
    at_most: float | None = None
    least_size: float = 0.0
    """It is published for sizes from here on."""
    most_size: float | None = None
    """To here; None: for all larger ones."""

    def __post_init__(self) -> None:
        _check_numbers("a limit", self.base, self.per_unit, self.at_most, self.least_size, self.most_size)
        if not self.base + self.per_unit > 0:
            raise BadValue("a limit of the catalogue is 0")

    def at(self, size: float) -> float | None:
        """The limit at this size; None where it is not published."""
        if size < self.least_size or (self.most_size is not None and size > self.most_size):
            return None
        value = self.base + self.per_unit * size
        return value if self.at_most is None else min(value, self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A variant of an entry that differs in bandwidth, named ENTRY-TIER."""

    name: str
    read_bytes_per_s_per_unit: float
    least_size: float = 0.0
    client_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        _check_numbers("a tier", self.read_bytes_per_s_per_unit, self.least_size, self.client_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """The published limits of one kind of storage. Bytes/s, operations/s, seconds."""

    name: str
    family: StorageFamily
    unit: str
    """Of the size that is bought: `TiB`, `prefix`; empty where no limit depends on a size."""
    least_size: float = 0.0
    most_size: float | None = None
    tiers: tuple[Tier, ...] = ()
    """Where there are any, they give the bandwidth."""
    read_bytes_per_s: Amount | None = None
    """None: not published."""
    opens_per_s: Amount | None = None
    requests_per_s: Amount | None = None
    client_bytes_per_s: float | None = None
    """What a single client gets at most."""
    latency_s: tuple[float, float] | None = None
    """Of one small read, at best and typically."""
    at_least: tuple[LimitName, ...] = ()
    """Limits that are a promise and no maximum."""
    read_on: str
    """Day on which the source was read, ISO 8601."""
    source: str
    second_hand: str = ""
    """What was read on a page that cites the vendor only."""
    note: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not all(_NAME.fullmatch(f"t{tier.name}") for tier in self.tiers):
            raise BadValue(f"catalogue: {self.name!r} is no name (small letters, digits and -)")
        if not self.source:
            raise BadValue(f"catalogue: {self.name} has no source")
        _check_numbers(self.name, self.least_size, self.most_size, self.client_bytes_per_s, *(self.latency_s or ()))
        try:
            date.fromisoformat(self.read_on)
        except ValueError as error:
            raise BadValue(f"catalogue: {self.name} was read on {self.read_on!r}, which is no date") from error

    @property
    def names(self) -> tuple[str, ...]:
        """What `--storage` takes: the name, or one for each tier."""
        return tuple(f"{self.name}-{tier.name}" for tier in self.tiers) or (self.name,)

    def stale(self, today: date) -> bool:
        """True when the source was read twelve months ago or longer."""
        read = date.fromisoformat(self.read_on)
        return (today.year - read.year) * 12 + today.month - read.month - (today.day < read.day) >= STALE_AFTER_MONTHS


def _check_numbers(what: str, *values: float | None) -> None:
    for value in values:
        if value is not None and not (0 <= value < math.inf):
            raise BadValue(f"catalogue: {what} has {value:g}, which is no limit")
