"""Do generated images decode like photographs, and how fast are they made? Needs '.[bench]'.

Each of twelve photographs that scikit-learn, scikit-image and matplotlib ship is encoded in the quality and sampling of
most of ImageNet and of its smaller part; beside it a generated image of the same dimensions, quality, sampling and size
is decoded in turn. Ends with code 1 when one takes over 10 % more or less than the photograph.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFile
from torchvision.io import decode_jpeg

from loaderprobe.datasets.generate.jpeg import Frame, encoded
from loaderprobe.datasets.generate.pool import Base, BaseImage, PoolRequest, build_pool
from loaderprobe.stats import median
from scripts.benches.harness import parser, spread

ImageFile.MAXBLOCK = 1 << 24
WITHIN = 0.10
"""Of the time to decode a photograph."""
SIZE = (500, 375)
PHOTOGRAPHS = {
    "sklearn.datasets": ("images/china.jpg", "images/flower.jpg"),
    "skimage": (
        "data/astronaut.png", "data/chelsea.png", "data/coffee.png", "data/hubble_deep_field.jpg", "data/ihc.png",
        "data/motorcycle_left.png", "data/motorcycle_right.png", "data/retina.jpg", "data/rocket.jpg",
    ),
    "matplotlib": ("mpl-data/sample_data/grace_hopper.jpg",),
}  # fmt: skip
WAYS = ((96, 0, (1, 1)), (75, 2, (2, 2)), (85, 2, (2, 2)))
"""Quality, subsampling as Pillow numbers it, and as a frame does."""


def per_s(make: Callable[[int], object], count: int) -> float:
    begin = time.perf_counter()
    for index in range(count):
        make(index)
    return count / (time.perf_counter() - begin)


def decode(asked: argparse.Namespace) -> bool:
    try:
        paths = [Path(str(files(package).joinpath(name))) for package, names in PHOTOGRAPHS.items() for name in names]
        photographs = [Image.open(path).convert("RGB") for path in paths]
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise SystemExit(f"{error}\nthe photographs are missing: .venv/bin/pip install -e '.[bench]'") from error
    good = True
    for quality, subsampling, sampling in WAYS:
        pairs = []
        for number, photograph in enumerate(photographs):
            out = io.BytesIO()
            photograph.save(out, "JPEG", quality=quality, subsampling=subsampling, optimize=True)
            frame = Frame(width=photograph.width, height=photograph.height, quality=quality, sampling=sampling)
            image = BaseImage(np.random.Generator(np.random.SFC64(number)), frame).sized(len(out.getvalue()))
            pairs.append((out.getvalue(), Base.of(encoded(image, frame)).vary(np.random.SFC64(number))))
        for name, decoder in DECODERS.items():
            ratios = [decoded_s(decoder, ours, asked) / decoded_s(decoder, real, asked) for real, ours in pairs]
            near = abs(median(ratios) - 1) <= WITHIN
            good &= near
            print(f"{name}, quality {quality}: generated / photograph {spread(ratios)}{'' if near else ' NO'}")
    return good


DECODERS: dict[str, Callable[[bytes], object]] = {
    "pillow": lambda data: Image.open(io.BytesIO(data)).load(),
    "torchvision": lambda data: decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8)),
}


def decoded_s(decoder: Callable[[bytes], object], data: bytes, asked: argparse.Namespace) -> float:
    """The least time of several: what else runs only adds."""
    return min(1 / per_s(lambda _: decoder(data), 1) for _ in range(2 * asked.rounds))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=8)
    asked = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    pool = build_pool(PoolRequest(resolution=SIZE, seed=0, base_images=24, mean_bytes=None), map, lambda *_: None)
    speeds = [per_s(lambda index: pool.image(0, index, ()), 500) for _ in range(asked.rounds)]
    print(f"{median(speeds):.0f} images/s of {pool.mean_bytes / 1e3:.0f} kB on one core")
    return 0 if decode(asked) else 1


if __name__ == "__main__":
    sys.exit(main())
