"""The memory that training takes: measured for each batch size, predicted for the next one, before it is tried."""

from __future__ import annotations

import torch

from loaderprobe.system.resident import peak_bytes, release_free, reset_peak, resident_bytes

COPIES = 3
"""Of the weights: themselves, their gradients, the optimizer's momentum."""
MARGIN = 1.1
"""On the growth that is predicted: allocators round up."""


class MemoryBudget:
    """What one process takes on one device, beyond what it had when this was made, and what it may take."""

    def __init__(self, device: torch.device, limit: int | None) -> None:
        self.limit = limit
        self._device = device
        self._base = 0
        if not self._on_gpu:
            # Memory that was freed before would otherwise hide what training takes.
            release_free()
            self._base = resident_bytes()
        self._known: dict[int, int] = {}
        self._fixed = 0

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    @property
    def blind(self) -> bool:
        """True while nothing is known, on a machine that must not run out of memory."""
        return not self._on_gpu and not self._known

    def holds(self, weight_bytes: int) -> None:
        """So many bytes of weights do not depend on the batch size."""
        self._fixed = COPIES * weight_bytes

    def begin(self) -> None:
        """A probe begins."""
        if self._on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            release_free()
            reset_peak()

    def end(self, batch_size: int) -> int:
        """The most that a probe of this size took: at least what does not depend on it. 0 where it cannot be read."""
        peak = torch.cuda.max_memory_reserved(self._device) if self._on_gpu else peak_bytes()
        # Memory that was free within the process before does not show.
        most = max(self._fixed, peak - self._base) if peak else 0
        self._known[batch_size] = max(most, self._known.get(batch_size, 0))
        return most

    def beyond(self, taken: int) -> bool:
        """True when so many bytes are more than may be taken."""
        return self.limit is not None and taken > self.limit

    def predicted(self, batch_size: int) -> int | None:
        """What this size will take, on a straight line through the sizes so far; None where one of them says enough.

        With one size only, the weights, gradients and momentum are taken to be what does not grow.
        """
        largest = max(self._known, default=0)
        if not largest or batch_size <= largest:
            return None
        smaller = [size for size in self._known if 2 * size <= largest]
        below, at = (max(smaller), self._known[max(smaller)]) if smaller else (0, self._fixed)
        growth = max(0.0, (self._known[largest] - at) / (largest - below))
        return round(self._known[largest] + MARGIN * growth * (batch_size - largest))
