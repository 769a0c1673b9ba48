"""The verdict as one sentence of plain English with its two or three figures."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rule import WORTH, Judgement
from loaderprobe.records.config import RunConfig
from loaderprobe.records.gaps import Gaps
from loaderprobe.records.verdict import FilesWere, Speedup
from loaderprobe.units import join_words, significant

_WITHOUT = {
    "storage": "with the files in memory",
    "preprocessing": "with preprocessing free",
    "transport": "with batches handed over free",
    "compute": "with a faster accelerator",
    "network": "with no wait for the network",
    "lock": "without the lock",
    "wait": "without that wait",
}
NOUN = {
    "storage": "storage", "preprocessing": "preprocessing", "transport": "batch transport", "compute": "compute",
    "network": "the network", "lock": "a lock", "wait": "waiting of another kind",
}  # fmt: skip


_SUBJECT = {"network": "The network", "lock": "A lock", "wait": "Waiting of the data set's own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures that sentences quote, images/s."""

    training: float
    compute: float | None
    loader: float
    emulated: bool
    alone: bool = False
    """True without a step: the loader alone is judged."""
    files_were: FilesWere | None = None
    gaps: Gaps | None = None
    """Why the device was idle, where that was seen."""

    @property
    def accelerator(self) -> str:
        """What trains, in words that never let an emulated device pass for a real one."""
        return "emulated accelerator" if self.emulated else "device"


def sentence(
    judgement: Judgement, found: Experiments, figures: Figures, config: RunConfig, disk_clause: str = ""
) -> str:
    """Why the verdict is what it is; `disk_clause` tells of the disk where storage binds."""
    if judgement.cause == "inconclusive":
        why = judgement.why.replace("training ran", "a second look ran") if figures.alone else judgement.why
        if judgement.side == "input":
            return f"Input binds, and its cause is undecided: {why}."
        return f"Undecided: {why}."
    said = _said(judgement, found, figures, config, disk_clause)
    if figures.files_were in ("warm", "partly warm") and config.cache != "warm":
        said = f"{said} Its files were {figures.files_were}, although cold ones were asked for."
    if not found.by_waiting or judgement.cause in ("compute", "balanced", "copy", "host"):
        return said
    return f"{said} Cold reads were told from warm ones by how long workers waited: this file system counts no bytes."


def _said(judgement: Judgement, found: Experiments, figures: Figures, config: RunConfig, disk_clause: str) -> str:
    rate = significant(figures.loader if figures.alone else figures.training)
    runs = "the loader alone delivers" if figures.alone else "training runs at"
    if judgement.cause == "compute":
        return (
            f"Compute binds: training runs at {rate} images/s where the {figures.accelerator} alone "
            f"{'is given' if figures.emulated else 'reaches'} {significant(figures.compute or 0.0)}, "
            f"and the loader alone delivers {significant(figures.loader)}; {_beside_compute(found)}."
        )
    if judgement.cause in ("copy", "host") and figures.gaps:
        return _seen_in_gaps(judgement, figures.gaps, figures)
    if judgement.cause == "balanced":
        return f"Balanced: at {rate} images/s no single change gains {WORTH - 1:.0%}."
    if judgement.cause == "either":
        names = join_words([NOUN[name] for name in judgement.candidates], "or")
        gains = ", ".join(f"{_WITHOUT[name]} {_factor(found.gains[name])}" for name in judgement.candidates)
        return f"Either {names} binds, and they cannot be told apart: {runs} {rate} images/s, and would run {gains}."
    resource = "preprocessing" if judgement.cause == "cpu" else judgement.cause
    gain = found.gains[resource]
    tail = f"{_WITHOUT[resource]} it would run {_factor(gain)}"
    if judgement.cause == "cpu":
        return f"The CPU binds: {runs} {rate} images/s and its cores are taken, so more workers will not help; {tail}."
    if judgement.cause in ("network", "lock", "wait"):
        return f"{_SUBJECT[judgement.cause]} binds: {runs} {rate} images/s; {_waited(resource, found)}; {tail}."
    serial = " in the training thread" if config.loader.workers == 0 and resource == "preprocessing" else ""
    return (
        f"{NOUN[resource].capitalize()}{serial} binds: {runs} {rate} images/s"
        f"{'' if figures.alone else f', {_share(figures)} of what the {figures.accelerator} can do'}; {tail}"
        f"{disk_clause if resource == 'storage' else ''}."
    )


def _waited(resource: str, found: Experiments) -> str:
    """How much of their time workers wait for this, and for whom or what."""
    if found.cost is None or found.waiting is None:
        return "workers wait for it"
    share = (found.cost.waited_s(resource) or 0.0) / found.cost.wall_s
    subject = found.waiting.subjects.get(resource, "")
    return f"workers wait {share:.0%} of their time for it{f' ({subject})' if subject else ''}"


def _seen_in_gaps(judgement: Judgement, gaps: Gaps, figures: Figures) -> str:
    rate, compute = significant(figures.training), significant(figures.compute or 0.0)
    runs = f"training runs at {rate} images/s, where compute alone reaches {compute}"
    if judgement.cause == "copy":
        from_where = ", mostly from pageable memory" if 2 * gaps.pageable_ns > gaps.copy_ns else ""
        idle = f"{gaps.share('copy'):.0%} of its time while batches were copied to it{from_where}"
        return f"Copying to the device binds: it was idle for {idle}; {runs}."
    idle = f"{gaps.share('launch', 'sync'):.0%} of its time for want of work that was issued too late"
    parts = f"launching {gaps.share('launch'):.0%}, synchronising {gaps.share('sync'):.0%}"
    return f"The host binds: the device was idle for {idle} ({parts}); {runs} on the same host."


def _beside_compute(found: Experiments) -> str:
    """What the input side has to offer where compute binds: something only where the two do not overlap."""
    inputs = {name: gain for name, gain in found.gains.items() if name != "compute" and gain.value >= WORTH}
    if not inputs:
        return "nothing on the input side can help"
    best = max(inputs, key=lambda name: inputs[name].value)
    return f"{_WITHOUT['compute']} it would run up to {_factor(found.gains['compute'])}, {_WITHOUT[best]} " + _factor(
        inputs[best]
    )


def _share(figures: Figures) -> str:
    return f"{figures.training / figures.compute:.0%}" if figures.compute else "an unknown share"


def _factor(gain: Speedup) -> str:
    estimated = " (estimated)" if gain.how == "estimated" else ""
    return f"{significant(gain.value)} times as fast{estimated}"
