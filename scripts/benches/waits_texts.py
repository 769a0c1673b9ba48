"""Texts of `waits`: their tokens stand in one file, and batches hold texts of about the same length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

from scripts.benches.waits_samples import BATCH_SIZE, Work

TEXTS = 6000
# In tokens.
SHORTEST, LONGEST = 64, 512
MEAN_LENGTH = (SHORTEST + LONGEST) / 2
# The order of its multiples, modulo 1: any few batches in a row cover all lengths evenly.
GOLDEN = 0.618034


def text_lengths() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(2).integers(SHORTEST, LONGEST + 1, TEXTS)


def write_tokens(folder: Path) -> None:
    tokens = np.random.default_rng(3).integers(0, 50_000, int(text_lengths().sum()), dtype=np.uint16)
    tokens.tofile(folder / "tokens.bin")


class Texts(Dataset[torch.Tensor]):
    """Tokens of texts, one after another in one file; what a text costs goes with its length."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.file = folder / "tokens.bin"
        self.work = work
        self.ends = np.cumsum(text_lengths())

    def __len__(self) -> int:
        return self.work.count

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = int(self.ends[index - 1]) if index else 0
        length = int(self.ends[index]) - begin
        tokens = np.fromfile(self.file, dtype=np.uint16, count=length, offset=2 * begin)
        if self.work.without != "preprocessing":
            self.work.burn(length / MEAN_LENGTH)
        return torch.from_numpy(tokens.astype(np.int64))


def pad(texts: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(texts, batch_first=True)


class LengthGrouped(Sampler[list[int]]):
    """Texts of about the same length together; short and long batches mixed, beginning anywhere."""

    def __len__(self) -> int:
        return TEXTS // BATCH_SIZE

    def __iter__(self) -> Iterator[list[int]]:
        groups = np.argsort(text_lengths(), kind="stable")[: len(self) * BATCH_SIZE].reshape(-1, BATCH_SIZE)
        mixed = np.argsort(np.arange(len(self)) * GOLDEN % 1)
        for number in np.roll(mixed, int(torch.randint(len(self), ()))):
            yield groups[number].tolist()
