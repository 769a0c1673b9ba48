"""`devices`: a model and its data on the CPU, on one GPU and on several, and why more are not faster."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from loaderprobe.analyze.devices import judge
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.values import listed, unheard
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.launch import Lead, on_this_machine, order_without_files
from loaderprobe.measure.runner import Event, Start, run_order
from loaderprobe.plugins import resolve
from loaderprobe.policy import Fixed, follow
from loaderprobe.records.config import ComputeSpec
from loaderprobe.records.devices import (
    DeviceMeasured,
    DeviceName,
    DevicesReport,
    DeviceWork,
    Placement,
    PlacementResult,
    Workload,
    WorkloadResult,
    WorkloadVerdict,
)
from loaderprobe.records.measurement import RunFailure
from loaderprobe.render.devices import devices_columns, devices_document, devices_exhibits, shown_name
from loaderprobe.render.document import Document, Exhibit
from loaderprobe.render.json import result_json
from loaderprobe.render.remarks import remark_words
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.limits import cores_available

ROUNDS = 5
LEAST_ROUNDS = 3
"""Fewer have no useful spread."""
TIMEOUT_S = 120.0
LIMIT_S = 7 * 86400.0
"""Of one placement, however long a step takes."""
MNIST, SEQUENCE, IMAGE_SIZE = (1, 28, 28), (50, 1), 32
BATCH_SIZES, BATCH_SIZE = {"mlp": 128, "lenet5": 64, "lstm": 64}, 32
SAMPLES, CIFAR = {"mlp": 60_000, "lstm": 10_000}, 50_000
TWO_RANKS = (Placement(device="cpu"), Placement(device="cpu", ranks=2))
FORMS = "write cpu, 2xcpu, cuda or 2xcuda; several with commas between them"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Devices(Documented, DevicesReport):
    """Models on several devices, with the reason why each is not faster. Shows itself."""

    table_name = "devices.csv"

    @property
    def verdicts(self) -> tuple[WorkloadVerdict, ...]:
        """For each model: the fastest placement, and why the others are not."""
        return tuple(judge(each) for each in self.results)

    @property
    def failed(self) -> bool:
        """True when a placement has no figures."""
        return any(each.failure for result in self.results for each in result.placements)

    def document(self) -> Document:
        """The fastest first, then each model's placements and experiments."""
        return devices_document(self, self.verdicts)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a model and placement."""
        return devices_columns(self, self.verdicts)

    def exhibits(self) -> Mapping[str, Sequence[Exhibit]]:
        """Seconds an epoch and parts of a step, for each model."""
        return devices_exhibits(self.verdicts)

    def json(self) -> str:
        """With the verdicts, which follow from the segments."""
        return result_json(self, verdicts=self.verdicts)


def devices(
    model: str | Iterable[str] = "mlp",
    on: str | Iterable[str] | None = None,
    *,
    batch_size: int | None = None,
    image_size: int | None = None,
    samples: int | None = None,
    steps: int | None = None,
    rounds: int = ROUNDS,
    timeout_s: float = TIMEOUT_S,
    seed: int = 1,
    progress: Callable[[str, int, int], None] = unheard,
    command: str = "loaderprobe.devices(...)",
) -> Devices:
    """Train models on several placements, each in processes of its own, and find out why more devices are not faster.

    `model` names `mlp`, `lenet5`, `lstm` or `resnet152`, with the data of their article, or any model of images of
    `image_size` pixels a side; several in a list. `on` names placements: `cpu`, `2xcpu` (two processes that share the
    cores), `cuda`, `2xcuda`; without it, the CPU beside one GPU and all, or beside two processes on the CPU.
    `batch_size` is that of all processes together. `samples` are in an epoch, `steps` in each segment, of which each
    of `rounds` has one of every kind. A placement on which no process gets any further for `timeout_s` has failed.

    Raises BadValue for what cannot be trained so, MissingPart for a GPU that is not there. A placement that fails is
    part of the result.
    """
    _check(rounds, steps, timeout_s)
    cores = cores_available()
    placements = _placements(on, cores)
    models = listed(model, str)
    workloads = [_workload(each, placements, batch_size, image_size, samples) for each in models]
    for each in models:
        resolve("model", each)

    def work(workload: Workload, placement: Placement) -> DeviceWork:
        return DeviceWork(
            workload=workload, placement=placement, threads=max(1, int(cores) // placement.ranks), rounds=rounds,
            steps=steps, seed=seed, timeout_s=timeout_s,
        )  # fmt: skip

    origin = origin_now(command)
    results, interrupted = _measured([[work(each, on) for on in placements] for each in workloads], progress)
    return Devices(origin=origin, cores=cores, results=results, interrupted=interrupted)


def _measured(
    asked: Sequence[Sequence[DeviceWork]], progress: Callable[[str, int, int], None]
) -> tuple[tuple[WorkloadResult, ...], bool]:
    """(the results, whether Ctrl-C came before all were there). Raises KeyboardInterrupt when there are none."""
    works = [work for group in asked for work in group]
    with ExitStack() as stack:
        lead, start = _started(max(work.placement.ranks for work in works), stack)
        results, reason = follow(
            Fixed(asks=works), lambda ask: _placement(ask.what, lead, start, progress), clock=SystemClock(),
            enough=lambda results: bool(results.done),
        )  # fmt: skip
    left = iter(results.found)
    found = [(group[0].workload, tuple(islice(left, len(group)))) for group in asked]
    return tuple(WorkloadResult(workload=on, placements=done) for on, done in found if done), reason is None


def _started(ranks: int, stack: ExitStack) -> tuple[Lead | None, Start]:
    """(what has so many ranks of this machine, what starts a child of one)."""
    from loaderprobe.api.child import forkserver

    if ranks == 1:
        return None, stack.enter_context(forkserver()).start
    lead = stack.enter_context(on_this_machine(ranks, forkserver))
    return lead, lead.start


def _placement(
    work: DeviceWork, lead: Lead | None, start: Start, progress: Callable[[str, int, int], None]
) -> PlacementResult:
    """Raises BadValue or MissingPart for what is wrong on every placement."""
    workload, ranks = work.workload, work.placement.ranks
    text = f"{workload.model} on {shown_name(work.placement)}"
    kinds = 5 if ranks > 1 else 3
    compute = ComputeSpec(name=work.placement.device, batch_size=workload.batch_size // ranks, model=workload.model)
    order = replace(order_without_files(workload.model, compute, ranks), devices=work)

    def on_event(event: Event) -> None:
        progress(text, event.done, event.total or kinds * work.rounds)

    asked: dict[str, Any] = {"clock": SystemClock(), "time_limit_s": LIMIT_S, "on_event": on_event}
    if lead and ranks > 1:
        found = lead.run(order, DeviceMeasured, **asked)
    else:
        found = run_order(order, DeviceMeasured, start=start, **asked)
    if not isinstance(found, RunFailure):
        return found.result
    for kind in (BadValue, MissingPart):
        if found.exit_code == kind.exit_code:
            raise kind(found.reason, hint=found.hint)
    return PlacementResult(placement=work.placement, threads=work.threads, failure=found)


def _check(rounds: int, steps: int | None, timeout_s: float) -> None:
    if rounds < LEAST_ROUNDS:
        raise BadValue(f"{rounds} rounds have no useful spread", hint=f"use {LEAST_ROUNDS} or more")
    if steps is not None and steps < 1:
        raise BadValue("a segment needs a step", hint="use 1 step or more")
    if not 0 < timeout_s < math.inf:
        raise BadValue(f"a timeout of {timeout_s:g} s cannot be waited for", hint="use seconds above 0")


def parse_placement(text: str) -> Placement:
    """Of `cpu`, `2xcpu`, `cuda`, `2xcuda`. Raises BadValue."""
    if found := re.fullmatch(r"cuda:(\d+)", text):
        raise BadValue(f"'{text}' is torch's name of one GPU, number {found[1]}", hint=FORMS)
    match = re.fullmatch(r"(?:([1-9]\d{0,3})\s?x\s?)?(cpu|cuda)", text)
    if not match:
        raise BadValue(f"'{text}' is no placement", hint=FORMS)
    device: DeviceName = "cuda" if match[2] == "cuda" else "cpu"
    return Placement(device=device, ranks=int(match[1] or 1))


def _placements(on: str | Iterable[str] | None, cores: float) -> tuple[Placement, ...]:
    """What was asked for, or what is there. Raises MissingPart for more than there is."""
    if on is None:
        gpus = _gpus() if list_gpus()[0] else 0
        all_gpus = (Placement(device="cuda", ranks=gpus),) if gpus > 1 else ()
        return (TWO_RANKS[0], Placement(device="cuda"), *all_gpus) if gpus else TWO_RANKS
    placements = listed(on, parse_placement)
    for each in placements:
        if each.device == "cpu" and each.ranks > max(2, int(cores)):
            raise MissingPart(f"{each.name} needs {each.ranks} cores, and there are {cores:g}", hint="use fewer ranks")
    wanted = max((each.ranks for each in placements if each.device == "cuda"), default=0)
    if wanted and (gpus := _gpus()) < wanted:
        why = list_gpus()[1]
        raise MissingPart(
            f"{wanted} GPU{'s are' if wanted > 1 else ' is'} asked for, and torch finds {gpus or 'none'}"
            + (f" ({remark_words(why)})" if why else ""),
            hint="run `loaderprobe doctor`; or use --on cpu,2xcpu",
        )
    return placements


def _gpus() -> int:
    from loaderprobe.compute.trainer import gpu_count

    return gpu_count()


def _workload(
    model: str, placements: Sequence[Placement], batch_size: int | None, image_size: int | None, samples: int | None
) -> Workload:
    """What a model is trained on. Raises BadValue."""
    ranks = math.lcm(*(each.ranks for each in placements))
    # Without a size of its own, one that can be split over the ranks of every placement.
    batch = -(-BATCH_SIZES.get(model, BATCH_SIZE) // ranks) * ranks if batch_size is None else batch_size
    for each in placements:
        if batch < 1 or batch % each.ranks:
            raise BadValue(
                f"a batch of {batch} cannot be split over {each.ranks} ranks", hint=f"use a multiple of {ranks}"
            )
    if image_size is not None and model in ("mlp", "lstm"):
        raise BadValue(f"{model} is not trained on images of any size", hint="leave --image-size out")
    count = samples if samples is not None else SAMPLES.get(model, CIFAR)
    if count < batch:
        raise BadValue(f"an epoch of {count} samples has no batch of {batch}", hint="raise --samples")
    side = image_size or IMAGE_SIZE
    if model == "mlp":
        return Workload(model=model, data="mnist", shape=MNIST, batch_size=batch, samples=count)
    if model == "lstm":
        return Workload(model=model, data="sine", shape=SEQUENCE, batch_size=batch, samples=count)
    return Workload(model=model, data="images", shape=(3, side, side), batch_size=batch, samples=count)
