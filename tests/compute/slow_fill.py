"""A model that fills a tensor element by element. As a program: the memory of its training, and that of `layers`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn


class Fill(nn.Module):
    """Weights of pixels, each assigned by itself."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        weights = torch.empty(images.shape[2:])
        for row in range(images.shape[2]):
            for column in range(images.shape[3]):
                weights[row, column] = 1 / (1 + row + column)  # the slow line
        return images * weights


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 3), Fill(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def peak_bytes() -> int:
    """Of this process. The figure of getrusage would have that of the parent before the exec in it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) << 10


def main() -> None:
    """Prints JSON."""
    model, images, labels = net(), torch.randn(4, 3, 104, 104), torch.arange(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    trained = peak_bytes()
    import loaderprobe

    found = loaderprobe.layers(net(), (images, labels), steps=4, drill=True)
    said = {"trained": trained, "measured": peak_bytes(), "result": found.json()}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
