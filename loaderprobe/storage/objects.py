"""The probe of objects behind a URL: the same ladder, by threads that request whole objects or ranges of large ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from loaderprobe.errors import BadValue
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.bandwidth import BandwidthMeasurement
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Missing
from loaderprobe.records.phases import Engine
from loaderprobe.records.remark import Remark
from loaderprobe.storage.files import LARGE_FILE_BYTES, Piece, Sample, choose, in_parts
from loaderprobe.storage.probe import Probe, ProbeRequest, run_probe
from loaderprobe.storage.reader import Reading, ReadOrder, ReadRun, Supply
from loaderprobe.system.objects import TRANSIENT, UNSIZED, ObjectStore, open_store

RANGE_BYTES = 8 << 20
"""Of a request to a large object: AWS's guide to the performance of S3 names 8 or 16 MB as typical."""
MOST_LISTED = 100_000
"""Objects: a sample is of so many. A folder is listed whole before, which is a request for each thousand of them."""
MOST_SIZED = 1_000
"""Objects whose size takes a request each, because listings have none (http)."""
ONE_INTERPRETER = 1.0
"""Cores that the requests of one process can use."""
ITSELF = Path()
"""The name of a piece where the URL is that of one object."""


class ObjectEngine:
    """Implements `ReadEngine` with threads of this process that request objects."""

    name: Engine = "threads"

    def __init__(self, store: ObjectStore, sample: Sample) -> None:
        self._store = store
        self._in_ranges = {piece.path for piece in sample.pieces if piece.offset}

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """Request with `order.readers` threads; each takes the next piece when it is free."""
        self._store.retried.clear()
        reading = ReadRun(pieces, order, self._request).run()
        reading.counted = {kind: self._store.retried[kind] for kind in TRANSIENT}
        return reading

    def _request(self, piece: Piece, _: memoryview, __: int) -> tuple[int, int, int]:
        """In the form of a read: (bytes, requests, ns to the first byte)."""
        name = "" if piece.path == ITSELF else piece.path.as_posix()
        whole = piece.path not in self._in_ranges
        got, first_s = self._store.get(name, piece.offset, piece.size_bytes, whole=whole)
        return got, 1, round(first_s * 1e9)


def probe_objects(
    url: str, request: ProbeRequest, *, on_phase: OnStage, clock: Clock, sample: Sample | None = None
) -> BandwidthMeasurement:
    """Run all phases that objects have on a sample of those under a URL; without one, on a random one.

    Raises BadValue when there is nothing to read, MissingPart without permission or the library for such URLs.
    """
    store = open_store(url)
    sample = sample or sample_objects(store, request.seed)
    location = StorageLocation(
        path=store.url, filesystem=store.family, kind="object", mount="", source=store.endpoint, devices=()
    )
    probe = Probe(
        request=request, location=location, supply=Supply(sample, None, seed=request.seed),
        engine=ObjectEngine(store, sample), cores=ONE_INTERPRETER, clock=clock,
    )  # fmt: skip
    hidden = Missing(name="first byte", reason=Remark(code="requests_hidden", facts={"scheme": store.family}))
    return run_probe(probe, store.url, on_phase, missing=() if store.sees_requests else (hidden,))


def sample_objects(store: ObjectStore, seed: int) -> Sample:
    """Objects in random order, until `LIMIT_BYTES` are reached; large ones in ranges at random.

    Raises BadValue when there is nothing to read, MissingPart without permission.
    """
    listed, skipped, asked = list(islice(store.listed(), MOST_LISTED + 1)), Counter[str](), 0

    def usable(name: str, listed_bytes: int | None) -> tuple[int, str]:
        """With a name that a path can have; where a listing has no sizes, of the first only."""
        nonlocal asked
        size, why = (0, UNSIZED) if listed_bytes is None and asked >= MOST_SIZED else store.sized(name, listed_bytes)
        asked += listed_bytes is None
        odd = size and name not in ("", Path(name).as_posix())
        return (0, "with an empty part in its name") if odd else (size, why)

    sample, _ = choose(listed, usable, skipped, seed)
    if not sample.pieces:
        store.check_permitted(skipped)
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "nothing is listed"
        raise BadValue(f"{store.url} holds no object to read ({why})", hint="give the URL of a folder of objects")
    cut = [Remark(code="listing_cut", facts={"objects": MOST_LISTED})] if len(listed) > MOST_LISTED else []
    large = sum(piece.size_bytes > LARGE_FILE_BYTES for piece in sample.pieces)
    block_bytes = RANGE_BYTES if 2 * large > len(sample.pieces) else None
    sample = replace(sample, block_bytes=block_bytes, notes=(*cut, *sample.notes))
    return in_parts(sample, RANGE_BYTES, seed, Remark(code="large_objects_in_ranges"))
