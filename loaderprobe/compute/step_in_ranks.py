"""A user's step in one of several ranks: the exchange of gradients by DistributedDataParallel can be switched off."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaderprobe.compute.gradients import BUCKET_BYTES
from loaderprobe.compute.step import StepCompute
from loaderprobe.protocols import ComputeArguments


def step_in_ranks(step: Callable[[Any], Any], arguments: ComputeArguments) -> StepCompute:
    """The step of this rank. Where nothing exchanges gradients, or something else does, they count as compute."""
    found = [each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)]
    # The collector's own order may differ between ranks, whose buckets would then not match.
    models = sorted(found, key=_gradient_bytes)
    return ExchangingStep(step, arguments, models) if models else StepCompute(step, arguments)


class ExchangingStep(StepCompute):
    """A step that exchanges the gradients of some models, in the group that they were made with."""

    def __init__(
        self, step: Callable[[Any], Any], arguments: ComputeArguments, models: Sequence[DistributedDataParallel]
    ) -> None:
        super().__init__(step, arguments)
        self._models = models
        self._buckets = [bucket for each in models for bucket in _buckets(each)]

    def exchange(self, *, on: bool) -> None:
        """Whether steps from now on exchange gradients; as the models' own `no_sync` does."""
        for each in self._models:
            each.require_backward_grad_sync = on

    def exchange_alone(self) -> None:
        """As many bytes as the gradients have, in buckets of the same size, and nothing else."""
        self._launch(self._exchange)

    def _exchange(self) -> None:
        for each in [dist.all_reduce(bucket, group=group, async_op=True) for bucket, group in self._buckets]:
            each.wait()


def _buckets(model: DistributedDataParallel) -> list[tuple[torch.Tensor, Any]]:
    """Tensors as large as the gradients of a model, with its group."""
    own = [each for each in model.parameters() if each.requires_grad]
    if not own:
        return []
    whole = torch.zeros(-(-_gradient_bytes(model) // 4), dtype=torch.float32, device=own[0].device)
    return [(bucket, model.process_group) for bucket in torch.split(whole, BUCKET_BYTES // whole.element_size())]


def _gradient_bytes(model: DistributedDataParallel) -> int:
    return sum(each.numel() * each.element_size() for each in model.parameters() if each.requires_grad)
