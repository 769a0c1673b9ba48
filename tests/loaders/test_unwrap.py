"""The DataLoader inside what people wrap around one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

import loaderprobe
from loaderprobe.errors import BadValue
from loaderprobe.loaders.unwrap import EndlessBatches, bare_copy, unwrap
from tests.api.samples import Keeping, Moving, Numbers
from tests.api.wrappers import Disguised, Doubling, Piped, TwoLoaders
from tests.said import all_said, said


def _loader() -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_size=4)


@pytest.mark.parametrize("kind", [DataLoader, Moving, Keeping])
def test_a_data_loader_is_itself(kind: Any) -> None:
    """Sub-classes as well."""
    loader = kind(Numbers(), batch_size=4)
    found = unwrap(loader)
    assert (found.loader, found.path, found.notes, found.rewrap(loader)) == (loader, "loader", (), None)


def test_a_wrapper_is_copied_around_a_copy_of_its_loader() -> None:
    """The wrapper itself keeps its loader and its lists."""
    loader = _loader()
    wrapper = Doubling(loader)
    found = unwrap(wrapper)
    assert (found.loader, found.path) == (loader, "loader.inner")
    twin = bare_copy(loader)
    copy = found.rewrap(twin)
    assert next(iter(copy))[1].tolist() == [0, 2, 4, 6]
    assert (copy.inner, copy.seen, wrapper.inner, wrapper.seen) == (twin, [4], loader, [])


def test_wrappers_of_wrappers_are_followed() -> None:
    """Each is copied."""
    loader = _loader()
    found = unwrap(Doubling(Doubling(loader)))
    assert (found.loader, found.path) == (loader, "loader.inner.inner")
    assert next(iter(found.rewrap(bare_copy(loader))))[1].tolist() == [0, 4, 8, 12]


def test_a_wrapper_that_passes_for_a_data_loader_is_one() -> None:
    """What `isinstance` says does not count, and it is not asked."""
    loader = _loader()
    disguised = Disguised(loader)
    assert isinstance(disguised, DataLoader)
    found = unwrap(disguised)
    assert found.loader is loader
    assert type(found.rewrap(loader)) is Disguised


def test_a_data_loader_that_only_wraps_another_is_a_wrapper() -> None:
    """It has no data set of its own."""

    class Around(DataLoader[Any]):
        def __init__(self, inner: DataLoader[Any]) -> None:
            self.inner = inner

        def __iter__(self) -> Any:
            return iter(self.inner)

    loader = _loader()
    assert unwrap(Around(loader)).loader is loader


def test_a_pipeline_of_one_stage_is_kept_and_of_more_left_out() -> None:
    """What comes after may make other batches of them; a note says so and where the loader is."""
    loader = _loader()
    alone = unwrap(Piped([loader]))
    assert (alone.loader, alone.path, alone.notes) == (loader, "loader.stages[0]", ())
    assert next(iter(alone.rewrap(bare_copy(loader))))[1].tolist() == [0, 1, 2, 3]
    staged = unwrap(Piped([loader, print]))
    assert (staged.loader, staged.rewrap(loader)) == (loader, None)
    assert all_said(staged.notes) == [
        "what Piped does around its DataLoader is left out: it may form new batches; loader.stages[0] is measured",
    ]


def test_what_cannot_be_copied_is_left_out() -> None:
    """Threads, iterators in use and classes that clean up after themselves would be shared."""

    class Cleaning(Doubling):
        def __del__(self) -> None:
            self.seen.append(-1)

    for held in (threading.Thread(), iter(_loader()), (each for each in range(0))):
        wrapper = Doubling(_loader())
        vars(wrapper)["at_work"] = held
        assert "its .at_work is at work" in said(unwrap(wrapper).notes[0])
        assert unwrap(wrapper).rewrap(wrapper.inner) is None
    assert "it has a __del__" in said(unwrap(Cleaning(_loader())).notes[0])


class _Data:
    """As data modules of Lightning."""

    def train_dataloader(self) -> DataLoader[Any]:
        return _loader()


class _Without:
    """Wraps, but cannot be iterated."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (TwoLoaders(_loader(), _loader()), r"give loader\.labeled or loader\.unlabeled"),
        ([_loader(), _loader()], r"give loader\[0\] or loader\[1\]"),
        ({"train": _loader()}, r"give loader\['train'\]"),
        (_Without(_loader()), r"give loader\.inner"),
        (_Without(iter(_loader())), r"its \.inner is an iterator of a DataLoader: give that DataLoader itself"),
        (_Data(), r"give what its train_dataloader\(\) returns"),
        (iter(_loader()), "give the DataLoader itself, not an iterator of it"),
        (range(3), "give the DataLoader that feeds it"),
        (Doubling(TwoLoaders(_loader(), _loader())), r"give loader\.inner\.labeled or loader\.inner\.unlabeled"),
    ],
)
def test_what_cannot_be_unwrapped_is_refused_with_a_hint(given: Any, hint: str) -> None:
    """Where the loader is, before anything of it is iterated."""
    with pytest.raises(BadValue, match=r"not a torch\.utils\.data\.DataLoader") as caught:
        loaderprobe.diagnose(given)
    assert re.match(hint, caught.value.hint)


def test_a_bare_copy_has_no_iterator() -> None:
    """A sub-class may end the workers of one that it keeps, when the copy goes."""
    loader = Keeping(Numbers(), batch_size=4)
    loader._iterator = loader.kept
    vars(loader)["_initial_iter_for_state_dict"] = True
    copy = vars(bare_copy(loader))
    assert [copy[name] for name in ("kept", "_iterator", "_initial_iter_for_state_dict")] == [None, None, False]
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
