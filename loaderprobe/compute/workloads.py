"""What models are trained on to compare devices: samples in memory, as the article of 2019 had them.

A few thousand samples stand for an epoch of tens of thousands: they are taken in turn, each is indexed and put into its
batch as one of a whole set would be.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from loaderprobe.compute.trainer import CLASSES, checked_model
from loaderprobe.protocols import MakeModel
from loaderprobe.records.devices import ARTICLE, Workload

HELD = 2048
"""Samples in memory: more bytes than the caches of a CPU hold."""
TEN = 10
"""Classes of MNIST and of CIFAR-10."""
HIDDEN = 1000
UNITS = 128

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of (what the model gives, the targets)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A model, its samples and its loss."""

    model: nn.Module
    samples: Dataset[tuple[torch.Tensor, Any]]
    loss: Loss


class Held(Dataset[tuple[torch.Tensor, Any]]):
    """`count` samples, of which a few are in memory."""

    def __init__(self, inputs: torch.Tensor, targets: Any, count: int) -> None:
        self._inputs, self._targets, self._count = inputs, targets, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        place = index % len(self._inputs)
        return self._inputs[place], self._targets[place]


class NextValue(nn.Module):
    """An LSTM that reads a sequence, and a linear layer that gives its next value."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, UNITS, batch_first=True)
        self.last = nn.Linear(UNITS, 1)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """N x steps x 1 to N x 1."""
        _, (state, _) = self.lstm(sequences)
        value: torch.Tensor = self.last(state[-1])
        return value


def training_of(workload: Workload, make_model: MakeModel, seed: int) -> Training:
    """The model of a workload and its samples, the same in every process.

    `make_model` is asked for models of images alone. Raises BadValue for what cannot train.
    """
    torch.manual_seed(seed)
    if workload.data == "sine":
        return Training(model=NextValue(), samples=_sines(workload), loss=nn.functional.mse_loss)
    classes = TEN if workload.model in ARTICLE else CLASSES
    model = perceptron() if workload.data == "mnist" else checked_model(workload.model, make_model, classes)
    held = min(HELD, workload.samples)
    labels: list[int] = torch.randint(classes, (held,)).tolist()
    images = Held(torch.rand(held, *workload.shape), labels, workload.samples)
    return Training(model=model, samples=images, loss=nn.functional.cross_entropy)


def gpu_count() -> int:
    """GPUs that torch can use."""
    return torch.cuda.device_count()


def perceptron() -> nn.Module:
    """Two hidden layers of 1,000 units on images of 28 x 28, as in Chainer's example of MNIST."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            fc1=nn.Linear(28 * 28, HIDDEN),
            relu1=nn.ReLU(inplace=True),
            fc2=nn.Linear(HIDDEN, HIDDEN),
            relu2=nn.ReLU(inplace=True),
            fc3=nn.Linear(HIDDEN, TEN),
        )
    )


def _sines(workload: Workload) -> Held:
    """Stretches of waves of many lengths, and the value that follows each."""
    held, steps = min(HELD, workload.samples), workload.shape[0]
    phase, length = torch.rand(held, 1) * 2 * math.pi, 10 + 40 * torch.rand(held, 1)
    waves = torch.sin(phase + 2 * math.pi * torch.arange(steps + 1) / length).unsqueeze(2)
    return Held(waves[:, :-1].contiguous(), waves[:, -1].contiguous(), workload.samples)
