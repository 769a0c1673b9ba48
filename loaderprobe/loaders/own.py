"""A user's own DataLoader, driven through a copy of it, so that the loader itself stays as it was found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from math import lcm
from pathlib import Path
from typing import Any, Self

from torch.utils.data import DataLoader, IterableDataset

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.loaders.blame import FROM_WORKER, blamed
from loaderprobe.loaders.fetch_log import FetchLog
from loaderprobe.loaders.switched import WORKER_TROUBLE, SwitchedLoader, dead_worker
from loaderprobe.loaders.twin import FOREIGN, FOREIGN_HINT, check_untouched, endless, kept_iterators, own_sampler
from loaderprobe.loaders.unwrap import Epochs, Otherwise, Unwrapped, unwrap
from loaderprobe.loaders.watch import learned_path
from loaderprobe.records.config import BatchFiles
from loaderprobe.records.measurement import Mode
from loaderprobe.stats import median

# Files are read whole when read calls return about as many bytes as the opened files hold.
READ_WHOLE = (0.8, 1.25)
NO_FILES = "the data set opens no file that Python can see"
IN_PARTS = "the data set reads only parts of the files that it opens"
OTHERS_TOO = "the data set reads more than the files that Python can see it open"
# A wrapper may prefetch: so many batches, and a share of those it has given.
AHEAD, AHEAD_SHARE = 1, 0.25


class Pool:
    """The first batches of a sampler, and then those again and again.

    Every worker must get the same batches each time round, so the pool is a whole multiple of their number.
    """

    def __init__(self, source: Any, workers: int) -> None:
        self._source = source
        self._multiple = max(1, workers)
        self._kept: list[Any] = []
        self.size = 0
        """Batches of the pool; 0 while more may be added."""
        self.odd = 0
        """Batches left out, since they are not of the length of the first."""

    def __getattr__(self, name: str) -> Any:
        """What else a sampler has: sub-classes of DataLoader ask theirs for its own sampler, or set its epoch."""
        if name.startswith("__") or name == "_source":
            raise AttributeError(name)
        return getattr(self._source, name)

    def __len__(self) -> int:
        """Without end: sub-classes of DataLoader may count how many batches there are."""
        return sys.maxsize

    def close(self) -> None:
        """Add no more batches than are asked for by now, as soon as each worker has one."""
        if not self.size and len(self._kept) >= self._multiple:
            self.size = len(self._kept) // self._multiple * self._multiple

    def __iter__(self) -> Iterator[Any]:
        for batch in self._source:
            if self.size:
                break
            if self._kept and _length(batch) != _length(self._kept[0]):
                self.odd += 1  # the last batch of an epoch is a short one
                continue
            self._kept.append(batch)
            yield batch
        if not self._kept:
            return
        if not self.size:
            whole = len(self._kept) // self._multiple * self._multiple
            self.size = whole or lcm(len(self._kept), self._multiple)
        number = len(self._kept)
        while True:
            yield self._kept[number % self.size % len(self._kept)]
            number += 1


def _length(batch: Any) -> int:
    return len(batch) if isinstance(batch, Sequence) else 1


class Guarded:
    """An iterator whose errors say whose they are. Keeps no batch, so that releasing one costs what it costs."""

    def __init__(self, inner: Iterator[Any], trouble: Callable[[Exception], Exception], before: Callable[[], None]):
        self._inner = inner
        self._trouble = trouble
        self._before = before

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._before()
        try:
            return next(self._inner)
        except StopIteration:
            raise
        except Exception as error:
            raise self._trouble(error) from error


class OwnLoader(SwitchedLoader):
    """Drives a copy of a user's loader: map-style or iterable, of any batch, with any workers.

    `before_batch` is called before each batch is taken, and may raise; a batch that takes longer than `patience_s`
    is an error. Raises BadValue for what is no DataLoader, and for one that cannot be looked at without using it up.
    """

    def __init__(
        self,
        given: DataLoader[Any] | Unwrapped,
        scratch: Path,
        before_batch: Callable[[], None] = lambda: None,
        patience_s: float = 0.0,
    ) -> None:
        self._given = given if isinstance(given, Unwrapped) else unwrap(given)
        self._own = loader = self._given.loader
        check_untouched(loader)
        self._before_batch = before_batch
        self._iterable = isinstance(loader.dataset, IterableDataset)
        self._pool = None if self._iterable else Pool(own_sampler(loader), loader.num_workers)
        super().__init__(endless(loader, self._pool, patience_s), scratch, files_of=None, tied=False)
        self._lanes = FetchLog(scratch / "fetch.log", max(loader.num_workers, 1))
        self._settled = 0
        self._rewrapped: Any = None
        self._epochs = Epochs(())
        make, settings = self._loader._get_iterator, self._loader.__dict__
        # Wrappers and sub-classes begin epoch after epoch; below them is one iterator, with one set of workers.
        settings["_get_iterator"] = lambda: make() if self._iterator is None else self._iterator

    def __enter__(self) -> Self:
        twin = self._loader
        try:
            for name in kept_iterators(self._own):
                twin.__dict__[name] = DataLoader.__iter__(twin)
            self._rewrapped = self._given.rewrap(twin)
            self._batches = self._epochs = Epochs(twin if self._rewrapped is None else self._rewrapped)
            return self
        except LoaderprobeError:
            raise
        except Exception as error:
            raise self._trouble(error) from error

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._epochs.close()
            if self._rewrapped is not None:
                self._given.release(self._rewrapped)

    def batches(self) -> Iterator[Any]:
        """What the loader yields, in mode T only the number of samples; errors say whose they are."""
        return Guarded(self._batches, self._trouble, self._before_batch)

    def _trouble(self, error: Exception) -> Exception:
        if self._iterator is not None and self._loader.num_workers and not FROM_WORKER.match(str(error)):
            dead = dead_worker(self._iterator._workers) if isinstance(error, WORKER_TROUBLE) else None
            if dead:
                return dead
        return blamed(error)

    def check(self) -> None:
        """Raise where the loader is not driven as others are. To be called once batches have been taken."""
        if self._iterator is None or not self.records().batch:
            raise BadValue(FOREIGN, hint=FOREIGN_HINT)
        self._check_pace()
        ended = self._ended_workers()
        if ended:
            busy, workers = len(set(self.records().worker)), self._loader.num_workers
            message = (
                f"{ended} of the {workers} workers had no more batches while others had: their share of the data set "
                "ends, or is empty"
            )
            hint = "give every worker a share that begins anew each time (get_worker_info), or use fewer workers"
            if busy + ended != workers:
                raise BadValue(message, hint=hint)
            note = (
                f"{ended} of {workers} workers {'gets' if ended == 1 else 'get'} no data: "
                f"measured with {busy} worker{'' if busy == 1 else 's'}"
            )
            raise Otherwise(message, hint=hint, instead=self._given.with_workers(busy, note))

    def _check_pace(self) -> None:
        """A wrapper whose work is kept must give a batch for each that it takes."""
        ahead = self._iterator._num_yielded - self._epochs.taken
        if self._rewrapped is not None and not 0 <= ahead <= AHEAD + AHEAD_SHARE * self._epochs.taken:
            raise Otherwise(
                f"the wrapper takes {self._iterator._num_yielded} batches to give {self._epochs.taken}",
                hint=FOREIGN_HINT,
                instead=self._given.without_wrappers("it does not give one batch for each that it takes"),
            )

    def _ended_workers(self) -> int:
        return list(self._iterator._workers_status).count(False) if self._loader.num_workers else 0

    def notes(self) -> tuple[str, ...]:
        """What was done in another way than the loader is set to."""
        found = list(self._given.notes)
        if not self._own.__dict__.get("in_order", True):
            found.append("batches were taken in order, although the loader has in_order=False")
        if self._pool is not None and self._pool.odd > 1:
            found.append(f"batches differ in length; {self._pool.odd} that are not as long as the first were left out")
        return tuple(found)

    def modes(self) -> frozenset[Mode]:
        """Sub-classes that work on what they yield are not given anything but batches."""
        plain = type(self._own).__iter__ is DataLoader.__iter__ and not self._given.wrappers
        return super().modes() - (frozenset() if plain else {"T"})

    @property
    def exhausted(self) -> bool:
        """True when the sampler had no more batches, and the pool is what it gave."""
        return self._pool is not None and self._pool.size > 0

    def settle(self, taken: int) -> int:
        """Make the batches asked for by now the pool; returns how many must have been taken until it is learned.

        `taken` batches have been taken by now.
        """
        ahead = self._loader.num_workers * (self._loader.prefetch_factor or 0)
        if self._pool is not None:
            self._pool.close()
            size = self._pool.size
        else:
            lanes = self._lanes.lanes
            # A short iterable begins again by itself: the pool is what comes before.
            once = min((_before_again(self._learned(lane)) or sys.maxsize for lane in range(lanes)), default=0)
            size = min(-(-(taken + ahead) // lanes), once) * lanes
        self._settled = self._log.pool = size
        return size

    def _learned(self, lane: int) -> list[dict[str, Any]]:
        path = learned_path(self._lanes, lane)
        lines = path.read_text().split("\n")[:-1] if path.is_file() else []
        return [json.loads(line) for line in lines]

    def files(self, batch_size: int) -> BatchFiles | str:
        """The files of the settled pool; or why they are not known."""
        batches: list[list[tuple[str, int]]] = [[] for _ in range(self._settled)]
        shares: list[float] = []
        lanes = self._lanes.lanes
        for lane in range(lanes):
            for made, learned in enumerate(self._learned(lane)[: self._settled // lanes]):
                found = batches[lane + made * lanes] = [(name, size) for name, size in learned["files"]]
                size = sum(size for _, size in found)
                shares += [learned["read"] / size] if size else []
        # What the first batches import is no data, so the usual batch decides.
        if 2 * len(shares) <= len(batches):
            return NO_FILES
        share = median(shares)
        if share and not READ_WHOLE[0] <= share <= READ_WHOLE[1]:
            return IN_PARTS if share < 1 else OTHERS_TOO
        sizes = tuple(sum(size for _, size in batch) for batch in batches)
        paths = tuple(tuple(name for name, _ in batch) for batch in batches)
        if self._iterable:
            # Where nothing is made but read (mode Q) an iterable stays where it was, so any batch may be next.
            every = tuple(dict.fromkeys(name for batch in paths for name in batch))
            paths = (every,) * len(paths)
        return BatchFiles(batch_size=batch_size, paths=paths, size_bytes=sizes)


def _before_again(learned: Sequence[dict[str, Any]]) -> int:
    """Batches that a worker made of an iterable before it began again; 0 when it has not."""
    return next((made for made, each in enumerate(learned) if each["again"]), 0)
