"""Generated data sets: images like ImageNet's in any layout, which can be interrupted, resumed and enlarged.

Every file is derived from one of a few encoded base images (`jpeg.Encoded`), and depends only on the seed, its number
and those base images. So any number of processes write the same bytes, and a killed run resumes to the same tree.
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import re
import signal
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import xxhash

from loaderprobe.datasets.generate.manifest import (
    KIND,
    MANIFEST,
    POOL,
    SPEC,
    Manifest,
    SetSpec,
    read_manifest,
    read_spec,
    sets_in,
)
from loaderprobe.datasets.generate.oddities import ODDITIES, OddityName
from loaderprobe.datasets.generate.pool import Pool, build_pool, expected_mean, is_pool, load_pool
from loaderprobe.datasets.layouts import FILES, LAYOUTS, Sample, complete, format_of
from loaderprobe.errors import BadValue, ForeignDirectory, LoaderprobeError, MissingPart, NoSpace, Refused
from loaderprobe.protocols import OnImages
from loaderprobe.records.files import IMAGE_SUFFIXES
from loaderprobe.store.codec import PART, encode, write_atomically, write_error, written_whole
from loaderprobe.store.run_directory import lock_directory
from loaderprobe.system.process import die_with_parent
from loaderprobe.units import IMAGENET, format_bytes


@contextmanager
def lock_set(directory: Path) -> Iterator[None]:
    """As `lock_directory`. Where an error comes before anything was written, no lock is left, and no new directory."""
    new = [path for path in (directory, *directory.parents) if not path.exists()]
    with lock_directory(directory):
        try:
            yield
        except BaseException:
            with suppress(OSError):
                if [path.name for path in directory.iterdir()] == [".lock"]:
                    (directory / ".lock").unlink()
                for path in new:
                    path.rmdir()
            raise


def sync_filesystem(path: Path) -> None:
    """Wait until all data written to the file system of the directory `path` is on the disk (syncfs(2)).

    Raises OSError, also for a write that failed later (reported by Linux 5.8 and newer).
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(directory):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(directory)


JOURNAL = "journal.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file that was written."""

    number: int
    images: int
    size_bytes: int
    xxh3: str
    image_bytes: tuple[int, ...] = ()
    """Of each image, where the file holds several."""


@dataclass(slots=True)
class Journal:
    """Append-only: each line holds entries and their checksum, so that a torn line is recognised."""

    directory: Path
    _fresh: list[Entry] = field(default_factory=list)
    _last_s: float = field(default_factory=time.monotonic)
    _failed: bool = False

    @property
    def _path(self) -> Path:
        return self.directory / JOURNAL

    def entries(self) -> list[Entry]:
        """All entries up to the first line that a crash tore."""
        entries: list[Entry] = []
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        for line in lines:
            checksum, _, body = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(body):
                return entries
            entries += msgspec.json.decode(body, type=list[Entry])
        return entries

    def begin(self, entries: Sequence[Entry]) -> None:
        """Start a new journal with these entries of the old one."""
        write_atomically(self._path, _line(entries) if entries else b"")

    def add(self, entries: Sequence[Entry]) -> None:
        """Enter them with the next, some seconds later at most. Raises what `write` raises."""
        self._fresh += entries
        if time.monotonic() - self._last_s > SYNC_S:
            self.write()
            self._last_s = time.monotonic()

    def write(self) -> None:
        """Make the files of all entries so far durable, then enter these. Raises OSError, and then enters none of them.

        The kernel reports a failed write once, without its file: after that nothing more is entered.
        """
        fresh, self._fresh = self._fresh, []
        if self._failed:
            return
        try:
            sync_filesystem(self.directory)
            if fresh:
                with self._path.open("ab") as file:
                    file.write(_line(fresh))
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            self._failed = True
            raise

    def end(self, beyond: Sequence[Entry]) -> None:
        """Keep only these entries, which a larger set will need; the manifest holds the others."""
        if beyond:
            self.begin(beyond)
        else:
            self._path.unlink(missing_ok=True)


def _line(entries: Sequence[Entry]) -> bytes:
    body = msgspec.json.encode(entries) + b"\n"
    return _checksum(body) + b" " + body


def _checksum(body: bytes) -> bytes:
    return f"{zlib.crc32(body):08x}".encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


SPACE_MARGIN = 1.03
# Files take whole blocks; so many bytes are lost to that per file, on average.
HALF_BLOCK = 2048
NUMBERED = re.compile(r"\D*(?:\d{8,}_)?0*(\d+)?\D*" + re.escape(PART))


def take_inventory(
    directory: Path, spec: SetSpec, manifest: Manifest | None, journal: Journal, count: int
) -> tuple[dict[int, Entry], list[Entry]]:
    """(by number the files of the set at its requested size, those of a larger set that was begun before).

    The latter are kept for when the set grows. All are in the manifest or the journal, and still have their sizes.
    Removes only files that a killed process left half-written; a file without an entry is written again.
    """
    _remove_halves(directory, spec)
    known = _entries(manifest) if manifest else []
    files = {entry.number: entry for entry in (*known, *journal.entries()) if _has_size(directory, spec, entry)}
    inside = {number for number in files if number < spec.files(count)}
    whole = {n: files[n] for n in sorted(inside) if files[n].images == len(spec.images_in(n, count))}
    return whole, [files[n] for n in sorted(files.keys() - inside)]


def is_whole(directory: Path, manifest: Manifest, count: int) -> bool:
    """True when the files of the first `count` images are there, with their sizes."""
    files = manifest.spec.files(count)
    return manifest.images >= count and all(
        _has_size(directory, manifest.spec, entry) for entry in _entries(manifest)[:files]
    )


def _entries(manifest: Manifest) -> list[Entry]:
    columns = zip(manifest.size_bytes, manifest.xxh3, strict=True)
    inside = [manifest.spec.images_in(k, manifest.images) for k in range(len(manifest.size_bytes))]
    return [
        Entry(
            number=k, images=len(images), size_bytes=size, xxh3=digest,
            image_bytes=manifest.image_bytes[images.start : images.stop],
        )
        for k, ((size, digest), images) in enumerate(zip(columns, inside, strict=True))
    ]  # fmt: skip


def _has_size(directory: Path, spec: SetSpec, entry: Entry) -> bool:
    try:
        return (directory / spec.path(entry.number)).stat().st_size == entry.size_bytes
    except FileNotFoundError:
        return False


def _remove_halves(directory: Path, spec: SetSpec) -> None:
    """Remove only files with the temporary names of this set."""
    for part in (directory / "train").rglob(f".*{PART}"):
        match = NUMBERED.fullmatch(part.name)
        if match and part.with_name(part.name[1 : -len(PART)]) == directory / spec.path(int(match[1] or 0)):
            part.unlink()


def check_space(directory: Path, layout: str, mean_bytes: float, images: int, files: int, folders: int = 1) -> None:
    """Refuse before so many images in so many files are written. Raises NoSpace."""
    image_bytes = mean_bytes + (LAYOUTS[layout].row_overhead if layout in LAYOUTS else 0)
    needed = round((images * image_bytes + files * HALF_BLOCK) * SPACE_MARGIN)
    stat = os.statvfs(directory)
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise NoSpace(
            f"{directory} has {format_bytes(free)} free, and {images} images take about {format_bytes(needed)}",
            hint="choose another directory, or fewer images",
        )
    if stat.f_files and stat.f_favail < files + folders:
        raise NoSpace(f"{directory} has space for only {stat.f_favail} more files", hint="choose another file system")


MOST_SHARD_IMAGES, SHARDS = 1000, 32
"""Of a shard, and of a set, so that each of many workers has several; of a larger set more."""


def images_a_shard(count: int) -> int:
    """Of a set of so many images."""
    return max(1, min(MOST_SHARD_IMAGES, count // SHARDS))


# Painting those of all three usual resolutions takes some 10 s on two cores.
BASE_IMAGES = 20
MIXTURE_BASE_IMAGES = 256


def set_asked_for(
    resolution: str,
    *,
    classes: int = 10,
    seed: int = 0,
    mean_bytes: int | None = None,
    oddities: tuple[OddityName, ...] = (),
    layout: str = FILES,
    shard_images: int | None = None,
    base_images: int | None = None,
) -> SetSpec:
    """The spec of a set with these settings; `base_images` are those of the pool, None for the usual number.

    `shard_images` are those of each large file; None for as many as the set there is has, else a 32nd of the images and
    at most 1000. Raises BadValue for a mean size of nothing.
    """
    if mean_bytes is not None and mean_bytes < 1:
        raise BadValue("the mean size of a file must be 1 byte or more")
    if layout == FILES or LAYOUTS[layout].single:
        shard_images = 1 if layout == FILES else 0
    return SetSpec(
        resolution=resolution, classes=classes, seed=seed, mean_bytes=mean_bytes, oddities=oddities,
        layout=layout, shard_images=shard_images,
        base_images=base_images or (MIXTURE_BASE_IMAGES if resolution == IMAGENET else BASE_IMAGES),
    )  # fmt: skip


CHUNK = 32
# A killed run loses the files of about so many seconds.
SYNC_S = 5.0
GO_ON = "run the same command again: it resumes where it stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The files of one set of so many images."""

    directory: Path
    spec: SetSpec
    pool: Pool
    images: int

    def file(self, number: int) -> Entry:
        """Write one file; returns what a manifest says of it. Raises OSError; a file that was begun is removed then."""
        spec, indices = self.spec, self.spec.images_in(number, self.images)
        sizes: list[int] = []

        def samples() -> Iterator[Sample]:
            for index in indices:
                image = self.pool.image(spec.seed, index, spec.oddities)
                sizes.append(len(image))
                yield Sample(spec.name(index), image, index % spec.classes)

        with written_whole(self.directory / spec.path(number)) as part:
            if spec.layout == FILES:
                part.write_bytes(self.pool.image(spec.seed, number, spec.oddities))
            else:
                format_of(spec.layout).write(samples(), part)
            size, digest = part.stat().st_size, _digest(part)
        return Entry(number=number, images=len(indices), size_bytes=size, xxh3=digest, image_bytes=tuple(sizes))

    def write(
        self, numbers: Sequence[int], processes: int, report: Callable[[list[Entry]], None], journal: Journal
    ) -> None:
        """Write all of these. `report` is called with each chunk once it is recorded, and may raise to end the work.

        Raises OSError, and LoaderprobeError when a process died. Complete files are recorded in any case.
        """
        size = CHUNK if self.spec.layout == FILES else 1
        chunks = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        try:
            if processes == 1 or len(chunks) <= 1:
                for chunk in chunks:
                    journal.add(entries := [self.file(number) for number in chunk])
                    report(entries)
            else:
                self._write_together(chunks, processes, report, journal)
        except BaseException:
            # Ctrl-C as much as a full disk, which cannot hold a line either: files that no line names are only
            # made again.
            with suppress(OSError):
                journal.write()
            raise
        journal.write()

    def _write_together(
        self, chunks: Sequence[Sequence[int]], processes: int, report: Callable[[list[Entry]], None], journal: Journal
    ) -> None:
        futures: set[Future[list[Entry]]] = set()
        try:
            with process_pool(min(processes, len(chunks)), self) as executor:
                futures |= {executor.submit(_write_chunk, chunk) for chunk in chunks}
                for future in as_completed(futures):
                    entries = future.result()
                    futures.remove(future)
                    journal.add(entries)
                    report(entries)
        except (LoaderprobeError, KeyboardInterrupt):
            # The other processes were stopped in the middle of an image, maybe by a signal to the whole group.
            _remove_halves(self.directory, self.spec)
            raise
        finally:
            # Chunks that ended while the processes were being stopped.
            for future in futures:
                if future.done() and not future.cancelled() and future.exception() is None:
                    journal.add(future.result())


@contextmanager
def process_pool(processes: int, work: Work | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes that inherit the work and end with this one. Raises LoaderprobeError when one of them dies."""
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(os.getpid(), work))
    try:
        yield executor
    except BrokenProcessPool as error:
        raise LoaderprobeError("a process that generated images died", hint=GO_ON) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_work: Work | None = None


def _begin(parent: int, work: Work | None) -> None:
    """Ctrl-C reaches the whole group: a process finishes its chunk, and the parent assigns no more.

    By SIGTERM an executor ends its processes.
    """
    global _work  # of a process that does nothing else; a pool is too large to be sent with each chunk
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent)
    _work = work


def _write_chunk(numbers: Sequence[int]) -> list[Entry]:
    assert _work is not None
    return [_work.file(number) for number in numbers]


def generate(
    root: Path,
    spec: SetSpec,
    *,
    count: int,
    processes: int,
    progress: OnImages,
    on_base_image: OnImages = lambda *_: None,
) -> Path:
    """Make, complete or enlarge `root/WxH` (`root/imagenet`, `root/WxH-tar`) to at least `count` images.

    Returns that directory.

    Raises Refused when the directory holds another set, ForeignDirectory when it holds anything else, Locked
    while another process writes there, NoSpace before writing or when space runs out, MissingPart without
    permission, BadValue for a mean size out of reach. Complete files are never lost, and the same call resumes.
    Files of a complete set that are missing, or have another size, are generated again.
    """
    directory = spec.directory(root)
    try:
        if spec.shard_images is None:
            stored = read_spec(directory)
            spec = replace(spec, shard_images=stored.shard_images if stored else images_a_shard(count))
        # Before the lock, so that a complete set can be used where this user may not write.
        manifest = _known(directory, spec)
        if manifest is None or not is_whole(directory, manifest, count):
            with lock_set(directory):
                _make(directory, spec, count, processes, progress, on_base_image)
    except OSError as error:
        raise _trouble(error, directory) from error
    return directory


def _known(directory: Path, spec: SetSpec) -> Manifest | None:
    """The manifest of this very set; None while it is not complete. Raises ForeignDirectory and Refused."""
    if not (directory / SPEC).exists():
        ours = {".lock", f".{SPEC}{PART}", f".{POOL}{PART}"}
        if is_pool(directory / POOL):
            ours.add(POOL)
        if directory.exists() and any(entry.name not in ours for entry in directory.iterdir()):
            raise ForeignDirectory(
                f"{directory} is not empty and is not a generated data set", hint="choose another directory"
            )
        if image := _foreign_image(directory.parent):
            raise ForeignDirectory(
                f"{directory.parent} holds other images, such as {image}: generated ones would be among them",
                hint="choose another directory",
            )
        return None
    try:
        stored = read_spec(directory)
    except BadValue as error:
        raise ForeignDirectory(
            f"{directory} was not generated by this loaderprobe: {error}", hint="choose another directory, or remove it"
        ) from error
    if stored is not None and replace(stored, pool_sha256="") != spec:
        raise Refused(
            f"{directory} holds another data set: {_differences(stored, spec)}",
            hint="use the settings of that set (base images are --pool), choose another directory, or remove it",
        )
    return read_manifest(directory)


def _foreign_image(root: Path) -> Path | None:
    """An image in `root`, or in a folder as of a class in it or in its `train`, that is of no generated set."""
    ours = sets_in(root)
    classes = (path for pattern in ("*/", "train/*/") for path in root.glob(pattern) if path not in ours)
    folders = [root, *(path for path in classes if not path.name.startswith("."))]
    files = (path for folder in folders for path in folder.glob("*.*") if path.suffix.lower() in IMAGE_SUFFIXES)
    return next((path for path in files if os.path.isfile(path)), None)  # noqa: PTH113  # Path.is_file may raise


def _differences(stored: SetSpec, spec: SetSpec) -> str:
    names = [name for name in SetSpec.__dataclass_fields__ if name != "pool_sha256"]
    return ", ".join(
        f"{name.replace('_', ' ')} {_plain(getattr(stored, name))}, not {_plain(getattr(spec, name))}"
        for name in names
        if getattr(stored, name) != getattr(spec, name)
    )


def _plain(value: object) -> str:
    text = " and ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return "none" if text in ("", "None") else text


def _trouble(error: OSError, directory: Path) -> LoaderprobeError:
    if isinstance(error, NotADirectoryError | FileExistsError):
        return BadValue(f"{directory} cannot be created: a file is in the way", hint="choose another directory")
    trouble = write_error(error, directory)
    trouble.hint = (
        f"free some space, then {GO_ON}" if isinstance(trouble, NoSpace) else "choose a directory with write permission"
    )
    return trouble


def _make(
    directory: Path, request: SetSpec, count: int, processes: int, progress: OnImages, on_base_image: OnImages
) -> None:
    # Checked again under the lock: another process may have made or enlarged the set.
    manifest = _known(directory, request)
    if manifest is not None:
        if is_whole(directory, manifest, count):
            return
        # A complete set never shrinks, not even when it is repaired.
        count = max(count, manifest.images)
    enough = partial(check_space, directory, request.layout, folders=request.classes)
    if manifest is None and not (directory / "train").exists():
        # At once, whatever number is asked for.
        enough(expected_mean(request), count, request.files(count))
    journal = Journal(directory)
    whole, beyond = take_inventory(directory, request, manifest, journal, count)
    missing = [number for number in range(request.files(count)) if number not in whole]
    images = sum(len(request.images_in(number, count)) for number in missing)
    pool, spec = _pool_of(directory, request, processes, on_base_image)
    enough(pool.mean_bytes, images, len(missing))
    journal.begin([*whole.values(), *beyond])
    for number in range(min(spec.classes if spec.layout == FILES else 1, count)):
        # A class without images would be an error to torchvision's ImageFolder.
        (directory / spec.path(number)).parent.mkdir(parents=True, exist_ok=True)
    done = sum(entry.images for entry in whole.values())
    progress(done, count)

    def report(entries: list[Entry]) -> None:
        nonlocal done
        whole.update({entry.number: entry for entry in entries})
        done += sum(entry.images for entry in entries)
        progress(done, count)

    work = Work(directory=directory, spec=spec, pool=pool, images=count)
    work.write(missing, processes, report, journal)
    complete(spec.layout, directory / "train")
    manifest = _manifest_of(spec, count, [whole[number] for number in range(spec.files(count))])
    write_atomically(directory / MANIFEST, encode(KIND, manifest))
    journal.end(beyond)


def _manifest_of(spec: SetSpec, count: int, files: Sequence[Entry]) -> Manifest:
    return Manifest(
        spec=spec,
        images=count,
        size_bytes=tuple(entry.size_bytes for entry in files),
        xxh3=tuple(entry.xxh3 for entry in files),
        image_bytes=tuple(size for entry in files for size in entry.image_bytes),
        odd_images={name: bisect_left(ODDITIES[name], count) for name in spec.oddities},
    )


def _pool_of(directory: Path, request: SetSpec, processes: int, on_base_image: OnImages) -> tuple[Pool, SetSpec]:
    """The pool of the set, made only once: another machine's arithmetic might paint it slightly differently.

    The same set in another layout beside it has the same.
    """
    stored = read_spec(directory)
    if stored is not None:
        return load_pool(directory / POOL, stored.pool_sha256), stored
    beside = _pool_beside(directory.parent, request)
    if beside is not None:
        pool = beside
    elif processes == 1:
        pool = build_pool(request, map, on_base_image)
    else:
        with process_pool(processes) as executor:
            pool = build_pool(request, executor.map, on_base_image)
    write_atomically(directory / POOL, data := pool.encoded())
    spec = replace(request, pool_sha256=hashlib.sha256(data).hexdigest())
    write_atomically(directory / SPEC, encode(f"{KIND}-spec", spec))
    return pool, spec


def _pool_beside(root: Path, spec: SetSpec) -> Pool | None:
    for layout in (FILES, *LAYOUTS):
        sibling = replace(spec, layout=layout, shard_images=0)
        stored = read_spec(sibling.directory(root))
        if stored is not None and replace(stored, pool_sha256="", shard_images=0) == sibling:
            return load_pool(sibling.directory(root) / POOL, stored.pool_sha256)
    return None


def verify_set(directory: Path, progress: OnImages) -> dict[str, str]:
    """Path to trouble of each file that is missing or differs, from reading all; of an incomplete set, its manifest.

    Raises MissingPart when the manifest cannot be read.
    """
    try:
        manifest = read_manifest(directory)
    except OSError as error:
        raise MissingPart(
            f"{directory} cannot be read: {error.strerror}", hint="run as a user with read permission"
        ) from error
    if manifest is None:
        return {MANIFEST: "missing: the set is not complete"}
    troubles = {}
    for number, (size, digest) in enumerate(zip(manifest.size_bytes, manifest.xxh3, strict=True)):
        path = manifest.spec.path(number)
        if trouble := _verify_trouble(directory / path, size, digest):
            troubles[path] = trouble
        progress(number + 1, len(manifest.size_bytes))
    return troubles


def _verify_trouble(path: Path, size: int, digest: str) -> str:
    """The damage of the file as text; empty when there is none."""
    try:
        found_size = path.stat().st_size
        if found_size != size:
            return f"{found_size} bytes, not {size}"
        same = _digest(path) == digest
    except OSError as error:
        return error.strerror or str(error)
    return "" if same else "its content has changed"
