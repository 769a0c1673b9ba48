"""Small models: with layers that assign element by element, that fail, or that take inputs in another way."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ByIndex(torch.autograd.Function):
    """Every other pixel, with a loop over positions in its backward."""

    @staticmethod
    def forward(context: Any, images: torch.Tensor) -> torch.Tensor:
        context.shape = images.shape
        return images[:, :, ::2, ::2].clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> torch.Tensor:
        (gradient,) = gradients
        made = torch.zeros(context.shape)
        for row in range(gradient.shape[2]):
            for column in range(gradient.shape[3]):
                made[:, :, 2 * row, 2 * column] = gradient[:, :, row, column]  # the slow line
        return made


class SlowPool(nn.Module):
    def forward(self, images: torch.Tensor) -> Any:
        return ByIndex.apply(images)


class QuickPool(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :, ::2, ::2]


class Net(nn.Module):
    """A convolution, a normalisation, an activation used twice, the pool, a linear layer, and one that never runs."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.relu, self.pool = nn.ReLU(inplace=True), pool
        self.last, self.unused = nn.Linear(8 * 16 * 16, 10), nn.Linear(2, 2)

    def forward(self, images: torch.Tensor) -> Any:
        made = self.relu(self.norm(self.conv(images)))
        made = self.pool(self.relu(made + 1))
        return self.last(made.flatten(1))


class Fill(nn.Module):
    """Weights of pixels, each assigned by itself."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        weights = torch.empty(images.shape[2:])
        for row in range(images.shape[2]):
            for column in range(images.shape[3]):
                weights[row, column] = 1 / (1 + row + column)  # the slow line
        return images * weights


class Turns(nn.Module):
    """Takes another way in every other step."""

    def __init__(self) -> None:
        super().__init__()
        self.odd, self.even, self.step = nn.Linear(3, 5), nn.Linear(3, 5), 0

    def forward(self, inputs: torch.Tensor) -> Any:
        self.step += 1
        return (self.odd if self.step % 2 else self.even)(inputs)


class Often(nn.Module):
    """Calls a layer many times, as a loop over a sequence does."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for _ in range(120):
            inputs = self.one(inputs)
        return inputs


class Named(nn.Module):
    """Takes its inputs by name and gives an object with its loss, as transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 5)

    def forward(self, *, left: torch.Tensor, right: torch.Tensor) -> Any:
        return type("Output", (), {"loss": self.one(left * right).sum()})()


class Broken(nn.Module):
    """Fails forward or backward."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.one, self.where = nn.Linear(3, 5), where

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.where == "forward":
            raise RuntimeError("no way")
        made: torch.Tensor = self.one(inputs).sigmoid()
        if self.where == "backward":
            made.data_ptr(), made.add_(1)
        return made


class Hungry(nn.Module):
    """Raises as an allocator does, above a number of images; or another error."""

    def __init__(self, most: int, says: str) -> None:
        super().__init__()
        self.one, self.most, self.says = nn.Linear(3, 4), most, says

    def forward(self, inputs: torch.Tensor) -> Any:
        if len(inputs) > self.most:
            raise RuntimeError(self.says)
        return self.one(inputs)


class Wide(nn.Module):
    """Takes 8 MB an image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        made = (inputs.sum(1, keepdim=True) * self.weight).expand(len(inputs), 1_000_000).exp()
        return (made * made)[:, :4]
