"""Into a training script without touching it: a few functions of torch are replaced, and put back at the end.

Every batch of every DataLoader passes through `__next__` of the iterator that torch has made, however a script takes
it: those of sub-classes, of other libraries' loaders and of loaders that keep one iterator for all epochs are of that
class, too. So the script keeps its own iterators. `_get_iterator` is where most are made; where a sub-class has one of
its own, it is heard from its second iterator on. `Tensor.backward` calls `torch.autograd.backward` by attribute. Both
savers of models write below Python, where no audit event shows them.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import torch
from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loaderprobe.errors import NoSpace
from loaderprobe.loaders.fetch_log import ROWS, FetchLog, OpenLog
from loaderprobe.loaders.unwrap import end_workers, is_iterator, torch_iterator
from loaderprobe.loaders.worker_probe import WorkerProbe, WorkerSetup, watch_here
from loaderprobe.records.measurement import BATCH_COLUMNS, WorkerBatches

# fastai's own DataLoader, which is no sub-class of torch's: a torch DataLoader that makes the same batches.
#
# fastai gives what it calls a fake loader to the iterators of torch's DataLoader. These are kept in a tuple,
# `_loaders`, the one for workers first (fastai 2.8), so that is where a loop over it begins.

MODULE, LOADERS = "fastai.data.load", "_loaders"
KEPT = "_loaderprobe"
"""The attribute of a fake loader with the torch DataLoader for it: each epoch's is the same."""
MakesBatches = ("create_batches", "sample", "chunkify")
"""Methods that form batches. What replaces one may draw its samples in any way."""
GetIterator = Callable[[Any, Callable[[Any], Iterator[Any]]], Iterator[Any]]


class FastaiItems(Dataset[Any]):
    """The samples of one of fastai's loaders by their indices; and, as a sampler, these in the loader's order."""

    def __init__(self, d: Any) -> None:
        self.d = d
        """By this name fastai's `worker_init_fn` finds it."""

    def __len__(self) -> int:
        return int(self.d.n)

    def __iter__(self) -> Iterator[int]:
        return iter(self.d.get_idxs())

    def __getitem__(self, index: int) -> Any:
        return self.d.do_item(index)

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch, without the samples that the data set skips."""
        return self.d.do_batch([sample for sample in samples if sample is not None])


def torch_loader(fake: Any) -> DataLoader[Any] | None:
    """A torch DataLoader with the samples, workers and batches of a fake loader; None where it cannot have them."""
    kept: DataLoader[Any] | None = vars(fake).get(KEPT)
    if kept is None and _is_usual(fake.d):
        items = FastaiItems(fake.d)
        kept = DataLoader(
            items, fake.d.bs, sampler=items, num_workers=fake.num_workers, collate_fn=items.collate,
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
    made = torch_loader(loader)
    # fastai takes single batches without workers.
    return made if made is not None and made.num_workers == loader.num_workers else None


def _is_usual(d: Any) -> bool:
    """True where samples have indices, and batches are formed of as many as fastai's own methods take."""
    base = vars(sys.modules[MODULE])["DataLoader"]
    changed = [name for name in MakesBatches if name in vars(d) or getattr(type(d), name) is not getattr(base, name)]
    return bool(d.indexed and d.n and d.bs) and not changed


def with_hook(get_iterator: GetIterator, kind: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """`kind(fake)`, an iterator, by way of `get_iterator(loader, original)`."""

    def make(fake: Any) -> Iterator[Any]:
        loader = torch_loader_of(fake)
        if loader is None:
            return kind(fake)

        def original(loader: Any) -> Iterator[Any]:
            before, fake.worker_init_fn = fake.worker_init_fn, loader.worker_init_fn
            try:
                return kind(fake)
            finally:
                fake.worker_init_fn = before

        return get_iterator(loader, original)

    return make


Iterate = Callable[[Any], Iterator[Any]]


class ScriptHooks(Protocol):
    """Is called at what a script does."""

    @property
    def drives(self) -> bool:
        """True where the script makes more steps than it planned, since it is given batches without end."""
        ...

    def loop_begins(self, loader: DataLoader[Any]) -> None:
        """A loop begins: a loader's `__iter__` was called. Not of one whose class was never seen before."""
        ...

    def get_iterator(self, loader: DataLoader[Any], original: Iterate) -> Iterator[Any]:
        """An iterator of a loader is asked for; returns one, as `original(loader)` does."""
        ...

    def iterator_made(self, loader: DataLoader[Any]) -> Any:
        """torch makes an iterator of a loader. What is returned goes with its batches; None where none is iterators."""
        ...

    def next_batch(self, tracked: Any, real: Iterator[Any], take: Callable[[], Any]) -> Any:
        """The script asks for the next batch of the iterator `real`, of which `iterator_made` returned `tracked`.

        Returns a batch, as `take()` does.
        """
        ...

    def backward(self) -> None: ...

    def optimizer_stepped(self) -> None:
        """An optimizer has made a step."""
        ...

    def saving(self, target: Any) -> None:
        """A file, by its path, is going to be written by torch or safetensors; may raise."""
        ...


def attach(hooks: ScriptHooks) -> Callable[[], None]:
    """Let `hooks` hear of this process from now on; returns what ends that. Workers of loaders are left alone."""
    undo = ExitStack()

    def get_lr(original: Any, schedule: OneCycleLR) -> Any:
        """The one schedule of torch that raises once its steps are used up keeps its last rate."""
        used_up = schedule.last_epoch > schedule.total_steps
        return schedule.get_last_lr() if used_up and hooks.drives else original(schedule)

    def saving(original: Any, *given: Any, **named: Any) -> Any:
        """Of `save(what, f)` and `serialize_file(what, filename)`, called by position or by name."""
        hooks.saving(given[1] if len(given) > 1 else named.get("f", named.get("filename")))
        return original(*given, **named)

    def backward(original: Any, *given: Any, **named: Any) -> Any:
        hooks.backward()
        return original(*given, **named)

    try:
        iterators = HookedIterators(hooks, undo)
        undo.callback(hook(_BaseDataLoaderIter, "__init__", iterators.making))
        undo.callback(hook(_BaseDataLoaderIter, "__next__", iterators.taking))
        iterators.follow(DataLoader)
        iterators.find()
        if LOADERS in vars(sys.modules.get(MODULE, object)):
            kinds = tuple(with_hook(hooks.get_iterator, kind) for kind in vars(sys.modules[MODULE])[LOADERS])
            undo.callback(replace(sys.modules[MODULE], LOADERS, kinds))
        undo.callback(hook(torch.autograd, "backward", backward))
        for module in (torch, torch.jit):
            undo.callback(hook(module, "save", saving))
        if find_spec("safetensors") is not None:
            # What `save_file` calls, since scripts import that one by its name.
            undo.callback(hook(import_module("safetensors.torch"), "serialize_file", saving))
        undo.callback(hook(OneCycleLR, "get_lr", get_lr))
        undo.callback(register_optimizer_step_post_hook(lambda *_: hooks.optimizer_stepped()).remove)
    except BaseException:
        undo.close()
        raise
    return undo.close


def ranks_in_use() -> int:
    """Processes that train together, as far as this one has joined them."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if several else 1


def gradients_are_off() -> bool:
    """True in this thread within `torch.no_grad` and `torch.inference_mode`."""
    return not torch.is_grad_enabled()


class HookedIterators:
    """The iterators that a script has of its loaders, and the classes of these."""

    def __init__(self, hooks: ScriptHooks, undo: ExitStack) -> None:
        self._hooks, self._undo = hooks, undo
        self._of: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[Any, ref[Any]] = WeakKeyDictionary()
        self._followed: set[type] = set()
        self._in_progress: set[int] = set()
        """Of loaders that are being asked for an iterator, their ids."""

    def follow(self, kind: type) -> None:
        """Hear of the loops over loaders of this class from now on."""
        if kind in self._followed:
            return
        for base in kind.__mro__:
            for name, around in (("__iter__", self._beginning), ("_get_iterator", self._getting)):
                if issubclass(base, DataLoader) and base not in self._followed and name in vars(base):
                    self._undo.callback(hook(base, name, around))
            self._followed.add(base)

    def find(self) -> None:
        """The iterators that loaders keep already: heard from the next batch on."""
        for loader in gc.get_objects():
            if issubclass(type(loader), DataLoader):
                self._kept.update({value: ref(loader) for value in list(vars(loader).values()) if is_iterator(value)})

    def making(self, original: Any, real: Any, loader: Any, *given: Any, **named: Any) -> None:
        """For `_BaseDataLoaderIter.__init__`."""
        torch_loader = torch_loader_of(loader)
        if torch_loader is not None and get_worker_info() is None:
            self._keep(real, torch_loader)
        original(real, loader, *given, **named)

    def taking(self, original: Any, real: Any) -> Any:
        """For `_BaseDataLoaderIter.__next__`."""
        if real in self._kept:
            loader = self._kept.pop(real)()
            if loader is not None and get_worker_info() is None:
                self._keep(real, loader)
        handle = self._of.get(real)
        return original(real) if handle is None else self._hooks.next_batch(handle, real, lambda: original(real))

    def _keep(self, real: Any, loader: Any) -> None:
        self.follow(type(loader))
        handle = self._hooks.iterator_made(loader)
        if handle is not None:
            self._of[real] = handle

    def _beginning(self, original: Iterate, loader: Any) -> Iterator[Any]:
        if get_worker_info() is None:
            self._hooks.loop_begins(loader)
        return original(loader)

    def _getting(self, original: Iterate, loader: Any) -> Iterator[Any]:
        # A sub-class may ask the class above for the iterator that it wraps.
        if get_worker_info() is not None or id(loader) in self._in_progress:
            return original(loader)
        self._in_progress.add(id(loader))
        try:
            return self._hooks.get_iterator(loader, original)
        finally:
            self._in_progress.discard(id(loader))  # another thread may have asked at the same time


def hook(owner: Any, name: str, call: Callable[..., Any]) -> Callable[[], None]:
    """Let a function be called as `call(original, ...)`; returns what puts it back, if it is still ours."""
    original = vars(owner)[name]

    @functools.wraps(original)
    def hooked(*given: Any, **named: Any) -> Any:
        return call(original, *given, **named)

    return replace(owner, name, hooked)


def replace(owner: Any, name: str, ours: Any) -> Callable[[], None]:
    """Replace an attribute; returns what puts it back, if it is still ours."""
    original = vars(owner)[name]
    setattr(owner, name, ours)

    def restore() -> None:
        if vars(owner).get(name) is ours:
            setattr(owner, name, original)

    return restore


def shut_down(real: Any, loader: Any) -> None:
    """End the workers of an iterator that is not used any more; a persistent one would be taken for alive."""
    if hasattr(real, "_shutdown_workers"):
        end_workers(real)
    if getattr(loader, "_iterator", None) is real:
        loader._iterator = None


# The workers of a loader that is only watched: what each batch costs is recorded, and each is made as it would be.

START = BATCH_COLUMNS.index("start_ns")
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LiveLog:
    """The log of one iterator."""

    path: Path
    log: OpenLog
    owner: ref[Any]
    """To what lives as long as the iterator."""
    probe: WorkerProbe | None = None
    """Of a loader without workers."""


class WatchedLoader:
    """What the workers of a loader record, over all iterators that a script makes of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live: list[LiveLog] = []
        """A script may have several iterators at once."""
        self._made = 0
        self._kept: deque[Row] = deque(maxlen=ROWS)
        """The last rows of iterators that are over, as many as a log has of one worker."""

    def iterate(self, loader: DataLoader[Any], original: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """The loader's own iterator, whose workers record where their log can be written."""
        self._retire()
        self._made += 1
        path = self._folder / f"{self._made}.log"
        try:
            self._folder.mkdir(exist_ok=True)
            name = FetchLog.create(path, max(loader.num_workers, 1))
            log = name.open("r")
        except (OSError, NoSpace):  # training goes on without records
            with suppress(OSError):
                path.unlink()  # as much as there was space for
            return original(loader)
        if not loader.num_workers:
            made = original(loader)
            if (real := torch_iterator(made)) is None:
                path.unlink()  # nothing will write it
            else:
                self._live.append(LiveLog(path, log, ref(real), watch_here(name, real, passive=True)))
            return made
        settings, before = loader.__dict__, loader.worker_init_fn
        # torch's iterator holds it, whatever a sub-class has put around that iterator.
        setup = settings["worker_init_fn"] = WorkerSetup(name, init=before, passive=True)
        self._live.append(LiveLog(path, log, ref(setup)))
        try:
            return original(loader)
        finally:
            settings["worker_init_fn"] = before

    def records(self, since_ns: int) -> WorkerBatches:
        """The cost of each batch that was begun since then, numbered in the order in which they were begun."""
        kept = (row for row in self._kept if row[START] >= since_ns)
        live = (row for log in self._live for row in _rows(log.log, since_ns))
        rows = sorted((*kept, *live), key=lambda row: row[START])
        columns: dict[str, Any] = dict(zip(BATCH_COLUMNS, zip(*rows, strict=True), strict=False))
        return WorkerBatches(**columns | {"batch": tuple(range(len(rows)))})

    def _retire(self) -> None:
        """Keep the rows of iterators that are gone, and remove their logs: workers open them by name."""
        live, self._live = self._live, []
        for log in live:
            if log.owner() is not None:
                self._live.append(log)
                continue
            self._kept += _rows(log.log)
            log.path.unlink(missing_ok=True)
            if log.probe is not None:
                log.probe.close()


def _rows(log: OpenLog, since_ns: int = 0) -> Iterator[Row]:
    read = log.read(since_ns)
    return zip(*(getattr(read, name) for name in BATCH_COLUMNS), strict=True)
