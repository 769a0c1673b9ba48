"""A model with a pooling layer whose backward assigns by index; and a pooling layer that does the same well."""

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
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = ByIndex.apply(images)
        return found


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

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made = self.relu(self.norm(self.conv(images)))
        made = self.pool(self.relu(made + 1))
        given: torch.Tensor = self.last(made.flatten(1))
        return given
