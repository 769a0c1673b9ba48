"""The verdict on pipelines whose truth is known: a row a cause, and a row an edge of it; and what holds of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.advice import recommend
from loaderprobe.analyze.forecast import Surroundings
from loaderprobe.analyze.report import detail_of
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.judge import Judged, verdict
from loaderprobe.analyze.verdict.rates import batches_of, cores_in_training
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.errors import BadValue
from loaderprobe.records.measurement import (
    NO_STEP,
    Activity,
    ComputeInfo,
    FirstPass,
    Measurement,
    Mode,
    Others,
    Segment,
    Series,
    segments_of,
)
from loaderprobe.records.phases import NO_CEILING, BandwidthPhase, DeviceKind, StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Evidence
from loaderprobe.records.waits import WaitKind
from loaderprobe.store.run_directory import RunDirectory
from tests.analyze.runs import (
    BATCH,
    FILE_BYTES,
    FILES,
    STAMPS,
    STEPS,
    Cost,
    Round,
    alike,
    looked,
    rank_run,
    reordered,
    run,
    scaled,
    segment,
    stamped,
    with_read,
    with_records,
    with_steps,
    with_training,
)
from tests.analyze.scripted import Truth, measured
from tests.examples.bandwidth import example_phase
from tests.stored import RUNS


@dataclass(frozen=True)
class Row:
    """A measurement, and what must be said of it."""

    measurement: Measurement
    truth: str
    """Side, cause, code of the reason, and the candidates where there are several, the largest first."""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    """Of the reason."""
    speedups: Mapping[str, float] = field(default_factory=dict)
    how: Mapping[str, str] = field(default_factory=dict)
    """Of speed-ups: measured or estimated."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Speed-ups and other figures that there are not, with the code of their reason."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Of the verdict, by their place in it."""
    more: bool | None = None
    """Whether the next round would be measured, where it matters."""
    ceiling: StorageCeiling | None = None


RATE = 250.0
EVEN = Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.0002)
SLOW_DISK = Cost(cpu_s=0.002, blocked_s=0.006)
WAITING = Cost(cpu_s=0.002, blocked_s=0.02)
REMOTE = replace(WAITING, cold=0.0)
DECODING = Cost(cpu_s=0.02, blocked_s=0.0001, cold=0.0)
CORELESS = Cost(cpu_s=0.005, delay_s=0.003)
SERIAL = Cost(cpu_s=0.012, blocked_s=0.002)
AS_FOUND: dict[str, Any] = {"cache": "as-found", "facts": {"access": "none", "modes": ("baseline",)}}
UNCOUNTED: dict[str, Any] = {"facts": {"storage_counts_reads": False, "storage_kind": "fuse"}}
HIDDEN: dict[str, Any] = {
    "cache": "as-found",
    "facts": {"access": "none", "storage_counts_reads": False, "modes": ("baseline", "no_transport")},
}


def times(storage: float, preprocessing: float, transport: float = 1.0, training: float = RATE) -> Round:
    """A round in which the loader is so many times as fast without each resource."""
    faster = {"warm": storage, "cached_samples": preprocessing, "no_transport": transport}
    return {"baseline": RATE, "training": training, **{mode: RATE * factor for mode, factor in faster.items()}}


def pipeline(rounds: Round | Sequence[Round], cost: Cost = EVEN, /, **changes: Any) -> Measurement:
    return run([rounds] * 3 if isinstance(rounds, dict) else rounds, cost, **changes)  # type: ignore[arg-type]  # not a dict


def without_storage(*speedups: float) -> Measurement:
    """Rounds in which files from memory gain so much, and nothing else anything."""
    return run([times(each, 1.0) for each in speedups], SLOW_DISK)


def ahead(spread: float) -> Measurement:
    """A loader that is 1.11 times as fast as training, by so much more or less in each of three rounds."""
    rates = [150 * (1.11 + each) for each in (-spread, 0.0, spread)]
    return run([{"baseline": rate, "training": 150.0} for rate in rates], Cost(cpu_s=0.012), compute=150.0)


def in_turn(compute: float, **without: float) -> Measurement:
    """A serial loader at 100 images/s and a step that waits for the device, one after the other."""
    rates = {"baseline": 100.0, "training": 1 / (1 / 100 + 1 / compute), **without}
    return run([rates] * 3, Cost(cpu_s=0.005, blocked_s=0.005), workers=0, synchronous=True, compute=compute)


STORAGE, PREPROCESSING = "input storage largest_speedup", "input preprocessing largest_speedup"
TRANSPORT, COMPUTE = "input transport largest_speedup", "compute compute largest_speedup"
CPU, SLOW_RANK, SLOW_HOST = "input cpu all_cores_busy", "input imbalance slow_rank", "input imbalance slow_host"
OPEN, INPUT, EITHER = "inconclusive inconclusive", "input inconclusive", "input either"


def without_step(measurement: Measurement) -> Measurement:
    """The loader alone is judged."""
    return replace(measurement, compute=replace(measurement.compute, name=NO_STEP))


def in_parts(ceiling: float, blocked_s: float = 0.004) -> Mapping[str, Any]:
    """Two workers that read small parts of large files, from a storage that moves so many times as many bytes."""
    moves = ceiling * 100 * FILE_BYTES
    return {
        "measurement": run(
            alike(baseline=100, warm=125),
            Cost(cpu_s=0.016, blocked_s=blocked_s),
            workers=2,
            facts={"access": "parts", "modes": ("baseline", "warm")},
        ),
        "ceiling": StorageCeiling(data=FILES.fingerprint, phases=(example_phase(2, moves),)),
    }


ABLATIONS = {
    "storage, of four resources": Row(
        run(alike(baseline=250, warm=1000, cached_samples=300, no_transport=260), SLOW_DISK), STORAGE, more=False,
        speedups={"storage": 4, "preprocessing": 1.2, "transport": 1.04, "compute": 1},
        how=dict.fromkeys(("storage", "preprocessing", "transport", "compute"), "measured"),
        figures={"instrument_cpu_fraction": 0.02 / 32},
    ),
    "preprocessing": Row(pipeline(times(1.2, 3)), PREPROCESSING),
    "no step was given": Row(
        without_step(run([{"baseline": 250.0, "warm": 750.0, "cached_samples": 300.0}] * 3, EVEN)), STORAGE,
        facts={"judged": "loader", "how": "measured"}, speedups={"storage": 3, "preprocessing": 1.2}, more=False,
    ),
    "transport": Row(pipeline(times(1, 1, 3)), TRANSPORT),
    "compute": Row(
        pipeline(times(3, 1.2, training=80), compute=80), COMPUTE,
        speedups={"storage": 1, "compute": 3.125}, more=False,
    ),
    "nothing is worth it": Row(pipeline(times(1.04, 1.03), compute=260), "balanced balanced no_speedup"),
    "within 15 %": Row(pipeline(times(1.9, 2)), f"{EITHER} speedups_alike preprocessing storage", more=True),
    "within 15 % in six rounds": Row(
        pipeline([times(1.9, 2)] * 6), f"{EITHER} speedups_alike preprocessing storage", more=False,
    ),
    "beyond 15 %": Row(pipeline(times(1.9, 2.3)), PREPROCESSING),
    "a close race in one round": Row(
        pipeline([times(1.9, 1.6)], rounds=1), f"{EITHER} speedups_alike storage preprocessing", more=True,
        facts={"rounds": 1.0},
    ),
    **{
        f"{factor} beside an estimate of 1.3 in one round": Row(
            run([{"baseline": RATE, "training": RATE, "warm": factor * RATE}], SLOW_DISK, rounds=1), truth,
            speedups={"preprocessing": 1.31}, facts=facts, more=bool(facts),
        )
        for factor, truth, facts in (
            (2.1, f"{EITHER} speedups_alike storage preprocessing", {"rounds": 1.0}), (2.8, STORAGE, {}),
        )
    },
    "the same twice": Row(pipeline([times(1.9, 1.6)] * 2), STORAGE),
    "twice the other in one round": Row(pipeline([times(3.3, 1.6)], rounds=1), STORAGE, more=False),
    "a lead that comes and goes": Row(
        pipeline([times(storage, 2) for storage in (1.9, 3.3, 5.2)]),
        f"{EITHER} lead_within_spread storage preprocessing", facts={"lead": 1.6},
    ),
    "noise that both share": Row(pipeline([times(3 * factor, 2 * factor) for factor in (1, 1.2, 1.4)]), STORAGE),
    "as much noise as speed-up": Row(without_storage(0.85, 1.06, 1.3), f"{INPUT} within_noise", more=True),
    "a small one in one round": Row(without_storage(1.2), f"{INPUT} within_noise"),
    "two rounds far apart": Row(without_storage(1.0, 3.0), f"{INPUT} within_noise"),
    "a small one in three that agree": Row(without_storage(1.18, 1.2, 1.22), STORAGE),
    # Three of many that gain nothing agree so well by luck.
    "a very small one in three": Row(without_storage(1.06, 1.062, 1.064), f"{INPUT} within_noise", more=True),
    "in six": Row(without_storage(*(1.06, 1.062, 1.064) * 2), STORAGE, more=False),
    "a large one in one": Row(without_storage(3.0), STORAGE),
    # Seen on a token bucket: compute 1.11 (1.00 to 1.26) of three rounds, and a device that was no limit.
    "compute of which the interval holds 1": Row(ahead(0.08), f"{OPEN} within_noise"),
    "compute of which it does not": Row(ahead(0.01), COMPUTE),
    "workers wait for cores": Row(pipeline(times(1, 3), CORELESS), CPU),
    "more cores free no storage": Row(pipeline(times(3, 1), CORELESS), STORAGE),
    "all cores in use": Row(pipeline(times(1, 3), Cost(cpu_s=0.008), facts={"cores_available": 2.0}), CPU),
    "more workers than serial may help": Row(
        pipeline(times(1, 3), Cost(cpu_s=0.004), workers=0, facts={"cores_available": 0.5}), PREPROCESSING,
    ),
    "a serial loader has no transport": Row(
        run(alike(baseline=100), Cost(cpu_s=0.006, blocked_s=0.002), workers=0),
        f"{EITHER} limit_not_known preprocessing storage",
        speedups={"transport": 1, "storage": 10 / 8, "preprocessing": 10 / 4}, how={"transport": "measured"},
    ),
    # Batches of 100 MB: of 8 ms, 7 put samples together.
    "and collating is its preprocessing": Row(
        run(alike(baseline=100), Cost(cpu_s=0.009, collate_s=0.007), workers=0, **AS_FOUND), PREPROCESSING,
        speedups={"transport": 1, "preprocessing": 10},
    ),
    "warm files have no storage": Row(
        run(alike(warm=250, cached_samples=2000, no_transport=270), Cost(cpu_s=0.008, cold=0.0), cache="warm"),
        PREPROCESSING, speedups={"storage": 1, "preprocessing": 8},
    ),
    "receiving a batch is transport": Row(
        run(
            alike(baseline=5000, training=BATCH / 0.016, no_transport=5000), Cost(),
            receive_s={"baseline": 0.006, "no_transport": 0.001}, compute=BATCH / 0.010, synchronous=True,
        ),
        COMPUTE, speedups={"transport": 16 / 11},
    ),
    "compute that was measured in other rounds": Row(
        run(
            [*[{"baseline": 250.0, "training": 200.0, "resident": 200.0}] * 3,
             *[{"baseline": 250.0, "cached_samples": 900.0}] * 3],
            SLOW_DISK, {"cached_samples": Cost()},
        ),
        COMPUTE, speedups={"preprocessing": 1},
    ),
    "a busy device leaves nothing for the input": Row(
        run(alike(baseline=57, training=60), Cost(cpu_s=0.017, blocked_s=0.0175), compute=60),
        "balanced balanced no_speedup", speedups={"preprocessing": 1},
    ),
    "compute, where input would help, too": Row(
        run(
            alike(baseline=200, training=1 / (1 / 200 + 1 / 60)), Cost(cpu_s=0.004, blocked_s=0.001), workers=0,
            compute=60, synchronous=True,
        ),
        COMPUTE, facts={"input": "preprocessing", "input_how": "estimated", "input_speedup": 1.23},
    ),
    # The machine changed in between: what free compute gains, training gains from where it is.
    "compute, where compute alone was slower than training": Row(
        run(alike(1, baseline=3380, training=102), Cost(cpu_s=0.0005), compute=68.2), f"{OPEN} one_round_does_not_fit",
        speedups={"compute": 33.1},
    ),
    # Reading and decoding take 5 ms each, and the step 8: all of the input gains more than compute.
    "compute leads each part of the input, but not all of it": Row(
        in_turn(125, warm=200.0, cached_samples=200.0),
        "inconclusive either input_in_parts compute storage preprocessing",
        facts={"compute_speedup": 1.8, "input_speedup": 2.25, "storage_speedup": 1.38}, more=False,
    ),
    # A disk and cores that are at their limit together.
    "two parts limit the loader at once": Row(
        pipeline(times(1.02, 1.02), compute=4 * RATE), f"{INPUT} no_speedup", more=False,
    ),
    "in two rounds": Row(pipeline([times(1.02, 1.02)] * 2, compute=4 * RATE), f"{OPEN} no_speedup"),
    "compute would be faster, but not by half": Row(
        pipeline(times(1.02, 1.02), compute=1.49 * RATE), "balanced balanced no_speedup",
    ),
    "most of the input is in no part": Row(
        in_turn(1000, warm=101.0, cached_samples=101.0), f"{INPUT} input_in_parts", facts={"input_speedup": 11.0},
    ),
}  # fmt: skip
"""Resources that were removed in turn."""

BUSY = run(alike(baseline=200), Cost(cpu_s=0.006, blocked_s=0.004), workers=2)
ESTIMATES = {
    "a clear one": Row(
        run(alike(baseline=RATE), SLOW_DISK, **AS_FOUND), STORAGE, facts={"how": "estimated"},
        how={"storage": "estimated"}, more=False,
    ),
    "close ones": Row(
        run(alike(baseline=RATE), Cost(cpu_s=0.0036, blocked_s=0.0044), **AS_FOUND),
        f"{EITHER} speedups_alike storage preprocessing",
    ),
    "a small one": Row(
        run(alike(warm=RATE), Cost(cpu_s=0.008, cold=0.0), compute=275, **{**AS_FOUND, "cache": "warm"}),
        f"{OPEN} estimate_too_small",
    ),
    "of what can be measured": Row(
        run(alike(baseline=RATE), Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.001)),
        f"{EITHER} speedups_alike storage preprocessing",
        speedups={"storage": 2, "preprocessing": 8 / 5, "transport": 8 / 7}, how={"storage": "estimated"}, more=True,
    ),
    "no more than the cores can do": Row(
        run(alike(baseline=200), Cost(cpu_s=0.004, blocked_s=0.006), facts={"cores_available": 1.0}, workers=2),
        f"{EITHER} speedups_alike preprocessing storage", speedups={"storage": 1.25},
    ),
    "no more than the disk can give": Row(
        BUSY, f"{INPUT} estimate_not_measured", speedups={"preprocessing": 1},
        ceiling=StorageCeiling(data=FILES.fingerprint, phases=(example_phase(2, 200.0 * FILE_BYTES),)),
    ),
    "without a ceiling both": Row(BUSY, f"{EITHER} limit_not_known preprocessing storage"),
    "parts of files from a storage with more to give": Row(
        **in_parts(4.0), truth=PREPROCESSING, speedups={"storage": 1.25, "preprocessing": 4},
    ),
    "one that may be at its limit": Row(**in_parts(1.3), truth=f"{EITHER} speedups_alike preprocessing storage"),
    "workers of which one waits at all times": Row(
        **in_parts(4.0, blocked_s=0.009), truth=f"{EITHER} limit_not_known preprocessing storage",
    ),
    # Seen of a script that evaluates and logs between its batches: one batch over and over gave 1.57, 2.7 were said.
    "no more than the resident batch gains": Row(
        run([{"baseline": 167.0, "training": 100.0, "resident": 157.0}] * 3, SERIAL, workers=0, synchronous=True),
        f"{OPEN} outside_noise_band", speedups={"preprocessing": 1.57}, how={"preprocessing": "estimated"},
    ),
    "transport, which can be measured": Row(
        run(alike(baseline=2 / 0.0061), Cost(cpu_s=0.006, blocked_s=0.0001, collate_s=0.0055)),
        f"{INPUT} estimate_not_measured", more=True,
    ),
}  # fmt: skip
"""Resources that were not removed."""


def partly(access: str, share: float, rates: Any = None, cost: Cost = WAITING) -> Measurement:
    """Files of samples of 100 kB, `share` of which came from storage."""
    facts = {"access": access, "modes": ("baseline", "warm"), "sample_bytes": FILE_BYTES}
    cache = "as-found" if access == "none" else "cold"
    return run(rates or alike(baseline=90), replace(cost, cold=share), cache=cache, facts=facts)


LAP = FirstPass(
    images=100, wall_s=2.2, cpu_s=0.2, read_bytes=10_000_000, called_bytes=10_000_000, again_wall_s=2.2,
    again_cpu_s=0.2, again_read_bytes=0,
)  # fmt: skip


def after_first(**changes: Any) -> Measurement:
    """Workers that decode files which nothing can make cold again, after such a first pass."""
    facts = {**AS_FOUND["facts"], "first_pass": replace(LAP, **changes)}
    return run(alike(baseline=95), DECODING, cache="as-found", facts=facts)


def read_ahead(first_mb: int) -> Measurement:
    """Shards of which the first pass read 200 kB an image, and these batches 40 kB, behind six that read so much."""
    facts = {**AS_FOUND["facts"], "access": "parts", "first_pass": replace(LAP, images=160, read_bytes=32_000_000)}
    whole = run(alike(1, baseline=90), REMOTE, workers=2, facts=facts)
    records, (training, loader) = whole.worker_batches, whole.segments
    read = (first_mb * 1_000_000 // 6,) * 6 + (40_000 * BATCH,) * (len(records.batch) - 6)
    timed = replace(training, first_batch=6, **{name: getattr(training, name)[6:] for name in STAMPS})
    return replace(whole, segments=(timed, loader), worker_batches=replace(records, read_bytes=read))


def shorter(access: str, image_bytes: int) -> Measurement:
    """Segments of six batches that read so much, after a first pass over three times as many of 100 kB an image."""
    facts = {**AS_FOUND["facts"], "access": access, "first_pass": replace(LAP, images=320, read_bytes=32_000_000)}
    whole = run(alike(1, baseline=90), REMOTE, workers=2, facts=facts)
    cut = tuple(
        replace(
            each, first_batch=6 * number, closed_ns=each.begin_ns[6],
            **{name: getattr(each, name)[:6] for name in (*STAMPS, "finished_ns")},
        )
        for number, each in enumerate(whole.segments)
    )  # fmt: skip
    records = whole.worker_batches
    read = (image_bytes * BATCH,) * 12 + (0,) * (len(records.batch) - 12)
    return replace(whole, segments=cut, worker_batches=replace(records, read_bytes=read))


PIECE_BYTES_PER_S = 20e6


def in_pieces(
    every: int, *, access: str = "parts", stream: bool = True, by_thread: float = 0.0, waiting: bool = True,
    untimed: int = 4, steps: int = 12, cpu_s: float = 0.0028, sample_bytes: float | None = None,
) -> Measurement:  # fmt: skip
    """Two workers that decode, and read what `every` batches hold in one piece, at 20 MB/s.

    Of 16 batches of the round some are timed; before it the loader has made 48. A thread may read a share of
    the bytes evenly, ahead of all batches; without `waiting`, all of them are read before they are needed.
    """
    facts = {"access": access, "stream": stream, "modes": ("baseline",), "sample_bytes": sample_bytes}
    cost, cache = Cost(cpu_s=cpu_s, cold=0.0), "as-found" if access == "none" else "cold"
    plain = run([{"baseline": 700.0}] * 4, cost, workers=2, facts=facts, cache=cache)
    records = plain.worker_batches
    pieces = {number for number in records.batch if number % every < 2}
    piece, even = round((1 - by_thread) * every / 2 * BATCH * FILE_BYTES), round(by_thread * BATCH * FILE_BYTES)
    read = tuple(even + piece * (number in pieces) for number in records.batch)
    wait_ns = round(2 * piece / PIECE_BYTES_PER_S * 1e9) if waiting else 0
    wall_ns = tuple(wall + wait_ns * (n in pieces) for n, wall in zip(records.batch, records.wall_ns, strict=True))
    first = STEPS * 3 + untimed
    rate = 2e9 * BATCH * steps / sum(wall_ns[first : first + steps])
    timed = segment("baseline", "loader_only", 0, first, rate, steps=steps, thread_cpu_ns=0, delivered_bytes=None)
    records = replace(records, read_bytes=read, wall_ns=wall_ns)
    return without_step(replace(plain, segments=(timed,), worker_batches=records))


def below_ceiling(mb_per_s: float, wasted: float = 0.02) -> Mapping[str, Any]:
    """90 images of 100 kB a second from a storage that delivers so much, and reads ahead so much more for nothing."""
    storage_bytes = round(3 * mb_per_s * 1e6 * (1 + wasted))
    phase = replace(example_phase(2, mb_per_s * 1e6), cache="cold", storage_bytes=storage_bytes)
    return {
        "measurement": run(alike(baseline=90, warm=600), WAITING, workers=2),
        "ceiling": StorageCeiling(data="0" * 16, phases=(phase,)),
    }


def again_with(cpu_s: float, cold: float = 0.0) -> Measurement:
    """Mapped files of 100 kB a sample, whose cold samples take 0.7 ms of CPU time, and warm ones so much."""
    costs = {"warm": Cost(cpu_s=cpu_s, cold=cold)}
    return run(
        alike(baseline=90, warm=600), Cost(cpu_s=0.0007, blocked_s=0.02), costs,
        facts={"access": "parts", "modes": ("baseline", "warm")},
    )  # fmt: skip


def uncounted(warm_ms: float, **rates: Any) -> Measurement:
    """Without counted bytes: 6 ms of waiting an image, and so much with warm files."""
    costs = {"warm": Cost(cpu_s=0.002, blocked_s=warm_ms / 1e3), "cached_samples": Cost(cpu_s=0, blocked_s=0.0001)}
    return run(alike(baseline=250, warm=1000, **rates), SLOW_DISK, costs, **UNCOUNTED)


def small_files(resident: float) -> Measurement:
    """Files of 1.5 kB, of which storage gives a page of 4 KiB each, but for such a share that memory held before."""
    rates = {"warm": 500, "cached_samples": 260}
    found = run(alike(baseline=250, **rates), Cost(blocked_s=0.004, cold=(1 - resident) * 4096 / 1500))
    before = {"warm": 1.0}
    return replace(
        found, segments=tuple(replace(each, resident_before=before.get(each.mode, resident)) for each in found.segments)
    )


FOUND = {"none": STORAGE, **dict.fromkeys(("parts", "fresh"), f"{INPUT} estimate_not_measured")}
"""Where warm files could be measured, an estimate alone is no verdict."""
INPUT_PIECES = f"{INPUT} files_were_warm"
COLD = {
    "small files": Row(
        small_files(0.1), STORAGE, figures={"files_were": "cold", "cold_fraction": 1.0, "read_amplification": 2.4576},
    ),
    **{
        f"small files, {resident} of them from memory": Row(
            small_files(resident), f"{INPUT} files_were_warm",
            missing={"storage": why, "read_amplification": "files_came_from_memory"},
            figures={"files_were": "partly warm", "cold_fraction": 1 - resident},
        )
        for resident, why in ((0.6, "pages_resident"), (0.7, "pages_resident"), (0.8, "bytes_from_storage"))
    },
    **{
        f"{resource} was removed with files half of which were in the wrong state": Row(
            run([times(3, 1.2, 1.1)] * 3, EVEN, {mode: replace(EVEN, cold=0.5)}), f"{INPUT} ablation_missing",
            missing={resource: "bytes_from_storage"},
        )
        for mode, resource in (
            ("warm", "storage"), ("cached_samples", "preprocessing"), ("no_transport", "transport"),
        )
    },
    "half of the bytes": Row(pipeline(times(3, 1.2), replace(EVEN, cold=0.5)), f"{INPUT} files_were_warm", more=False),
    **{
        f"{access}, {share} of the bytes": Row(
            partly(access, share), truth, figures={"files_were": were, "read_amplification": most},
        )
        for access in ("parts", "fresh", "none")
        for share, were, most, truth in (
            (12.0, "cold", 12.0, FOUND[access]),
            (0.81, "cold", 0.81, FOUND[access]),
            (0.5, "partly warm", None, f"{INPUT} files_were_warm"),
            (0.01, "warm", None, f"{INPUT} files_were_warm"),
        )
    },
    **{
        f"{access}, computing": Row(
            partly(access, 0.5, cost=Cost(cpu_s=0.02)), f"{INPUT} files_were_warm", facts={"share": 0.5},
        )
        for access in ("parts", "fresh", "none")
    },
    "warm files beside cold ones": Row(partly("parts", 1.2, alike(baseline=90, warm=600)), STORAGE),
    "page faults of cold files are no work that warm ones lack": Row(again_with(0.0004), STORAGE),
    "warm files with a few bytes from storage": Row(again_with(0.0007, cold=0.07), STORAGE),
    "with more": Row(
        again_with(0.0007, cold=0.12), f"{INPUT} ablation_missing", missing={"storage": "bytes_from_storage"},
    ),
    # Storage gave more than was delivered, which is no more than all of it.
    "with whole pages": Row(again_with(0.0007, cold=2.7), f"{INPUT} ablation_missing", facts={"share": 1.0}),
    "samples that were kept": Row(
        again_with(0.0001), f"{INPUT} ablation_missing", missing={"storage": "kept_samples_show_nothing"},
    ),
    "samples that were kept, by workers that were seen to wait": Row(
        looked(again_with(0.0001), "storage"), STORAGE, how={"storage": "estimated"},
    ),
    "above what storage gives": Row(
        truth=f"{INPUT} above_ceiling", facts={"samples_bytes_per_s": 9e6, "ceiling_bytes_per_s": 7.14e6},
        **below_ceiling(7),
    ),
    "as much as storage gives": Row(truth=STORAGE, **below_ceiling(8.5)),
    "more than random blocks get, where read-ahead is wasted": Row(truth=STORAGE, **below_ceiling(7, wasted=0.2)),
    "read, but never from storage": Row(
        after_first(read_bytes=0), f"{INPUT} files_were_warm", missing={"storage": "always_warm"},
        figures={"files_were": "warm"},
    ),
    "from storage the first time": Row(
        after_first(), f"{INPUT} files_were_warm", missing={"storage": "warm_after_first_pass"},
    ),
    "mapped, and from storage the first time": Row(
        after_first(called_bytes=0), f"{INPUT} files_were_warm", missing={"storage": "warm_after_first_pass"},
        figures={"files_were": "warm"},
    ),
    "no file is read": Row(after_first(read_bytes=0, called_bytes=0), PREPROCESSING, figures={"files_were": None}),
    # The kernel reads ahead at first: 40 kB an image are few for a first pass of 200, but not behind what it read.
    "read ahead before the timed batches": Row(read_ahead(64), STORAGE, figures={"files_were": "cold"}),
    "little read before them": Row(
        read_ahead(16), f"{INPUT} files_were_warm", facts={"share": 0.39}, missing={"storage": "read_less_again"},
        figures={"files_were": "partly warm"},
    ),
    **{
        f"{access}, segments that are shorter than the first pass": Row(shorter(access, 100_000), STORAGE)
        for access in ("parts", "fresh")
    },
    "shorter ones that read a fifth": Row(
        shorter("parts", 20_000), f"{INPUT} files_were_warm", facts={"share": 0.2},
        missing={"storage": "read_less_again"},
    ),
    # Read before the timed batches: row groups of a table, chunks that a thread brings, a shard that holds all of them.
    "row groups": Row(
        in_pieces(16), INPUT_PIECES, facts={"read_bytes": 0.0, "owed_bytes": 100e3 * 48 / 62},
        missing={"storage": "read_before"}, figures={"files_were": "partly warm"},
    ),
    "chunks that a thread reads, most of them ahead": Row(in_pieces(16, by_thread=0.4), INPUT_PIECES),
    "one shard, and nothing is known of its file": Row(
        in_pieces(1000, access="none"), INPUT_PIECES, facts={"share": 0.0}, missing={"storage": "bytes_from_storage"},
        figures={"files_were": "partly warm"},
    ),
    "a row group that is read in a few timed batches": Row(
        in_pieces(16, untimed=0, steps=4, cpu_s=0.025), f"{INPUT} ablation_missing",
        facts={"read_bytes": 400e3, "owed_bytes": 100e3 * 48 / 62}, missing={"storage": "read_for_later"},
    ),
    # The timed batches hold their share of pieces, or nothing is waited for.
    "a whole row group": Row(in_pieces(16, untimed=0, steps=16), STORAGE, figures={"files_were": "cold"}),
    "row groups of a few samples": Row(in_pieces(4), STORAGE),
    "chunks that a thread reads as they are needed": Row(in_pieces(16, by_thread=1.0), PREPROCESSING),
    "beside pieces of something else, all bytes of the timed samples": Row(
        in_pieces(16, by_thread=0.4, sample_bytes=40e3), PREPROCESSING, speedups={"storage": 1.0},
        figures={"files_were": "cold"},
    ),
    "row groups that are there in time": Row(in_pieces(16, waiting=False), PREPROCESSING),
    "all samples are read at first, and kept": Row(in_pieces(1000, access="none", stream=False), PREPROCESSING),
    "a data set that sleeps": Row(
        run(alike(baseline=180), Cost(cpu_s=0.001, blocked_s=0.01, cold=0.0), **HIDDEN),
        f"{INPUT} ablation_missing", missing={"storage": "wait_unexplained"},
    ),
    "hidden files that are read": Row(
        run(alike(baseline=180), Cost(cpu_s=0.001, blocked_s=0.01), **HIDDEN), STORAGE, how={"storage": "estimated"},
    ),
    "waits that tell cold from warm": Row(uncounted(0.05), STORAGE),
    "waits that do not": Row(uncounted(3.0), f"{INPUT} ablation_missing"),
    "files that memory never holds": Row(
        looked(uncounted(6.0), "storage", "metadata"), STORAGE, how={"storage": "estimated"},
    ),
    "cached samples must wait, too": Row(
        uncounted(0.1, cached_samples=9000), f"{INPUT} ablation_missing", missing={"preprocessing": "waits_alike"},
    ),
    "no warm files beside them": Row(
        run(alike(baseline=RATE), SLOW_DISK, **UNCOUNTED), f"{INPUT} ablation_missing",
        missing={"storage": "no_warm_segment"}, more=True,
    ),
    "warm files are not waited for": Row(
        run(alike(warm=RATE), Cost(cpu_s=0.008, blocked_s=0.0001), cache="warm", **UNCOUNTED),
        f"{INPUT} estimate_not_measured", speedups={"storage": 1},
    ),
    "warm files that are waited for": Row(
        run(alike(warm=RATE), Cost(cpu_s=0.008, blocked_s=0.001), cache="warm", **UNCOUNTED),
        f"{INPUT} ablation_missing", missing={"storage": "warm_files_waited_for"},
    ),
    "warm cached samples that were read": Row(
        run(alike(warm=RATE, cached_samples=2000), Cost(cpu_s=0.008, cold=0.0),
            {"cached_samples": Cost(cpu_s=0.008, cold=0.5)}, cache="warm"),
        f"{INPUT} ablation_missing", missing={"preprocessing": "bytes_from_storage"},
    ),
}  # fmt: skip
"""Cold is proved by bytes, or by waiting where no bytes are counted; no cold rate exceeds its storage."""


def looks(*kinds: Any, subject: str = "", cost: Cost = REMOTE) -> Measurement:
    """Data of unknown files whose workers were seen to wait so."""
    return looked(run(alike(baseline=90), cost, **AS_FOUND), *kinds, subject=subject)


def few_looks(count: int) -> Measurement:
    """So many of the looks at the workers of the loader alone."""
    seen = looks("network")
    assert seen.waits is not None
    kept = {name: getattr(seen.waits, name)[STEPS:][:count] for name in ("time_ns", "worker", "kind", "subject")}
    return replace(seen, waits=replace(seen.waits, **kept))


def pooled(subject: str = "", times: int = 8, **facts: Any) -> Measurement:
    """A pool of threads in each worker, or a command, computes while the thread of the data set waits: all use so many
    times the CPU time of that, or of a command not yet known how many."""
    plain = run(alike(baseline=90), REMOTE, cache="as-found", facts={**AS_FOUND["facts"], **facts})
    records = plain.worker_batches
    return looked(
        replace(plain, worker_batches=replace(records, process_cpu_ns=tuple(times * cpu for cpu in records.cpu_ns))),
        "running", subject=subject,
    )  # fmt: skip


def warm_was_cold(cost: Cost) -> Measurement:
    """Storage cannot be judged, and preprocessing is worth ten times."""
    rounds = [{**each, "warm": 95.0, "cached_samples": 900.0} for each in alike(baseline=93)]
    return run(rounds, cost, {"warm": replace(cost, cold=0.5)})


def short_of_time(blocked_s: float) -> Measurement:
    """One round without warm files, of workers that wait so long for storage."""
    slow = Cost(cpu_s=0.002, blocked_s=blocked_s, cold=20.0)
    facts = {"access": "parts", "modes": ("baseline", "warm"), "sample_bytes": 100_000.0}
    seen = run(alike(1, baseline=1 / (slow.cpu_s + slow.blocked_s)), slow, workers=1, facts=facts)
    return looked(seen, "storage", "storage", "storage")


WAITS = {
    "nothing was looked at": Row(
        run(alike(baseline=90), REMOTE, **AS_FOUND), f"{INPUT} ablation_missing", facts={"resource": "storage"},
    ),
    **{
        kind: Row(
            looks(kind, subject="10.0.0.5:443"), f"input {cause} largest_speedup",
            facts={"subject": "10.0.0.5:443", "waiting_share": 10 / 11}, speedups={cause: 11},
            how={cause: "estimated"},
        )
        for kind, cause in (("network", "network"), ("lock", "lock"), ("sleep", "wait"), ("pipe", "wait"))
    },
    "the least of waiting over the most of an estimate": Row(
        looks("network", cost=Cost(cpu_s=0.0078, blocked_s=0.0125, cold=0.0)), "input network largest_speedup",
        speedups={"network": 20.3 / 7.8, "preprocessing": 16 / 9}, how={"network": "estimated"},
    ),
    "a lock, and sleep that may hold it": Row(
        looks("lock", "lock", "lock", "sleep", "running"), f"{EITHER} ranges_meet lock wait",
    ),
    "a lock, without which samples that are kept do, too": Row(
        looked(run(alike(baseline=90, cached_samples=900), REMOTE, **AS_FOUND), "lock", "running"),
        "input lock largest_speedup", how={"preprocessing": "estimated"},
    ),
    "a lock alone": Row(looks("lock", "running"), "input lock largest_speedup"),
    "threads that compute": Row(pooled(), PREPROCESSING, speedups={"preprocessing": 1000}),
    # What read calls return comes from them, not from files.
    **{
        f"commands that {what}": Row(
            pooled("a child process", times, first_pass=replace(LAP, read_bytes=0)), PREPROCESSING,
            speedups={"preprocessing": 1000}, figures={"rates_images_per_s.cpu_limit": pytest.approx(64 / cpu_s)},
        )
        for what, times, cpu_s in (("compute and end", 8, 0.016), ("compute and stay", 1, 0.022))
    },
    # Without decoding they would ask more of the network, and how much it has is not known.
    "a network that is ahead of the workers": Row(
        looks("running", cost=Cost(cpu_s=0.02, blocked_s=0.0, cold=0.0)), PREPROCESSING,
        facts={"limit": "unknown"}, speedups={"network": 1, "preprocessing": 1000},
    ),
    # Between two batches a worker is idle: that it then waits on a pipe says nothing.
    "looks while no batch is made": Row(
        looked(run(alike(baseline=90), REMOTE, **AS_FOUND), "network", "running", outside=20),
        "input network largest_speedup", speedups={"network": 11, "wait": 1},
    ),
    "looks that are few": Row(few_looks(11), f"{INPUT} ablation_missing", missing={"lock": "too_few_wait_samples"}),
    "looks that are enough": Row(few_looks(12), "input network largest_speedup"),
    # The server may have no more to give: its range begins at today's rate.
    "what gives a network more to do": Row(
        looks("network", subject="10.0.0.5:443"), "input network largest_speedup",
        figures={
            "advice.0.action.code": "requests_in_flight", "advice.0.speedup": 4.0, "advice.0.after.low": 90.0,
            "advice.0.action.facts": {"workers": 8, "subject": "10.0.0.5:443"},
        },
    ),
    "what is missing is worth little": Row(warm_was_cold(Cost(cpu_s=0.02, blocked_s=0.0015)), PREPROCESSING),
    "what is missing may be worth much": Row(warm_was_cold(WAITING), f"{INPUT} ablation_missing"),
    "waiting nearly all the time": Row(short_of_time(0.4), STORAGE, how={"storage": "estimated"}),
    "waiting twice as long as decoding": Row(
        short_of_time(0.004), f"{INPUT} estimate_not_measured", how={"storage": "estimated"},
    ),
}  # fmt: skip
"""What workers were seen to wait for."""


def ablated(count: int = 3, **rates: float) -> Measurement:
    """A serial loader that decodes; rates are changed by mode."""
    return run(alike(count, **{"baseline": 100.0, "warm": 100.0, "cached_samples": 250.0, **rates}), SERIAL, workers=0)


def others(share: float = 0.0, *, cores: int = 2, **changes: Any) -> Others:
    """In a second they take such a share of the cores, and own processes one of them."""
    fields = {"span_ns": 10**9, "cpu_ns": round(share * cores * 1e9), "own_cpu_ns": 10**9, "steal_ns": 0, **changes}
    return Others(cores=cores, **fields)


def beside(measurement: Measurement, used: Mapping[tuple[int, Mode, Activity], float]) -> Measurement:
    """Others use so many of two cores during these segments, and nothing during the rest."""
    segments = (
        replace(each, others=others(used.get((each.round, each.mode, each.activity), 0.0) / 2))
        for each in measurement.segments
    )
    return replace(measurement, cores_available=2.0, segments=tuple(segments))


def cached(times_as_fast: float, count: int = 3) -> list[Round]:
    return alike(count, baseline=RATE, warm=RATE, cached_samples=RATE * times_as_fast)


Used = dict[tuple[int, Mode, Activity], float]
ALL_BESIDE: Used = {(n, "cached_samples", "loader_only"): 1.0 for n in range(3)}
LOADERS: tuple[tuple[Mode, Activity], ...] = (
    ("baseline", "loader_only"), ("warm", "loader_only"), ("cached_samples", "loader_only"), ("baseline", "training"),
)  # fmt: skip
EVERYWHERE: Used = {(n, mode, activity): 1.0 for n in range(3) for mode, activity in LOADERS}
BUT_ONE: Used = {each: used for each, used in EVERYWHERE.items() if each[0]}
CORES_TAKEN = run(cached(4.0), replace(EVEN, delay_s=0.004))


def neighbour(*quiet: bool) -> Measurement:
    """One worker, which in rounds that are not quiet waits for a core as long as it works."""
    taken = [number for number, alone in enumerate(quiet) if not alone]
    rounds = [{**dict.fromkeys(("baseline", "training", "warm"), rate), "cached_samples": 3 * rate}
              for rate in (250.0 if alone else 125.0 for alone in quiet)]  # fmt: skip
    made = run(rounds, Cost(cpu_s=0.004, delay_s=0.004), workers=1)
    records = made.worker_batches
    spans = [range(each.first_batch, each.first_batch + each.steps) for each in made.segments if quiet[each.round]]
    alone = {number for span in spans for number in span}
    delay = tuple(0 if n in alone else ns for n, ns in zip(records.batch, records.run_delay_ns, strict=True))
    wall = tuple(w - d + n for w, d, n in zip(records.wall_ns, records.run_delay_ns, delay, strict=True))
    made = replace(made, worker_batches=replace(records, run_delay_ns=delay, wall_ns=wall))
    return beside(made, {(number, mode, activity): 1.0 for number in taken for mode, activity in LOADERS})


def uneven(cached_samples: float) -> Measurement:
    """A serial loader at 35, 71 and 115 images/s."""
    rates = (35.0, 71.0, 115.0)
    return run(
        [{"baseline": r, "training": r, "warm": r, "cached_samples": cached_samples * r} for r in rates], SERIAL,
        workers=0,
    )  # fmt: skip


DISTURBED = {
    # Seen: 64 samples/s as asked, 39 with files in memory, 161 with cached samples.
    "warm files are slower": Row(
        ablated(warm=61.0, cached_samples=252.0), f"{INPUT} slower_without",
        facts={"resource": "storage", "rate_share": 0.61}, more=True,
    ),
    "and twice the rounds show it": Row(ablated(6, warm=61.0), f"{INPUT} slower_without", more=False),
    "a lead that it cannot make": Row(ablated(warm=61.0, cached_samples=500.0), PREPROCESSING),
    "slower within the noise band": Row(ablated(warm=93.0, cached_samples=252.0), PREPROCESSING),
    "cached samples are slower": Row(
        ablated(warm=160.0, cached_samples=70.0), f"{INPUT} slower_without", facts={"resource": "preprocessing"},
    ),
    "good rounds after bad ones": Row(
        run([*alike(2, baseline=100.0, warm=61.0, cached_samples=250.0),
             *alike(4, baseline=100.0, warm=100.0, cached_samples=250.0)], SERIAL, workers=0),
        PREPROCESSING,
    ),
    # Seen: a serial loader at 71/s, 0 to 160, was firmly preprocessing at 2.52 times.
    "an interval as wide as its value": Row(uneven(2.52), f"{INPUT} interval_too_wide", more=True),
    "a lead beyond it": Row(uneven(20.0), PREPROCESSING),
    "others, beside one segment of two rounds": Row(
        beside(run([*cached(0.6, 2), *cached(1.8)], EVEN), {(n, "cached_samples", "loader_only"): 1.0 for n in (0, 1)}),
        PREPROCESSING, speedups={"preprocessing": 1.8},
    ),
    "others in each round": Row(beside(run(cached(1.8), EVEN), ALL_BESIDE), f"{INPUT} rounds_disturbed", more=True),
    "others, and a far lead": Row(beside(run(cached(4.0), EVEN), ALL_BESIDE), PREPROCESSING, more=False),
    # What others hold the cores for says nothing of the loader: seen of a token bucket of 20 MB/s.
    "others beside all segments": Row(
        beside(run(cached(1.0), EVEN), EVERYWHERE), f"{INPUT} rounds_disturbed", more=True,
    ),
    "but for one round": Row(beside(run(cached(1.0), EVEN, compute=260), BUT_ONE), "balanced balanced no_speedup"),
    "workers wait for cores, and others use them": Row(
        beside(CORES_TAKEN, EVERYWHERE), f"{INPUT} rounds_disturbed", more=True,
    ),
    "but for one of these rounds": Row(beside(CORES_TAKEN, BUT_ONE), CPU),
    # Pinned to one of the cores, say: nothing uses the other one.
    "workers that wait for a core while others stay idle": Row(
        beside(run(cached(4.0), replace(EVEN, delay_s=0.02)), {}), "input preprocessing kept_from_cores",
        facts={"idle_cores": 1.0},
    ),
    "others use a core, until three rounds are quiet": Row(
        neighbour(False, False, True, True, True), PREPROCESSING, figures={"rates_images_per_s.loader": 250.0},
    ),
    "until one is": Row(neighbour(False, False, False, True), PREPROCESSING),
    "and in all rounds": Row(neighbour(False, False, False), f"{INPUT} rounds_disturbed"),
    # Seen: decoding into a module's global, 15 times (12 to 19), beside others that took half of two cores.
    "others use them, and a lead that no neighbour makes": Row(
        beside(run(cached(8.0), replace(EVEN, delay_s=0.004)), EVERYWHERE), PREPROCESSING, more=False,
    ),
    # A fourth round, in which training as asked was disturbed, and one in which it was without storage.
    "others beside two segments of four rounds": Row(
        beside(
            run(alike(4, baseline=RATE, training_warm=350.0, training_cached_samples=RATE), EVEN),
            {(3, "baseline", "training"): 1.0, (2, "warm", "training"): 1.0},
        ),
        STORAGE, speedups={"storage": 1.4}, more=False,
    ),
    "a slow first round": Row(
        run([{"baseline": 40.0, "training": 83.0}, *alike(2, baseline=100.0)], EVEN),
        f"{EITHER} speedups_alike storage preprocessing", figures={"images_per_s.value": 100.0}, more=True,
    ),
}  # fmt: skip
"""Rounds that contradict themselves, or that others disturbed, name no cause."""


def misfit(training: float, larger: float = 1.0, warm: float = 120.0, rounds: int = 3) -> Measurement:
    """The loader alone at 68 images/s; training's files are smaller than those it read then by `larger`."""
    found = run(alike(rounds, baseline=68, warm=warm, training=training), Cost(cpu_s=0.004, blocked_s=0.025))
    return with_training(found, lambda one: replace(one, delivered_bytes=round((one.delivered_bytes or 0) / larger)))


def unsteady(rounds: int, jitter: float, *, warm: bool = True) -> Measurement:
    """Every second pair of training's steps begins late; the last one ends when it did."""

    def late(one: Any) -> Any:
        step_ns = one.begin_ns[1] - one.begin_ns[0]
        by = [round(step_ns * jitter * (index // 2 % 2)) for index in range(one.steps)]
        begin = (0, *(at + late for at, late in zip(one.begin_ns[1:], by[1:], strict=True)))
        return replace(one, **stamped(begin), finished_ns=(*begin[:-1], one.finished_ns[-1]))

    made = misfit(80.0, rounds=rounds)
    kept = tuple(each for each in made.segments if warm or each.mode != "warm")
    return with_training(replace(made, segments=kept), late)


def of_parts(smaller: float) -> Measurement:
    """Seen: a database read with 199 kB an image from storage alone, and with less in training."""
    rounds = alike(2, baseline=71.0, training=93.0, warm=128.0)
    found = run(rounds, Cost(cpu_s=0.004, blocked_s=0.025), facts={"access": "parts"})
    sizes = tuple(replace(each, delivered_bytes=None, distinct_bytes=None) for each in found.segments)
    trained = batches_of(segments_of(found, "baseline", "training"))
    return with_read(replace(found, segments=sizes), trained, 1 / smaller)


def in_training(without: float) -> Measurement:
    """Training at 36 % of compute alone, and at `without` images/s with samples that are there already."""
    each = {"baseline": 120.0, "training": 0.415, "resident": 1.14, "training_warm": 0.415}
    return run(
        [{**each, "training_cached_samples": without}] * 3, Cost(cpu_s=0.002, blocked_s=0.0005), synchronous=True
    )


def sharing_cores(warm: float, blocked_s: float = 0.008) -> Measurement:
    """Six rounds of training on cores that it shares with workers; such a share of its warm files came from memory."""
    cost = Cost(cpu_s=0.018 - blocked_s, blocked_s=blocked_s)
    rounds = alike(6, baseline=110.0, training=60.0, resident=112.0, warm=150.0, training_cached_samples=78.0,
                   training_warm=100.0)  # fmt: skip
    return run(rounds, cost, {"warm": replace(cost, cold=1 - warm)}, workers=2, synchronous=True)


MISFITS = {
    "training at 60 % of its parts": Row(pipeline(times(1.2, 1.3, training=150)), f"{INPUT} outside_noise_band"),
    "one round": Row(pipeline([times(1.2, 1.3, training=150)]), f"{INPUT} one_round_does_not_fit"),
    # No loader alone is slower than in training: something held it up, and nothing shows what training waits for.
    "one round of a loader that was held up": Row(
        run([{"baseline": 20.0, "training": 150.0, "resident": 800.0}], Cost(cpu_s=0.004)),
        f"{OPEN} one_round_does_not_fit",
    ),
    "rounds that contradict each other": Row(
        run([{"baseline": 250.0, "training": each} for each in (125.0, 250.0, 500.0)], SLOW_DISK),
        f"{INPUT} rounds_differ",
    ),
    # Parts that are off by 1.43 make no speed-up of 5.4; they may make one of 1.8.
    "43 % off beside 5.4 times": Row(misfit(97.0, warm=364.0), STORAGE),
    "16 % off beside 1.8 times": Row(misfit(78.8), f"{INPUT} outside_noise_band"),
    "half as much again": Row(misfit(104.0, warm=364.0), f"{INPUT} outside_noise_band"),
    "two thirds": Row(misfit(45.0, warm=364.0), f"{INPUT} outside_noise_band"),
    # 8 MB/s of files of 111.8 kB, and of 101.2 kB: measured on a token bucket, in segments of 6 and of 8 batches.
    "files of training are smaller": Row(misfit(78.8, 1.105), STORAGE),
    "files of training are larger": Row(misfit(78.8, 0.905), f"{INPUT} outside_noise_band"),
    "a little smaller, and twice the rate": Row(misfit(136.0, 1.105), f"{INPUT} outside_noise_band"),
    "smaller, and no faster": Row(misfit(68.0, 1.2), STORAGE),
    "bytes of storage are as many": Row(of_parts(1.0), f"{OPEN} outside_noise_band"),
    "bytes of storage are fewer": Row(of_parts(1.144), STORAGE),
    "steps that explain it in one round": Row(
        unsteady(1, 0.9), f"{EITHER} speedups_alike storage preprocessing", more=True,
    ),
    # The interval of two would hold almost any difference.
    **{
        f"{len(shares)} rounds at four fifths": Row(
            run([{"baseline": 97.0, "training": 95 * share, "resident": 95.0} for share in shares], SLOW_DISK,
                workers=2, synchronous=True),
            f"{OPEN} outside_noise_band",
        )
        for shares in ((0.79, 0.83), (0.79, 0.81, 0.83))
    },
    "even steps explain nothing": Row(unsteady(1, 0.0), f"{OPEN} one_round_does_not_fit", more=True),
    "three rounds show the noise": Row(unsteady(3, 0.9), f"{INPUT} outside_noise_band"),
    "training itself without preprocessing": Row(
        run([*alike(baseline=RATE, training=150), *[{"baseline": RATE, "training": 150.0, "training_warm": 152.0,
                                                    "training_cached_samples": 450.0}] * 3], EVEN),
        PREPROCESSING, more=False,
    ),
    "a speed-up that no round has beside another": Row(
        run([*[{"baseline": RATE, "training": 150.0, "training_warm": 150.0,
              "training_cached_samples": 450.0}] * 3, *alike(baseline=RATE, no_transport=1.12 * RATE)], EVEN),
        PREPROCESSING, speedups={"preprocessing": 3.0, "transport": 1.12},
    ),
    "one so near that their rounds may make the difference": Row(
        run([*[{"baseline": RATE, "training": 150.0, "training_warm": 150.0,
              "training_cached_samples": 300.0}] * 3, *alike(baseline=RATE, no_transport=1.12 * RATE)], EVEN),
        f"{EITHER} speedups_alike preprocessing transport",
    ),
    # Training was slow in the only round that took anything away.
    "compute beside the loader of all rounds": Row(
        run([*alike(6, baseline=RATE, training=150), {"baseline": RATE, "training": 50.0,
             "training_cached_samples": 600.0}], EVEN),
        PREPROCESSING, speedups={"compute": 1.67, "preprocessing": 12.0},
    ),
    "far below compute, whatever is removed": Row(
        in_training(0.42), f"{OPEN} outside_noise_band", facts={"predicted_fraction": 0.364},
    ),
    "and decoding held it up": Row(in_training(1.0), COMPUTE),
    # Without a prediction, a free input may gain what compute alone does more than training.
    "storage that was measured in training": Row(
        sharing_cores(warm=1.0), "inconclusive either speedups_alike compute storage", speedups={"storage": 1.67},
    ),
    "storage that was not, for warm files were not warm": Row(
        sharing_cores(warm=0.5), f"{OPEN} ablation_missing", speedups={"compute": 1.83},
    ),
    # The loader alone is 3 times as fast without it, of which the prediction that failed leaves 2.
    "preprocessing that time was too short for": Row(
        run([{"baseline": 100.0, "training": 50.0, "training_warm": 150.0, "cached_samples": 300.0}] * 3,
            Cost(cpu_s=0.005, blocked_s=0.005), workers=0, synchronous=True, compute=300),
        f"{EITHER} speedups_alike preprocessing storage", how={"preprocessing": "estimated"},
        speedups={"storage": 3.0, "preprocessing": 3.0}, more=True,
    ),
    "storage that workers do not wait for": Row(
        sharing_cores(warm=0.5, blocked_s=0.001), "inconclusive either input_in_parts compute preprocessing",
    ),
}  # fmt: skip
"""Training beside what its parts predict."""

QUICK = Cost(cpu_s=0.002, blocked_s=0.0005)
"""Workers that decode an image in 2 ms: of training at 5 images/s they take 1 % of a core."""


def on_cpu(
    *, loader: float | Sequence[float] = 120.0, alone: float = 5.7, outside: float = 0.002, rounds: int = 1,
    cost: Cost = QUICK, odd: Mapping[int, float] | None = None, **changes: Any,
) -> Measurement:  # fmt: skip
    """Training at 88 % of compute alone; of its time `outside`, and `odd` by round, is beside the steps."""
    loaders = [loader] * rounds if isinstance(loader, float) else loader
    found = run(
        [{"baseline": each, "training": 5.0, "resident": alone} for each in loaders], cost, synchronous=True, **changes
    )
    segments = (with_steps(each, (odd or {}).get(each.round, outside)) for each in found.segments)
    return replace(found, segments=tuple(segments))


def lost() -> Measurement:
    """The records of the workers during training are not there."""
    found = on_cpu()
    return with_records(found, {*found.worker_batches.batch} - batches_of(segments_of(found, "baseline", "training")))


UNFIT = f"{OPEN} one_round_does_not_fit"
GIVEN = ComputeInfo(name="", device="", synchronous=False, specified_images_per_s=5.7, source="")
CERTAIN = {
    "nothing else is left": Row(on_cpu(), COMPUTE, facts={"speedup": 24.0}, more=False),
    "in each of three rounds": Row(on_cpu(rounds=3), COMPUTE),
    "an emulated device": Row(on_cpu(facts={"compute": GIVEN}), COMPUTE),
    "a serial loader works 4 %": Row(on_cpu(workers=0, alone=6.0, outside=0.042), COMPUTE),
    "a serial loader works 5 %": Row(on_cpu(workers=0, alone=6.0, outside=0.05), UNFIT),
    "waiting and work may be worth 5 %": Row(on_cpu(outside=0.045), UNFIT, more=True),
    "noisy segments may be 4.8 apart": Row(on_cpu(loader=24.0), UNFIT, more=True),
    "training at twice compute alone, the loader at 24 times": Row(on_cpu(alone=2.5), COMPUTE),
    "at 18 times": Row(on_cpu(alone=2.5, loader=90.0), UNFIT, more=True),
    "a quarter is in no account": Row(on_cpu(alone=6.7), UNFIT, more=True),
    "workers hold up steps for 5 %": Row(on_cpu(cost=Cost(cpu_s=0.01)), UNFIT, more=True),
    "or wait for their cores": Row(on_cpu(cost=Cost(cpu_s=0.002, delay_s=0.008)), UNFIT, more=True),
    "files were warm": Row(on_cpu(cost=Cost(cpu_s=0.002, cold=0.0)), f"{OPEN} files_were_warm", more=True),
    "half of them were": Row(on_cpu(cost=Cost(cpu_s=0.002, cold=0.5)), UNFIT, more=True),
    "training waits in one of three": Row(on_cpu(rounds=3, odd={1: 0.1}), f"{OPEN} outside_noise_band"),
    "the loader is slow in one of three": Row(on_cpu(loader=(120.0, 20.0, 120.0)), f"{OPEN} outside_noise_band"),
    "records are lost": Row(lost(), UNFIT),
}  # fmt: skip
"""Compute is certain where two things measured apart leave nothing else."""

ALIKE: dict[str, Any] = {"alone": (90.0, 91.0), "without": {0: 340.0, 1: 343.0}}
DISK = Cost(blocked_s=0.05)
LIMITED = alike(training=180.0, baseline=176.0, warm=338.0, cached_samples=185.0, no_transport=181.0)
SLEEPING = alike(training=88.0, baseline=86.0, warm=90.0, cached_samples=868.0, no_transport=88.0)
SLOW: dict[str, Any] = {"alone": (114.0, 37.0), "without": {1: 229.0, 0: 72.0}}
DECODE = alike(training=75.0, baseline=73.0, warm=88.0, cached_samples=624.0, no_transport=85.0)
STEP: dict[str, Any] = {"baseline": 256.0, "warm": 256.0, "cached_samples": 258.0, "no_transport": 257.0}
DDP = alike(training=28.0, resident=29.0, **STEP)


def exchanging(no_exchange: float) -> Measurement:
    """One round of training that waits for nothing; images/s without the exchange."""
    rounds = alike(1, training=10.0, baseline=240.0, resident=11.4)
    made = rank_run(rounds, QUICK, synchronous=True, no_exchange=no_exchange, exchange=60.0)
    return replace(made, segments=tuple(with_steps(each, 0.0) for each in made.segments))


def losing(lost: float, prefetch_factor: int = 2) -> Measurement:
    """Eight ranks of one worker, whose batches take 0.1 s, that lose so much by taking each step together."""
    in_step, alone = 8 * BATCH / 0.1 / lost, [BATCH / 0.1] * 8
    rates = {"baseline": 1.0, "training": 1.0, "warm": 4.0, "cached_samples": 1.02, "no_transport": 1.0}
    return rank_run(
        [{name: in_step * times_as_fast for name, times_as_fast in rates.items()}] * 3, Cost(blocked_s=0.005),
        alone=alone, without={0: in_step, 1: in_step},
        ranks=8, workers=1, prefetch_factor=prefetch_factor,
    )  # fmt: skip


def drawn_twice(found: Measurement) -> Measurement:
    """The same, of a sampler that draws each file twice in a segment."""
    segments = [replace(one, distinct_bytes=(one.delivered_bytes or 0) // 2) for one in found.segments]
    return replace(found, segments=tuple(segments))


RANKS = {
    # Segments without a rank, and alone, change no rate of all ranks.
    **{
        f"a shared disk{and_what}": Row(
            rank_run(LIMITED, DISK, **more), STORAGE,
            speedups={"storage": 338 / 176, "preprocessing": 185 / 176, "transport": 181 / 176},
            figures={
                "rates_images_per_s.loader": 176.0, "rates_images_per_s.loader_without.storage": 338.0,
                "images_per_s.value": 180.0, "advised": ["faster_storage", "accelerator_gains_nothing"],
            },
        )
        for and_what, more in (("", ALIKE), (", and nothing of single ranks", {}))
    },
    # A worker's figures are those of its own images; the parts of a step are those of the batch of all ranks.
    "four on a disk": Row(
        rank_run(LIMITED, DISK, ranks=4), STORAGE,
        figures={"worker_time.blocked_s": 0.05, "step_time.other_s": 4 * BATCH / 180, "step_time.wait_s": 0.0},
    ),
    "decoding on few cores": Row(
        rank_run(DECODE, Cost(delay_s=0.01), alone=(45.0, 45.0), without={0: 100.0, 1: 108.0}, workers=2), CPU,
    ),
    "compute": Row(
        rank_run(
            alike(training=120.0, baseline=260.0, warm=260.0, cached_samples=262.0, no_transport=261.0),
            compute=120.0, alone=(130.0, 131.0), without={0: 270.0, 1: 400.0},
        ),
        COMPUTE,
    ),
    "a slow rank": Row(rank_run(SLEEPING, **SLOW), SLOW_RANK, figures={"advised": ["slow_rank"]}),
    "the step": Row(rank_run(alike(training=54.0, resident=56.0, **STEP), no_exchange=95.0, exchange=123.0), COMPUTE),
    "the step, of which the exchange takes nothing": Row(
        rank_run(alike(training=54.0, resident=56.0, **STEP), no_exchange=56.0), COMPUTE,
        facts={"gradients_speedup": ""},
    ),
    "the exchange of gradients": Row(
        rank_run(DDP, no_exchange=83.0, exchange=40.6), "compute gradients largest_speedup",
        facts={"compute_speedup": 40.6 / 29}, speedups={"compute": 40.6 / 29}, figures={"advised": ["exchange"]},
    ),
    "step and exchange alike": Row(
        rank_run(DDP, no_exchange=60.0, exchange=58.0), "compute either speedups_alike gradients compute",
    ),
    # Without either, the other has the disk for itself: twice as fast, and no faster than without the other one.
    "equal ranks on a shared disk": Row(
        rank_run(LIMITED, DISK, alone=(90.0, 91.0), without={0: 352.0, 1: 349.0}), STORAGE,
        speedups={"imbalance": 1.0}, figures={"bound.rank": None},
    ),
    "a slow rank in two of three rounds": Row(
        rank_run(SLEEPING, alone=(114.0, 37.0), without={1: (229.0, 229.0, 80.0), 0: 72.0}), PREPROCESSING,
    ),
    "a lead below 1.15": Row(
        rank_run(SLEEPING, alone=(114.0, 37.0), without={1: (82.0, 82.0, 82.0), 0: 72.0}), PREPROCESSING,
    ),
    "a lead of 1.4 in two rounds": Row(
        rank_run(SLEEPING[:2], alone=(114.0, 37.0), without={1: 100.8, 0: 72.0}), PREPROCESSING,
    ),
    "no slower by itself": Row(rank_run(SLEEPING, alone=(38.0, 37.0), without={1: 229.0, 0: 72.0}), PREPROCESSING),
    "slow batches beside the cause": Row(
        rank_run(LIMITED, DISK, **{**ALIKE, "alone": (110.0, 111.0)}), STORAGE, facts={"straggler_speedup": 221 / 176},
        figures={
            "advised": ["prefetch", "faster_storage"], "advice.0.command": "prefetch_factor=8",
            "advice.0.after.low": 180.0, "advice.0.before.value": 180.0,
        },
    ),
    "only the side is certain": Row(exchanging(30.0), "compute inconclusive one_round_does_not_fit"),
    "the exchange is worth nothing": Row(exchanging(11.5), COMPUTE),
    # The last of each is at most what eight ranks lose by taking each step together.
    "prefetching wins it": Row(
        losing(1.16), STORAGE, figures={
            "advice.0.command": "prefetch_factor=8", "advice.0.action.facts": {"batches": 8}, "advice.0.speedup": 1.16,
        },
    ),
    "or has it": Row(losing(1.16, prefetch_factor=8), STORAGE, figures={"advised": ["accelerator_gains_nothing"]}),
    "or wins less than 5 %": Row(losing(1.03), STORAGE, figures={"advised": ["accelerator_gains_nothing"]}),
    "files were warm on one rank": Row(
        rank_run(LIMITED, DISK, cold=(1.0, 0.5), **ALIKE), f"{INPUT} ablation_missing",
        missing={"storage": "bytes_on_a_rank"}, facts={"rank": "1", "share": 0.5},
    ),
    "files that are drawn twice come from storage once": Row(
        drawn_twice(rank_run(LIMITED, DISK, cold=(0.5, 0.5), **ALIKE)), STORAGE,
    ),
    "one rank has none of it": Row(
        rank_run(LIMITED, DISK, ranks=1, **ALIKE), STORAGE, figures={"step_time.other_s": BATCH / 180},
        missing=dict.fromkeys(("imbalance", "straggler", "gradients"), "one_rank"),
    ),
}  # fmt: skip
"""Several ranks, as planted and measured with two of them."""

# In step all four take as long as the slow ones; without either of two ranks the others still wait for a slow one.
IN_STEP: dict[str, Any] = {
    "training": 148.0, "baseline": 148.0, "warm": 150.0, "cached_samples": 1700.0, "no_transport": 149.0,
}  # fmt: skip


def hosts(*alone: float, rounds: int = 3, **changes: Any) -> Measurement:
    """Four ranks on two hosts, which load so much by themselves."""
    without = {2: 149.0, 0: 148.0}
    return rank_run(alike(rounds, **IN_STEP), **{"alone": alone, "without": without, "ranks": 4, "nodes": 2, **changes})


HOSTS = {
    "a slow one": Row(
        hosts(114.0, 114.0, 37.0, 38.0), SLOW_HOST, speedups={"imbalance": 114 / 37}, how={"imbalance": "estimated"},
        facts={"slow_ranks": "2", "host_ranks": "2", "resource": "preprocessing", "slow_images_per_s": 37.5,
               "other_images_per_s": 114.0},
        figures={"bound.host": "node1", "bound.rank": None, "speedups.imbalance.low": 303 / 148},
    ),
    "one host": Row(hosts(114.0, 114.0, 37.0, 38.0, nodes=1), PREPROCESSING),
    "little": Row(hosts(44.4, 44.4, 37.0, 40.7), PREPROCESSING),
    "a lead of 1.4 in two rounds": Row(hosts(51.8, 51.8, 37.0, 37.0, rounds=2), PREPROCESSING),
    "a slow rank elsewhere": Row(hosts(114.0, 37.0, 37.0, 37.0), PREPROCESSING),
    # By themselves one gets twice as much; in step the storage gives as much in all, so nothing is lost.
    "an uneven share of a full storage": Row(hosts(50.0, 50.0, 25.0, 25.0), PREPROCESSING),
    "compute is the limit": Row(
        rank_run(alike(**{**IN_STEP, "training": 60.0}), compute=60.0, alone=(114.0, 114.0, 37.0, 38.0),
                 without={2: 149.0, 0: 148.0}, ranks=4, nodes=2), COMPUTE,
    ),
    "ranks of two speeds have no slow batches": Row(
        rank_run(LIMITED, DISK, alone=(110.0, 110.0, 50.0, 50.0), without={2: 180.0, 0: 176.0}, ranks=4), STORAGE,
        facts={"straggler_speedup": ""}, speedups={"straggler": 320 / 176},
        figures={"advised": ["accelerator_gains_nothing"]},
    ),
}  # fmt: skip
"""A host of which all ranks are slow."""

# Of four pipelines that wait for the device, what is left where only training was measured.
PREPROCESSED = Truth(cpu_s=0.01, latency_s=0.0005, bytes_per_s=1e9, synchronous=True)
FULL_DISK = Truth(cpu_s=0.002, bytes_per_s=20e6, synchronous=True)
FAR_FILES = Truth(model="latency", cpu_s=0.002, latency_s=0.02, synchronous=True)
SLOW_DEVICE = replace(PREPROCESSED, compute=10.0)


def watched(truth: Truth, workers: int = 4, *, specified: bool = False, receive_s: float | None = None) -> Measurement:
    """Training whose steps last as long as compute takes, and wait before that; the device's rate may be specified."""
    found = measured(truth, workers)

    def waiting(one: Segment) -> Segment:
        end = (*one.begin_ns[1:], one.closed_ns)
        ready = tuple(at - round(one.batch_size / truth.compute * 1e9) for at in end)
        spent: dict[str, Any] = {} if receive_s is None else {"receive_cpu_ns": round(receive_s * 1e9) * one.steps}
        return replace(one, ready_ns=ready, copied_ns=ready, end_ns=end, **spent)

    return replace(
        found, segments=tuple(waiting(each) for each in found.segments if each.activity == "training"),
        compute=found.compute if specified else replace(found.compute, specified_images_per_s=None),
    )  # fmt: skip


def on_its_own() -> Measurement:
    """Of a device that runs on by itself the host's steps say nothing."""
    seen = watched(PREPROCESSED)
    return replace(seen, compute=replace(seen.compute, synchronous=False))


QUICK_STEP = replace(SLOW_DEVICE, compute=1600.0, cpu_s=0.0001)
WATCHED = {
    **{
        f"{name}, {workers} workers{', specified' * specified}": Row(
            watched(truth, workers, specified=specified), clear,
            how=dict.fromkeys(("preprocessing", "compute"), "estimated"),
        )
        for name, truth, by_workers in (
            ("preprocessing", PREPROCESSED, dict.fromkeys((0, 1, 4), PREPROCESSING)),
            ("a full disk", FULL_DISK, {
                0: f"{EITHER} speedups_alike storage preprocessing", 4: f"{INPUT} estimate_not_measured",
            }),
            ("far files", FAR_FILES, dict.fromkeys((0, 4), f"{INPUT} estimate_not_measured")),
            ("compute", SLOW_DEVICE, dict.fromkeys((0, 1, 4), COMPUTE)),
        )
        for workers, clear in by_workers.items()
        for specified in (False, True)
    },
    "a lead that is not far, in undisturbed rounds": Row(
        watched(replace(PREPROCESSED, compute=180.0), 1), PREPROCESSING, speedups={"preprocessing": 180 / 95},
    ),
    "rates as measured": Row(
        watched(replace(PREPROCESSED, compute=300.0)), COMPUTE, speedups={"compute": 381 / 300},
        how=dict.fromkeys(("storage", "preprocessing", "transport", "compute"), "estimated"),
        figures={"rates_images_per_s.loader": 381.0, "rates_images_per_s.compute": 300.0, "advised": []},
    ),
    # Each of 8 workers has the core for itself while training makes them wait.
    "no more than the cores allow": Row(
        replace(watched(SLOW_DEVICE, 8), cores_available=2.0), COMPUTE, figures={"rates_images_per_s.loader": 200.0},
    ),
    "receiving, which was not noted": Row(
        watched(QUICK_STEP), f"{OPEN} outside_noise_band", figures={"predicted_images_per_s": 1600.0},
    ),
    "2 ms of a step of 12": Row(
        watched(QUICK_STEP, receive_s=0.002), COMPUTE, figures={"predicted_images_per_s": 1600 / 1.2},
    ),
    "a device that runs on by itself": Row(
        on_its_own(), f"{OPEN} no_complete_round", missing={"rates_images_per_s.compute": "no_resident_segment"},
    ),
}  # fmt: skip
"""Loader and compute are estimated from training alone; no forecast, and so no advice, rests on that."""


def delivering(**changes: Any) -> Measurement:
    """Two workers deliver 1 kB an image and read 1.1 for it; their disk moves 2.2."""
    made = run(alike(baseline=700), Cost(cpu_s=0.001, blocked_s=0.002), workers=2)
    segments = tuple(
        replace(each, delivered_bytes=1000 * each.steps * BATCH, disk_bytes=2200 * each.steps * BATCH)
        for each in made.segments
    )
    records = replace(made.worker_batches, read_bytes=tuple(1100 * count for count in made.worker_batches.images))
    return replace(made, segments=segments, worker_batches=records, **changes)


def moving(*phases: BandwidthPhase, **changes: Any) -> StorageCeiling:
    """What a disk was measured to deliver."""
    return StorageCeiling(data=FILES.fingerprint, phases=phases, **changes)


def in_bytes(rate: float = 770e3, **changes: Any) -> BandwidthPhase:
    """A phase of two readers, in which as much again was read ahead."""
    return example_phase(2, rate, io_bytes=1000, storage_bytes=2000, **changes)


def objects(share: float, **changes: Any) -> Mapping[str, Any]:
    """Workers that wait for a server, which gives them this share of the most that it has."""
    facts = {"access": "none", "modes": ("baseline",), "storage_kind": "object", "sample_bytes": float(FILE_BYTES)}
    made = run(alike(baseline=90), REMOTE, workers=2, cache="as-found", facts={**facts, "storage_counts_reads": False})
    phase = example_phase(2, 90 * FILE_BYTES / share, cache="remote")
    seen: tuple[WaitKind, ...] = ("network",) * 9
    return {"measurement": looked(made, *seen, "running"), "ceiling": moving(phase, **changes)}


NETWORK = "input network largest_speedup"
FLAT = DeviceKind(
    kind="token_bucket", code="token_bucket",
    evidence=(Evidence(metric="rise_of_ladder", value=1.1, threshold=1.4, unit="x"),),
)  # fmt: skip
SLOW_START = DeviceKind(
    kind="unknown", code="none_of_them", evidence=(replace(FLAT.evidence[0], value=1.6),),
    facts={"bytes_per_s": 91.0 * FILE_BYTES},
)  # fmt: skip
SHARE, NOT_MEASURED = "disk_ceiling_fraction", f"{INPUT} estimate_not_measured"
IN_MEMORY = ("disk_read_bytes_per_s", "cold_fraction", "read_amplification", "other_read_bytes_per_s", SHARE)
DISKS = {
    # Device bytes are compared with device bytes, at this number of readers: read-ahead counts on both sides.
    "half of the ceiling": Row(
        delivering(), NOT_MEASURED, ceiling=moving(example_phase(1, 1e3), in_bytes()),
        figures={
            SHARE: 0.5, "disk_read_bytes_per_s": 770e3, "read_amplification": 1.1, "other_read_bytes_per_s": 770e3,
            "cold_fraction": 1.0,
        },
    ),
    "no ceiling": Row(delivering(), NOT_MEASURED, missing={SHARE: "ceiling_not_measured"}),
    "one that failed": Row(
        delivering(), NOT_MEASURED, missing={SHARE: "files_vanished"},
        ceiling=moving(missing=Remark(code="files_vanished")),
    ),
    **{
        f"a ceiling of {label} files": Row(
            delivering(), NOT_MEASURED, ceiling=moving(in_bytes(cache=label)), missing={SHARE: "ceiling_not_cold"},
        )
        for label in ("warm", "mixed", "unproved")
    },
    "the probe ran out of cores": Row(
        delivering(), NOT_MEASURED, ceiling=moving(in_bytes(3e9, at_least=True)),
        missing={SHARE: "cores_below_ceiling"},
    ),
    # However much was delivered.
    "no device byte is counted": Row(
        delivering(storage_counts_reads=False), f"{INPUT} ablation_missing", ceiling=moving(in_bytes()),
        missing=dict.fromkeys(IN_MEMORY, "reads_not_counted"),
    ),
    "a file server counts": Row(
        delivering(storage_counts_reads=False, storage_kind="fuse"), NOT_MEASURED, ceiling=moving(in_bytes()),
        figures={SHARE: 1.0, "disk_read_bytes_per_s": 1540e3, "read_amplification": 2.2, "cold_fraction": 1.0},
        missing={"other_read_bytes_per_s": "devices_not_visible"},
    ),
    "objects, of which a server has four times as many to give": Row(
        **objects(0.25), truth=NETWORK, figures={SHARE: 0.245, "advised": ["requests_in_flight", "workers"]},
        missing={"read_amplification": "not_of_objects"},
    ),
    "objects of a server at its limit, which gives many no more than one": Row(
        **objects(1.0, kind=FLAT), truth=NETWORK, figures={"advised": ["faster_network", "accelerator_gains_nothing"]},
    ),
    "objects of a server of no known kind, of which many readers got what these workers get": Row(
        **objects(1.0, kind=SLOW_START), truth=NETWORK,
        figures={"advised": ["faster_network"], "advice.0.speedup": 11.0, "advice.0.after.low": 990.0},
    ),
    "warm files": Row(
        run(alike(warm=700), Cost(cpu_s=0.008, cold=0.0), cache="warm", workers=2), NOT_MEASURED,
        ceiling=moving(in_bytes()), missing={SHARE: "warm_as_asked"},
    ),
    "a cause has its share": Row(
        pipeline(times(3, 1.2), workers=2), STORAGE, ceiling=moving(example_phase(2, 50e6)),
        facts={"ceiling_fraction": 0.5 / 1.02, "concurrency": 2, "read_bytes_per_s": 25e6},
    ),
}  # fmt: skip
"""What the disk did: shares, read-ahead, others' reads, and reasons where there is no figure."""

TABLES: Mapping[str, Mapping[str, Row]] = {
    "ablations": ABLATIONS, "estimates": ESTIMATES, "cold": COLD, "waits": WAITS, "disturbed": DISTURBED,
    "misfits": MISFITS, "certain": CERTAIN, "ranks": RANKS, "hosts": HOSTS, "watched": WATCHED, "disks": DISKS,
}  # fmt: skip
ROWS = {f"{table}: {name}": row for table, rows in TABLES.items() for name, row in rows.items()}


def figure(found: Any, at: str) -> Any:
    """A figure of a verdict by its place; `advised` are the codes of what it advises."""
    if at == "advised":
        return [each.action.code for each in found.advice]
    for name in at.split("."):
        if isinstance(found, tuple):
            found = found[int(name)]
        else:
            found = found[name] if isinstance(found, Mapping) else getattr(found, name)
    return found


@pytest.mark.parametrize("name", ROWS)
def test_the_verdict_is_the_truth(name: str) -> None:
    """The word, its reason, its candidates and its figures; and whether more would be measured."""
    row = ROWS[name]
    judged = Judged(measurement=row.measurement, ceiling=row.ceiling)
    advice = recommend(judged.experiments, Surroundings(storage=row.ceiling or NO_CEILING)).advice
    found, bound = replace(judged.verdict, advice=advice), judged.bound
    assert " ".join((bound.side, bound.cause, bound.reason.code, *bound.candidates)) == row.truth
    for fact, value in row.facts.items():
        there = bound.reason.facts.get(fact, "")
        assert there == (value if isinstance(value, str) else pytest.approx(value, rel=0.01)), fact
    for resource, value in row.speedups.items():
        assert figure(found, f"speedups.{resource}.value") == pytest.approx(value, rel=0.02), resource
    for resource, how in row.how.items():
        assert figure(found, f"speedups.{resource}.how") == how, resource
    for name, code in row.missing.items():
        at = f"speedups.{name}" if name in found.speedups else name
        assert figure(found, at) is None and found.unavailable[at].code == code, name
    for at, value in row.figures.items():
        assert figure(found, at) == (pytest.approx(value, rel=0.01) if isinstance(value, float) else value), at
    if row.more is not None:
        assert bool(next_round(row.measurement, thorough=False)) is row.more


def test_without_a_record_of_the_workers_there_is_no_verdict() -> None:
    """Neither a measurement nor an estimate."""
    with pytest.raises(BadValue, match="no complete round"):
        verdict(with_records(watched(PREPROCESSED), ()))


@pytest.mark.parametrize("name", ROWS)
def test_neither_the_scale_of_times_nor_the_order_of_rounds_matters(name: str) -> None:
    """A machine that is slower in everything gets the same words and speed-ups; so do the rounds in another order.

    What the samples of workers say of a speed-up is of training, as the speed-up is: its range holds it.
    """
    row = ROWS[name]
    made = row.measurement
    numbers = range(max(each.round for each in made.segments) + 1)
    # A ceiling has a rate of its own; and a slow first round is one in its place only.
    others = [] if row.ceiling else [scaled(made, 4)]
    others += [] if "first round" in name else [reordered(made, numbers[::-1])]
    judged = Judged(measurement=made, ceiling=row.ceiling)
    one, *found = (
        (each.bound.side, each.bound.cause, each.bound.candidates, each.speedups)
        for each in (judged.verdict, *(Judged(measurement=each, ceiling=row.ceiling).verdict for each in others))
    )
    assert found == [one] * len(others)
    speedups, ranges = judged.experiments.speedups, judged.experiments.ranges
    for resource in speedups.keys() & ranges.keys():
        (least, most), speedup = ranges[resource], speedups[resource].value
        assert least <= speedup * (1 + 1e-9) and speedup <= most * (1 + 1e-9), resource


SECONDS = st.floats(1e-4, 2e-2)


@given(SECONDS, SECONDS, st.floats(1.0, 10.0), st.integers(0, 8), st.booleans(), st.booleans())
def test_slower_storage_never_lowers_its_speedup(
    cpu_s: float, blocked_s: float, slower: float, workers: int, synchronous: bool, measured: bool
) -> None:
    """Workers that wait longer for the same files gain no less without storage, measured or estimated."""
    values, processes, compute = [], max(workers, 1), 300.0
    for waited_s in (blocked_s, slower * blocked_s):
        loader = processes / (cpu_s + waited_s)
        in_turn = 1 / (1 / loader + 1 / compute)
        rates = {"baseline": loader, "training": in_turn if synchronous and not workers else min(loader, compute)}
        rates |= {"warm": processes / cpu_s} if measured else {}
        cost = Cost(cpu_s=cpu_s, blocked_s=waited_s)
        made = run([rates] * 3, cost, workers=workers, synchronous=synchronous, compute=compute)
        values.append(run_experiments(made).speedups["storage"].value)
    assert values[1] >= values[0] * (1 - 1e-5)


@pytest.mark.parametrize("lost", [0.3, 0.5])
@pytest.mark.parametrize("key", ["6296e1332bea7293", "c6abb333b1b11848"])
def test_batches_whose_record_is_lost_change_no_word(key: str, lost: float) -> None:
    """The oldest are: of cold files it seemed that half came from memory, and of busy cores that half were idle."""
    whole = RunDirectory.open(RUNS / "storage").result(key)
    assert isinstance(whole, Measurement)
    batches = whole.worker_batches.batch
    cut = with_records(whole, {*batches[round(lost * len(batches)) :]})
    before, after = verdict(whole), verdict(cut)
    assert after.bound.cause == before.bound.cause
    assert after.cold_fraction == pytest.approx(before.cold_fraction, abs=0.001)
    assert after.other_read_bytes_per_s == pytest.approx(before.other_read_bytes_per_s, abs=5e4)
    cores = [cores_in_training(each, segments_of(each, each.config.mode, "training")) for each in (whole, cut)]
    assert cores[1] == pytest.approx(cores[0], rel=0.05)


@pytest.mark.parametrize(("counted", "cores"), [(True, 1.9), (False, 5.0)])
def test_no_more_cores_are_in_use_than_the_kernel_counts(counted: bool, cores: float) -> None:
    """Batches that were made before a short segment, and are taken in it, took none of its time."""
    made = run(alike(baseline=100.0, training=500.0), Cost(cpu_s=0.01), workers=2)
    records = replace(made.worker_batches, process_cpu_ns=made.worker_batches.cpu_ns)
    beside = others(own_cpu_ns=1_900_000_000) if counted else None
    made = with_training(made, lambda one: replace(one, process_cpu_ns=0, others=beside))
    found = replace(made, worker_batches=records)
    assert cores_in_training(found, segments_of(found, "baseline", "training")) == pytest.approx(cores)


@pytest.mark.parametrize(("blocked_s", "gains"), [(0.0, False), (0.002, True)])
def test_storage_without_waits_gains_nothing(*, blocked_s: float, gains: bool) -> None:
    """However idle workers are: of CIFAR in memory, two of them made 300 images/s and could have made 500."""
    rounds, cost = [{"baseline": 300.0, "training": 150.0}] * 3, Cost(cpu_s=0.004, blocked_s=blocked_s)
    found = run_experiments(run(rounds, cost, workers=2, compute=400.0, **AS_FOUND))
    assert (found.speedups["storage"].value > 1.0) is gains


SLOWED = run(alike(baseline=400.0, training=80.0, resident=100.0), Cost(), workers=4)
AS_ALONE = run(alike(baseline=400.0, training=99.0, resident=100.0), Cost(), workers=4)
FEW = run(alike(2, baseline=400.0, training=80.0, resident=100.0), Cost(), workers=4)
WITHOUT_WORKERS = run(alike(baseline=400.0, training=80.0, resident=100.0), Cost(), workers=0)
FED_SLOWLY = run(alike(baseline=40.0, training=40.0, resident=100.0), Cost(cpu_s=0.1), workers=4)


def held_up_by(measurement: Measurement, share: float) -> Measurement:
    """Training waits for its input for so much of its time."""
    return with_training(measurement, lambda one: with_steps(one, share if one.mode == "baseline" else 0.0))


@pytest.mark.parametrize(
    ("measurement", "times_s"),
    [
        (SLOWED, (0.2, 0.16)),
        (AS_ALONE, None),
        (FEW, None),
        (WITHOUT_WORKERS, None),
        (held_up_by(FED_SLOWLY, 0.6), None),
        (held_up_by(SLOWED, 0.2), None),
        (held_up_by(FED_SLOWLY, 0.3), (0.28, 0.16)),
    ],
    ids=["slowed", "as alone", "two rounds", "serial", "input-bound", "waits", "input-bound on the same cores"],
)
def test_steps_that_the_loader_holds_up_are_noted(
    measurement: Measurement, times_s: tuple[float, float] | None
) -> None:
    """With the times of a step beside the loader and without it, whatever limits; waits for input are not in them."""
    notes = [note.facts for note in detail_of(Judged(measurement=measurement)).notes if note.code == "steps_held_up"]
    found = [(facts["beside_s"], facts["alone_s"]) for facts in notes]
    assert found == ([pytest.approx(times_s)] if times_s else [])


@pytest.mark.parametrize(("beside", "noted"), [((0.0, 0.0), []), ((0.0, 2.0), [2])])
def test_processes_that_had_the_gpu_open_are_noted(beside: tuple[float, ...], noted: list[int]) -> None:
    """The most at once: what they run makes compute alone slower than the GPU is."""
    times_ns = [one.begin_ns[0] for one in SLOWED.segments if one.activity == "training"][:2]
    series = Series(name="gpu_other_processes", unit="", source="NVML", time_ns=tuple(times_ns), values=beside)
    notes = detail_of(Judged(measurement=replace(SLOWED, series=(series,)))).notes
    assert [note.facts["processes"] for note in notes if note.code == "gpu_shared"] == noted
