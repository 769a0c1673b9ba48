"""What matters of `fastai.data.load`: a loader that hands a fake one to the iterators of torch's DataLoader."""

from __future__ import annotations

import itertools
import multiprocessing
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import default_collate, get_worker_info
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

_loaders: tuple[Callable[[Any], Iterator[Any]], ...] = (_MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter)


def _wif(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    d = info.dataset.d  # type: ignore[attr-defined]  # both kinds of data set have it
    d.num_workers, d.offs = info.num_workers, info.id
    random.seed(info.seed)


class _FakeLoader:
    _IterableDataset_len_called, _auto_collation, drop_last = None, False, False
    _index_sampler, generator, prefetch_factor = range(2**60), None, 2
    dataset_kind = _dataset_kind = _DatasetKind.Iterable
    in_order, pin_memory_device = True, ""

    def __init__(self, d: Any, num_workers: int) -> None:
        self.dataset, self.d, self.num_workers, self.worker_init_fn = self, d, num_workers, _wif
        self.pin_memory, self.timeout, self.persistent_workers = False, 0, False

    def __iter__(self) -> Iterator[Any]:
        return iter(self.d.create_batches(self.d.sample()))

    def collate_fn(self, batch: Any) -> Any:
        return batch

    def _get_shared_seed(self) -> None:
        return None

    @property
    def multiprocessing_context(self) -> Any:
        return multiprocessing if self.num_workers else None


class DataLoader:
    """Of `dataset`, shuffled, in batches of `bs`."""

    indexed, drop_last, shuffle = True, False, True

    def __init__(self, dataset: Any, bs: int, num_workers: int = 0) -> None:
        self.dataset, self.bs, self.n = dataset, bs, len(dataset)
        self.rng, self.num_workers, self.offs = random.Random(random.randint(0, 2**32 - 1)), 1, 0
        self.fake_l = _FakeLoader(self, num_workers)
        self.idxs: list[int] = []

    def __len__(self) -> int:
        return -(-self.n // self.bs)

    def get_idxs(self) -> list[int]:
        return self.rng.sample(range(self.n), self.n)

    def sample(self) -> Iterator[int]:
        return (b for i, b in enumerate(self.idxs) if i // self.bs % self.num_workers == self.offs)

    def __iter__(self) -> Iterator[Any]:
        self.rng = random.Random(self.rng.randint(0, 2**32 - 1))
        self.idxs = self.get_idxs()
        yield from _loaders[self.fake_l.num_workers == 0](self.fake_l)

    def create_batches(self, samples: Iterable[int]) -> Iterator[Any]:
        return map(self.do_batch, self.chunkify(filter(lambda sample: sample is not None, map(self.do_item, samples))))

    def chunkify(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        taken = iter(items)
        while chunk := list(itertools.islice(taken, self.bs)):
            yield chunk

    def do_item(self, index: int) -> Any:
        return self.dataset[index]

    def do_batch(self, samples: Any) -> Any:
        return default_collate(samples)
