"""How fast is the generator, and do its images decode like photographs? Beside what others use; needs '.[bench]'.

`speed`: images/s in memory on one core, at the same dimensions, over those of a loop that saves grey uniform noise with
Pillow, and of one that makes 1/f noise by FFT. `disk`: MB/s with all cores, everything synced, of an image folder over
those of a loop that writes ready-made bytes, and of tar shards over `dd` with blocks of 1 MiB. `sizes`: percentiles of
a mixture against the 1,000 files of ILSVRC2012 that were measured, of which the mean size has an error of 2.5 %.
`decode`: each of twelve photographs that scikit-learn, scikit-image and matplotlib ship is encoded in the quality and
sampling of most of ImageNet and of its smaller part; beside it a generated image of the same dimensions, quality,
sampling and size is decoded in turn. Ends with code 1 when one of these is below or off what it has to be.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFile
from torchvision.io import decode_jpeg

from loaderprobe.datasets.generate.generate import SetRequest, generate, sync_filesystem
from loaderprobe.datasets.generate.jpeg import Frame, encoded
from loaderprobe.datasets.generate.pool import Base, BaseImage, PoolRequest, build_pool
from loaderprobe.stats import median
from loaderprobe.system.limits import cores_available
from loaderprobe.units import IMAGENET
from scripts.benches.harness import alternated, parser, spread

ImageFile.MAXBLOCK = 1 << 24
AT_LEAST = {"grey noise": 8.0, "FFT noise": 100.0, "loop of writes": 0.9, "dd": 0.8}
WITHIN = 0.10
"""Of the time to decode a photograph, and of a percentile of ImageNet's sizes."""
SIZE = (500, 375)
PERCENTILES = (25, 50, 75, 95)
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


def grey_noise() -> bytes:
    """As DLIO's generator does."""
    out = io.BytesIO()
    Image.fromarray(np.random.randint(255, size=SIZE[::-1], dtype=np.uint8)).save(out, "JPEG")
    return out.getvalue()


def fft_noise() -> bytes:
    """Colour noise whose amplitude falls with frequency, as photographs' does."""
    width, height = SIZE
    frequency = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.rfftfreq(width)[None] * width)
    frequency[0, 0] = 1
    planes = []
    for _ in range(3):
        noise = np.random.standard_normal(frequency.shape) + 1j * np.random.standard_normal(frequency.shape)
        field = np.fft.irfft2(noise / frequency**1.2, s=(height, width))
        planes.append((field / field.std() * 50 + 118).clip(0, 255))
    out = io.BytesIO()
    Image.fromarray(np.stack(planes, -1).astype(np.uint8)).save(out, "JPEG", quality=96, subsampling=0, optimize=True)
    return out.getvalue()


def per_s(make: Callable[[int], object], count: int) -> float:
    begin = time.perf_counter()
    for index in range(count):
        make(index)
    return count / (time.perf_counter() - begin)


def speed(asked: argparse.Namespace) -> bool:
    pool = build_pool(PoolRequest(resolution=SIZE, seed=0, base_images=24, mean_bytes=None), map, lambda *_: None)
    ratios: dict[str, list[float]] = {"grey noise": [], "FFT noise": []}
    speeds = []
    for number in range(asked.rounds):
        speeds.append(per_s(lambda index, first=number * 2000: pool.image(0, first + index, ()), 500))  # type: ignore[misc]
        ratios["grey noise"].append(speeds[-1] / per_s(lambda _: grey_noise(), 100))
        ratios["FFT noise"].append(speeds[-1] / per_s(lambda _: fft_noise(), 8))
    print(f"generator: {median(speeds):.0f} images/s of {pool.mean_bytes / 1e3:.0f} kB on one core")
    return fast_enough(ratios)


def fast_enough(found: dict[str, list[float]]) -> bool:
    for name, ratios in found.items():
        enough = "yes" if median(ratios) >= AT_LEAST[name] else "NO"
        print(f"generator / {name}: {spread(ratios, 2)}, at least {AT_LEAST[name]:g}: {enough}")
    return all(median(ratios) >= AT_LEAST[name] for name, ratios in found.items())


def written_s(folder: Path, write: Callable[[], object]) -> float:
    """Seconds to write, with everything on the medium at the end; nothing of others is waited for."""
    sync_filesystem(folder)
    begin = time.perf_counter()
    write()
    sync_filesystem(folder)
    return time.perf_counter() - begin


def disk(asked: argparse.Namespace) -> bool:
    requests = {
        "loop of writes": SetRequest(resolution=SIZE, base_images=24),
        "dd": SetRequest(resolution=SIZE, base_images=24, layout="shards", shard_images=500),
    }
    with tempfile.TemporaryDirectory(dir=asked.place, prefix=".bench-generate-") as scratch:
        return fast_enough({name: beside(name, request, Path(scratch), asked) for name, request in requests.items()})


def beside(name: str, request: SetRequest, place: Path, asked: argparse.Namespace) -> list[float]:
    """Time of the other way over that of the generator, for the same bytes."""
    made = partial(generate, request=request, processes=max(1, round(cores_available())), progress=lambda *_: None)
    first = made(place / "first", count=asked.images)
    ready = {str(path.relative_to(first)): path.read_bytes() for path in sorted(first.rglob("*")) if path.is_file()}
    shutil.rmtree(place / "first")
    (place / "other").mkdir()
    for folder in {Path(path).parent for path in ready}:
        (place / "other" / folder).mkdir(parents=True, exist_ok=True)

    def other() -> None:
        if name == "dd":
            command = ["dd", f"of={place / 'other' / 'all'}", "bs=1M", "status=none"]
            subprocess.run(command, input=b"".join(ready.values()), check=True)
            return
        for path, data in ready.items():
            with open(f"{place}/other/{path}", "wb") as file:  # noqa: PTH123  # the loop is not ours to slow down
                file.write(data)

    ratios = []
    for number in range(asked.rounds):
        # One image, so that painting the base images is not timed.
        made(place / "ours", count=1)
        ours = partial(made, place / "ours", count=asked.images)
        runs = {"other": partial(written_s, place, other), "ours": partial(written_s, place, ours)}
        took = alternated(runs, number)
        ratios.append(took["other"] / took["ours"])
        shutil.rmtree(place / "ours")
        for file in (each for each in (place / "other").rglob("*") if each.is_file()):
            file.unlink()
    shutil.rmtree(place / "other")
    return ratios


def sizes(asked: argparse.Namespace) -> bool:
    """Bytes of generated files, and of the colour files of ImageNet that were measured."""
    text = files("loaderprobe.datasets.generate").joinpath("imagenet_statistics.tsv").read_text()
    lines = [list(map(int, line.split("\t"))) for line in text.splitlines()[1:]]
    real = [line[5] for line in lines if line[4] == 3]
    pool = build_pool(SetRequest(resolution=IMAGENET).pool(), map, lambda *_: None)
    ours = [len(pool.image(0, index, ())) for index in range(asked.images)]
    good = True
    for percentile in PERCENTILES:
        ratio = float(np.percentile(ours, percentile) / np.percentile(real, percentile))
        good &= abs(ratio - 1) <= WITHIN
        print(f"size at {percentile} %: {np.percentile(ours, percentile) / 1e3:.1f} kB, {ratio:.3f} of ImageNet's")
    return good


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


PARTS = {"speed": speed, "disk": disk, "sizes": sizes, "decode": decode}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default=",".join(PARTS), help="with commas (%(default)s)")
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--images", type=int, default=6000, help="of each set that is made")
    options.add_argument("--place", type=Path, help="on the disk to write to", default=Path.cwd())
    asked = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    good = [PARTS[name](asked) for name in asked.only.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
