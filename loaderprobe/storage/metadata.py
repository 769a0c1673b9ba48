"""Opens/s and stats/s of the sample's files: the first limit where every image is a file.

Evicting files leaves their names and inodes in memory, and listing a folder brings them there. Only dropping all
caches of the machine makes them cold, so that is done where the user asked for it (`--drop-caches`) and at no other
time; without it the figure is of warm metadata and says so. Reading nothing, it drops before every pass over the files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

from loaderprobe.protocols import Clock
from loaderprobe.records.bandwidth import MetadataLabel, MetadataOperation, MetadataPhase
from loaderprobe.records.environment import StorageLocation
from loaderprobe.storage.phase import BUSY_SHARE, PhaseSettings, latency, own_reads, read_until
from loaderprobe.storage.reader import Reading, steady_slices
from loaderprobe.system.device import name_calls

LEAST_INODE_BYTES = 128
"""Of an inode on disk (ext2, the smallest of the usual ones): a cold operation reads at least its share of a block of
them. Fewer bytes an operation mean that memory answered."""
MOST_DROPS = 5
"""For one phase: dropping takes seconds where memory is large, and slows down every other program."""
SETTLED_AT = 0.1
"""A phase ends when half its 95 % interval is within this share of the rate."""
STEADY_S = 1.0
"""From here on the start of a pass, with the device's saved credit, is left out. A shorter one counts whole."""
WARM_OPERATIONS = 10_000
"""At least so many in a pass over names in memory, of which few take no time."""


def run_metadata(settings: PhaseSettings, operation: MetadataOperation, clock: Clock) -> MetadataPhase:
    """Open or stat every file once after each drop, until the rate is known, the time is up or drops are enough.

    Raises BadValue or MissingPart when no file could be reached, MissingPart when dropping is not permitted.
    """
    begin_ns, drops = clock.now_ns(), settings.supply.drop_all is not None
    # One for each file.
    pieces = list({piece.path: piece for piece in settings.supply.sample.pieces}.values())
    if not drops:
        # In memory they are gone through several times, since few take no time.
        pieces *= -(-WARM_OPERATIONS // len(pieces))
    supply = replace(settings.supply, sample=replace(settings.supply.sample, pieces=tuple(pieces)), cache=None)

    def done(total: Reading) -> bool:
        enough = total.seconds >= 0.98 * settings.order.seconds and total.settled(SETTLED_AT)
        late = (clock.now_ns() - begin_ns) / 1e9 >= settings.longest_s
        most_drops = drops and supply.rounds == MOST_DROPS and not supply.left
        return bool(total.slices) and (enough or late or most_drops)

    total, _ = read_until(
        done,
        replace(settings, supply=supply, order=replace(settings.order, operation=operation)),
        counters=lambda: {"storage": own_reads(), "calls": name_calls(settings.location)},
        slices=partial(steady_slices, least_s=STEADY_S),
    )
    return _figures(settings, operation, total, supply.rounds if drops else 0)


def metadata_label(
    location: StorageLocation, drops: int, storage_bytes: int | None, server_calls: int | None, operations: int
) -> MetadataLabel:
    """`cold` only where names and inodes were dropped, and a count shows that they came back from outside memory."""
    if not drops and server_calls is not None and server_calls >= operations:
        return "asked"
    if not drops or location.in_memory:
        return "warm"
    if location.counts_reads and storage_bytes is not None:
        return "cold" if storage_bytes >= LEAST_INODE_BYTES * operations else "warm"
    if server_calls is not None:
        return "cold" if server_calls >= operations else "warm"
    return "unproved"


def _figures(settings: PhaseSettings, operation: MetadataOperation, total: Reading, drops: int) -> MetadataPhase:
    taken = total.piece_ns
    rate, half = total.bw_bytes, total.half_width if total.knows_interval else 0.0
    storage = total.counted["storage"] if settings.location.counts_reads else None
    calls = total.counted["calls"]
    cpu_cores = total.cpu_s / total.seconds
    return MetadataPhase(
        operation=operation,
        readers=settings.order.readers,
        runtime=1e3 * total.seconds,
        total_ops=len(taken),
        ops_per_s=rate,
        ops_low=max(0.0, rate - half),
        ops_high=rate + half,
        op_ns=latency(taken),
        drops=drops,
        storage_bytes=storage,
        server_calls=calls,
        metadata=metadata_label(settings.location, drops, storage, calls, len(taken)),
        cpu_cores=cpu_cores,
        # Threads of one interpreter: one core's worth of CPU may be all that they can use.
        at_least=cpu_cores > BUSY_SHARE * min(1.0, settings.cores_available),
        unread=dict(Counter(total.unread.values())),
        short=drops > 0 and total.seconds < STEADY_S * drops,
    )
