"""Are generated images like ImageNet's, and do they decode like photographs? Needs '.[bench]'.

First a table: sizes, bytes per pixel by quality, shares of samplings and qualities, and of files with optimised
Huffman tables, of the 1,000 files of ILSVRC2012 that were measured, and of generated sets: the mixture and each fixed
resolution. Then the time to decode. Each of twelve photographs that scikit-learn, scikit-image and matplotlib ship is
encoded again, in the quality and sampling of most of ImageNet and of its smaller part; beside it a generated image
of the same dimensions, quality, sampling and size is decoded in turn. The same pixels and bytes, so ms per megapixel
and per MB compare alike. Ends with code 1 when the mixture is not like ImageNet, or a decoder's median ratio is off
by more than 10 %.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile, JpegImagePlugin

from loaderprobe.datasets.generate.generate import SetRequest
from loaderprobe.datasets.generate.jpeg import LUMINANCE, Frame, encoded, scaled
from loaderprobe.datasets.generate.pool import IMAGENET_MEAN_BYTES, Base, BaseImage, build_pool
from loaderprobe.stats import median
from loaderprobe.units import IMAGENET, Resolution, format_resolution
from scripts.benches.harness import alternated, parser, spread

ImageFile.MAXBLOCK = 1 << 24
PHOTOGRAPHS = {
    "sklearn.datasets": ("images/china.jpg", "images/flower.jpg"),
    "skimage": (
        "data/astronaut.png", "data/chelsea.png", "data/coffee.png", "data/hubble_deep_field.jpg", "data/ihc.png",
        "data/motorcycle_left.png", "data/motorcycle_right.png", "data/retina.jpg", "data/rocket.jpg",
    ),
    "matplotlib": ("mpl-data/sample_data/grace_hopper.jpg",),
}  # fmt: skip
# (quality, subsampling as Pillow numbers it, as a frame does)
WAYS = ((96, 0, (1, 1)), (75, 2, (2, 2)), (85, 2, (2, 2)))
RESOLUTIONS: tuple[Resolution, ...] = (IMAGENET, (256, 256), (500, 375), (1024, 768))
WITHIN = 0.10
# The mixture against the measured files: they are a sample of 977, whose own mean has an error of 2.5 %.
SHARE_POINTS, RELATIVE = 0.025, 0.10
MEAN_WITHIN = 0.01
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
STANDARD_TABLES = 416
"""Bytes of the four Huffman tables of T.81 Annex K.3, which an encoder takes that does not optimise."""


class Seen:
    """What a set of files is like."""

    def __init__(self, name: str, size: Sequence[int], pixels: Sequence[int], quality: Sequence[int],
                 sampling: Sequence[str], optimised: float) -> None:  # fmt: skip
        self.name, self.size, self.pixels = name, np.array(size), np.array(pixels)
        self.quality, self.sampling, self.optimised = np.array(quality), np.array(sampling), optimised

    def figures(self) -> dict[str, tuple[float, float]]:
        """What must agree with ImageNet: name to (figure, how far off it may be, relative or in points)."""
        shares = {name: float((self.sampling == name).mean()) for name in ("4:4:4", "4:2:0")}
        shares["quality 96"] = float((self.quality == 96).mean())
        shares["optimised Huffman"] = self.optimised
        percentiles = {f"size p{p}": float(np.percentile(self.size, p)) for p in (25, 50, 75, 95)}
        per_pixel = {"bytes/pixel, all": float(self.size.sum() / self.pixels.sum())}
        return {name: (value, SHARE_POINTS) for name, value in shares.items()} | {
            name: (value, RELATIVE * value) for name, value in (percentiles | per_pixel).items()
        }

    def rows(self) -> dict[str, str]:
        per_pixel = self.size / self.pixels
        good = self.quality >= 93
        found = {
            "files": str(len(self.size)),
            "mean size, kB": f"{self.size.mean() / 1e3:.1f}",
            "mean pixels, k": f"{self.pixels.mean() / 1e3:.0f}",
        }
        found |= {f"size p{p}, kB": f"{np.percentile(self.size, p) / 1e3:.1f}" for p in PERCENTILES}
        found["bytes/pixel, all"] = f"{self.size.sum() / self.pixels.sum():.3f}"
        found["bytes/pixel, q >= 93"] = f"{per_pixel[good].mean():.3f}"
        found["bytes/pixel, q < 93"] = f"{per_pixel[~good].mean():.3f}"
        found["quality 96"] = f"{(self.quality == 96).mean():.1%}"
        found["quality under 93"] = f"{(~good).mean():.1%}"
        found |= {name: f"{(self.sampling == name).mean():.1%}" for name in ("4:4:4", "4:2:0", "4:2:2")}
        found["optimised Huffman"] = f"{self.optimised:.1%}"
        return found


NAMES = {"11": "4:4:4", "22": "4:2:0", "21": "4:2:2", "12": "4:4:0"}


def measured() -> Seen:
    """The colour files of ImageNet."""
    text = files("loaderprobe.datasets.generate").joinpath("imagenet_statistics.tsv").read_text()
    lines = [list(map(int, line.split("\t"))) for line in text.splitlines()[1:]]
    colour = [line for line in lines if line[4] == 3]
    return Seen(
        "ImageNet", [line[5] for line in colour], [line[0] * line[1] for line in colour],
        [line[2] for line in colour], [NAMES[str(line[3])] for line in colour], 0.979,
    )  # fmt: skip


def generated(resolution: Resolution, count: int, base_images: int | None) -> Seen:
    """Files of a set, read with Pillow as any other files."""
    request = SetRequest(resolution=resolution, base_images=base_images)
    pool = build_pool(request.pool(), map, lambda *_: None)
    data = [pool.image(0, index, ()) for index in range(count)]
    images = [Image.open(io.BytesIO(each)) for each in data]
    # Pillow knows no other; 4:4:0 is one.
    sampling = [{0: "4:4:4", 1: "4:2:2", 2: "4:2:0"}.get(JpegImagePlugin.get_sampling(i), "other") for i in images]
    return Seen(
        format_resolution(resolution), [len(each) for each in data], [i.width * i.height for i in images],
        [quality_of(image) for image in images], sampling,
        sum(huffman_bytes(each) != STANDARD_TABLES for each in data) / count,
    )  # fmt: skip


def quality_of(image: Any) -> int:
    """Of the Independent JPEG Group's scale, from the first step of the luminance table and the sum of all."""
    table = list(image.quantization[0])
    return next(quality for quality in range(1, 101) if list(scaled(LUMINANCE, quality)) == table)


def huffman_bytes(data: bytes) -> int:
    """Bytes of all Huffman tables, without markers and lengths."""
    total, at = 0, 2
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        total += (length - 2) * (data[at + 1] == 0xC4)
        at += 2 + length
    return total


def table(sets: Sequence[Seen]) -> None:
    rows = [each.rows() for each in sets]
    print(f"{'':22}" + "".join(f"{each.name:>12}" for each in sets))
    for name in rows[0]:
        print(f"{name:22}" + "".join(f"{row[name]:>12}" for row in rows))


def alike(real: Seen, made: Seen) -> bool:
    """Print what differs by more than it may; True when nothing does, and the mean size is that of the whole set."""
    off = [
        f"{name} {made.figures()[name][0]:.4g}, of ImageNet {value:.4g}"
        for name, (value, tolerance) in real.figures().items()
        if abs(made.figures()[name][0] - value) > tolerance
    ]
    if abs(made.size.mean() / IMAGENET_MEAN_BYTES - 1) > MEAN_WITHIN:
        off.append(f"mean size {made.size.mean():.0f}, of all of ImageNet {IMAGENET_MEAN_BYTES}")
    print(f"{made.name}: " + ("; ".join(f"NOT alike: {each}" for each in off) or "alike"))
    return not off


def photographs() -> list[Image.Image]:
    """The twelve, in colour. Raises SystemExit where they are not installed."""
    try:
        paths = [Path(str(files(package).joinpath(name))) for package, names in PHOTOGRAPHS.items() for name in names]
        return [Image.open(path).convert("RGB") for path in paths]
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise SystemExit(f"{error}\nthe photographs are missing: .venv/bin/pip install -e '.[bench]'") from error


def twins(quality: int, subsampling: int, sampling: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    """(photograph, generated image) of the same dimensions and nearly the same size."""
    found = []
    for number, photograph in enumerate(photographs()):
        out = io.BytesIO()
        photograph.save(out, "JPEG", quality=quality, subsampling=subsampling, optimize=True)
        real = out.getvalue()
        frame = Frame(width=photograph.width, height=photograph.height, quality=quality, sampling=sampling)
        rng = np.random.Generator(np.random.SFC64(number))
        base = Base.of(encoded(BaseImage(rng, frame).sized(len(real)), frame))
        found.append((real, base.vary(np.random.SFC64(number))))
    return found


def pillow(data: bytes) -> None:
    Image.open(io.BytesIO(data)).load()


def torchvision(data: bytes) -> None:
    import torch
    from torchvision.io import decode_jpeg

    decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def best_s(decode: Callable[[bytes], None], pair: tuple[bytes, bytes], rounds: int) -> list[float]:
    """The least time of each of the two, decoded in turn: what else runs only adds."""
    took: dict[str, list[float]] = {"generated": [], "photograph": []}
    runs = {"generated": lambda: timed(decode, pair[1]), "photograph": lambda: timed(decode, pair[0])}
    for number in range(rounds):
        for name, seconds in alternated(runs, number).items():
            took[name].append(seconds)
    return [min(took["photograph"]), min(took["generated"])]


def timed(decode: Callable[[bytes], None], data: bytes) -> float:
    begin = time.perf_counter()
    decode(data)
    return time.perf_counter() - begin


def show_decoding(title: str, costs: dict[str, list[tuple[float, float]]]) -> bool:
    """One line for each unit, of seconds a pixel or a byte: (photograph, generated image). True when they are near."""
    good = True
    for unit, pairs in costs.items():
        ratios = [ours / real for real, ours in pairs]
        near = abs(median(ratios) - 1) <= WITHIN
        good = good and near
        print(
            f"{title}: photographs {median([real for real, _ in pairs]) * 1e9:6.2f} ms/{unit}, generated "
            f"{median([ours for _, ours in pairs]) * 1e9:6.2f}; ratio {spread(ratios)}{'' if near else ' NO'}"
        )
    return good


def decoding(rounds: int) -> bool:
    """Print one line for each decoder and way; True when all are within the limit."""
    good = True
    for quality, subsampling, sampling in WAYS:
        pairs = twins(quality, subsampling, sampling)
        for decode in (pillow, torchvision):
            times = [best_s(decode, pair, rounds) for pair in pairs]
            pixels = [math.prod(Image.open(io.BytesIO(real)).size) for real, _ in pairs]
            good = (
                show_decoding(
                    f"{decode.__name__:12} q{quality} {NAMES[f'{sampling[0]}{sampling[1]}']}",
                    {
                        "Mpx": [
                            (real / count, ours / count) for (real, ours), count in zip(times, pixels, strict=True)
                        ],
                        "MB": [(t[0] / len(p[0]), t[1] / len(p[1])) for t, p in zip(times, pairs, strict=True)],
                    },
                )
                and good
            )
    return good


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=1000, help="files of each generated set")
    options.add_argument("--rounds", type=int, default=15, help="times that each image is decoded")
    options.add_argument("--base-images", type=int, help="in each pool; what is usual when not given")
    asked = options.parse_args()
    real, made = measured(), [generated(resolution, asked.count, asked.base_images) for resolution in RESOLUTIONS]
    table([real, *made])
    good = alike(real, made[0])
    return 0 if decoding(asked.rounds) and good else 1


if __name__ == "__main__":
    sys.exit(main())
