"""How fast is the generator? Beside loops that others use, in turn.

In memory, on one core, at the same dimensions: images/s of the generator over those of a loop that saves grey uniform
noise with Pillow, and of one that makes 1/f noise by FFT and saves it with Pillow. To disk, with all cores, the same
bytes, everything synced: MB/s of an image folder over those of a loop that writes ready-made bytes to the same names;
and of tar shards over `dd` with blocks of 1 MiB. Prints medians with their ranges, and ends with code 1 when one is
below what it has to be.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

from loaderprobe.datasets.generate.generate import SetRequest, generate, sync_filesystem
from loaderprobe.datasets.generate.manifest import Manifest, read_manifest
from loaderprobe.datasets.generate.pool import PoolRequest, build_pool
from loaderprobe.stats import median
from loaderprobe.system.limits import cores_available
from scripts.benches.harness import alternated, parser, spread

ImageFile.MAXBLOCK = 1 << 24
MEMORY = "/dev/shm"
AT_LEAST = {"grey noise": 8.0, "FFT noise": 100.0, "loop of writes": 0.9, "dd": 0.8}


def grey_noise(size: tuple[int, int]) -> bytes:
    """As DLIO's generator does."""
    out = io.BytesIO()
    Image.fromarray(np.random.randint(255, size=size[::-1], dtype=np.uint8)).save(out, "JPEG")
    return out.getvalue()


def fft_noise(size: tuple[int, int]) -> bytes:
    """Colour noise whose amplitude falls with frequency, as photographs' does."""
    width, height = size
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


def per_s(make: Callable[[int], bytes], count: int) -> float:
    begin = time.perf_counter()
    for index in range(count):
        make(index)
    return count / (time.perf_counter() - begin)


def in_memory(size: tuple[int, int], rounds: int) -> dict[str, list[float]]:
    """Ratios of images/s, one a round."""
    pool = build_pool(PoolRequest(resolution=size, seed=0, base_images=24, mean_bytes=None), map, lambda *_: None)
    print(f"{size[0]}x{size[1]}: mean {pool.mean_bytes / 1e3:.0f} kB")
    ratios: dict[str, list[float]] = {"grey noise": [], "FFT noise": []}
    speeds = []
    for number in range(rounds):
        ours = per_s(lambda index, first=number * 2000: pool.image(0, first + index, ()), 500)  # type: ignore[misc]
        ratios["grey noise"].append(ours / per_s(lambda _: grey_noise(size), 100))
        ratios["FFT noise"].append(ours / per_s(lambda _: fft_noise(size), 8))
        speeds.append(ours)
    print(f"  generator: {median(speeds):.0f} images/s ({median(speeds) * pool.mean_bytes / 1e6:.0f} MB/s) on one core")
    return ratios


def timed(folder: Path, write: Callable[[], None]) -> float:
    """Seconds to write, with everything on the medium at the end; nothing of others is waited for."""
    sync_filesystem(folder)
    begin = time.perf_counter()
    write()
    sync_filesystem(folder)
    return time.perf_counter() - begin


def begun(place: Path, request: SetRequest) -> Path:
    """A set with one image, so that painting its base images is not timed."""
    return generate(place, request, count=1, processes=1, progress=lambda *_: None)


def folders(place: Path, images: int, rounds: int, processes: int) -> list[float]:
    """Time of a loop of writes over that of the generator, for the same files."""
    request, ratios = SetRequest(resolution=(500, 375), base_images=24), []
    directory = _grown(place / "first", request, images, processes)
    spec = _manifest(directory).spec
    ready = [(spec.path(index), (directory / spec.path(index)).read_bytes()) for index in range(images)]
    shutil.rmtree(place / "first")

    def ours() -> None:
        _grown(place / "ours", request, images, processes)

    def loop() -> None:
        _loop(place / "loop", ready)

    for number in range(rounds):
        begun(place / "ours", request)
        took = alternated({"loop": partial(timed, place, loop), "ours": partial(timed, place, ours)}, number)
        ratios.append(took["loop"] / took["ours"])
        _say("folder", sum(len(data) for _, data in ready), took["ours"], took["loop"])
        shutil.rmtree(place / "ours")
        shutil.rmtree(place / "loop")
    return ratios


def shards(place: Path, images: int, rounds: int, processes: int) -> list[float]:
    """Time of dd, from a file in memory, over that of the generator, for the same bytes."""
    request, ratios = SetRequest(resolution=(500, 375), base_images=24, layout="shards", shard_images=500), []
    first = _grown(place / "first", request, images, processes)
    size = sum(_manifest(first).size_bytes)
    ready = Path(MEMORY) / f"{place.name}.tar"
    with ready.open("wb") as file:
        for shard in sorted(first.rglob("*.tar")):
            file.write(shard.read_bytes())
    shutil.rmtree(place / "first")

    def ours() -> None:
        _grown(place / "ours", request, images, processes)

    def dd() -> None:
        subprocess.run(["dd", f"if={ready}", f"of={place / 'dd'}", "bs=1M", "status=none"], check=True)

    try:
        for number in range(rounds):
            begun(place / "ours", request)
            took = alternated({"dd": partial(timed, place, dd), "ours": partial(timed, place, ours)}, number)
            ratios.append(took["dd"] / took["ours"])
            _say("shards", size, took["ours"], took["dd"])
            shutil.rmtree(place / "ours")
            (place / "dd").unlink()
    finally:
        ready.unlink()
    return ratios


def _grown(root: Path, request: SetRequest, images: int, processes: int) -> Path:
    return generate(root, request, count=images, processes=processes, progress=lambda *_: None)


def _manifest(directory: Path) -> Manifest:
    manifest = read_manifest(directory)
    assert manifest is not None
    return manifest


def _loop(root: Path, ready: list[tuple[str, bytes]]) -> None:
    for folder in {os.path.dirname(name) for name, _ in ready}:  # noqa: PTH120  # the loop is not ours to slow down
        os.makedirs(root / folder, exist_ok=True)  # noqa: PTH103
    for name, data in ready:
        with open(f"{root}/{name}", "wb") as file:  # noqa: PTH123
            file.write(data)


def _say(what: str, size: int, ours_s: float, theirs_s: float) -> None:
    print(f"  {what}: {size / 1e6:.0f} MB; ours {size / ours_s / 1e6:.0f} MB/s, beside it {size / theirs_s / 1e6:.0f}")


def show(found: dict[str, list[float]]) -> bool:
    """One line each; True when all are as fast as they have to be."""
    good = True
    for name, ratios in found.items():
        enough = median(ratios) >= AT_LEAST[name]
        good = good and enough
        print(f"generator / {name}: {spread(ratios, 2)}, at least {AT_LEAST[name]:g}: {'yes' if enough else 'NO'}")
    return good


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--images", type=int, default=6000, help="of each set that is written to disk")
    options.add_argument("--place", type=Path, help="on the disk to write to", default=Path.cwd())
    asked = options.parse_args()
    found = in_memory((500, 375), asked.rounds)
    processes = max(1, round(cores_available()))
    with tempfile.TemporaryDirectory(dir=asked.place, prefix=".bench-generate-") as scratch:
        found["loop of writes"] = folders(Path(scratch), asked.images, asked.rounds, processes)
        found["dd"] = shards(Path(scratch), asked.images, asked.rounds, processes)
    return 0 if show(found) else 1


if __name__ == "__main__":
    sys.exit(main())
