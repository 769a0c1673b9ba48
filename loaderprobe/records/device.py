"""What limits a storage, and what kind of device it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.verdict import Evidence

LimitedBy = Literal["bandwidth", "latency", "latency then bandwidth", "memory", "probe", "unknown"]
KindOfDevice = Literal["token_bucket", "single_server", "latency", "unknown"]
LimitCode = Literal[
    "no_step", "from_memory", "probe_busy", "interrupted", "one_step", "flat", "uneven", "rises", "rises_then_flat",
]  # fmt: skip
"""What the ladder shows. The last four: it is flat from its first step on; steps get less than those before; it rises
with the readers; it rises less than they do, and ends flat or not."""
KindCode = Literal["token_bucket", "single_server", "latency", "from_memory", "probe_busy", "not_paced", "none_of_them"]
"""What the device is, or why that is not known: the last is one that is not like any of the three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What stops the ladder from rising."""

    by: LimitedBy
    knee_readers: int | None
    """The smallest number of readers that gets within 5 % of the best."""
    code: LimitCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes: readers, bytes/s, and `file_s`, the median time of a file at the first step."""
    sentence: str = field(default="", compare=False)
    """The limit in words; `render` adds it where the result leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """How the device treats idle time, which decides how forecasts for other worker counts are made.

    token_bucket: idle time is credit (throttled block devices, cloud volumes). single_server: one request after the
    other, idle time is lost. latency: each request takes its time, many at once do not disturb each other.
    """

    kind: KindOfDevice
    code: KindCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes; with `not_paced` the facts of what is missing, its code under `because`."""
    sentence: str = field(default="", compare=False)
    """The kind in words; `render` adds it where the result leaves the program."""
    evidence: tuple[Evidence, ...]
