"""The random generators that a loader draws from, and restoring them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

Restore = Callable[[], None]


def global_random_state() -> Restore:
    """Returns a function that restores the generators of torch, Python and numpy to their state of now."""
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    # Read only if CUDA is in use: reading would start it.
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    of_cuda = torch.cuda.get_rng_state_all() if on_gpu else None

    def restore() -> None:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if of_cuda is not None:
            torch.cuda.set_rng_state_all(of_cuda)

    return restore


def torch_generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """The torch generators of the loader and its samplers."""
    return [each for each in _held(loader) if isinstance(each, torch.Generator)]


@contextmanager
def random_state_kept(loader: DataLoader[Any]) -> Iterator[None]:
    """Restore, at the end, all random generators that a loader or its data set draws from."""
    back = [global_random_state(), *(_restorer(each) for each in _held(loader) if _is_generator(each))]
    try:
        yield
    finally:
        for restore in back:
            restore()


def _held(loader: DataLoader[Any]) -> list[Any]:
    """The attributes of the loader, its samplers and its data set; each value once."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    places = (loader, loader.sampler, loader.batch_sampler, inner, loader.dataset)
    found = [value for place in places for value in list(getattr(place, "__dict__", {}).values())]
    return list({id(value): value for value in found}.values())


def _is_generator(value: Any) -> bool:
    return isinstance(value, torch.Generator | random.Random | np.random.RandomState | np.random.Generator)


def _restorer(each: Any) -> Restore:
    if isinstance(each, random.Random):
        of_python = each.getstate()
        return lambda: each.setstate(of_python)
    if isinstance(each, np.random.Generator):
        of_numpy = each.bit_generator.state
        return lambda: setattr(each.bit_generator, "state", of_numpy)
    state = each.get_state()
    return lambda: each.set_state(state)
