"""A training of several ranks that is measured by all of them together; one process of it, joined to the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderprobe.errors import LostRank
from loaderprobe.measure.attach.script_loaders import ScriptLoader
from loaderprobe.measure.attach.turns import LoopTurns
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.own.loader import Deadline, DeadlineInStep, LoaderRequest, measure_with_step
from loaderprobe.measure.ranks.child import KIND, WORTH_A_WORD, Gathering, meeting_s, processes_of_ranks
from loaderprobe.measure.ranks.in_step import Meeting, SessionInStep, TakeOver
from loaderprobe.measure.session import OnStage, Parts
from loaderprobe.protocols import Crew, Judging
from loaderprobe.records.diagnosis import AttachRequest, OwnMeasured
from loaderprobe.records.measurement import Measurement, base_mode, segment_seconds, segments_of
from loaderprobe.records.ranks import Apart, ApartCode, RankMeasurement, RankOffer
from loaderprobe.records.remark import Remark
from loaderprobe.store.codec import encode, write_atomically
from loaderprobe.store.results import make_directory
from loaderprobe.system.others import OthersMeter

if TYPE_CHECKING:
    from loaderprobe.loaders.ranks import Joined


RANKS = "ranks"
"""Of the directory of a run: what each rank measured."""


class Ranks:
    """This rank's part: it offers its loader, agrees on the step, and measures in step with the others."""

    def __init__(self, joined: Joined, judging: Judging) -> None:
        self._joined, self._judging = joined, judging
        self._taking_over = TakeOver(joined.store, joined.rank, joined.size, SystemClock())
        self._offer: RankOffer | None = None
        self._crew: Crew | None = None
        self._meeting: Meeting | None = None
        self._meeting_s = 0.0
        self._ranks_here: tuple[int, ...] = ()
        self._gathering: Gathering | None = None
        self.apart: Apart | None = None
        """Why the ranks are not measured together."""

    @property
    def leads(self) -> bool:
        """True for rank 0, which speaks for all."""
        return self._joined.rank == 0

    @property
    def size(self) -> int:
        """How many there are."""
        return self._joined.size

    def agrees(self, seen: ScriptLoader, passes: int) -> bool:
        """True at the step at which the loops of all ranks are taken over; asked before each batch."""
        self._offer = self._offer or offer_of(seen)
        named = self._taking_over.named
        if self.apart or seen.number != (named.loader if named else self._offer.loader):
            return False
        try:
            if not self._taking_over.ask(passes, self._offer):
                self.apart = self._taking_over.apart
                return False
            self._join()
        except LostRank as error:
            self.apart = Apart(code="no_group", ranks=(), detail=error.message, hint=error.hint)
        except RuntimeError as error:  # of the store
            self.apart = Apart(code="lost", ranks=(), detail=str(error).partition("\n")[0])
        return self.apart is None

    def refuse(self, code: ApartCode, detail: str = "", hint: str = "") -> None:
        """This rank cannot be measured, so none is."""
        apart = Apart(code=code, ranks=(self._joined.rank,), detail=detail, hint=hint)
        if self._meeting is None:
            self._tell(lambda: self._taking_over.refuse(apart))
            self.apart = self._taking_over.apart or apart
        elif not self._meeting.begun:
            self._meeting.refuse(apart)
            self.apart = self._meeting.apart

    def withdraw(self) -> None:
        """Another rank cannot be measured."""
        self.apart = (self._meeting.apart if self._meeting else None) or Apart(code="lost", ranks=())

    def end(self) -> None:
        """The script ends before all agreed."""
        self._tell(self._taking_over.end)
        self.apart = self._taking_over.apart or Apart(code="ended", ranks=(self._joined.rank,))

    def same_budget(self, budget_s: float) -> float:
        """That of rank 0. Raises LostRank."""
        return float(self._together.broadcast(str(budget_s).encode()))

    def turns(self, measure: Callable[[Callable[[Any], None]], Any]) -> LoopTurns:
        """Of this rank's loop."""
        assert self._meeting is not None
        self._meeting.turns = LoopTurns(measure, self._meeting)
        return self._meeting.turns

    def measure(
        self, seen: ScriptLoader, step: Callable[[Any], None], turns: LoopTurns, request: AttachRequest,
        budget_s: float, on_stage: OnStage,
    ) -> OwnMeasured | None:  # fmt: skip
        """Measure in step with the others. What all measured, on rank 0; None on the others."""
        meeting, gathering = self._meeting, self._gathering
        assert meeting is not None and gathering is not None

        def session(parts: Parts, **given: Any) -> SessionInStep:
            seeing = replace(parts, disturbance=OthersMeter(self._ranks_here))
            return SessionInStep(turns=turns, period=seen.period, meeting=meeting, parts=seeing, **given)

        asked = LoaderRequest(
            judging=self._judging,
            cache=request.cache,
            budget_s=budget_s,
            next_round=gathering.next_round,
            session=session,
            ceiling=False,
            deadline=lambda budget: self._deadline(budget, meeting),
            joined=self._as_one,
        )
        found = measure_with_step(seen.known.to_measure(), step, asked, on_stage)
        return found if self.leads else None

    def kept(self, measured: Measurement, run: str) -> tuple[Remark, ...]:
        """Write what each rank measured into the directory of a run; the notes on what all measured."""
        assert self._gathering is not None
        keep_ranks(self._gathering.seen, Path(run))
        return self._notes(measured, self._gathering.seen)

    @property
    def _together(self) -> Crew:
        assert self._crew is not None
        return self._crew

    def _join(self) -> None:
        """Meet in a group of our own. Raises LostRank."""
        from loaderprobe.loaders.ranks import GlooCrew

        crew = GlooCrew(self._joined)
        self._ranks_here = processes_of_ranks(crew)
        self._meeting_s = meeting_s(crew, SystemClock())
        self._crew, self._meeting, self._gathering = crew, Meeting(crew), Gathering(crew, self._judging)

    def _deadline(self, budget_s: float | None, meeting: Meeting) -> Deadline:
        deadline = DeadlineInStep(budget_s, lambda: meeting.begun)
        meeting.late, meeting.out_of_time = lambda: deadline.late, deadline.error
        return deadline

    def _as_one(self, measured: Measurement) -> Measurement:
        """Of all ranks, on rank 0. Where a rank has gone, as far as all had come by the last round."""
        gathering = self._gathering
        assert gathering is not None
        try:
            gathering.gather(measured)
        except LostRank:
            if self.leads and not gathering.seen:
                raise
        if not self.leads:
            return measured
        found = gathering.together()
        return replace(found, notes=(*found.notes, *(each for each in measured.notes if each not in found.notes)))

    def _notes(self, measured: Measurement, seen: Sequence[RankMeasurement]) -> tuple[Remark, ...]:
        """What the rates are; and the time of meeting after each step, where that is worth a word."""
        trained = segments_of(measured, base_mode(measured), "training")
        step_s = sum(map(segment_seconds, trained)) / sum(each.steps for each in trained)
        hosts = len({each.host for each in seen})
        together = Remark(code="ranks_together", facts={"ranks": self.size, "hosts": hosts})
        if self._meeting_s <= WORTH_A_WORD * step_s:
            return (together,)
        share = self._meeting_s / step_s
        return together, Remark(code="ranks_meet", facts={"meeting_s": self._meeting_s, "share": share})

    @staticmethod
    def _tell(call: Callable[[], None]) -> None:
        """The store may have gone with the rank that held it."""
        try:
            call()
        except RuntimeError:
            return


def ranks_here(judging: Judging) -> Ranks | None:
    """None for a process that has joined no other through torch.distributed."""
    from loaderprobe.loaders.ranks import joined_ranks

    joined = joined_ranks()
    return None if joined is None else Ranks(joined, judging)


def offer_of(seen: ScriptLoader) -> RankOffer:
    """The loader that trains here."""
    return RankOffer(
        loader=seen.number,
        batch_size=seen.loader.batch_size,
        workers=seen.loader.num_workers,
        prefetch_factor=seen.loader.prefetch_factor or 0,
        period=seen.period,
    )


def keep_ranks(seen: Sequence[RankMeasurement], run: Path) -> None:
    """Write what each rank measured into the directory of a run."""
    make_directory(run / RANKS)
    for each in seen:
        write_atomically(run / RANKS / f"rank-{each.rank}.json", encode(KIND, each))
