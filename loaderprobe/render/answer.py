"""The answer of a report in a few sentences: what limits where, and whether storage does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.groups import Group, groups, measured
from loaderprobe.render.overview import joint_name
from loaderprobe.render.recommend import best_rows
from loaderprobe.render.scaling import scaling
from loaderprobe.render.storage_answer import storage_answer
from loaderprobe.render.verdicts import NOUNS, families, firm
from loaderprobe.render.wording import percent, rate
from loaderprobe.units import join_words

_MOST_CLAUSES = 3


def answers(report: Report) -> tuple[str, ...]:
    """A sentence for each device, and one on storage, which says in as many words that it is not the limit.

    What more ranks gain comes next; storage comes before what a CPU trained beside an accelerator.
    """
    found = [(group.cpu, words) for group in groups(report) if (words := _of_group(group, report))]
    storage = [storage_answer(report)] if any(firm(row) for row in report.summary.configurations) else []
    first = [words for cpu, words in found if not cpu]
    rest = [words for cpu, words in found if cpu]
    more = scaling(report)
    return (*first, *more, *storage, *rest) if first else (*rest, *more, *storage)


def _of_group(group: Group, report: Report) -> str:
    rows = [row for row in group.rows if firm(row)]
    if not measured(group.rows):
        return ""
    if not rows:
        return f"{_on(group, report)}, no configuration is conclusive."
    if group.cpu and {families(row) for row in rows} == {("compute",)}:
        return f"On this CPU, training itself is the limit, at {_rates(rows)} images/s: nothing follows for a GPU."
    nothing = ": nothing follows for a GPU" if group.cpu else _reach(report, group) + _busy(rows, report)
    return f"{_on(group, report)}, {'; '.join(_clauses(rows, group))}{_where(rows, group)}{nothing}."


def _on(group: Group, report: Report) -> str:
    """The device; and the state of the files, where it was asked for several."""
    states = {each.cache for each in groups(report) if each.compute == group.compute}
    files = "files as found" if group.cache == "as-found" else f"{group.cache} files"
    return f"On {group.short}{f' with {files}' if len(states) > 1 else ''}"


def _where(rows: Sequence[ConfigurationRow], group: Group) -> str:
    """With which numbers of workers the clauses hold; the map has single ones."""
    if not all(firm(row) for row in measured(group.rows)):
        return " wherever the verdict is conclusive"
    if any(where for name in _names(rows) for _, where in _signature(name, rows)):
        return ""
    counts = {row.config.loader.workers for row in rows}
    if len(counts) == 1:
        return f" with {_workers(list(counts))}"
    return f" with every number of workers {'tried' if len(measured(group.rows)) == len(group.rows) else 'measured'}"


def _clauses(rows: Sequence[ConfigurationRow], group: Group) -> list[str]:
    """`256x256 to 1024x768 are limited by JPEG decoding`; data sets that are alike share a clause."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in _names(rows):
        alike.setdefault(_signature(name, rows), []).append(name)
    clauses = []
    for signature, names in list(alike.items())[:_MOST_CLAUSES]:
        verb = "is" if len(names) == 1 else "are"
        causes = join_words([f"by {noun}{where}" for noun, where in signature])
        clauses.append(f"{joint_name(names, '', group.rows)} {verb} limited {causes}")
    return [*clauses, *(["the map shows the rest"] if len(alike) > _MOST_CLAUSES else [])]


def _names(rows: Sequence[ConfigurationRow]) -> list[str]:
    return list(dict.fromkeys(row.config.resolution for row in rows))


def _signature(name: str, rows: Sequence[ConfigurationRow]) -> tuple[tuple[str, str], ...]:
    """(noun, with which numbers of workers) of one data set; of one noun, without the numbers."""
    found: dict[str, list[int]] = {}
    for row in (row for row in rows if row.config.resolution == name):
        noun = join_words([NOUNS.get(name, name) for name in families(row)], "or")
        found.setdefault(noun, []).append(row.config.loader.workers)
    if len(found) == 1:
        return tuple((noun, "") for noun in found)
    return tuple(
        (noun, f" with {_workers(sorted(set(counts)))}{_prefetch(counts, found, noun)}")
        for noun, counts in found.items()
    )


def _prefetch(counts: Sequence[int], found: Mapping[str, Sequence[int]], noun: str) -> str:
    """Where something else limits with as many workers, it is the prefetch factor that decides."""
    others = {count for other, some in found.items() if other != noun for count in some}
    return " and some prefetch factors" if others & set(counts) else ""


def _workers(counts: Sequence[int]) -> str:
    words = join_words([str(count) if count else "the serial loader" for count in counts])
    return words if counts == [0] else f"{words} worker{'s' if counts[-1] > 1 else ''}"


def _reach(report: Report, group: Group) -> str:
    """How much of the accelerator each data set uses with the workers that are enough for it."""
    best = [row.verdict for row in best_rows(report, group) if row.verdict]
    known = sorted(share for verdict in best if (share := verdict.accelerator_utilization) is not None)
    if not known:
        return ""
    ends = dict.fromkeys(percent(share).removesuffix(" %") for share in (known[0], known[-1]))
    return f": at best, training reaches {' to '.join(ends)} % of its rate"


def _busy(rows: Sequence[ConfigurationRow], report: Report) -> str:
    """From how many workers on the cores are full: the least number of each data set."""
    full: dict[str, list[int]] = {}
    for row in rows:
        if row.bound and row.bound.cause == "cpu":
            full.setdefault(row.config.resolution, []).append(row.config.loader.workers)
    if not full:
        return ""
    counts = sorted({min(each) for each in full.values()})
    ends = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    cores = report.summary.environment.cores_available
    which = "both" if cores == 2 else f"all {cores:g}"
    return f", with {which} cores busy from {ends} worker{'s' if counts[-1] > 1 else ''} on"


def _rates(rows: Sequence[ConfigurationRow]) -> str:
    values = sorted(row.images_per_s.value for row in rows if row.images_per_s)
    return " to ".join(dict.fromkeys(rate(value) for value in (values[0], values[-1])))
