"""The exchange of gradients between the ranks of a training, by DistributedDataParallel; it can be switched off."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaderprobe.protocols import Peers

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
BUCKET_BYTES = 25 << 20
"""DistributedDataParallel's own."""


class Gradients:
    """Those of the model on one device. Of one rank they stay where they are."""

    def __init__(self, device: torch.device, peers: Peers | None) -> None:
        """Meets the other ranks; raises torch's errors where they do not come."""
        self.exchanged = True
        """Whether steps exchange gradients; without, all ranks still end each step together."""
        self.among_ranks = peers is not None
        self._device = device
        self._model: Any = None
        if peers is not None:
            on_gpu: dict[str, Any] = {"device_id": device} if device.type == "cuda" else {}
            dist.init_process_group(
                BACKENDS[device.type],
                store=peers.store,  # type: ignore[arg-type]  # torch's
                rank=peers.crew.rank,
                world_size=peers.crew.size,
                timeout=timedelta(seconds=peers.timeout_s),
                **on_gpu,
            )
            self._one = torch.zeros(1, device=device)

    def exchanged_by(self, model: torch.nn.Module) -> Any:
        """The model, which exchanges its gradients in each step."""
        if self.among_ranks:
            number = [self._device] if self._device.type == "cuda" else None
            self._model = DistributedDataParallel(model, device_ids=number)
            counts = sum(each.numel() * each.element_size() for each in model.parameters() if each.requires_grad)
            whole = torch.zeros(-(-counts // 4), dtype=torch.float32, device=self._device)
            self._buckets = torch.split(whole, BUCKET_BYTES // whole.element_size())
            return self._model
        return model

    def step(self, train: Callable[[], None]) -> None:
        """One step, with the exchange or without."""
        if not self.among_ranks or self.exchanged:
            train()
            return
        with self._model.no_sync():
            train()
        dist.all_reduce(self._one)

    def exchange_alone(self) -> None:
        """As many bytes as the gradients have, in buckets of the same size, and nothing else."""
        for each in [dist.all_reduce(bucket, async_op=True) for bucket in self._buckets]:
            each.wait()
