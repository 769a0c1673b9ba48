"""What a loader holds and changes: found without running any code of the user's, copied or put back."""

from __future__ import annotations

import copy
import functools
import importlib
import logging
import mmap
import multiprocessing
import os
import random
import sys
import threading
from collections import OrderedDict, deque
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from loaderprobe.loaders import state
from loaderprobe.loaders.state import copied_iterable, kept_batch, random_state_kept, reachable, shared_state_kept
from loaderprobe.records.remark import Remark
from tests.api.samples import Backwards, Numbers, Shared
from tests.said import all_said


class Slotted:
    """Holds one thing in a slot, and leaves another empty."""

    __slots__ = ("empty", "thing")

    def __init__(self, thing: Any) -> None:
        self.thing = thing


class Armed(list[Any]):
    """Runs code wherever Python would let it."""

    def _no(self, *_: Any) -> Any:
        pytest.fail("code of the user's was called")

    __iter__ = __len__ = __getitem__ = __bool__ = __eq__ = __hash__ = _no  # type: ignore[assignment]  # the point
    trap = property(_no)

    def __getattr__(self, name: str) -> Any:
        return self._no()

    @property  # type: ignore[misc]  # as Accelerate does
    def __class__(self) -> Any:
        return self._no()


def function(default: str = "default") -> Any:
    closed = "closure"
    return lambda other=default: closed + other


OF_METHOD, OF_HELPER, OF_LAMBDA, OF_PROPERTY, OF_MAKING = "method", "helper", "lambda", "property", "making"


def helper() -> str:
    return OF_HELPER


class Above:
    """Its methods use globals."""

    above = ("above",)

    def __init__(self) -> None:
        self.count = len(OF_MAKING)

    def __getitem__(self, index: int) -> Any:
        return OF_METHOD, helper(), lambda: OF_LAMBDA

    @property
    def used(self) -> str:
        return OF_PROPERTY


class Caching:
    """Its samples are kept."""

    @functools.cache  # noqa: B019  # it is never made
    def __getitem__(self, index: int) -> str:
        return OF_METHOD


class Below(Above):
    """Holds something for all of its kind."""

    below = Path("below")


class Wide:
    """Its array is of the class."""

    shared = np.zeros(1000)


def local() -> Any:
    closed = "of a method"

    class Local:
        @staticmethod
        def made() -> str:
            return closed

    return Local()


@pytest.mark.parametrize(
    ("root", "texts", "hidden"),
    [
        (SimpleNamespace(one="attribute"), {"attribute"}, None),
        (Slotted("slot"), {"slot"}, None),
        ([("list", 1), {"key": {"set"}}, deque(["deque"])], {"list", "key", "set", "deque"}, None),
        (OrderedDict(a=frozenset({"frozen"})), {"frozen"}, None),
        (functools.partial(print, "argument", sep="keyword"), {"argument", "keyword"}, None),
        (function(), {"closure", "default"}, None),
        (Slotted("bound").__init__, {"bound"}, None),  # type: ignore[misc]  # a bound method
        # Of what is used once, as a global of `__init__`, the results are attributes.
        (Below(), {Path("below"), "above", OF_METHOD, OF_HELPER, OF_LAMBDA, OF_PROPERTY}, OF_MAKING),
        (Caching(), {OF_METHOD}, None),
        (local(), {"of a method"}, None),
        (np.array(["array", Path("path")], dtype=object), {"array", Path("path")}, None),
        # A class of Python's own is not opened.
        (logging.Formatter(), set(), "%Y-%m-%d %H:%M:%S"),
    ],
)
def test_everything_that_python_stores_is_found(root: Any, texts: set[Any], hidden: str | None) -> None:
    """Attributes, slots, containers and their sub-classes, functions with what they close over, arrays of objects; what
    classes hold, and the globals that code names."""
    found = {value for value in reachable([root]) if isinstance(value, str | Path)}
    assert texts <= found and hidden not in found


def test_what_code_names_of_a_module_of_the_users_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config.FILES` in a method, and no more of that module; nothing of an installed one."""
    (tmp_path / "their_config.py").write_text("FILES = ['named']\nOTHERS = ['not named']\n")
    (tmp_path / "their_data.py").write_text(
        "import numpy, their_config\n"
        "class Data:\n"
        "    def __getitem__(self, index):\n"
        "        return numpy.__version__, [their_config.FILES[each] for each in [index]]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("their_config", "their_data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    data = importlib.import_module("their_data").Data()
    found = {value for value in reachable([data]) if isinstance(value, str)}
    assert "named" in found and not {"not named", np.__version__} & found


LOGGER = logging.getLogger(__name__)


class Logging:
    """Its code logs, and it logs to a file."""

    def __init__(self, file: Path) -> None:
        self.handler = logging.FileHandler(file, delay=True)

    def __getitem__(self, index: int) -> None:
        LOGGER.debug(OF_METHOD)


def test_what_a_logger_holds_is_none_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that others write, of all loggers of the process."""
    monkeypatch.setattr(LOGGER, "handlers", [logging.FileHandler(tmp_path / "a.log", delay=True)])
    found = list(reachable([Logging(tmp_path / "b.log")]))
    assert LOGGER in found and OF_METHOD in found
    assert not [value for value in found if isinstance(value, str) and value.endswith(".log")]


def test_no_code_of_the_users_is_called() -> None:
    """Not even to ask for its class, its length or its items; nor that of its class, where it is asked for anything."""
    armed = Armed()
    list.append(armed, "item")
    vars(armed)["own"] = "attribute"
    found = list(reachable([armed]))
    assert found[0] is armed
    assert {value for value in found if type(value) is str} == {"item", "attribute"}

    class Guarding(type):
        def __getattribute__(cls, name: str) -> Any:
            pytest.fail("code of the user's was called")

    class Guarded(metaclass=Guarding):
        held = "of a guarded class"

    assert "of a guarded class" in list(reachable([Guarded()]))


def test_looking_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of circles, at a depth, at a number of things, and at closed types; each object is found once."""
    one, shared = SimpleNamespace(), SimpleNamespace()
    other = SimpleNamespace(one=one, shared=shared)
    vars(one).update(other=other, shared=shared)
    found = list(reachable([one]))
    assert [found.count(each) for each in (one, other, shared)] == [1, 1, 1]
    deep = SimpleNamespace(inner=SimpleNamespace(inner=SimpleNamespace(text="deep")))
    assert "deep" in list(reachable([deep]))
    monkeypatch.setattr(f"{reachable.__module__}.DEPTH", 2)
    assert "deep" not in list(reachable([deep]))
    monkeypatch.setattr(f"{reachable.__module__}.MOST", 10)
    assert len(list(reachable([[str(number) for number in range(50)], list(range(50))]))) == 10
    assert list(reachable([one], closed=(SimpleNamespace,))) == [one]


def test_a_long_list_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else there is comes first, and two long lists take turns."""
    monkeypatch.setattr(f"{reachable.__module__}.MOST", 3000)
    samples, more = ([f"{name}{number}" for number in range(5000)] for name in "ab")
    data = SimpleNamespace(samples=[(text, 1) for text in samples], more=more, later=SimpleNamespace(root="root"))
    found = [value for value in reachable([data]) if type(value) is str]
    assert "root" in found
    assert min(sum(text[0] == name for text in found) for name in "ab") >= 1000


@pytest.mark.parametrize("deep", [False, True])
def test_all_random_generators_are_put_back(deep: bool) -> None:
    """Of a data set, and of one inside it; one of the system has nothing to put back."""
    own = random.Random(1)
    generators: list[Any] = [np.random.default_rng(1), np.random.RandomState(1)]
    data: Any = SimpleNamespace(own=own, of_numpy=generators[0], older=generators[1], system=random.SystemRandom())
    draws = [own.random, *(each.random for each in generators)]
    before = copy.deepcopy((own, generators))
    with random_state_kept(DataLoader(SimpleNamespace(inner=[data]) if deep else data, sampler=[0])):  # type: ignore[arg-type]  # never drawn
        for draw in draws:
            draw()
    assert [draw() for draw in draws] == [each.random() for each in (before[0], *before[1])]


@pytest.mark.parametrize(
    ("held", "limits", "copied"),
    [
        (threading.Lock(), {}, False),
        ((each for each in "a"), {}, False),
        (open, {}, True),
        (np.zeros(1000), {}, True),
        (np.zeros(1000), {"MOST_BYTES": 7999}, False),
        (Wide(), {"MOST_BYTES": 7999}, True),
        (["b", "c"], {"MOST": 3}, False),
    ],
)
def test_not_all_is_copied(held: Any, limits: dict[str, int], copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or is too large."""
    for name, most in limits.items():
        monkeypatch.setattr(state, name, most)
    data = Shared(["a"])
    vars(data)["held"] = held
    copy = copied_iterable(data)
    assert (copy is not None) == copied
    if copied:
        copy.used, copy.paths[0] = True, "b"
        assert (data.used, data.paths) == (False, ["a"]), "the copy moves on by itself"


def shared(count: int) -> torch.Tensor:
    tensor = torch.zeros(count)
    tensor.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return tensor


def loader_with(**held: Any) -> DataLoader[Any]:
    data = Numbers()
    vars(data).update(held)
    return DataLoader(data, batch_size=4, num_workers=1)


def test_shared_memory_of_any_kind_is_put_back(tmp_path: Path) -> None:
    """Values, arrays, tensors, blocks, anonymous maps, and numpy arrays over them, however deep; not what is this
    process's own, nor files: those are the user's to write."""
    value, raw = multiprocessing.Value("i", 1), multiprocessing.RawArray("d", 3)
    block: Any = SharedMemory(create=True, size=64)
    array = multiprocessing.Array("b", 4)
    held_array: Any = array.get_obj()
    tensor, anonymous, own = shared(5), mmap.mmap(-1, 16), np.zeros(4)
    path = tmp_path / os.fsdecode(b"fil\xe9")  # files may have names that are no UTF-8
    path.write_bytes(bytes(8))
    file = np.memmap(path, np.uint8, mode="r+")
    over, reverse = np.frombuffer(held_array, np.int8), np.frombuffer(anonymous, np.uint8)[::-2]
    kept = {"value": [value], "raw": (raw,), "own": own, "file": file}
    with shared_state_kept(loader_with(kept=kept, tensor=tensor, over=over, block=block, reverse=reverse)) as found:
        value.value, raw[1], over[2], tensor[3], reverse[4] = 2, 2.0, 2, 2.0, 2
        block.buf[5] = own[1] = file[1] = 2
    assert found == []
    assert (value.value, raw[1], array[2], tensor[3].item(), reverse[4], block.buf[5]) == (1, 0.0, 0, 0.0, 0, 0)
    block.close()
    block.unlink()
    assert (own[1], file[1]) == (2, 2)


def test_memory_is_put_back_after_an_error_unless_it_has_gone() -> None:
    """What the collate_fn holds is part of the loader; a block that was closed is no longer mapped. The kernel lays one
    mapping against another: each is looked for by itself, or reading would end the process."""
    value = multiprocessing.Value("i", 1)
    block: Any = SharedMemory(create=True, size=64)
    kept, gone = (mmap.mmap(-1, mmap.PAGESIZE) for _ in range(2))

    def collate(samples: Any) -> Any:
        value.value += len(samples)
        block.buf[0] = kept[0] = 1

    data = Numbers()
    vars(data).update(kept=kept, gone=gone)
    loader = DataLoader(data, collate_fn=collate)
    with pytest.raises(ValueError, match="within"), shared_state_kept(loader):
        collate([1, 2])
        block.close()
        gone.close()
        raise ValueError("within")
    assert (value.value, kept[0]) == (1, 0)
    block.unlink()


def test_what_cannot_be_put_back_is_said_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large, beside small pieces that are restored, and what a manager has in its process."""
    monkeypatch.setattr(state, "MOST_BYTES", 1000)
    counter, cache = shared(1), shared(4000)
    with shared_state_kept(loader_with(cache=cache, counter=counter)) as found:
        assert found == [Remark(code="shared_memory_stays", facts={"size_bytes": 16_000})]
        counter[0] = cache[0] = 1.0
    assert (counter[0].item(), cache[0].item()) == (0.0, 1.0)
    with multiprocessing.Manager() as manager, shared_state_kept(loader_with(seen=manager.list())) as found:
        assert any("Manager" in note for note in all_said(found))


class Resumable(Numbers):
    """Counts what it has given, and can go on from there."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def load_state_dict(self, given: Any) -> None:
        self.given = given


@pytest.mark.parametrize("workers", [0, 1])
def test_attributes_of_samplers_are_put_back(workers: int) -> None:
    """And of a data set, but what it cached in this process; its place comes back where it can resume."""
    sampler, data, resumable = Backwards(8), Numbers(), Resumable()
    loader = DataLoader(data, sampler=sampler, num_workers=workers)
    with shared_state_kept(loader), shared_state_kept(DataLoader(resumable)):
        sampler.begun = data.count = 3
        vars(sampler)["epoch"] = 3
        resumable.load_state_dict(3)
    assert vars(sampler) == {"count": 8, "begun": 0}
    assert data.count == (64 if workers else 3)
    assert resumable.given == 0


class Pinned:
    """Samples in memory that may be pinned, which no copy of torch's is."""

    def __init__(self, pinned: bool = True) -> None:
        self.pinned = pinned

    def is_pinned(self) -> bool:
        return self.pinned

    def pin_memory(self) -> Pinned:
        return Pinned()

    def __deepcopy__(self, _: Any) -> Pinned:
        return Pinned(False)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_batch_that_is_kept_is_as_pinned_as_the_loader_gave_it(pinned: bool) -> None:
    """At any depth, beside what cannot be pinned."""
    batch = {"images": [Pinned(pinned)], "names": "a"}
    kept = kept_batch(batch)
    assert kept["images"][0] is not batch["images"][0] and kept["images"][0].pinned == pinned
