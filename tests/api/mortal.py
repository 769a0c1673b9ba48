"""A model whose second rank is killed while it trains, as the out-of-memory killer does."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn


class Mortal(nn.Module):
    """Ends in its third forward pass."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.last, self.calls = nn.Linear(3 * 4 * 4, num_classes), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """N x 3 x 4 x 4 to N x classes."""
        self.calls += 1
        if self.calls == 3 and dist.get_rank() == 1:
            sys.stderr.write("about to be killed\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        given: torch.Tensor = self.last(images.flatten(1))
        return given


def mortal(*, num_classes: int) -> nn.Module:
    """Takes images of 4 x 4."""
    return Mortal(num_classes)
