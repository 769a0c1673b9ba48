"""Into a training script without touching it: a few functions of torch are replaced, and put back at the end.

`DataLoader.__iter__` is where every loop begins; sub-classes and wrappers call it, too. `Tensor.backward` calls
`torch.autograd.backward` by attribute. Both savers of models write below Python, where no audit event shows them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, get_worker_info

from loaderprobe.loaders import fastai

Iterate = Callable[[Any], Iterator[Any]]


class Onlooker(Protocol):
    """Hears what a script does."""

    @property
    def drives(self) -> bool:
        """True where the script makes more steps than it planned, since it is given batches without end."""
        ...

    def iterated(self, loader: DataLoader[Any], original: Iterate) -> Iterator[Any]:
        """A loop begins; returns what it iterates."""
        ...

    def backward(self) -> None:
        """A backward pass begins."""
        ...

    def updated(self) -> None:
        """An optimizer has made a step."""
        ...

    def saving(self, target: Any) -> None:
        """A file, by its path, is going to be written by torch or safetensors; may raise."""
        ...


def attach(onlooker: Onlooker, *, iterate: bool = True) -> Callable[[], None]:
    """Let `onlooker` hear of this process from now on; returns what ends that. Workers of loaders are left alone.

    Without `iterate`, `DataLoader.__iter__` calls it already.
    """
    undo = ExitStack()
    try:
        if iterate:
            undo.callback(replace(DataLoader, "__iter__", iterating(onlooker)))
        if fastai.LOADERS in vars(sys.modules.get(fastai.MODULE, object)):
            undo.callback(replace(sys.modules[fastai.MODULE], fastai.LOADERS, _telling(onlooker)))
        undo.callback(replace(torch.autograd, "backward", _before(onlooker.backward)))
        for module in (torch, torch.jit):
            undo.callback(replace(module, "save", _saving(onlooker)))
        if find_spec("safetensors") is not None:
            # What `save_file` calls, since scripts import that one by its name.
            undo.callback(replace(import_module("safetensors.torch"), "serialize_file", _saving(onlooker)))
        undo.callback(replace(OneCycleLR, "get_lr", _lasting(onlooker)))
        undo.callback(register_optimizer_step_post_hook(lambda *_: onlooker.updated()).remove)
    except BaseException:
        undo.close()
        raise
    return undo.close


def ranks_in_use() -> int:
    """Processes that train together, as far as this one has joined them."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if several else 1


def iterating(onlooker: Onlooker) -> Callable[[Iterate], Iterate]:
    """A `DataLoader.__iter__` that calls `onlooker` where the script iterates, and the original in workers."""

    def around(original: Iterate) -> Iterate:
        @functools.wraps(original)
        def iterate(loader: Any) -> Iterator[Any]:
            return original(loader) if get_worker_info() is not None else onlooker.iterated(loader, original)

        return iterate

    return around


def replace(owner: Any, name: str, around: Callable[[Any], Any]) -> Callable[[], None]:
    """Replace an attribute by what `around` makes of it; returns what puts it back, if it is still ours."""
    original = vars(owner)[name]
    ours = around(original)
    setattr(owner, name, ours)

    def restore() -> None:
        if vars(owner).get(name) is ours:
            setattr(owner, name, original)

    return restore


def _telling(onlooker: Onlooker) -> Callable[[Any], Any]:
    """fastai's iterators, by way of `onlooker`."""

    def around(kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(fastai.telling(onlooker.iterated, kind) for kind in kinds)

    return around


def _before(call: Callable[[], None]) -> Callable[[Any], Any]:
    def around(original: Any) -> Any:
        @functools.wraps(original)
        def called(*given: Any, **named: Any) -> Any:
            call()
            return original(*given, **named)

        return called

    return around


def _lasting(onlooker: Onlooker) -> Callable[[Any], Any]:
    """The one schedule of torch that raises once its steps are used up keeps its last rate."""

    def around(original: Any) -> Any:
        @functools.wraps(original)
        def get_lr(schedule: OneCycleLR) -> Any:
            used_up = schedule.last_epoch > schedule.total_steps
            return schedule.get_last_lr() if used_up and onlooker.drives else original(schedule)

        return get_lr

    return around


def _saving(onlooker: Onlooker) -> Callable[[Any], Any]:
    """For `save(what, f)` and `serialize_file(what, filename)`, by place or by name."""

    def around(original: Any) -> Any:
        @functools.wraps(original)
        def save(*given: Any, **named: Any) -> Any:
            onlooker.saving(given[1] if len(given) > 1 else named.get("f", named.get("filename")))
            return original(*given, **named)

        return save

    return around


def shut_down(real: Any, loader: Any) -> None:
    """End the workers of an iterator that is not used any more; a persistent one would be taken for alive."""
    if hasattr(real, "_shutdown_workers"):
        real._shutdown_workers()
    if getattr(loader, "_iterator", None) is real:
        loader._iterator = None
