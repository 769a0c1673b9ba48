"""Batch sizes of small models, really trained, what is said of trouble; and searches for one on scripted devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import DEFAULT, Mock, call

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import loaderprobe
from loaderprobe.analyze.batch_size import MOST_PROBES, PaperStrategy, Throughput, by_size, within_noise
from loaderprobe.api.batch_size import search
from loaderprobe.compute.batch_size import MemoryBudget, TorchProber, repeated
from loaderprobe.compute.trainer import usual_loss
from loaderprobe.errors import BadValue
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop, StopCode
from loaderprobe.records.verdict import Interval
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import FakeClock
from tests.batch_sizes import ScriptedMeter, ScriptedProber
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
def test_what_cannot_train_says_where(measured: Callable[..., object], model: nn.Module, batch: Any, says: str) -> None:
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


NONE_FITS = "not even a batch of 1 fits"


@pytest.mark.parametrize(
    ("says", "of_one"),
    [
        ("alloc_cpu.cpp: DefaultCPUAllocator: can't allocate memory", NONE_FITS),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", NONE_FITS),
        ("CUDA error: out of memory", NONE_FITS),
        # Of a single image cuDNN's are the model's.
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if", "CUDNN_STATUS_NOT_SUPPORTED"),
        ("Unable to find a valid cuDNN algorithm to run convolution", "a valid cuDNN algorithm"),
        ("FIND was unable to find an engine to execute this computation", "FIND was unable"),
    ],
)
def test_memory_that_ends_is_stepped_back_from(says: str, of_one: str) -> None:
    """Also where it ends in a library of the GPU, whose errors have no class of their own. The probe does not fit, the
    next one trains as before; if none fits, the answer says what may be done."""
    probing = prober(Hungry(4, says), lambda size: repeated(BATCH, size))
    assert [probing.probe(size).fits for size in (2, 8, 4)] == [True, False, True]
    assert tuned(Hungry(5, says), BATCH, most=64).stop.chosen in (2, 4)
    with pytest.raises(BadValue, match=of_one) as caught:
        tuned(Hungry(0, says), BATCH)
    assert ("--memory" in caught.value.hint) == (of_one == NONE_FITS)


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


MOST = 512
GRID = (2, 4, *range(8, MOST + 1, 8))
SEEDS = 20


@dataclass(frozen=True)
class Shape:
    rate: Callable[[int], float]
    fits_up_to: int | None = None

    @property
    def best(self) -> float:
        return max(self.rate(size) for size in GRID if self.fits_up_to is None or size <= self.fits_up_to)


SHAPES = {
    "saturates": Shape(lambda size: 1000 * size / (size + 20)),
    "saturates late": Shape(lambda size: 1000 * size / (size + 100)),
    "peak, then falls": Shape(lambda size: 1000 * math.exp(-0.1 * math.log2(size / 48) ** 2)),
    "peak, then falls quickly": Shape(lambda size: 1000 * size / (size + 30) / (1 + (size / 400) ** 2)),
    "plateau": Shape(lambda size: 1000 * min(1.0, size / 32)),
    "memory ends": Shape(lambda size: 1000 * size / (size + 60), fits_up_to=200),
    "dips at odd sizes": Shape(lambda size: 1000 * size / (size + 30) * (1 if size % 32 == 0 or size < 32 else 0.93)),
    "falls from the first": Shape(lambda size: 1000 * size**-0.1),
}


def searched(
    shape: Shape, *, noise: float = 0.0, drift: float = 0.0, seed: int = 0
) -> tuple[Sequence[BatchSizeProbe], BatchSizeStop]:
    prober = ScriptedProber(rate=shape.rate, noise=noise, drift=drift, fits_up_to=shape.fits_up_to, seed=seed)
    return search(Throughput(most=MOST), prober.probe, clock=FakeClock())


@pytest.mark.parametrize("name", SHAPES)
def test_within_two_percent_of_the_optimum_on_every_seed(name: str) -> None:
    """With a noise of 5 % in each step, and in at most half the probes of a grid."""
    shape = SHAPES[name]
    for seed in range(SEEDS):
        probes, stop = searched(shape, noise=0.05, seed=seed)
        assert shape.rate(stop.chosen) >= 0.98 * shape.best, (seed, stop)
        assert len(probes) <= len(GRID) / 2
        assert stop.chosen in {each.batch_size for each in probes}


@pytest.mark.parametrize("name", SHAPES)
def test_a_drift_that_no_interval_shows_is_found(name: str) -> None:
    """Where whole probes differ by 5 %, and their steps by 2 %: within 4 % on nine of ten seeds, and more probes."""
    shape = SHAPES[name]
    found = [searched(shape, noise=0.02, drift=0.05, seed=seed) for seed in range(20)]
    assert sum(shape.rate(stop.chosen) >= 0.96 * shape.best for _, stop in found) >= 18
    assert all(len(probes) <= MOST_PROBES for probes, _ in found)
    if name == "plateau":
        _, stop = searched(shape)
        assert (stop.code, stop.chosen) == ("no_candidate_better", 32), "of equals the smaller"


def test_ctrl_c_keeps_the_fastest_so_far() -> None:
    """And is passed on where there is none yet; until then the search says how many it tried, of the most."""
    probe, heard = Mock(wraps=ScriptedProber(rate=float).probe, side_effect=[*[DEFAULT] * 3, KeyboardInterrupt]), Mock()
    probes, stop = search(Throughput(), probe, clock=FakeClock(), progress=heard)
    assert heard.mock_calls[:2] == [call("batch sizes tried", number, MOST_PROBES) for number in (0, 1)]
    assert (len(probes), stop.code, stop.chosen) == (3, "interrupted", 8)
    with pytest.raises(KeyboardInterrupt):
        search(Throughput(), Mock(side_effect=KeyboardInterrupt), clock=FakeClock())


def test_what_an_interrupted_search_has_is_no_answer() -> None:
    """It says what was tried, and keeps it; nothing is said to limit."""

    def until(size: int) -> Any:
        if size > 4:
            raise KeyboardInterrupt
        return repeated(BATCH, size)

    found = loaderprobe.batch_size(small(), until, iterations=4)
    page = found.text(width=200)
    assert page.startswith("Interrupted: no answer yet\nfastest of 2 tried: batch ") and found.interrupted
    assert not any(word in page for word in ("se batch", "chosen", "by construction"))


@pytest.mark.parametrize("noise", [0.005, 0.5])
def test_sizes_within_noise_of_the_chosen_one_are_named(noise: float) -> None:
    """Of a rate that rises to 64: the larger ones are as fast, and with much noise smaller ones may be."""
    prober = ScriptedProber(rate=lambda size: 1000 * min(1.0, size / 64), noise=noise, seed=3)
    probes, stop = search(Throughput(most=MOST), prober.probe, clock=FakeClock())
    sizes = by_size(probes)
    chosen = next(each for each in sizes if each.batch_size == stop.chosen)
    near = within_noise(sizes, chosen)
    assert chosen.batch_size not in near and (min(near) < 64) == (noise > 0.1)


GROWING = [10, 12, 15, 19, 24, 30, 37, 45, 54, 64, 74, 84, 94]
"""Steps of 2, 3, ... up to 10."""


def moving() -> Callable[[int], float]:
    """A usage that keeps the size moving by more than 5 in five loops."""
    loops = iter(range(10_000))
    return lambda size: 0.5 if next(loops) // 10 % 2 == 0 else 1.0


# Of usage and of time: what the device answers, options, the sizes asked for, how it ends, and the size chosen.
USAGE: dict[str, tuple[Callable[[int], float], dict[str, int], list[int] | None, StopCode, int | None]] = {
    # Each step is one longer than that before, up to 10.
    "below the target it grows to the largest allowed": (lambda size: 0.5, {"most": 100}, GROWING, "at_maximum", 100),
    # Shrinking begins with a step of 1, again and longer; growing as well. Checked in each fifth loop only.
    "around its target it converges": (
        lambda size: 0.995 if size >= 50 else 0.9, {}, [*GROWING[:9], 53, 51, 48, 49, 51, 50, 48], "converged", 48,
    ),
    # 9, 7, 4, and then a size below 1.
    "at its target at once it shrinks": (lambda size: 0.99, {}, [10, 9, 7, 4], "at_minimum", 1),
    # At the last size that fits; the package would have died there.
    "memory ends the search": (lambda size: 0.5, {"fits_up_to": 20}, None, "out_of_memory", 19),
    "memory for nothing": (lambda size: 0.5, {"fits_up_to": 9}, [10], "nothing_fits", 0),
    "a hundred loops are the most": (moving(), {"most": 10_000}, None, "loops_spent", None),
}  # fmt: skip
TIME: dict[str, tuple[Callable[[int], float], dict[str, int], list[int] | None, StopCode, int | None]] = {
    # The first ratio, 0, is compared with 100; the one after five loops differs from it by no more than 0.05.
    "a flat rate converges in the sixth loop": (
        lambda size: 100.0 + size / 100, {"images": 2280}, [10, 12, 15, 19, 24, 30], "converged", 30,
    ),
    # A rate that rises slowly: the improvement moves by more than 0.05 in each five loops.
    "grows while it improves by less than half": (lambda size: 100.0 + size, {"most": 100}, GROWING, "at_maximum", 100),
    # As the package does, and the paper does not say: from 21 on an epoch takes less than half of that with 10. A turn
    # makes the next step 2 in either direction, so it never converges.
    "shrinks beyond its target": (
        lambda size: 10.0 * size, {"images": 1_000_000}, [10, 12, 15, 19, 24, 22, *[19, 21] * 47], "loops_spent", None,
    ),
    "shrinks where it gets worse": (lambda size: 100.0 if size <= 10 else 90.0, {}, [10, 12] * 50, "loops_spent", 10),
}  # fmt: skip


@pytest.mark.parametrize("name", [*USAGE, *TIME])
def test_usage_or_the_time_of_an_epoch_moves_the_batch(name: str) -> None:
    """Up below the target, down at it, until it stays within 5 for five loops or an end is reached; or up while the
    time improves by less than half, else down."""
    answers, options, sizes, code, chosen = (USAGE | TIME)[name]
    answered: dict[str, Any] = {"utilization": answers} if name in USAGE else {"rate": answers}
    prober = ScriptedProber(**{"rate": lambda size: 100.0, **answered}, fits_up_to=options.get("fits_up_to"))
    strategy = PaperStrategy(
        name="gpu-usage" if name in USAGE else "epoch-time", images=options.get("images", 50_000),
        most=options.get("most", 256),
    )  # fmt: skip
    _, stop = search(strategy, prober.probe, clock=FakeClock())
    assert stop.code == code and stop.chosen == (stop.chosen if chosen is None else chosen)
    assert prober.asked == sizes if sizes else len(prober.asked) <= 100
    assert code != "loops_spent" or len(prober.asked) == 100


def test_usage_is_the_mean_of_the_upper_half_without_zeros() -> None:
    """Of half the readings, rounded down; 0 where all are 0, which grows the batch; nothing without readings."""

    def probe(*readings: float) -> BatchSizeProbe:
        rate = Interval(value=1.0, low=1.0, high=1.0)
        return BatchSizeProbe(batch_size=1, fits=True, images_per_s=rate, utilization_samples=readings)

    assert probe(0.0, 0.2, 1.0, 0.8, 0.0, 0.4).usage == pytest.approx(0.9)
    assert probe(0.0, 0.3, 0.5, 0.9).usage == pytest.approx(0.9)
    assert (probe(0.0, 0.0).usage, probe(0.7).usage, probe().usage) == (0.0, 0.0, None)
