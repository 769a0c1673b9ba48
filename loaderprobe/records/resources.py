"""What can limit training, one row each: how it is called and shown, how its speed-up is known, what is advised.

A new cause is a new row here, with its names in the types that stand above the rows: in `SingleCause`, `SpeedupCode`
and, where it has them, `Ablation` and `Remedy`. Beside that, of its ablation, a loader that has it in `modes()` and
does it (workers of a `SwitchedLoader` run a mode that `loaders/worker_probe.py` does not know as the whole pipeline),
and a line in the guide: `verdict.md` (mode), `sweep.md` (letter).

Letters, colours, columns, sentences and the rounds of measurement follow from the row. Every report then has its
figures, empty where loaders have no such mode. `tests/test_records.py` holds the names and the table together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from loaderprobe.records.waits import WaitKind

SingleCause = Literal[
    "storage", "preprocessing", "cpu", "transport", "compute", "network", "lock", "wait", "copy", "host", "imbalance",
    "gradients", "communication",
]  # fmt: skip
"""What may be the cause in a sweep's verdict."""
ResourceName = Literal[SingleCause, "straggler", "input", "loader", "sync", "device", "unknown"]
SpeedupCode = Literal[
    "speedups.storage", "speedups.preprocessing", "speedups.transport", "speedups.compute", "speedups.network",
    "speedups.lock", "speedups.wait", "speedups.imbalance", "speedups.straggler", "speedups.gradients",
]  # fmt: skip
"""Evidence of a verdict: a speed-up by its place in the summary."""
Ablation = Literal["warm", "cached_samples", "no_transport"]
"""A mode of a loader, without one resource. warm: files from memory. cached_samples: files are read, but nothing is
decoded. no_transport: whole pipeline, but nothing is sent."""
Remedy = Literal["requests_in_flight", "shorter_lock", "no_wait", "slow_rank", "exchange"]
"""slow_rank: the host of the rank for which all wait. exchange: of gradients between ranks, faster or less often."""
Bottleneck = Literal["storage", "preprocessing", "cores", "transport", "compute"]
"""What may limit a forecast: cores are the CPU as a whole, preprocessing the work of single workers."""
GapCause = Literal["communication", "input", "copy", "loader", "sync", "launch", "device", "unknown"]
"""Why the device did not train: communication (it did nothing but exchange data with other GPUs, or wait for them to),
input (the training thread was inside `next()`), copy (a batch came over from the host), loader (the device made
batches), sync (the host waited for the device before it went on), launch (the host was busy with something else, or
inside the call that issued the next kernel), device (the hardware's own latency), unknown (nothing of this, or not on
record)."""
GAP_CAUSES: tuple[GapCause, ...] = get_args(GapCause)
TimePart = Literal["compute"] | GapCause
"""What a moment of the device goes to."""
TIME_PARTS: tuple[TimePart, ...] = ("compute", *GAP_CAUSES)
KnownBy = Literal["loader", "compute", "ranks", "gaps", "cores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What may be a cause, or a speed-up, in a verdict."""

    name: ResourceName
    """In verdicts, options and JSON."""
    side: Literal["input", "compute", "inconclusive"]
    """Of a verdict that names it alone."""
    known_by: KnownBy
    """What shows it. loader: rates of the loader without it, by ablation or else estimated. compute: the loader alone
    over training. ranks: experiments that only several ranks have. gaps: what the device waits for in a profiler
    window; it has no speed-up. cores: the resource in `part_of` leads, and all cores are busy."""
    mode: Ablation | Literal[""] = ""
    """In the loader's `modes()`, what removes it; without one it is only estimated."""
    waits: tuple[WaitKind, ...] = ()
    """Kinds of waiting of workers that are for it: their share of the time estimates it."""
    gaps: tuple[GapCause, ...] = ()
    """Gaps of the device that show it, and that go if it costs nothing."""
    part_of: SingleCause | Literal[""] = ""
    """The resource whose speed-up is also this one's."""
    is_cause: bool = True
    """False for what stands beside the cause, and is none in a sweep's verdict: a loss, a part of a timeline."""
    remedy: Remedy | Literal[""] = ""
    """Code of the advice by its own speed-up; that of others is forecast."""
    advice: str = ""
    """That in words, with the facts of the action: a text of the catalogue in `render/messages.py`."""

    letter: str = ""
    """On maps of verdicts."""
    color: str = ""
    """On charts; from those of Okabe and Ito (2008) and of Tol (2021)."""
    ink: str = "#000000"
    """Of text on that colour."""
    style: str = ""
    """In terminals."""
    noun: str
    """In sentences: `Input-bound by {noun}`, `if {noun} were free`."""
    answer: str = ""
    """The noun of an answer, where that is another: in the singular, as its verb is."""
    cell: str = ""
    """In cells of tables; without it the name."""
    short: str = ""
    """Where a cell is narrow; without it the name."""
    legend: str = ""
    """Beside its letter; without it the noun."""
    plural: str = ""
    """Of what is free in `speed-up if {plural} were free`; without it the noun."""
    figure: str = ""
    """What its speed-up is, in the table of figures; without it `speed-up if {plural} were free`."""
    kinds: str = ""
    """On charts of what workers wait for; without it the name."""
    moment: str = ""
    """On timelines of a GPU: what it does, or why it is idle."""


RESOURCES: tuple[Resource, ...] = (
    Resource(
        name="storage", side="input", known_by="loader", mode="warm", waits=("storage", "metadata", "uninterruptible"),
        letter="S", color="#882255", ink="#FFFFFF", style="bold red", noun="storage",
    ),
    Resource(
        name="preprocessing", side="input", known_by="loader", mode="cached_samples",
        letter="D", color="#E69F00", style="bold yellow", noun="preprocessing",
        legend="preprocessing (decoding and augmentation)",
    ),
    Resource(
        name="cpu", side="input", known_by="cores", part_of="preprocessing",
        letter="F", color="#8C510A", ink="#FFFFFF", style="bold yellow", noun="CPU cores", short="CPU cores",
        cell="preprocessing, cores full", legend="preprocessing, cores full",
    ),
    Resource(
        name="transport", side="input", known_by="loader", mode="no_transport",
        letter="T", color="#CC79A7", style="bold magenta", noun="transport", answer="transport to the training process",
    ),
    Resource(
        name="compute", side="compute", known_by="compute",
        letter="C", color="#009E73", style="green", noun="compute", moment="kernels of the training",
    ),
    Resource(
        name="network", side="input", known_by="loader", waits=("network",), remedy="requests_in_flight",
        advice="keep more requests[ ({subject})] in flight: num_workers={workers}, or asynchronous reads in the data "
        "set; larger objects or a local cache need fewer requests",
        letter="N", color="#0072B2", ink="#FFFFFF", style="bold red", noun="the network", legend="network",
    ),
    Resource(
        name="lock", side="input", known_by="loader", waits=("lock",), remedy="shorter_lock",
        advice="hold the lock[ ({subject})] for less time, or give each worker its own",
        letter="L", color="#666633", ink="#FFFFFF", style="bold magenta", noun="a lock", plural="locks",
    ),
    Resource(
        name="wait", side="input", known_by="loader", waits=("sleep", "pipe", "memory", "other"), remedy="no_wait",
        advice="remove the wait[ ({subject})] from the data set, or overlap it with work",
        letter="W", color="#8A8A8A", ink="#FFFFFF", style="bold magenta", noun="other waits",
        answer="other waiting", kinds="sleep, pipe, memory",
    ),
    Resource(
        name="copy", side="input", known_by="gaps", gaps=("copy",),
        letter="P", color="#88CCEE", style="bold magenta", noun="copies to the device",
        answer="copying to the device", moment="copies to the GPU",
    ),
    Resource(
        name="host", side="compute", known_by="gaps", gaps=("launch", "sync"),
        letter="H", color="#332288", ink="#FFFFFF", style="bold magenta", noun="the host",
        moment="the host launched late",
    ),
    Resource(
        name="imbalance", side="input", known_by="ranks", remedy="slow_rank",
        advice="check loader, cores and storage path of rank {rank}[ on {host}]: all ranks wait for its input",
        letter="R", color="#D55E00", style="bold red", noun="one rank", answer="the slowest rank", cell="slow ranks",
        short="slow ranks", legend="slow ranks",
        figure="speed-up with a middle rank's input in place of the slowest's",
    ),
    Resource(
        name="straggler", side="input", known_by="ranks", is_cause=False, noun="slow batches",
        figure="loading of ranks by themselves over that in step",
    ),
    Resource(
        name="gradients", side="compute", known_by="ranks", remedy="exchange",
        advice="exchange gradients faster or less often: a faster link, gradient accumulation, compression",
        letter="G", color="#004D40", style="bold green", noun="the exchange of gradients",
        cell="exchanging gradients", legend="exchanging gradients", plural="exchanging gradients",
    ),
    Resource(
        name="communication", side="compute", known_by="gaps", gaps=("communication",),
        letter="E", color="#663333", ink="#FFFFFF", style="bold green", noun="communication between GPUs",
        moment="communication alone",
    ),
    Resource(
        name="input", side="input", known_by="gaps", gaps=("input", "copy", "loader"), is_cause=False,
        letter="I", color="#CC3311", ink="#FFFFFF", noun="input", moment="waiting for input",
    ),
    Resource(
        name="loader", side="input", known_by="gaps", is_cause=False,
        letter="K", color="#DDCC77", noun="the loader's own kernels", moment="the loader's own kernels",
    ),
    Resource(
        name="sync", side="compute", known_by="gaps", is_cause=False,
        letter="Y", color="#AA4499", ink="#FFFFFF", noun="the host", moment="the host waited for the GPU",
    ),
    Resource(
        name="device", side="inconclusive", known_by="gaps", is_cause=False,
        letter="A", color="#BBBBBB", noun="the GPU's own latency", moment="the GPU's own latency",
    ),
    Resource(
        name="unknown", side="inconclusive", known_by="gaps", is_cause=False,
        letter="U", color="#E5E5E5", noun="something not known", moment="not known",
    ),
)  # fmt: skip
"""The order is that of speed-ups in the JSON.

imbalance: the input of one rank, or of the ranks of one host, for which the others wait. gradients: their exchange
between ranks, measured by leaving it out. communication: any exchange with other GPUs, and waiting for them in it,
while the GPU does nothing else; seen in one profiler window or recorded trace. wait: sleeping, a pipe, memory. input:
all of it, in a recorded trace, which holds nothing of the loader's workers."""

RESOURCE: dict[str, Resource] = {resource.name: resource for resource in RESOURCES}
BOTTLENECKS: dict[str, Resource] = {name: RESOURCE["cpu" if name == "cores" else name] for name in get_args(Bottleneck)}


def _names(rows: Iterable[Resource]) -> tuple[Any, ...]:
    """The names of rows. Which of them may be causes is not seen by types; a test looks."""
    return tuple(row.name for row in rows)


CAUSES: tuple[SingleCause, ...] = _names(resource for resource in RESOURCES if resource.is_cause)
SPEEDUPS: tuple[ResourceName, ...] = _names(
    resource for resource in RESOURCES if resource.known_by in ("loader", "compute", "ranks")
)
"""What a verdict has a speed-up for, where it is known."""
INPUTS: tuple[SingleCause, ...] = _names(resource for resource in RESOURCES if resource.known_by == "loader")
"""What the loader may be without."""
ABLATIONS: dict[SingleCause, Ablation] = {name: mode for name in INPUTS if (mode := RESOURCE[name].mode)}
"""The mode that removes each of those that can be removed."""
REMEDIES: dict[ResourceName, Remedy] = {row.name: row.remedy for row in RESOURCES if row.remedy}
WAITED: tuple[SingleCause, ...] = _names(resource for resource in RESOURCES if resource.waits)
"""What workers are seen to wait for."""
ONLY_WAITED = tuple(name for name in WAITED if name not in ABLATIONS)
AMONG_RANKS: tuple[ResourceName, ...] = _names(resource for resource in RESOURCES if resource.known_by == "ranks")
IN_STEP: tuple[SingleCause, ...] = _names(
    resource for resource in RESOURCES if resource.side == "compute" and resource.name in SPEEDUPS
)
"""Of the speed-ups those on the side of compute."""
MOMENTS: dict[str, Resource] = {
    (*resource.gaps, resource.name)[0]: resource for resource in RESOURCES if resource.moment
}
"""The row of each part of a device's time (`TimePart`); `launch` is the host's."""
IN_GAPS = tuple(name for name in CAUSES if RESOURCE[name].gaps)
"""Causes that only gaps of the device show."""
JUDGED = (*INPUTS, *IN_STEP)
"""Those of which the largest speed-up is the cause."""
