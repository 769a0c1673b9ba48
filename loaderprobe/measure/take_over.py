"""When the loops of all ranks are taken over: all at the same step, or none.

No rank waits for one that may not come. Each says in a shared store which loader it trains on, and trains on. When all
have, rank 0 names a step ahead of itself. Those that hear of it in time say so, and wait there for its word. A rank
that cannot be measured says so instead, and the word is the same for all: it is changed only from what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from loaderprobe.protocols import Clock, SharedStore
from loaderprobe.records.together import Apart, RankOffer

AHEAD = 8
"""Backward passes from naming a step to that step: hosts of ranks run ahead of each other by a few, on a GPU."""
PATIENCE_S = 60.0
"""For all ranks to train on a loader; training goes on meanwhile."""
TURN_S = 30.0
"""For the word of rank 0 at the named step."""
POLL_S = 0.005
GO = "go"
_WORD = "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The step at which all loops are taken over."""

    passes: int
    """Backward passes before it, of a rank's own count."""
    loader: int


@dataclass(slots=True)
class TakeOver:
    """One rank's part in it. Ask before each batch that is trained on."""

    store: SharedStore
    rank: int
    size: int
    clock: Clock
    named: Named | None = field(init=False, default=None)
    apart: Apart | None = field(init=False, default=None)
    """Why nothing is taken over."""
    agreed: bool = field(init=False, default=False)
    _since_ns: int | None = field(init=False, default=None)

    def ask(self, passes: int, offer: RankOffer) -> bool:
        """True at the step at which this rank's loop is taken over. `passes` are the backward passes so far."""
        if self.agreed or self.apart:
            return self.agreed
        if self._since_ns is None:
            self.store.set(f"offer/{self.rank}", msgspec.json.encode(offer).decode())
            self._since_ns = self.clock.now_ns()
        word = self._word()
        if not self._settled(word):
            if self.rank == 0:
                self._lead(word, passes, offer)
            else:
                self._follow(word, passes)
        return self.agreed

    def refuse(self, apart: Apart) -> None:
        """No rank is taken over, unless all are already."""
        word = self._put("", apart)
        while not self._settled(word):
            word = self._put(word, apart)

    def end(self) -> None:
        """The script ends before it was settled."""
        others = range(1, self.size)
        silent = tuple(each for each in others if not self.store.check([f"offer/{each}"])) if self.rank == 0 else ()
        self.refuse(Apart(code="silent", ranks=silent) if silent else Apart(code="ended", ranks=(self.rank,)))

    def heard(self) -> bool:
        """True when the word of another rank has settled it."""
        return self._settled(self._word())

    def _lead(self, word: str, passes: int, offer: RankOffer) -> None:
        others = range(1, self.size)
        if self.named is None:
            if self.store.check([f"offer/{rank}" for rank in others]):
                self._name(passes, offer)
            elif self._seconds() > PATIENCE_S:
                silent = tuple(rank for rank in others if not self.store.check([f"offer/{rank}"]))
                self.refuse(Apart(code="silent", ranks=silent))
        elif passes >= self.named.passes:
            late = tuple(rank for rank in others if not self.store.check([f"heard/{rank}"]))
            if late:
                self.refuse(Apart(code="out_of_step", ranks=late))
            else:
                self._settled(self._swap(word, GO))

    def _name(self, passes: int, offer: RankOffer) -> None:
        for rank in range(1, self.size):
            theirs = msgspec.json.decode(self.store.get(f"offer/{rank}"), type=RankOffer)
            differing = offer.differing(replace(theirs, loader=offer.loader))
            if differing:
                return self.refuse(Apart(code="loaders_differ", ranks=(rank,), detail=", ".join(differing)))
        self.named = Named(passes=passes + AHEAD, loader=offer.loader)
        word = self._swap("", f"at {msgspec.json.encode(self.named).decode()}")
        self._settled(word)
        return None

    def _follow(self, word: str, passes: int) -> None:
        if not word:
            return
        if self.named is None:
            named = msgspec.json.decode(word.removeprefix("at "), type=Named)
            if passes >= named.passes:
                return self.refuse(Apart(code="out_of_step", ranks=(self.rank,)))
            self.store.set(f"heard/{self.rank}", "1")
            self.named = named
        if passes < self.named.passes:
            return
        begin_ns = self.clock.now_ns()
        while not self.heard():
            if (self.clock.now_ns() - begin_ns) / 1e9 > TURN_S:
                return self.refuse(Apart(code="out_of_step", ranks=(0,)))
            self.clock.sleep(POLL_S)

    def _settled(self, word: str) -> bool:
        """Keep a word that is final; False for one that is not."""
        if word == GO:
            self.agreed = True
        elif word.startswith("{"):
            self.apart = msgspec.json.decode(word, type=Apart)
        return self.agreed or self.apart is not None

    def _seconds(self) -> float:
        return 0.0 if self._since_ns is None else (self.clock.now_ns() - self._since_ns) / 1e9

    def _word(self) -> str:
        return self.store.get(_WORD).decode() if self.store.check([_WORD]) else ""

    def _put(self, word: str, apart: Apart) -> str:
        return self._swap(word, msgspec.json.encode(apart).decode())

    def _swap(self, word: str, other: str) -> str:
        return self.store.compare_set(_WORD, word, other).decode()
