"""A training of several ranks that is measured by all of them together; one process of it, member to the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loaderprobe.errors import LostRank
from loaderprobe.measure.attach.coroutine import SessionCoroutine, Withdrawn
from loaderprobe.measure.attach.script_loaders import ScriptLoader
from loaderprobe.measure.collectives import KIND, Collectives
from loaderprobe.measure.ranks.child import barrier_s, meeting_notes, processes_of_ranks
from loaderprobe.measure.session import GivenUp
from loaderprobe.measure.user.loader import Deadline, LoaderRequest, compute_of, measure_loader
from loaderprobe.protocols import Clock, Group, OnStage, SharedStore
from loaderprobe.records import values
from loaderprobe.records.attached import AttachRequest
from loaderprobe.records.diagnosis import OwnMeasured
from loaderprobe.records.measurement import Measurement, segments_of
from loaderprobe.records.rank_processes import NotTogether, NotTogetherCode, RankOffer
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.store.codec import encode, write_atomically
from loaderprobe.store.results import make_directory
from loaderprobe.system.host import SystemClock
from loaderprobe.system.others import OthersMeter

if TYPE_CHECKING:
    from loaderprobe.loaders.ranks import Member


class ScriptCollectives(Collectives):
    """What the loops of scripts agree on besides: to be measured at all, and to begin a segment again."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.deadline: Deadline | None = None
        """That of rank 0 says for all whether time is over."""
        self.coroutine: SessionCoroutine | None = None
        self.begun = False
        """True once the loops of all ranks are taken over."""

    def until(self, budget_s: float) -> Deadline:
        """What ends a measurement of these ranks that takes too long."""
        self.deadline = Deadline(budget_s, lambda: self.begun)
        return self.deadline

    def begin(self) -> None:
        """Take over the loops of all ranks; raises Withdrawn where one refuses, or does not answer."""
        if why := self.refusal(None):
            raise Withdrawn(why)
        self.begun = True

    def refusal(self, own: NotTogether | None) -> NotTogether | None:
        """Why no loop is taken over, on this rank (`own`) or another, which rank 0 hears; None where all ranks' are."""
        try:
            if not self.any(own is not None):
                return None
            reasons = self._group.gather(b"" if own is None else msgspec.json.encode(own))
        except LostRank as error:
            return own or NotTogether(code="lost", ranks=(), detail=error.message, hint=error.hint)
        refusals = (msgspec.json.decode(reason, type=NotTogether) for reason in reasons if reason)
        return next(refusals, own) or NotTogether(code="lost", ranks=())

    def end(self) -> None:
        """Leave: the other ranks learn of it where they meet next."""
        with suppress(LostRank):
            self._group.all_reduce_max(0, 0, 0, 1, leaving=True)

    def ends(self, enough: bool) -> bool:
        """What rank 0 finds. Raises Interrupted or GivenUp on all ranks where one was; and rank 0's error when late."""
        why = self.coroutine.disturbed() if self.coroutine else ""
        over, late, disturbed, gone = self._group.all_reduce_max(
            int(enough and self.is_coordinator),
            int(self.is_coordinator and self.deadline is not None and self.deadline.late),
            self._group.rank + 1 if why else 0,
            0,
        )
        if gone:
            raise GivenUp
        if late and self.deadline:
            raise self.deadline.error()
        if disturbed and self.coroutine:
            self.coroutine.break_off(why or f"rank {disturbed - 1} was busy with something else")
        return bool(over)


# When the loops of all ranks are taken over: all at the same step, or none.
#
# No rank waits for one that may not come. Each stores in a shared store which loader it trains on, and trains on. When
# all have, rank 0 proposes a step ahead of itself. A rank that reads it in time accepts it, and waits there for the
# decision. A rank that cannot be measured stores that instead. The decision is one key, which is only changed from the
# value that was read, so it is the same for all.

AHEAD = 8
"""Backward passes from proposing a step to that step: hosts of ranks run ahead of each other by a few, on a GPU."""
PATIENCE_S = 60.0
"""Seconds for all ranks to train on a loader; training goes on meanwhile."""
ANSWER_TIMEOUT_S = 30.0
"""Seconds for the decision of rank 0 at the proposed step."""
POLL_S = 0.005
GO = "go"
_DECISION = "decision"


@dataclass(slots=True)
class StartAgreement:
    """One rank's part in agreeing on that step. Ask before each batch that is trained on."""

    store: SharedStore
    rank: int
    size: int
    clock: Clock
    proposed: tuple[int, int] | None = field(init=False, default=None)
    """The step at which all loops are taken over: (backward passes before it, of a rank's own count; the loader)."""
    not_together: NotTogether | None = field(init=False, default=None)
    """Why nothing is taken over."""
    agreed: bool = field(init=False, default=False)
    _since_ns: int = field(init=False, default=0)

    def ask(self, passes: int, offer: RankOffer) -> bool:
        """True at the step at which this rank's loop is taken over. `passes` are the backward passes so far."""
        if self.agreed or self.not_together:
            return self.agreed
        if not self._since_ns:
            self.store.set(f"offer/{self.rank}", msgspec.json.encode(offer).decode())
            self._since_ns = self.clock.now_ns()
        decision = self._decision()
        if not self._settled(decision):
            if self.rank == 0:
                self._decide(decision, passes, offer)
            else:
                self._accept(decision, passes)
        return self.agreed

    def refuse(self, not_together: NotTogether) -> None:
        """Take over no rank, unless all are taken over already."""
        decision, refusal = "", msgspec.json.encode(not_together).decode()
        while not self._settled(decision):
            decision = self._swap(decision, refusal)

    def end(self) -> None:
        """End the agreement with the script, where nothing was settled."""
        silent = self._without("offer") if self.rank == 0 else ()
        ended = NotTogether(code="ended", ranks=(self.rank,))
        self.refuse(NotTogether(code="silent", ranks=silent) if silent else ended)

    def _decide(self, decision: str, passes: int, offer: RankOffer) -> None:
        if self.proposed is None:
            # One call to the store, as it is asked before every batch.
            if self.store.check([f"offer/{rank}" for rank in range(1, self.size)]):
                self._propose(passes, offer)
            elif (self.clock.now_ns() - self._since_ns) / 1e9 > PATIENCE_S:
                self.refuse(NotTogether(code="silent", ranks=self._without("offer")))
        elif passes >= self.proposed[0]:
            late = self._without("accepted")
            if late:
                self.refuse(NotTogether(code="out_of_step", ranks=late))
            else:
                self._settled(self._swap(decision, GO))

    def _propose(self, passes: int, offer: RankOffer) -> None:
        for rank in range(1, self.size):
            theirs = msgspec.json.decode(self.store.get(f"offer/{rank}"), type=RankOffer)
            expected = values(replace(offer, loader=theirs.loader))
            if differing := [name for name, value in values(theirs).items() if value != expected[name]]:
                return self.refuse(NotTogether(code="loaders_differ", ranks=(rank,), detail=", ".join(differing)))
        self.proposed = passes + AHEAD, offer.loader
        decision = self._swap("", f"at {msgspec.json.encode(self.proposed).decode()}")
        self._settled(decision)
        return None

    def _accept(self, decision: str, passes: int) -> None:
        if not decision:
            return
        if self.proposed is None:
            proposed = msgspec.json.decode(decision.removeprefix("at "), type=tuple[int, int])
            if passes >= proposed[0]:
                return self.refuse(NotTogether(code="out_of_step", ranks=(self.rank,)))
            self.store.set(f"accepted/{self.rank}", "1")
            self.proposed = proposed
        if passes < self.proposed[0]:
            return
        begin_ns = self.clock.now_ns()
        while not self._settled(self._decision()):
            if (self.clock.now_ns() - begin_ns) / 1e9 > ANSWER_TIMEOUT_S:
                return self.refuse(NotTogether(code="out_of_step", ranks=(0,)))
            self.clock.sleep(POLL_S)

    def _settled(self, decision: str) -> bool:
        """Keep a decision that is final; False for one that is not."""
        if decision == GO:
            self.agreed = True
        elif decision.startswith("{"):
            self.not_together = msgspec.json.decode(decision, type=NotTogether)
        return self.agreed or self.not_together is not None

    def _without(self, key: str) -> tuple[int, ...]:
        """The ranks but 0 that have not stored this key."""
        return tuple(rank for rank in range(1, self.size) if not self.store.check([f"{key}/{rank}"]))

    def _decision(self) -> str:
        return self.store.get(_DECISION).decode() if self.store.check([_DECISION]) else ""

    def _swap(self, expected: str, decision: str) -> str:
        return self.store.compare_set(_DECISION, expected, decision).decode()


RANKS = "ranks"
"""The folder in the directory of a run with what each rank measured."""


class Ranks:
    """This rank's part: it offers its loader, agrees on the step, and measures in step with the others."""

    _collectives: ScriptCollectives
    """There once all have agreed, as are the next two."""
    _barrier_s: float
    _ranks_here: tuple[int, ...]

    def __init__(self, member: Member) -> None:
        self._member = member
        self._agreement = StartAgreement(member.store, member.rank, member.size, SystemClock())
        self._offer: RankOffer | None = None
        self.not_together: NotTogether | None = None
        """Why the ranks are not measured together."""

    @property
    def is_coordinator(self) -> bool:
        """True for rank 0, which speaks for all."""
        return self._member.rank == 0

    @property
    def size(self) -> int:
        return self._member.size

    def agrees(self, tracked: ScriptLoader, passes: int) -> bool:
        """True at the step at which the loops of all ranks are taken over; asked before each batch."""
        self._offer = self._offer or RankOffer(
            loader=tracked.number,
            batch_size=tracked.loader.batch_size,
            workers=tracked.loader.num_workers,
            prefetch_factor=tracked.loader.prefetch_factor or 0,
            period=tracked.period,
        )
        proposed = self._agreement.proposed
        if self.not_together or tracked.number != (proposed[1] if proposed else self._offer.loader):
            return False
        try:
            if not self._agreement.ask(passes, self._offer):
                self.not_together = self._agreement.not_together
                return False
            self._join()
        except LostRank as error:
            self.not_together = NotTogether(code="no_group", ranks=(), detail=error.message, hint=error.hint)
        except RuntimeError as error:  # of the store
            self.not_together = NotTogether(code="lost", ranks=(), detail=str(error).partition("\n")[0])
        return self.not_together is None

    def refuse(self, code: NotTogetherCode, detail: str = "", hint: str = "") -> None:
        """This rank cannot be measured, so none is."""
        refusal = self.not_together = NotTogether(code=code, ranks=(self._member.rank,), detail=detail, hint=hint)
        if not self._agreement.agreed:
            with suppress(RuntimeError):  # the store may have gone with the rank that held it
                self._agreement.refuse(refusal)
            self.not_together = self._agreement.not_together or refusal
        elif not self._collectives.begun:
            self.not_together = self._collectives.refusal(refusal)

    def end(self) -> None:
        """The script ends before all agreed."""
        with suppress(RuntimeError):
            self._agreement.end()
        self.not_together = self._agreement.not_together or NotTogether(code="ended", ranks=(self._member.rank,))

    def same_budget(self, budget_s: float) -> float:
        """The budget of rank 0, in seconds. Raises LostRank."""
        return self._collectives.agree(round(budget_s * 1e9)) / 1e9

    def coroutine(self, measure: Callable[[Callable[[Any], None]], Any]) -> SessionCoroutine:
        self._collectives.coroutine = SessionCoroutine(measure, self._collectives)
        return self._collectives.coroutine

    def measure(
        self, tracked: ScriptLoader, step: Callable[[Any], None], request: AttachRequest, budget_s: float,
        on_stage: OnStage,
    ) -> OwnMeasured | None:  # fmt: skip
        """Measure in step with the others. What all measured, on rank 0; None on the others."""
        shared = {"collectives": self._collectives, "disturbance": OthersMeter(self._ranks_here)}
        options = LoaderRequest(
            cache=request.cache,
            budget_s=budget_s,
            period=tracked.period,
            among=lambda parts, *_: replace(parts, **shared),
            ceiling=False,
            deadline=self._collectives.until,
            joined=self._as_one,
        )
        measured = measure_loader(tracked.known.to_measure(), compute_of(step), options, on_stage)
        return measured if self.is_coordinator else None

    def keep(self, run: str) -> None:
        """Write what each rank measured into the directory of a run."""
        make_directory(Path(run) / RANKS)
        for rank in self._collectives.by_rank:
            write_atomically(Path(run) / RANKS / f"rank-{rank.rank}.json", encode(KIND, rank))

    def notes(self, measured: Measurement) -> tuple[Remark, ...]:
        """The notes on what all measured."""
        hosts = len({rank.host for rank in self._collectives.by_rank})
        together = Remark(code="ranks_together", facts={"ranks": self.size, "hosts": hosts})
        trained = segments_of(measured, measured.config.mode, "training")
        return together, *meeting_notes("ranks_meet", self._barrier_s, trained)

    def _join(self) -> None:
        """Join a group of our own. Raises LostRank."""
        from loaderprobe.loaders.ranks import GlooGroup

        group = GlooGroup(self._member)
        self._ranks_here = processes_of_ranks(group)
        self._barrier_s = barrier_s(group, SystemClock())
        self._collectives = ScriptCollectives(group)

    def _as_one(self, measured: Measurement) -> Measurement:
        """The measurement of all ranks, on rank 0. Where a rank is lost, it ends with the last round that all have."""
        try:
            self._collectives.gather(measured)
        except LostRank:
            if self.is_coordinator and not self._collectives.by_rank:
                raise
        if not self.is_coordinator:
            return measured
        together = self._collectives.together()
        return replace(together, notes=each_once((*together.notes, *measured.notes)))


def ranks_here() -> Ranks | None:
    """None for a process that torch.distributed joins to no other."""
    from loaderprobe.loaders.ranks import member_here

    member = member_here()
    return None if member is None else Ranks(member)
