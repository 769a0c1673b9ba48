"""The sample as an endless sequence of cold pieces."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loaderprobe.protocols import PageCache
from loaderprobe.storage.files import Piece, Sample

RESIDENCY_FILES = 256


@dataclass(slots=True)
class Supply:
    """Gives each piece at most once after an eviction; then evicts exactly these files again."""

    sample: Sample
    cache: PageCache
    seed: int
    shuffled: bool = True
    drop_all: Callable[[], None] | None = None
    """Empties all caches of the machine, where the user asked for that."""
    rounds: int = field(init=False, default=0)
    """How often the files were evicted."""
    _pieces: list[Piece] = field(init=False, default_factory=list)
    _next: int = field(init=False, default=0)

    def ahead(self, least: int) -> Sequence[Piece]:
        """The pieces still cold; evicts first when fewer than `least` are left."""
        if len(self._pieces) - self._next < min(least, len(self.sample.pieces)):
            self._renew()
        return self._pieces[self._next :]

    def take(self, count: int) -> None:
        """Mark the first `count` pieces ahead as read."""
        self._next += count

    def spoil(self) -> None:
        """Mark all files as no longer cold, because another engine has read them."""
        self._next = len(self._pieces)

    def resident(self) -> float | None:
        """Share of the next files in the page cache; None where it cannot be known."""
        paths = dict.fromkeys(piece.path for piece in self._pieces[self._next : self._next + RESIDENCY_FILES])
        return self.cache.resident(list(paths))

    def _renew(self) -> None:
        self.cache.evict(self.sample.paths)
        if self.drop_all:
            self.drop_all()
        self._pieces = list(self.sample.pieces)
        if self.shuffled:
            random.Random(self.seed + self.rounds).shuffle(self._pieces)
        self._next = 0
        self.rounds += 1
