"""The report as one HTML file that works offline: no script, no request, charts as inline SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render import charts, figures, gpu, groups, overview, recommend, timeline, verdict_words, wording
from loaderprobe.render.figures import BY_COLUMN
from loaderprobe.render.groups import Group
from loaderprobe.units import format_bytes, format_duration, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One small chart; `svg` is empty when there is nothing to draw, and `note` says why."""

    title: str
    svg: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Charts of one kind side by side, one a resolution, with a legend that serves them all."""

    title: str
    caption: str
    legend: dict[str, str]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The panels of one device."""

    name: str
    emulated: bool
    ceiling: str
    source: str
    panels: tuple[Panel, ...]


_READ = "disk_read_bytes_per_s"


class HtmlReport:
    """Renders a report for a browser, from a phone's width to a printed page."""

    def render(self, report: Report) -> str:
        """A whole HTML document. All text from outside is escaped."""
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("loaderprobe", "render"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalized,
        )
        environment.globals.update(
            w=wording,
            figures=figures,
            units={"bytes": format_bytes, "duration": format_duration, "number": significant},
        )
        return environment.get_template("report.html.jinja").render(_context(report))


def _finalized(value: Any) -> Any:
    """Text without control characters or undecodable bytes; markup of our own as it is."""
    return wording.visible(value) if type(value) is str else value


def _context(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    rows = report.summary.configurations
    important = overview.most_important(report)
    return {
        "report": report,
        "summary": report.summary,
        "counts": overview.counts(report),
        "important": important,
        "why": lambda row: verdict_words.sentence([row.bound]),
        "ablations": verdict_words.ablation_words,
        "limit": wording.LIMIT,
        "important_label": groups.full_label(important, report) if important else "",
        "emulated": any(row.emulated for row in rows),
        "emulated_note": overview.EMULATED_NOTE,
        "estimated": any(speedup.how == "estimated" for row in rows for _, speedup in wording.main_speedups(row)),
        "groups": groups.groups(report),
        "knees": lambda group: recommend.knees(report, group),
        "advised": lambda group: recommend.advised(report, group),
        "devices": _devices(report),
        "windows": [(group, found) for group in groups.groups(report) if (found := gpu.windows(report, group))],
        "shades": (timeline.KERNELS, *timeline.SHADES.values()),
        "details": {detail.key: detail for detail in report.details},
        "missing": overview.missing(report),
        "machine": overview.environment_facts(report),
        "how_to_read": overview.HOW_TO_READ,
        # The only text that is not escaped: SVG, in which its makers escaped what came from outside.
        "inline": lambda svg: Markup(_inlined(svg)),
    }


def _inlined(svg: str) -> str:
    """SVG as part of an HTML page: without the namespaces that only a file of its own needs."""
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg, count=2)


def _devices(report: Report) -> tuple[Device, ...]:
    by_compute: dict[str, list[Group]] = {}
    for group in groups.groups(report):
        by_compute.setdefault(group.compute, []).append(group)
    return tuple(_device(found) for found in by_compute.values())


def _device(found: Sequence[Group]) -> Device:
    rows = [row for group in found for row in group.rows]
    first = next((group for group in found if group.ceiling_images_per_s is not None), found[0])
    by_resolution: dict[str, list[ConfigurationRow]] = {}
    for row in rows:
        by_resolution.setdefault(row.config.resolution, []).append(row)
    return Device(
        name=first.heading,
        emulated=first.emulated,
        ceiling=first.ceiling,
        source=first.source,
        panels=(
            _throughput(by_resolution, rows, first),
            _disk(by_resolution, rows),
            _steps(by_resolution),
            _workers(by_resolution),
        ),
    )


def _throughput(by_resolution: dict[str, list[ConfigurationRow]], rows: list[ConfigurationRow], group: Group) -> Panel:
    colors = charts.line_colors(rows)
    ceiling = None
    highest = [row.images_per_s.high for row in rows if row.images_per_s]
    if group.ceiling_images_per_s is not None:
        origin = "specified, not measured" if group.emulated else "measured"
        ceiling = (group.ceiling_images_per_s, f"compute alone: {wording.rate(group.ceiling_images_per_s)} ({origin})")
        highest.append(group.ceiling_images_per_s)
    top = max(highest, default=0.0) * 1.14 or None
    return Panel(
        title="Training throughput against workers",
        caption="Bars are 95 % intervals over the rounds. The dashed line is compute alone.",
        legend=colors,
        figures=tuple(
            _figure(f"{label}, images/s", charts.throughput_chart(some, label, colors, ceiling, top), some)
            for label, some in by_resolution.items()
        ),
    )


def _disk(by_resolution: dict[str, list[ConfigurationRow]], rows: list[ConfigurationRow]) -> Panel:
    colors = charts.line_colors(rows)
    found = [BY_COLUMN[_READ].get(row) for row in rows]
    read = [value for value in found if value is not None]
    top = max(read, default=0.0) / 1e6 * 1.12 or None
    return Panel(
        title="Read from storage while training",
        caption="Bytes that the devices under the data delivered. Reads from the page cache do not count.",
        legend=colors,
        figures=tuple(
            _figure(
                f"{label}, MB/s read from storage",
                charts.disk_chart(some, label, colors, top),
                some,
                without=[row for row in groups.measured(some) if BY_COLUMN[_READ].get(row) is None],
                field=_READ,
            )
            for label, some in by_resolution.items()
        ),
    )


def _steps(by_resolution: dict[str, list[ConfigurationRow]]) -> Panel:
    return Panel(
        title="Where a step's time goes",
        caption="On the training thread, mean of a batch. An accelerator works on while the thread waits for input.",
        legend=charts.STEP_COLORS,
        figures=tuple(
            _figure(f"{label}, ms per batch", charts.step_chart(some, label), some)
            for label, some in by_resolution.items()
        ),
    )


def _workers(by_resolution: dict[str, list[ConfigurationRow]]) -> Panel:
    return Panel(
        title="Where a worker's time goes",
        caption="One image in one worker; with the serial loader, in the training thread.",
        legend=charts.WORKER_COLORS,
        figures=tuple(
            _figure(f"{label}, ms per image in one worker", charts.worker_chart(some, label), some)
            for label, some in by_resolution.items()
        ),
    )


def _figure(
    title: str,
    svg: str,
    rows: Sequence[ConfigurationRow],
    without: Sequence[ConfigurationRow] = (),
    field: str = "",
) -> Figure:
    gone = [f"{wording.loading(row)}: {row.status}" for row in rows if row.status != "measured"]
    gone += [f"{wording.loading(row)}: {row.unavailable.get(field, 'no figure')}" for row in without]
    return Figure(title=title, svg=svg, note="; ".join(gone) if svg else "; ".join(gone) or "Not measured.")
