"""What benches plant into sweeps: loaders that are late, and a model of which most is gradients."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import torch
from torch import nn

from loaderprobe.loaders.torch import ImageFiles, TorchLoader
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet

LATE_RANK, LATE_HOST, LATE_S = 1, "late", 0.015
"""Seconds of an image; the rank is of two."""


class LateFiles(ImageFiles):
    """Images, each of which takes longer on one rank, or host; torchrun says which rank a process is."""

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        of_two = os.environ.get("WORLD_SIZE") == "2"
        if (of_two and os.environ.get("RANK") == str(LATE_RANK)) or socket.gethostname() == LATE_HOST:
            time.sleep(LATE_S)
        return super().__getitem__(k)


class LateLoader(TorchLoader):
    """The DataLoader of a sweep, over those."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, scratch)
        # Made by the sweep's own code, so that nothing else differs; workers start later.
        self._loader.dataset.__class__ = LateFiles


def wide(num_classes: int) -> nn.Module:
    """For 1,000 classes 14.5 million parameters, 58 MB of gradients, for little work."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(16), nn.Flatten(), nn.Linear(3 * 16 * 16, 8192), nn.ReLU(), nn.Linear(8192, num_classes)
    )
