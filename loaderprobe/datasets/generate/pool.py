"""The encoded base images of a set, and which of them each file is derived from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaderprobe.datasets.generate.jpeg import (
    Encoded,
    Frame,
    Plane,
    Spectrum,
    Tokens,
    encoded,
    encoded_size,
    scan_tokens,
    spectra,
)
from loaderprobe.datasets.generate.manifest import SetSpec
from loaderprobe.datasets.generate.oddities import OddityName, Segments, content_at, png_file
from loaderprobe.errors import BadValue
from loaderprobe.protocols import OnImages
from loaderprobe.units import IMAGENET, format_bytes

# Natural-looking images by the dead-leaves model: textured shapes that occlude one another.
#
# Chosen among five models in earlier experiments, where its bytes per pixel came closest to photographs over
# JPEG quality; uniform noise takes twice the bytes. Planes are luminance and two chrominances, less 128.

# Shapes per pixel of a 500 x 375 image with 2000 of them.
SHAPES_PER_PIXEL = 2000 / (500 * 375)
SMALLEST_RADIUS = 2.0
BACKGROUND_SHAPES = 25
TEXTURE_EXPONENT = 0.8
TEXTURE_STRENGTH = 5.4
BOX_SHARE = 0.35
GREY = -8.0
"""The mean of luminance, less 128."""
# Grain of a camera: nearly the same in all colours, so it shows in luminance.
GRAIN = (1.0, 0.22, 0.22)


def pink_plane(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """A field whose amplitude falls as 1 / frequency^exponent, with deviation 1; height x width."""
    vertical = np.fft.fftfreq(height)[:, None] * height
    horizontal = np.fft.rfftfreq(width)[None] * width
    frequency = np.hypot(vertical, horizontal)
    frequency[0, 0] = 1
    spectrum = (rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)) / frequency**exponent
    spectrum[0, 0] = 0
    field = np.fft.irfft2(spectrum, s=(height, width))
    plane: Plane = (field / field.std()).astype(np.float32)
    return plane


def dead_leaves(rng: np.random.Generator, width: int, height: int) -> list[Plane]:
    """An image: three planes of height x width."""
    planes = np.zeros((height, width, 3), np.float32)
    planes[..., 0] = GREY
    texture = pink_plane(rng, height, width, TEXTURE_EXPONENT)
    for shape in _shapes(rng, width, height):
        _paint(planes, texture, shape)
    return list(np.moveaxis(softened(planes), 2, 0))


def grain(rng: np.random.Generator, width: int, height: int) -> list[Plane]:
    """Noise with deviation 1 in luminance, three planes of height x width."""
    return [rng.standard_normal((height, width), np.float32) * np.float32(strength) for strength in GRAIN]


def _shapes(rng: np.random.Generator, width: int, height: int) -> NDArray[Any]:
    """The shapes in the order of painting, as records: radii follow r^-3, the first ones cover the ground."""
    count = max(BACKGROUND_SHAPES, round(SHAPES_PER_PIXEL * width * height))
    largest = min(width, height) * 0.5
    shapes = np.zeros(
        count,
        dtype=[(name, np.float32) for name in ("x", "y", "rx", "ry", "luma", "cb", "cr", "dx", "dy", "texture", "box")],
    )
    radius = (SMALLEST_RADIUS**-2 - rng.random(count) * (SMALLEST_RADIUS**-2 - largest**-2)) ** -0.5
    radius[:BACKGROUND_SHAPES] = rng.uniform(largest * 0.35, largest, BACKGROUND_SHAPES)
    aspect = rng.uniform(0.5, 2, count) ** 0.5
    shapes["rx"], shapes["ry"] = radius * aspect, radius / aspect
    shapes["x"], shapes["y"] = rng.uniform(0, width, count), rng.uniform(0, height, count)
    shapes["luma"] = rng.normal(118, 58, count).clip(0, 255) - 128
    shapes["cb"], shapes["cr"] = rng.normal(0, 14, count), rng.normal(0, 14, count)
    shapes["dx"], shapes["dy"] = rng.normal(0, 0.18, count), rng.normal(0, 0.18, count)
    shapes["texture"] = np.abs(rng.standard_cauchy(count)).clip(0, 4) * TEXTURE_STRENGTH
    shapes["box"] = rng.random(count) < BOX_SHARE
    return shapes


def _paint(planes: NDArray[np.float32], texture: Plane, shape: Any) -> None:
    height, width, _ = planes.shape
    left, right = max(0, int(shape["x"] - shape["rx"])), min(width, int(shape["x"] + shape["rx"]) + 1)
    top, bottom = max(0, int(shape["y"] - shape["ry"])), min(height, int(shape["y"] + shape["ry"]) + 1)
    y = np.arange(top, bottom, dtype=np.float32)[:, None] - shape["y"]
    x = np.arange(left, right, dtype=np.float32)[None] - shape["x"]
    window = planes[top:bottom, left:right]
    inside = np.ones(window.shape[:2], bool) if shape["box"] else (x / shape["rx"]) ** 2 + (y / shape["ry"]) ** 2 <= 1
    luma = shape["luma"] + shape["dx"] * x + shape["dy"] * y + shape["texture"] * texture[top:bottom, left:right]
    window[..., 0][inside] = luma[inside]
    window[..., 1][inside] = shape["cb"]
    window[..., 2][inside] = shape["cr"]


def softened(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Blur edges as a lens does: a binomial filter of three pixels each way, along the first two axes; in place."""
    planes[1:-1] = 0.25 * planes[:-2] + 0.5 * planes[1:-1] + 0.25 * planes[2:]
    planes[:, 1:-1] = 0.25 * planes[:, :-2] + 0.5 * planes[:, 1:-1] + 0.25 * planes[:, 2:]
    return planes


# A base image whose file has a given size: one knob from blurred and flat to sharp and grainy.

# Contrast rises with the knob up to its middle, where the image is as painted, with the grain of a camera.
FLATTEST = 0.04
LEAST_GRAIN, MOST_GRAIN = 2.0, 250.0
GRAIN_EXPONENT = 2.5
CLOSE_ENOUGH = 0.01
MOST_TRIES = 8


class BaseImage:
    """Dead leaves in one frame. Its spectrum is a sum, so the DCT is computed once and not for every try."""

    def __init__(self, rng: np.random.Generator, frame: Frame) -> None:
        self._frame = frame
        sharp = dead_leaves(rng, frame.width, frame.height)
        noise = grain(rng, frame.width, frame.height)
        soft = [softened(softened(plane.copy())) for plane in sharp]
        self._sharp, self._soft, self._grain = (
            spectra(_components(planes, frame.components), frame) for planes in (sharp, soft, noise)
        )

    def tokens(self, knob: float) -> Tokens:
        """The image quantised at a knob of 0 to 1; the file grows with the knob."""
        contrast = min(1.0, FLATTEST + (1 - FLATTEST) * 2 * knob)
        blur = max(0.0, 1 - 2 * knob)
        strength = LEAST_GRAIN * min(1.0, 2 * knob) + MOST_GRAIN * max(0.0, knob - 0.5) ** GRAIN_EXPONENT
        mixed: list[Spectrum] = []
        for sharp, soft, noise in zip(self._sharp, self._soft, self._grain, strict=True):
            mixed.append(contrast * ((1 - blur) * sharp + blur * soft) + strength * noise)
        return scan_tokens(mixed, self._frame)

    def sized(self, target_bytes: float) -> Tokens:
        """The image at the knob whose file is nearest to the target, within 1 % where the knob has enough range."""
        low, high, knob = 0.0, 1.0, 0.5
        best: tuple[float, Tokens] | None = None
        for _ in range(MOST_TRIES):
            tokens = self.tokens(knob)
            error = math.log(encoded_size(tokens, self._frame) / target_bytes)
            if best is None or abs(error) < abs(best[0]):
                best = error, tokens
            if abs(error) <= CLOSE_ENOUGH:
                break
            low, high = (knob, high) if error < 0 else (low, knob)
            knob = (low + high) / 2
        assert best is not None
        return best[1]


def _components(planes: Sequence[Plane], count: int) -> list[Plane]:
    """The planes as grey, as colour, or as the inks of a CMYK file: cyan, magenta, yellow about the grey, and black."""
    if count == 4:
        luminance, blue, red = planes
        return [luminance - red, luminance + (blue + red) / 4, luminance - blue, np.full_like(luminance, -GREY)]
    return list(planes[:count])


# Sizes, qualities and samplings of ImageNet's images, drawn from measured files.
#
# `imagenet_statistics.tsv` holds one line for each of 1,000 files of ILSVRC2012, one of every class (the sample images
# collected by E. Schwartz): width, height, quality of the quantisation tables, sampling factors of luminance, number of
# components, bytes of the file and of its header. It holds figures only, and no part of an image.

# MLPerf Storage's record length of ResNet-50; it agrees with the size of the training set's tar file.
IMAGENET_MEAN_BYTES = 114_660
HEADER_BYTES = 600
# Relative: a mean that is as near as this needs no weights to be had.
CLOSE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The properties of an image to generate."""

    frame: Frame
    size_bytes: float
    """Of the file, without more segments than the usual."""


@cache
def _table() -> tuple[Draw, ...]:
    """The measured files, ordered so that neighbours are similar."""
    text = files("loaderprobe.datasets.generate").joinpath("imagenet_statistics.tsv").read_text()
    lines = [tuple(map(int, line.split("\t"))) for line in text.splitlines()[1:]]
    draws = [
        Draw(
            frame=Frame(
                width=width, height=height, quality=quality, components=components,
                sampling=divmod(sampling, 10) if components == 3 else (1, 1),
            ),
            # Long headers are oddities of their own; the scan is what makes the work.
            size_bytes=size - header + min(header, HEADER_BYTES),
        )
        for width, height, quality, sampling, components, size, header in lines
    ]  # fmt: skip
    return tuple(sorted(draws, key=lambda draw: (draw.frame.sampling, draw.frame.quality, draw.size_bytes)))


def draws(resolution: str, count: int, rng: np.random.Generator, *, components: int = 3) -> list[Draw]:
    """`count` images like ImageNet's; at one resolution, with the bytes per pixel they have there.

    Takes every k-th of the measured files, ordered so that neighbours are similar. So even a few of them have all
    samplings, qualities and sizes in their shares.
    """
    table = [draw for draw in _table() if draw.frame.components == (1 if components == 1 else 3)]
    positions = (np.arange(count) + rng.random()) * len(table) / count
    chosen = [table[int(position) % len(table)] for position in positions]
    if components == 4:
        chosen = [replace(draw, frame=replace(draw.frame, components=4, sampling=(1, 1))) for draw in chosen]
    return chosen if resolution == IMAGENET else [_resized(draw, *_pixels(resolution)) for draw in chosen]


def _pixels(resolution: str) -> tuple[int, int]:
    width, _, height = resolution.partition("x")
    return int(width), int(height)


def _resized(draw: Draw, width: int, height: int) -> Draw:
    scan = draw.size_bytes - min(draw.size_bytes / 2, HEADER_BYTES)
    per_pixel = scan / (draw.frame.width * draw.frame.height)
    return Draw(
        frame=replace(draw.frame, width=width, height=height), size_bytes=HEADER_BYTES + per_pixel * width * height
    )


def tilted(sizes: Sequence[float], target: float) -> list[float] | None:
    """Weights with sum 1 under which the mean of the sizes is the target, as equal as can be (largest entropy).

    They are exponential in the size (E. T. Jaynes 1957). None when the target is beyond the sizes by over 1 %.
    """
    values = np.asarray(sizes, np.float64)
    if len(set(sizes)) == 1 or not values.min() < target < values.max():
        return [1 / len(sizes)] * len(sizes) if np.isclose(values.mean(), target, rtol=CLOSE) else None
    scaled = (values - values.mean()) / values.std()
    low, high = -700.0, 700.0
    for _ in range(200):
        middle = (low + high) / 2
        exponent = middle * scaled
        weights = np.exp(exponent - exponent.max())
        weights /= weights.sum()
        low, high = (middle, high) if weights @ values < target else (low, middle)
    return [float(weight) for weight in weights]


# 2^64 over the golden ratio: its multiples fill the circle as evenly as any (Weyl's sequence), so that even a
# hundred files have the pool's mean size, as independent draws do not.
GOLDEN = 0x9E3779B97F4A7C15
WHOLE = 1 << 64
ODD_BASES = 4
Content = OddityName | None
Mapper = Callable[..., Iterable[Any]]
"""The builtin `map`, or the `map` of an executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Bases by content, and the shares of those without oddity."""

    bases: dict[Content, tuple[Encoded, ...]]
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
        point = ((index + 1) * GOLDEN + seed * 0x632BE59BD9B4E019) % WHOLE
        bases = self.bases[content]
        if content is None:
            base = bases[int(np.searchsorted(self.edges, np.uint64(point), "right"))]
        else:
            base = bases[point * len(bases) // WHOLE]
        return base.vary(bits, self.segments.at(index, oddities) if oddities else b"")

    def encoded(self) -> bytes:
        """All that the files depend on, as a file holds it."""
        return msgspec.msgpack.encode(self, enc_hook=lambda words: words.astype("<u8", copy=False).tobytes())


def build_pool(spec: SetSpec, mapper: Mapper, progress: OnImages) -> Pool:
    """Paint and encode every base image through `mapper`. Raises BadValue when a mean size is out of their reach."""
    wanted = list(_wanted(spec))
    progress(0, len(wanted))
    made: dict[Content, list[Encoded]] = {content: [] for content, _, _ in wanted}
    for done, (content, base) in enumerate(mapper(_base, wanted), 1):
        made[content].append(base)
        progress(done, len(wanted))
    # Neighbours on the circle are of nearly one size, so that few files have nearly the mean of all.
    made[None].sort(key=lambda base: base.size_bytes)
    sizes = [base.size_bytes for base in made[None]]
    natural = sum(sizes) / len(sizes)
    target = spec.mean_bytes or (IMAGENET_MEAN_BYTES if spec.resolution == IMAGENET else natural)
    weights = tilted(sizes, target)
    if weights is None and spec.mean_bytes is None:
        # A few base images may miss the mixture's mean, which was not requested.
        weights = [1 / len(sizes)] * len(sizes)
    if weights is None:
        raise BadValue(
            f"no mixture of these base images has a mean size of {format_bytes(target)}: "
            f"they have {format_bytes(min(sizes))} to {format_bytes(max(sizes))}",
            hint="choose a mean size between these, another resolution, or more base images with --pool",
        )
    edges = [round(share * WHOLE) for share in np.cumsum(weights)[:-1]]
    width, height = (500, 375) if spec.resolution == IMAGENET else _pixels(spec.resolution)
    return Pool(
        bases={content: tuple(bases) for content, bases in made.items()},
        edges=np.array([min(edge, WHOLE - 1) for edge in edges], np.uint64),
        png=png_file(_rng(spec.seed, 2), width, height) if "png" in spec.oddities else b"",
        segments=Segments.made(spec.oddities),
        mean_bytes=float(np.dot(weights, sizes)),
    )


def expected_mean(spec: SetSpec) -> float:
    """The expected mean size of a file before anything is painted, bytes."""
    if spec.mean_bytes:
        return float(spec.mean_bytes)
    chosen = draws(spec.resolution, spec.base_images, _rng(spec.seed, 1))
    return sum(draw.size_bytes for draw in chosen) / len(chosen)


def _rng(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))


def _wanted(spec: SetSpec) -> Iterator[tuple[Content, Draw, list[int]]]:
    """(content, draw, seed) of every base image."""
    rng = _rng(spec.seed, 1)
    contents: list[tuple[Content, int, int]] = [(None, 3, spec.base_images)]
    contents += [(name, count, ODD_BASES) for name, count in (("grey", 1), ("cmyk", 4)) if name in spec.oddities]
    for content, components, count in contents:
        chosen = draws(spec.resolution, count, rng, components=components)
        natural = sum(draw.size_bytes for draw in chosen) / len(chosen)
        scale = spec.mean_bytes / natural if spec.mean_bytes else 1.0
        for number, draw in enumerate(chosen):
            scaled = Draw(frame=draw.frame, size_bytes=draw.size_bytes * scale)
            yield content, scaled, [spec.seed, 3, components, number]


def _base(wanted: tuple[Content, Draw, list[int]]) -> tuple[Content, Encoded]:
    content, draw, seed = wanted
    rng = _rng(*seed)
    return content, encoded(BaseImage(rng, draw.frame).sized(draw.size_bytes), draw.frame)


def is_pool(path: Path) -> bool:
    """True for a file that holds a pool; another program's file may have its name."""
    with suppress(OSError, msgspec.DecodeError):
        return bool(_decoded(path.read_bytes()).bases)
    return False


def load_pool(path: Path, digest: str) -> Pool:
    """The stored pool. Raises BadValue when its digest differs."""
    try:
        encoded = path.read_bytes()
    except OSError as error:
        raise BadValue(f"{path} cannot be read: {error}", hint="remove the data set and generate it again") from error
    if hashlib.sha256(encoded).hexdigest() != digest:
        raise BadValue(f"{path} is not the pool of this data set", hint="remove the data set and generate it again")
    return _decoded(encoded)


def _decoded(data: bytes) -> Pool:
    return msgspec.msgpack.decode(data, type=Pool, dec_hook=lambda _, words: np.frombuffer(words, "<u8"))
