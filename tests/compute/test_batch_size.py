"""Batch sizes of small models, really trained: what is measured, what stays as it was, and what is said of trouble."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import loaderprobe
from loaderprobe.compute.batch_size import MemoryBudget, TorchProber, repeated
from loaderprobe.compute.trainer import usual_loss
from loaderprobe.errors import BadValue
from loaderprobe.system.host import SystemClock
from tests.batch_sizes import ScriptedMeter
from tests.compute.models import Broken, Hungry, Wide


class Pair(NamedTuple):
    """A batch with names."""

    images: torch.Tensor
    targets: torch.Tensor


BATCH = (torch.randn(4, 3), torch.tensor([0, 1, 2, 3]))
MB = 1_000_000


def prober(model: nn.Module, batches: Callable[[int], Any], *, limit: int | None = None, steps: int = 3) -> TorchProber:
    return TorchProber(
        model, batches, loss=usual_loss, clock=SystemClock(), meter=ScriptedMeter, steps=steps, memory_limit=limit
    )


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))


def tuned(model: nn.Module, batch: Any, **options: Any) -> loaderprobe.BatchSize:
    return loaderprobe.batch_size(model, batch, **{"iterations": 2, "most": 8, **options})


def test_the_weights_stay_as_they_are() -> None:
    """And so do gradients, buffers, the mode, torch's random state, and the weights of the copy from size to size."""
    model = small().eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    state = torch.random.get_rng_state()
    found = tuned(model, Pair(*BATCH))
    assert found.stop.chosen and all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not model.training and all(each.grad is None for each in model.parameters())
    probing = prober(nn.Linear(3, 4), lambda size: repeated(BATCH, size))
    weights = list(probing._model.model.parameters())
    as_made = [each.clone() for each in weights]
    probing.probe(4)
    assert all(torch.equal(each, made) for each, made in zip(weights, as_made, strict=True))


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_batches_repeat_the_samples_of_the_example(size: int) -> None:
    """Tensors of another first dimension stay as they are, and so does what is no tensor, and each container's type."""
    made = repeated({"x": torch.arange(4), "mask": torch.ones(7), "n": 5, "pair": (torch.arange(8).view(4, 2),)}, size)
    assert made["x"].tolist() == [number % 4 for number in range(size)]
    assert made["mask"].shape == (7,) and made["n"] == 5 and made["pair"][0].shape == (size, 2)
    named = repeated([Pair(*BATCH)], size)
    assert type(named) is list and type(named[0]) is Pair and len(named[0].targets) == size


def test_a_function_makes_batches_or_loaders() -> None:
    """Of a loader each batch is trained on, to its real size, and what it prefetches is trained on before."""
    asked: list[int] = []

    def loader(size: int) -> DataLoader[Any]:
        asked.append(size)
        return DataLoader(TensorDataset(torch.randn(20, 3), torch.zeros(20, dtype=torch.long)), batch_size=size)

    found = prober(nn.Linear(3, 4), loader, steps=4).probe(8)
    # Before it one step with two images, which shows what memory takes.
    assert asked == [2, 8] and found.steps == 4 and found.fits


@pytest.mark.parametrize("measured", [tuned, partial(loaderprobe.layers, steps=4)], ids=["batch size", "layers"])
@pytest.mark.parametrize(
    ("model", "batch", "says"),
    [
        (nn.Flatten(), BATCH, "no parameters to train"),
        (Broken("forward"), BATCH, "in forward with a batch of [24]: RuntimeError: no way"),
        (Broken("backward"), BATCH, "in backward with a batch of [24]: RuntimeError: one of the"),
        (nn.Linear(3, 5), torch.randn(2, 3), "no usual loss for a Tensor"),
    ],
)
def test_what_cannot_be_trained_says_where(
    measured: Callable[..., object], model: nn.Module, batch: Any, says: str
) -> None:
    """The part of the step that fails, with the reason of the model's own, and the next step."""
    with pytest.raises(BadValue, match=says) as caught:
        measured(model, batch)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("model", "batch", "options", "says"),
    [
        (nn.Linear(3, 5), {"words": "none"}, {}, "the batch has no samples"),
        (nn.Linear(3, 5), DataLoader([1, 2]), {}, "a loader has one batch size"),  # type: ignore[arg-type]
        ("resnet18", BATCH, {}, "the model is a str"),
        (nn.Linear(3, 5), BATCH, {"strategy": "guess"}, "guess"),
        (nn.Linear(3, 5), BATCH, {"most": 0}, ""),
        (nn.Linear(3, 5), BATCH, {"iterations": 0}, ""),
        (nn.Linear(3, 5), BATCH, {"memory": "much"}, "much"),
        (nn.Linear(3, 5), BATCH, {"precision": "fp8"}, "fp8"),
    ],
)
def test_impossible_requests_are_bad_values(model: Any, batch: Any, options: dict[str, Any], says: str) -> None:
    """Before anything is trained."""
    with pytest.raises(BadValue) as caught:
        tuned(model, batch, **options)
    assert says in caught.value.message and caught.value.hint


def test_memory_that_ends_is_stepped_back_from() -> None:
    """The probe does not fit, the next one trains as before; if none fits, the answer says what may be done."""
    probing = prober(Hungry(4), lambda size: repeated(BATCH, size))
    assert [probing.probe(size).fits for size in (2, 8, 4)] == [True, False, True]
    assert tuned(Hungry(5), BATCH, most=64).stop.chosen in (2, 4)
    with pytest.raises(BadValue, match="not even a batch of 1 fits") as caught:
        tuned(Hungry(0), BATCH)
    assert "--memory" in caught.value.hint


CUDNN = "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input."


@pytest.mark.parametrize(
    "says",
    [
        CUDNN,
        "Unable to find a valid cuDNN algorithm to run convolution",
        "FIND was unable to find an engine to execute this computation",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: out of memory",
    ],
)
def test_memory_that_ends_in_a_library_of_the_gpu_is_stepped_back_from(says: str) -> None:
    """Such errors have no class of their own. Of a single image cuDNN's are the model's."""
    assert tuned(Hungry(8, says), BATCH, most=64).stop.chosen in (2, 4, 8)
    with pytest.raises(BadValue, match="CUDNN_STATUS_NOT_SUPPORTED"):
        tuned(Hungry(0, CUDNN), BATCH)


def test_a_batch_that_would_not_fit_is_never_tried() -> None:
    """By the growth of memory from one size to the next."""
    budget = MemoryBudget(torch.device("cpu"), 100 * MB, weight_bytes=10 * MB)
    assert budget.blind and budget.predicted(2) is None
    budget._known.update({2: 34 * MB})
    # Three times the weights do not grow: 2 MB an image do, and a margin.
    assert budget.predicted(2) is None and budget.predicted(12) == pytest.approx((34 + 1.1 * 20) * MB)
    budget._known.update({8: 46 * MB})
    assert budget.predicted(16) == pytest.approx((46 + 1.1 * 16) * MB)
    assert budget.beyond(101 * MB) and not budget.beyond(99 * MB)
    assert not MemoryBudget(torch.device("cpu"), None).beyond(1)


def test_memory_is_measured_and_its_limit_is_kept() -> None:
    """What is beyond it is not even tried, with what it would take; a plain error is the model's, and ends all."""
    probing = prober(Wide(), lambda size: repeated(BATCH, size), limit=400 * MB, steps=1)
    few, many = probing.probe(4), probing.probe(16)
    assert few.memory_bytes and many.memory_bytes and 16 * MB < few.memory_bytes < many.memory_bytes
    beyond = probing.probe(512)
    assert (beyond.fits, beyond.ran) == (False, False) and (beyond.memory_bytes or 0) > 400 * MB
    with pytest.raises(BadValue, match="Expected more than 1 value per channel"):
        prober(small(), lambda size: repeated(BATCH, size)).probe(1)
