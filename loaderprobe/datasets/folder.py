"""The samples of a data set that take part in a run: a random choice in which every image decodes."""

from __future__ import annotations

import io
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Lock

from PIL import Image

from loaderprobe.datasets.generate.manifest import read_manifest
from loaderprobe.datasets.layouts import FILES, LAYOUTS, NAMES, blocks, damage, format_of
from loaderprobe.errors import BadValue
from loaderprobe.protocols import OnImages
from loaderprobe.records.files import IMAGE_SUFFIXES, FileSet, SkippedFile, masked
from loaderprobe.store.results import holds_result
from loaderprobe.system.objects import open_store
from loaderprobe.units import join_words

NAMED_SKIPS = 20
THREADS = 4
REQUESTS = 32
"""At the same time, for sizes that a listing does not have (http)."""
AT_ONCE = 256
"""Files that are looked at before others take the place of damaged ones."""
LARGE, ALONE = 30_000_000, Lock()
"""Images of more pixels are decoded one at a time: Pillow refuses those beyond 179 million, which take 540 MB."""


@dataclass(slots=True)
class _Skips:
    """Counts unusable files by reason, and names the first few."""

    count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    named: list[SkippedFile] = field(default_factory=list)

    def add(self, path: str, reason: str) -> None:
        self.count += 1
        self.reasons[reason.partition(":")[0]] += 1
        if len(self.named) < NAMED_SKIPS:
            self.named.append(SkippedFile(path=path, reason=reason))

    def add_folder(self, base: Path, error: OSError) -> None:
        self.add(os.path.relpath(error.filename, base), f"cannot be read: {error.strerror}")

    def summary(self) -> str:
        """`skipped: 3 not an image and 1 empty`."""
        reasons = join_words([f"{count} {reason}" for reason, count in self.reasons.most_common()])
        return f"skipped: {reasons}" if self.count else "there are no files in it"


def scan_folder(root: Path, *, sample: int, seed: int, progress: OnImages) -> FileSet:
    """At most `sample` images under `root`, in random order by `seed`; the class is the first directory.

    Images are looked for under `root/train` when that exists. Files that are not images, are empty,
    unreadable or damaged are counted and named; only as many are decoded as the sample needs. Raises BadValue
    when `root` is not a directory or no image is left, MissingPart without read permission.
    """
    base = _image_root(root.absolute())
    skips = _Skips()
    paths = sorted(_images_under(base, skips))
    random.Random(seed).shuffle(paths)
    skipped_by_name = skips.count
    with warnings.catch_warnings():
        # Pillow warns of odd metadata in the middle of the progress display, although the file decodes.
        warnings.simplefilter("ignore")
        chosen = _usable(paths, lambda path: _examine(base / path), THREADS, sample, skips, progress)
    if not chosen:
        hint = f"first: {skips.named[0].path}, {skips.named[0].reason}" if skips.named else "give a folder of images"
        hint = f"it is a result: loaderprobe report {root} shows it" if holds_result(root) else hint
        raise BadValue(f"{base} holds no usable image ({skips.summary()})", hint=hint)
    usable = len(paths) - (skips.count - skipped_by_name)
    return _file_set(str(base), chosen, paths, skips, label=_name(root), images_found=usable)


def _file_set(
    root: str, chosen: Sequence[tuple[str, int]], paths: Iterable[str], skips: _Skips, *, label: str, images_found: int
) -> FileSet:
    """Of the chosen (path, bytes), with the classes of all that were found."""
    classes = {name: number for number, name in enumerate(sorted({_class_of(path) for path in paths}))}
    return FileSet(
        label=label,
        root=root,
        generated=False,
        paths=tuple(path for path, _ in chosen),
        classes=tuple(classes[_class_of(path)] for path, _ in chosen),
        size_bytes=tuple(size for _, size in chosen),
        images_found=images_found,
        skipped_count=skips.count,
        skipped=tuple(skips.named),
    )


def scan_url(url: str, *, sample: int, seed: int, progress: OnImages) -> FileSet:
    """At most `sample` images behind a URL, as they are listed: none is read before it is trained on.

    In the same order, and with the same classes, as those of a folder. Those that are refused are replaced, of as many
    again at most (assumed), as a server may refuse all. Raises BadValue when there is none, MissingPart without
    permission or the library for such URLs.
    """
    if masked(url) != url:
        raise BadValue(
            f"{masked(url)} has a part that may be a credential, and a run keeps its URL",
            hint="give credentials in the environment, and the URL without userinfo and query",
        )
    store, skips = open_store(url), _Skips()
    sizes = dict(row for row in store.listed() if _is_image(*row, skips))
    below = "train/" if any(name.startswith("train/") for name in sizes) else ""
    listed = sorted(name for name in sizes if name.startswith(below))
    random.Random(seed).shuffle(listed)
    by_name = Counter(skips.reasons)
    candidates = listed[: 2 * sample]
    chosen = _usable(candidates, lambda name: store.sized(name, sizes[name]), REQUESTS, sample, skips, progress)
    refused = skips.reasons - by_name
    if not chosen:
        store.check_permitted(refused)
        raise BadValue(f"{url} holds no usable image ({skips.summary()})", hint="give the URL of a folder of images")
    names, label = [name.removeprefix(below) for name in listed], url.rstrip("/").rpartition("/")[2]
    root = f"{url.rstrip('/')}/{below}".rstrip("/")
    chosen = [(name.removeprefix(below), size) for name, size in chosen]
    return _file_set(root, chosen, names, skips, label=label, images_found=len(listed) - refused.total())


def _is_image(name: str, size_bytes: int | None, skips: _Skips) -> bool:
    path = PurePosixPath(name)
    reason = "not an image" if path.suffix.lower() not in IMAGE_SUFFIXES else "empty" if size_bytes == 0 else ""
    if name != str(path) or ".." in path.parts:
        reason = "its name is no path"
    if reason:
        skips.add(name, reason)
    return not reason


def _name(root: Path) -> str:
    """Of the folder, as text that can be stored."""
    path = Path(os.path.abspath(root))  # noqa: PTH100  # Path.absolute leaves `..`, Path.resolve follows links
    return (path.name or str(path)).encode(errors="replace").decode()


def generated_set(directory: Path, *, sample: int, seed: int) -> FileSet:
    """Some `sample` images of a complete generated set, in random order by `seed`; shards are taken whole.

    The manifest is trusted except for sizes: a missing or incomplete file raises BadValue.
    """
    manifest = read_manifest(directory)
    if manifest is None or manifest.spec.layout not in NAMES:
        raise BadValue(f"{directory} holds no complete generated data set", hint="run `loaderprobe generate` again")
    spec, several = manifest.spec, manifest.spec.layout != FILES
    blocks = list(spec.blocks(manifest.images))
    random.Random(seed).shuffle(blocks)
    chosen: list[tuple[int, int]] = []
    for number, indices in blocks:
        chosen += [(number, index) for index in indices if len(chosen) < sample]
    sizes = {spec.path(number): manifest.size_bytes[number] for number, _ in chosen}
    for name, size in sizes.items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != size:
            raise BadValue(
                f"{path} is missing or differs from the generated file",
                hint=f"remove {directory} and generate it again",
            )
    layout, image_bytes = LAYOUTS.get(spec.layout), manifest.image_bytes if several else manifest.size_bytes
    inside = [index - spec.images_in(number, manifest.images).start for number, index in chosen]
    return FileSet(
        label=f"{spec.resolution} {spec.layout}" if several else spec.resolution,
        root=str(directory.absolute()),
        generated=True,
        paths=tuple(spec.path(number) for number, _ in chosen),
        classes=tuple(index % spec.classes for _, index in chosen),
        size_bytes=tuple(image_bytes[index] for _, index in chosen),
        images_found=manifest.images,
        layout=spec.layout,
        places=tuple(map(layout.position_of, inside)) if layout else (),
        whole_bytes=sizes if several else {},
    )


def layout_in(directory: Path) -> str:
    """The layout of what `directory` or its `train` holds: `files` unless there are shards of another.

    Raises what `check_folder` raises.
    """
    check_folder(base := _image_root(directory.absolute()))
    paths = list(base.iterdir())
    return next((name for name, layout in LAYOUTS.items() if any(path.match(layout.mark) for path in paths)), FILES)


def scan_layout(root: Path, layout: str, *, sample: int, seed: int, progress: OnImages) -> FileSet:
    """At least `sample` images of a set in that layout, as far as it has them: whole blocks in random order by `seed`.

    Each is decoded; damaged ones, and folders that cannot be listed, are counted and named. Raises BadValue where none
    is left, and for a damaged shard or a class beyond int64; MissingPart without the library that reads it.
    """
    base, skips = _image_root(root.absolute()), _Skips()
    listed = list(blocks(layout, base, partial(skips.add_folder, base)))
    unlisted = skips.count
    random.Random(seed).shuffle(listed)
    total, reader = sum(samples for *_, samples in listed), format_of(layout).Reader(base)
    kept: list[tuple[str, tuple[int, int], int, int]] = []
    for path, block, samples in listed:
        if len(kept) >= sample:
            break
        for number in range(samples):
            position = (block, number)
            read = reader.read(path, position)
            if not -(2**63) <= read.label < 2**63:
                raise BadValue(f"{base / path}, sample {number}: its class is beyond int64", hint="number them from 0")
            if trouble := _trouble_of(read.image):
                skips.add(f"{path}, sample {number}", trouble)
            else:
                kept.append((path, position, len(read.image), read.label))
            progress(len(kept), min(sample, total))
    if not kept:
        first = f"first: {skips.named[0].path}, {skips.named[0].reason}; " if skips.named else ""
        raise BadValue(
            f"{base} holds no usable image in {LAYOUTS[layout].noun} ({skips.summary()})",
            hint=f"{first}each sample needs an encoded image, as in a JPEG file",
        )
    paths = tuple(path for path, *_ in kept)
    return FileSet(
        label=f"{_name(root)} {layout}",
        root=str(base),
        generated=False,
        paths=paths,
        classes=tuple(label for *_, label in kept),
        size_bytes=tuple(size for *_, size, _ in kept),
        images_found=total - (skips.count - unlisted),
        skipped_count=skips.count,
        skipped=tuple(skips.named),
        layout=layout,
        places=tuple(position for _, position, *_ in kept),
        whole_bytes={path: (base / path).stat().st_size for path in dict.fromkeys(paths)},
    )


def _image_root(root: Path) -> Path:
    """`root/train` when that is a directory, as in ImageNet, else `root`."""
    train = root / "train"
    with damage(root):
        return train if train.is_dir() else root


def check_folder(path: Path) -> None:
    """Raise BadValue when `path` is not a directory, MissingPart without read permission."""
    try:
        with damage(path):
            os.scandir(path).close()
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        hint = "check the path; without one, images are generated" if gone else "give a directory"
        raise BadValue(f"{path} is not a folder of images: {error.strerror}", hint=hint) from error


def _images_under(base: Path, skips: _Skips) -> Iterator[str]:
    """Paths, relative to `base`, of the regular files with an image's name. Links to directories are followed once."""
    check_folder(base)
    visited: set[tuple[int, int]] = set()
    for directory, names, files in os.walk(base, onerror=partial(skips.add_folder, base), followlinks=True):
        status = Path(directory).stat()
        if (status.st_dev, status.st_ino) in visited:
            # A link to a directory that was visited already.
            names.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        # The same choice on every file system: of two links to one directory, the first by name counts.
        names.sort()
        prefix = "" if directory == str(base) else os.path.relpath(directory, base) + os.sep
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:  # noqa: PTH122  # a million times: pathlib is slow
                yield prefix + name
            else:
                skips.add(prefix + name, "not an image")


def _usable(
    paths: Sequence[str], examine: Callable[[str], tuple[int, str | None]], threads: int, sample: int, skips: _Skips,
    progress: OnImages,
) -> list[tuple[str, int]]:  # fmt: skip
    """The first `sample` in which nothing is wrong, with their sizes; the others are replaced by the next."""
    good: list[tuple[str, int]] = []
    rest = iter(paths)
    with ThreadPoolExecutor(threads) as pool:
        while batch := list(islice(rest, min(AT_ONCE, sample - len(good)))):
            for path, (size, trouble) in zip(batch, pool.map(examine, batch), strict=True):
                if trouble:
                    skips.add(path, trouble)
                else:
                    good.append((path, size))
                progress(len(good), min(sample, len(paths)))
    return good


def _examine(path: Path) -> tuple[int, str | None]:
    """(size in bytes or 0, what is wrong or None). Draft mode reads every byte but skips most of the arithmetic."""
    size = 0
    try:
        if not path.is_file():
            return 0, "not a regular file"
        size = path.stat().st_size
        trouble = _trouble_of(path) if size else "empty"
    except PermissionError:
        return 0, "no read permission"
    except OSError as error:
        trouble = f"damaged: {error}"
    return size, trouble and trouble.replace(str(path), path.name)


def _trouble_of(source: Path | bytes) -> str | None:
    """What is wrong with an image, in a file or in memory. Raises PermissionError."""
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
            with ALONE if image.width * image.height > LARGE else nullcontext():
                image.load()
    except PermissionError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"damaged: {error}"
    return None


def _class_of(path: str) -> str:
    return path.split(os.sep, 1)[0] if os.sep in path else ""
