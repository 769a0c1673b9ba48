"""The rows of a report by device, cache state and number of ranks, with the words for each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loaderprobe.analyze.answer import by_device, on_cpu
from loaderprobe.records.config import OPTIONS
from loaderprobe.records.report import ConfigurationRow, Detail, Report
from loaderprobe.records.verdict import Bottleneck
from loaderprobe.render.wording import differing, label, option_words, rate, unusual


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Configurations that share a device, a cache state and a number of ranks, so that their figures compare."""

    compute: str
    cache: str
    emulated: bool
    seen: str
    """The device as the measurements name it; empty when none succeeded."""
    source: str
    """Where the rate of the device comes from."""
    rows: tuple[ConfigurationRow, ...]

    @property
    def device(self) -> str:
        """The device in words; an emulated one always says so."""
        if not self.emulated:
            return self.seen or self.compute
        kind, _, name = self.compute.partition(":")
        synchronous = " (synchronous)" if kind.endswith("-sync") else ""
        return f"emulated accelerator{synchronous}{'' if _is_number(name) else f': {name}'}"

    @property
    def cpu(self) -> bool:
        """True where a CPU trains."""
        return on_cpu(self.rows)

    @property
    def short(self) -> str:
        """The device within a sentence: `an emulated mlperf-h100`, `this CPU`; `4 ranks, each with this CPU`."""
        config = self.rows[0].config
        ranks, nodes = (option_words(config, name) for name in ("ranks", "nodes"))
        over = f" on {nodes}" if config.nodes > 1 else ""
        return self._one if config.ranks == 1 else f"{ranks}{over}, each with {self._one}"

    @property
    def _one(self) -> str:
        if self.emulated:
            name = self.compute.partition(":")[2]
            return f"an emulated {f'accelerator of {name} images/s' if _is_number(name) else name}"
        return "this CPU" if self.cpu else self.device

    @property
    def ceiling_images_per_s(self) -> float | None:
        """Images/s of compute alone: the highest seen in the group, since the device is the same."""
        rates = [row.verdict.rates_images_per_s.compute for row in self.rows if row.verdict]
        return max((value for value in rates if value is not None), default=None)

    @property
    def ceiling(self) -> str:
        """The rate of compute alone in words, with its origin."""
        ceiling = self.ceiling_images_per_s
        if ceiling is None:
            specified = f"{self._specified} images/s (specified)" if self._specified else "as specified"
            return specified if self.emulated else "not measured"
        if self.emulated:
            return f"{rate(ceiling)} images/s (specified, not measured)"
        rates = [row.verdict.rates_images_per_s.compute for row in self.rows if row.verdict]
        least = min(value for value in rates if value is not None)
        known = rate(ceiling) if rate(least) == rate(ceiling) else f"{rate(least)} to {rate(ceiling)}"
        return f"{known} images/s (measured)"

    @property
    def _specified(self) -> str:
        """The rate in the name of an emulated device; empty where it has another name."""
        name = self.compute.partition(":")[2]
        return name if self.emulated and _is_number(name) else ""

    @property
    def title(self) -> str:
        """Device and cache state, as a heading, and the options that are not as usual in any row."""
        return ", ".join((self.heading, f"{self.cache} files", *self.common))

    @property
    def common(self) -> list[str]:
        """The options, in words, that have another value than usual, and the same in all rows."""
        first = self.rows[0]
        apart = differing(first, self.rows)
        return [option_words(first.config, name) for name in unusual(first) if name not in apart]

    @property
    def heading(self) -> str:
        """The device, as a heading."""
        return self.device.replace("emulated", "Emulated", 1) if self.emulated else self.device


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def groups(report: Report) -> tuple[Group, ...]:
    """The rows as they stand together."""
    return tuple(_group(report, rows) for rows in by_device(report.summary.configurations))


def _group(report: Report, rows: tuple[ConfigurationRow, ...]) -> Group:
    details = [detail for row in rows if (detail := detail_of(report, row))]
    return Group(
        compute=rows[0].config.compute.name,
        cache=rows[0].config.cache,
        emulated=any(row.emulated for row in rows),
        seen=details[0].compute_device if details else "",
        source=details[0].compute_source if details else "",
        rows=rows,
    )


def full_label(row: ConfigurationRow, report: Report) -> str:
    """The label of a row out of its group: with device and cache state where the report has several."""
    found = groups(report)
    group = group_of(found, row.key)
    parts = [label(row, report.summary.configurations)]
    if group.emulated or len({group.compute for group in found}) > 1:
        parts.append(group.device)
    if len({group.cache for group in found}) > 1 or not OPTIONS["cache"].usual(row.config):
        parts.append(row.config.cache)
    return ", ".join(parts)


def group_of(found: Iterable[Group], key: str) -> Group:
    """The group of a configuration."""
    return next(group for group in found if any(row.key == key for row in group.rows))


def then_of(report: Report, row: ConfigurationRow) -> Mapping[str, Bottleneck]:
    """By resource: what limits training of a row once that is free."""
    detail = detail_of(report, row)
    return detail.then if detail else {}


def detail_of(report: Report, row: ConfigurationRow) -> Detail | None:
    """What the report draws for a row; None when the row was not measured."""
    key = row.key
    return next((detail for detail in report.details if detail.key == key), None)
