"""The DataLoader inside what people wrap around one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

import loaderprobe
from loaderprobe.errors import BadValue
from loaderprobe.loaders.unwrap import EndlessBatches, bare_copy, torch_iterator, unwrap
from tests.api.samples import Disguised, Doubling, Numbers, Piped
from tests.examples.iterated import Eager
from tests.said import said


def data_loader() -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_size=4)


class Around(DataLoader[Any]):
    """A DataLoader without a data set of its own, which only wraps another."""

    def __init__(self, inner: DataLoader[Any]) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        return iter(self.inner)


class Cleaning(Doubling):
    """Cleans up after itself."""

    def __del__(self) -> None:
        self.seen.append(-1)


def at_work(held: Any) -> Callable[[DataLoader[Any]], Any]:
    """A wrapper that holds something which a copy would share."""

    def made(loader: DataLoader[Any]) -> Any:
        wrapper = Doubling(loader)
        vars(wrapper)["at_work"] = held
        return wrapper

    return made


LEFT_OUT = "what Piped does around loader.stages[0], which is measured, is left out: it may form new batches"


@pytest.mark.parametrize(
    ("wrapped", "path", "first", "note"),
    [
        (Doubling, "loader.inner", [0, 2, 4, 6], ""),
        (lambda loader: Doubling(Doubling(loader)), "loader.inner.inner", [0, 4, 8, 12], ""),
        (Disguised, "loader.base", [0, 1, 2, 3], ""),  # what `isinstance` says does not count
        (Around, "loader.inner", [0, 1, 2, 3], ""),
        (lambda loader: Piped([loader]), "loader.stages[0]", [0, 1, 2, 3], ""),
        (lambda loader: Piped([loader, print]), "loader.stages[0]", None, LEFT_OUT),
        (Cleaning, "loader.inner", None, "it has a __del__"),
        (at_work(threading.Thread()), "loader.inner", None, "its .at_work is at work"),
        (at_work(iter(data_loader())), "loader.inner", None, "its .at_work is at work"),
        (at_work(each for each in range(0)), "loader.inner", None, "its .at_work is at work"),
    ],
)
def test_a_wrapper_is_copied_around_a_copy_of_its_loader(
    wrapped: Callable[[DataLoader[Any]], Any], path: str, first: list[int] | None, note: str
) -> None:
    """It keeps its loader and what it has seen. What cannot be copied, or may form new batches, is left out."""
    loader = data_loader()
    wrapper = wrapped(loader)
    before = {name: list(value) for name, value in vars(wrapper).items() if isinstance(value, list)}
    found = unwrap(wrapper)
    assert (found.loader, found.path) == (loader, path)
    assert note in "".join(said(remark) for remark in found.notes) and bool(note) == bool(found.notes)
    copy = found.rewrap(bare_copy(loader))
    assert (copy is None) == (first is None)
    assert first is None or (type(copy) is type(wrapper) and next(iter(copy))[1].tolist() == first)
    assert {name: value for name, value in vars(wrapper).items() if isinstance(value, list)} == before


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        # What wraps, but cannot be iterated; the last as data modules of Lightning.
        (SimpleNamespace(labeled=data_loader(), unlabeled=data_loader()), r"give loader\.labeled or loader\.unlabeled"),
        (SimpleNamespace(inner=data_loader()), r"give loader\.inner"),
        (SimpleNamespace(inner=iter(data_loader())), r"its \.inner is an iterator of a DataLoader: give that Data"),
        (type("Data", (), {"train_dataloader": data_loader})(), r"give what its train_dataloader\(\) returns"),
        ([data_loader(), data_loader()], r"give loader\[0\] or loader\[1\]"),
        ({"train": data_loader()}, r"give loader\['train'\]"),
        (iter(data_loader()), "give the DataLoader itself, not an iterator of it"),
        (range(3), "give the DataLoader that feeds it"),
    ],
)
def test_what_cannot_be_unwrapped_is_refused_with_a_hint(given: Any, hint: str) -> None:
    """Where the loader is, before anything of it is iterated."""
    with pytest.raises(BadValue, match=r"not a torch\.utils\.data\.DataLoader") as caught:
        loaderprobe.diagnose(given)
    assert re.match(hint, caught.value.hint)


def test_a_bare_copy_has_no_iterator() -> None:
    """A sub-class may end the workers of one that it keeps, when the copy goes. Nor does it go on where one was."""
    loader = Eager(Numbers(), batch_size=4)
    loader._iterator = loader.iterator
    vars(loader).update(_initial_iter_for_state_dict=True, next_iter_state={"_num_yielded": 5})
    copy = vars(bare_copy(loader))
    names = ("iterator", "_iterator", "_initial_iter_for_state_dict", "next_iter_state")
    assert [copy[name] for name in names] == [None, None, False, None]
    assert copy["dataset"] is loader.dataset


def test_epochs_follow_each_other_until_one_is_empty() -> None:
    """Each is begun only when it is needed."""
    lengths = iter([2, 1, 0])

    class Source:
        def __iter__(self) -> Iterator[int]:
            return iter(range(next(lengths)))

    epochs = EndlessBatches(Source())
    assert list(epochs) == [0, 1, 0]
    assert epochs.taken == 3
    with pytest.raises(StopIteration):
        next(lengths)


OTHER = iter(DataLoader(Numbers(), batch_size=4))


class Lazy:
    """Wraps an iterator, if any; its code uses the one of another loader."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __next__(self) -> Any:
        return next(self.inner), next(OTHER)


def test_an_iterator_of_another_loader_is_not_that_of_this_one() -> None:
    """Its workers are not to be ended, nor its fetcher measured."""
    own = iter(data_loader())
    assert torch_iterator(Lazy(own)) is own
    assert torch_iterator(Lazy(None)) is None
