"""fastai's own DataLoader, which is no sub-class of torch's: a torch DataLoader that makes the same batches.

fastai gives what it calls a fake loader to the iterators of torch's DataLoader. These are kept in a tuple, `_loaders`,
the one for workers first (fastai 2.8), so that is where a loop over it begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

MODULE, LOADERS = "fastai.data.load", "_loaders"
KEPT = "_loaderprobe"
"""The attribute of a fake loader with the torch DataLoader for it: each epoch's is the same."""
MakesBatches = ("create_batches", "sample", "chunkify")
"""Methods that form batches. What replaces one may draw its samples in any way."""
Iterated = Callable[[Any, Callable[[Any], Iterator[Any]]], Iterator[Any]]


class FastaiItems(Dataset[Any]):
    """The samples of one of fastai's loaders, by their indices."""

    def __init__(self, d: Any) -> None:
        self.d = d
        """By this name fastai's `worker_init_fn` finds it."""

    def __len__(self) -> int:
        return int(self.d.n)

    def __getitem__(self, index: int) -> Any:
        return self.d.do_item(index)

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch, without the samples that the data set skips."""
        return self.d.do_batch([each for each in samples if each is not None])


class FastaiOrder(Sampler[int]):
    """The order in which one of fastai's loaders takes its samples."""

    def __init__(self, items: FastaiItems) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[int]:
        return iter(self.items.d.get_idxs())


def torch_loader(fake: Any) -> DataLoader[Any] | None:
    """A torch DataLoader with the samples, workers and batches of a fake loader; None where it cannot have them."""
    kept: DataLoader[Any] | None = vars(fake).get(KEPT)
    if kept is None and _is_usual(fake.d):
        items = FastaiItems(fake.d)
        kept = DataLoader(
            items, fake.d.bs, sampler=FastaiOrder(items), num_workers=fake.num_workers, collate_fn=items.collate,
            pin_memory=fake.pin_memory, drop_last=fake.d.drop_last, timeout=fake.timeout,
            worker_init_fn=fake.worker_init_fn,
        )  # fmt: skip
        setattr(fake, KEPT, kept)
    return kept


def torch_loader_of(loader: Any) -> DataLoader[Any] | None:
    """The DataLoader that an iterator of torch's is made of, for a fake loader that with its batches; else None."""
    if issubclass(type(loader), DataLoader):
        return loader  # type: ignore[no-any-return]  # as the type says
    if MODULE not in sys.modules or not hasattr(loader, "d"):
        return None
    found = torch_loader(loader)
    # fastai takes single batches without workers.
    return found if found is not None and found.num_workers == loader.num_workers else None


def _is_usual(d: Any) -> bool:
    """True where samples have indices, and batches are formed of as many as fastai's own methods take."""
    own = vars(sys.modules[MODULE])["DataLoader"]
    changed = [name for name in MakesBatches if name in vars(d) or getattr(type(d), name) is not getattr(own, name)]
    return bool(d.indexed and d.n and d.bs) and not changed


def telling(iterated: Iterated, kind: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """`kind(fake)`, an iterator, by way of `iterated(loader, original)`."""

    def make(fake: Any) -> Iterator[Any]:
        loader = torch_loader_of(fake)
        if loader is None:
            return kind(fake)

        def original(loader: Any) -> Iterator[Any]:
            own, fake.worker_init_fn = fake.worker_init_fn, loader.worker_init_fn
            try:
                return kind(fake)
            finally:
                fake.worker_init_fn = own

        return iterated(loader, original)

    return make
