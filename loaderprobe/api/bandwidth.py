"""`bandwidth`: what the storage under a path delivers to readers of whole files, what limits it, what it feeds.

To this process, or to several processes or nodes that read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from loaderprobe.analyze.plan.sources import judge_bandwidth
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.values import PathLike, counts, data_path, no_progress, spreads_of
from loaderprobe.errors import BadValue
from loaderprobe.measure.ranks.launch import Coordinator, error_of, on_this_machine, order_of_own, spread
from loaderprobe.protocols import OnStage
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.config import RATES
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.options import BANDWIDTH, check
from loaderprobe.records.phases import BandwidthPhase
from loaderprobe.records.rank_processes import Node, ReadResult, ReadTogether
from loaderprobe.render.bandwidth import bandwidth_columns, bandwidth_document
from loaderprobe.render.format import counted
from loaderprobe.storage.by_ranks import RanksStep, climb
from loaderprobe.storage.files import Sample, encoded_pieces, locate_pieces, sample_files
from loaderprobe.storage.probe import ProbeRequest, place_of, probe_bandwidth, probe_objects
from loaderprobe.storage.reader import PIECES_A_READER
from loaderprobe.system.host import SystemClock
from loaderprobe.system.pagecache import LinuxPageCache, drop_all_caches
from loaderprobe.units import parse_bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bandwidth(Documented, BandwidthReport):
    """The report of a probe, its phases and what follows from them. Shows itself in terminals and notebooks."""

    table_name = "phases.csv"
    document = bandwidth_document
    columns = bandwidth_columns


def bandwidth(
    path: PathLike,
    *,
    readers: str | int | Iterable[int] = "auto",
    seconds: float = 3.0,
    scratch: str | int | None = None,
    ranks: str | int | Iterable[int] | None = None,
    drop_caches: bool = False,
    seed: int = 0,
    command: str = "loaderprobe.bandwidth()",
    progress: OnStage | None = None,
    coordinator: Coordinator | None = None,
) -> Bandwidth:
    """Read files under `path` at random, cold, at higher and higher concurrency. Writes nothing there.

    Of a URL (s3://, gs://, az://, https://) objects; credentials come from the environment, and are never kept.

    `readers` are the concurrencies; `auto` doubles them until that gains nothing. A phase takes `seconds`, up to five
    times that until its rate is known. `scratch`, such as `"1GB"`, writes a file of this size, reads that, and
    removes it. `drop_caches` empties all caches of the machine before each reading, where this user may: only then are
    opens/s and stats/s those of cold names and inodes. `ranks` are numbers of processes that read at once, each its own
    share with `readers` readers, 4 for `auto`; of this machine, or those that `coordinator` has from a launcher.
    `progress(stage, done, total)` hears what is being read. Ctrl-C ends it with what is there, `interrupted`.

    Raises BadValue for a path that cannot be probed and for values that cannot be; MissingPart for files that may
    not be read, and caches that may not be dropped; NoSpace for too large a scratch; LostRank when a process has gone,
    and for a rank that failed its error.
    """
    check(BANDWIDTH, locals())
    progress = progress or no_progress
    numbers = None if isinstance(readers, str) and readers == "auto" else counts(readers, "--readers")
    target, several = data_path(path), ranks is not None or coordinator is not None
    alone = {"--scratch": scratch is not None, "--drop-caches": drop_caches}
    refused = next((name for name, given in alone.items() if given), "--ranks" if several else "")
    if refused and isinstance(target, str):
        raise BadValue(f"{refused} is of a file system, not of a URL", hint=f"leave {refused} out")
    if several and refused != "--ranks":
        raise BadValue(f"{refused} is of one process only", hint=f"leave {refused} out, or --ranks")
    request = ProbeRequest(
        path=target if isinstance(target, Path) else Path(),
        readers=numbers,
        seconds=seconds,
        scratch_bytes=parse_bytes(str(scratch)) if scratch else None,
        seed=seed,
        drop_all=drop_all_caches if drop_caches else None,
        metadata=True,
    )
    if isinstance(target, str):
        measured = probe_objects(target, request, on_phase=progress, clock=SystemClock())
    elif not several:
        measured = probe_bandwidth(request, cache=LinuxPageCache(), on_phase=progress, clock=SystemClock())
    else:
        if numbers and len(numbers) > 1:
            raise BadValue("ranks have one number of readers each", hint="--ranks 1,2,4 --readers 4")
        spreads = None if ranks is None else spreads_of(ranks, coordinator.nodes if coordinator else None)
        ranks_here = on_this_machine(max(spreads or [(1, 1)])[0])
        with nullcontext(coordinator) if coordinator else ranks_here as processes:
            measured = read_by_ranks(processes, request, spreads, progress)
    return Bandwidth.of(judge_bandwidth(measured, RATES, origin_now(command)))


READERS = 4
"""Of each rank, unless asked for."""
LIMIT_S = 2400.0
"""Of one step. A quarter of it a rank may take longer than the others to evict its share, or to read."""


def ladder_of(
    spreads: Sequence[tuple[int, int]] | None, nodes: Sequence[Node], readers: int
) -> tuple[RanksStep, ...]:  # fmt: skip
    """The steps of these (ranks, nodes); without any, all processes of `nodes` and half as many down to one.

    Then as many readers as at its end in one rank.
    """
    if spreads is None:
        total = sum(len(node.processes) for node in nodes)
        halves = [2**power for power in range(total.bit_length()) if 2**power < total]
        spreads = [spread(str(count), nodes) for count in (*halves, total)]
    steps = [RanksStep(ranks=count, nodes=over, readers=readers) for count, over in sorted(set(spreads))]
    last, first = steps[-1], steps[0]
    if first.ranks == 1 and last.ranks > 1:
        steps.append(replace(first, readers=readers * last.ranks))
    return tuple(steps)


def read_by_ranks(
    coordinator: Coordinator, request: ProbeRequest, spreads: Sequence[tuple[int, int]] | None, on_phase: OnStage
) -> BandwidthMeasurement:
    """What the ranks get of each step, which has children of its own; `spreads` as of `ladder_of`."""
    nodes = coordinator.nodes
    steps = ladder_of(spreads, nodes, request.readers[0] if request.readers else READERS)
    sample = _sample(request, steps)
    location = locate_pieces(request.path, sample.pieces)
    pieces = encoded_pieces(sample.pieces)
    nothing = FileSet(
        label=str(request.path), root=str(request.path), generated=False, paths=(".",), classes=(0,), size_bytes=(0,),
        images_found=0,
    )  # fmt: skip

    def read(step: RanksStep) -> BandwidthPhase:
        a_node = step.ranks // step.nodes
        on = ((node.host, number) for number, node in enumerate(nodes[: step.nodes]) for _ in range(a_node))
        together = ReadTogether(
            pieces=pieces, location=location, places=tuple(on), readers=step.readers, seconds=request.seconds,
            seed=request.seed, block_bytes=sample.block_bytes,
        )  # fmt: skip
        order = order_of_own(nothing, step.ranks, step.nodes)
        outcome = coordinator.run(replace(order, read=together), time_limit_s=LIMIT_S, on_stage=no_progress)
        if isinstance(outcome, RunFailure) and outcome.exit_code == BadValue.exit_code:
            raise BadValue(outcome.reason, hint=outcome.hint)
        if isinstance(outcome, RunFailure):
            raise error_of(outcome)
        assert isinstance(outcome, ReadResult) and outcome.phase is not None, "rank 0 has one"
        return outcome.phase

    phases, interrupted = climb(steps, read, on_phase, clock=SystemClock())
    return BandwidthMeasurement(
        **place_of(str(request.path.absolute()), sample, location), scratch=False, drop_caches=False,
        interrupted=interrupted, phases=tuple(phases), notes=sample.notes,
    )  # fmt: skip


def _sample(request: ProbeRequest, steps: Sequence[RanksStep]) -> Sample:
    sample = sample_files(request.path, seed=request.seed)
    widest = max(steps, key=lambda step: step.ranks * step.readers)
    least = PIECES_A_READER * widest.ranks * widest.readers
    if len(sample.pieces) < least:
        available = counted(len(sample.pieces), "file" if sample.block_bytes is None else "block")
        ranks, readers = counted(widest.ranks, "rank"), counted(widest.readers, "reader")
        raise BadValue(
            f"{request.path} has {available} to read, too few for {ranks} of {readers}: {least:,} are needed",
            hint="give more files, or larger ones; or fewer ranks, or fewer --readers",
        )
    return sample
