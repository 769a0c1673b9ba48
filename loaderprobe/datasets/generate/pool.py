"""The encoded base images of a set, and which of them each file is derived from."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from loaderprobe.datasets.generate.base_image import BaseImage
from loaderprobe.datasets.generate.free_bits import Base
from loaderprobe.datasets.generate.jpeg.encoder import encoded
from loaderprobe.datasets.generate.mixture import IMAGENET_MEAN_BYTES, Draw, draws, tilted
from loaderprobe.datasets.generate.oddities import OddityName, Segments, content_at, png_file
from loaderprobe.errors import BadValue
from loaderprobe.store.codec import write_atomically
from loaderprobe.units import format_bytes

# 2^64 over the golden ratio: its multiples fill the circle as evenly as any (Weyl's sequence), so that even a
# hundred files have the pool's mean size, as independent draws do not.
GOLDEN = 0x9E3779B97F4A7C15
WHOLE = 1 << 64
ODD_BASES = 4
Content = OddityName | None
Each = Callable[..., Iterable[Any]]
"""The builtin `map`, or the `map` of an executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """The settings that determine a pool."""

    resolution: tuple[int, int] | None
    """(width, height); None is ImageNet's mixture."""
    seed: int
    base_images: int
    mean_bytes: int | None
    """Of a file; None is what such images have in ImageNet."""
    oddities: tuple[OddityName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Bases by content, and the shares of those without oddity."""

    bases: dict[Content, tuple[Base, ...]]
    edges: NDArray[np.uint64]
    """Base k takes the part of the circle of 2^64 that ends before `edges[k]`; the last one the rest."""
    png: bytes = b""
    segments: Segments = field(default_factory=Segments)
    mean_bytes: float = field(default=0.0)
    """Of a file without oddity."""

    def image(self, seed: int, index: int, oddities: Sequence[OddityName]) -> bytes:
        """The file of image `index`: it depends only on these arguments and the pool."""
        content = content_at(index, oddities)
        if content == "png":
            return self.png
        bits = np.random.SFC64(np.random.SeedSequence([seed, index]))
        place = ((index + 1) * GOLDEN + seed * 0x632BE59BD9B4E019) % WHOLE
        bases = self.bases[content]
        if content is None:
            base = bases[int(np.searchsorted(self.edges, np.uint64(place), "right"))]
        else:
            base = bases[place * len(bases) // WHOLE]
        return base.vary(bits, self.segments.at(index, oddities) if oddities else b"")

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything that the files depend on."""
        found = hashlib.sha256()
        for name, column in _columns(self).items():
            found.update(name.encode() + column.astype(column.dtype.newbyteorder("<")).tobytes())
        return found.hexdigest()

    def save(self, path: Path) -> None:
        """Write the pool completely or not at all. Raises NoSpace and MissingPart."""
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, **_columns(self))
        write_atomically(path, out.getvalue())


def build_pool(request: PoolRequest, each: Each, progress: Callable[[int, int], None]) -> Pool:
    """Paint and encode every base image, with `each` to map. Raises BadValue when a mean size is out of their reach."""
    wanted = list(_wanted(request))
    progress(0, len(wanted))
    made: dict[Content, list[Base]] = {content: [] for content, _, _ in wanted}
    for done, (content, base) in enumerate(each(_base, wanted), 1):
        made[content].append(base)
        progress(done, len(wanted))
    # Neighbours on the circle are of nearly one size, so that few files have nearly the mean of all.
    made[None].sort(key=lambda base: base.size_bytes)
    sizes = [base.size_bytes for base in made[None]]
    natural = sum(sizes) / len(sizes)
    target = request.mean_bytes or (IMAGENET_MEAN_BYTES if request.resolution is None else natural)
    weights = tilted(sizes, target)
    if weights is None and request.mean_bytes is None:
        # A few base images may miss the mixture's mean, which was not requested.
        weights = [1 / len(sizes)] * len(sizes)
    if weights is None:
        raise BadValue(
            f"no mixture of these base images has a mean size of {format_bytes(target)}: "
            f"they have {format_bytes(min(sizes))} to {format_bytes(max(sizes))}",
            hint="choose a mean size between these, another resolution, or more base images with --pool",
        )
    edges = [round(share * WHOLE) for share in np.cumsum(weights)[:-1]]
    rng = _rng(request.seed, 2)
    return Pool(
        bases={content: tuple(bases) for content, bases in made.items()},
        edges=np.array([min(edge, WHOLE - 1) for edge in edges], np.uint64),
        png=png_file(rng, *(request.resolution or (500, 375))) if "png" in request.oddities else b"",
        segments=Segments.made(request.oddities),
        mean_bytes=float(np.dot(weights, sizes)),
    )


def expected_mean(request: PoolRequest) -> float:
    """The expected mean size of a file before anything is painted, bytes."""
    if request.mean_bytes:
        return float(request.mean_bytes)
    found = draws(request.resolution, request.base_images, _rng(request.seed, 1))
    return sum(draw.size_bytes for draw in found) / len(found)


def _rng(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))


def _wanted(request: PoolRequest) -> Iterator[tuple[Content, Draw, list[int]]]:
    """(content, draw, seed) of every base image."""
    rng = _rng(request.seed, 1)
    contents: list[tuple[Content, int, int]] = [(None, 3, request.base_images)]
    contents += [(name, count, ODD_BASES) for name, count in (("grey", 1), ("cmyk", 4)) if name in request.oddities]
    for content, components, count in contents:
        found = draws(request.resolution, count, rng, components=components)
        natural = sum(draw.size_bytes for draw in found) / len(found)
        scale = request.mean_bytes / natural if request.mean_bytes else 1.0
        for number, draw in enumerate(found):
            scaled = Draw(frame=draw.frame, size_bytes=draw.size_bytes * scale)
            yield content, scaled, [request.seed, 3, components, number]


def _base(wanted: tuple[Content, Draw, list[int]]) -> tuple[Content, Base]:
    content, draw, seed = wanted
    rng = _rng(*seed)
    return content, Base.of(encoded(BaseImage(rng, draw.frame).sized(draw.size_bytes), draw.frame))


def _cut(data: bytes, lengths: NDArray[np.int64]) -> tuple[bytes, ...]:
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return tuple(data[begin:end] for begin, end in pairwise(ends))


def is_pool(path: Path) -> bool:
    """True for a file with the columns of a pool; another program's file may have its name."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            return {"content", "heads", "free", "edges"} <= set(columns.files)
    except (OSError, ValueError, BadZipFile):
        return False


def load_pool(path: Path, digest: str) -> Pool:
    """The stored pool. Raises BadValue when its digest differs."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            pool = _pool({name: columns[name] for name in columns.files})
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise BadValue(f"{path} cannot be read: {error}", hint="remove the data set and generate it again") from error
    if pool.digest != digest:
        raise BadValue(f"{path} is not the pool of this data set", hint="remove the data set and generate it again")
    return pool


def _columns(pool: Pool) -> dict[str, NDArray[Any]]:
    """Flat arrays with all parts of all bases, concatenated."""
    ordered = [(content, base) for content in (None, "grey", "cmyk") for base in pool.bases.get(content, ())]
    parts = [(base.start, base.tables) for _, base in ordered]
    return {
        "content": np.array([("", "grey", "cmyk").index(content or "") for content, _ in ordered], np.int64),
        "heads": np.frombuffer(b"".join(start + tables for start, tables in parts), np.uint8),
        "head_bytes": np.array([(len(start), len(tables)) for start, tables in parts], np.int64).reshape(-1, 2),
        "scans": np.concatenate([base.scan for _, base in ordered]),
        "free": np.concatenate([base.free for _, base in ordered]),
        "scan_bytes": np.array([base.scan_bytes for _, base in ordered], np.int64),
        "edges": pool.edges,
        "png": np.frombuffer(pool.png, np.uint8),
        "exif": np.frombuffer(b"".join(pool.segments.exif), np.uint8),
        "exif_bytes": np.array([len(each) for each in pool.segments.exif], np.int64),
        "icc": np.frombuffer(pool.segments.icc, np.uint8),
        "mean_bytes": np.array([pool.mean_bytes]),
    }


def _pool(columns: dict[str, NDArray[Any]]) -> Pool:
    heads, scan_bytes = columns["heads"].tobytes(), columns["scan_bytes"]
    words = np.concatenate([[0], np.cumsum(-(-scan_bytes // 8))])
    pieces = _cut(heads, columns["head_bytes"])
    bases: dict[Content, list[Base]] = {}
    names: tuple[Content, ...] = (None, "grey", "cmyk")
    for number, (begin, end) in enumerate(pairwise(words)):
        base = Base(
            start=pieces[2 * number],
            tables=pieces[2 * number + 1],
            scan=columns["scans"][begin:end],
            free=columns["free"][begin:end],
            scan_bytes=int(scan_bytes[number]),
        )
        bases.setdefault(names[int(columns["content"][number])], []).append(base)
    return Pool(
        bases={content: tuple(found) for content, found in bases.items()},
        edges=columns["edges"],
        png=columns["png"].tobytes(),
        segments=Segments(exif=_cut(columns["exif"].tobytes(), columns["exif_bytes"]), icc=columns["icc"].tobytes()),
        mean_bytes=float(columns["mean_bytes"][0]),
    )
