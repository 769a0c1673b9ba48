"""Into a training script without touching it: a few functions of torch are replaced, and put back at the end.

`DataLoader.__iter__` is where every loop begins; sub-classes and wrappers call it, too. `Tensor.backward` calls
`torch.autograd.backward` by attribute. Both savers of models write below Python, where no audit event shows them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, get_worker_info

SAFETENSORS = "safetensors.torch"
Iterate = Callable[[Any], Iterator[Any]]


class Onlooker(Protocol):
    """Hears what a script does."""

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
    if iterate:
        undo.callback(replace(DataLoader, "__iter__", iterating(onlooker)))
    undo.callback(replace(torch.autograd, "backward", _before(onlooker.backward)))
    undo.callback(replace(torch, "save", _saving(onlooker)))
    if SAFETENSORS in sys.modules:
        # What `save_file` calls, since scripts import that one by its name.
        undo.callback(replace(sys.modules[SAFETENSORS], "serialize_file", _saving(onlooker)))
    hook = register_optimizer_step_post_hook(lambda *_: onlooker.updated())
    undo.callback(hook.remove)
    return undo.close


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


def _before(call: Callable[[], None]) -> Callable[[Any], Any]:
    def around(original: Any) -> Any:
        @functools.wraps(original)
        def called(*given: Any, **named: Any) -> Any:
            call()
            return original(*given, **named)

        return called

    return around


def _saving(onlooker: Onlooker) -> Callable[[Any], Any]:
    """For `save(what, target, ...)`."""

    def around(original: Any) -> Any:
        @functools.wraps(original)
        def save(what: Any, target: Any, *given: Any, **named: Any) -> Any:
            onlooker.saving(target)
            return original(what, target, *given, **named)

        return save

    return around


def shut_down(real: Any, loader: Any) -> None:
    """End the workers of an iterator that is not used any more; a persistent one would be taken for alive."""
    if hasattr(real, "_shutdown_workers"):
        real._shutdown_workers()
    if getattr(loader, "_iterator", None) is real:
        loader._iterator = None
