"""One rank of a user's own loader, in the child of a process that a launcher started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from loaderprobe.analyze.same_samples import differing, same_samples
from loaderprobe.api.diagnose import DataSeen, compute_of
from loaderprobe.api.own_loader import made
from loaderprobe.api.rank_child import RankChild
from loaderprobe.api.script_ranks import DeadlineInStep
from loaderprobe.api.user_loader import Asked, measure_loader
from loaderprobe.errors import BadValue
from loaderprobe.measure.in_step import RankSession
from loaderprobe.measure.runner import Order
from loaderprobe.measure.session import OnStage
from loaderprobe.protocols import Compute, ComputeArguments, Crew, Exchanging, MakeCompute
from loaderprobe.records.diagnosis import Drawn, OwnMeasured
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.ranks import Place
from loaderprobe.records.remark import Remark
from loaderprobe.render.rank_words import differs

if TYPE_CHECKING:
    from loaderprobe.loaders.unwrap import Unwrapped


def measure_own(order: Order, on_stage: OnStage) -> OwnMeasured:
    """Make this rank's loader by the user's function, and measure it in step with the others."""
    from loaderprobe.loaders.ranks import join_group
    from loaderprobe.loaders.unwrap import unwrap

    own, place = order.own, order.place
    assert own is not None and place is not None
    on_stage("joining the process group", 0, 0)
    join_group(place)
    on_stage(f"calling {own.name}", 0, 0)
    loader, step = made(own)
    given = unwrap(loader)
    rank = OwnRank(order, place, given, on_stage)
    found = measure_loader(given, _compute_of(step), rank.asked(), on_stage)
    return OwnMeasured(
        config=order.config,
        measurement=found.measurement,
        data=DataSeen.of(given.loader, found.files),
        with_step=step is not None,
        ceiling=found.ceiling,
    )


def _compute_of(step: Callable[[Any], Any] | None) -> MakeCompute:
    def make(arguments: ComputeArguments) -> Compute:
        from loaderprobe.compute.step import step_in_ranks

        return step_in_ranks(step, arguments) if step else compute_of(None)(arguments)

    return make


class OwnRank:
    """This rank's part: it learns its loader by itself, and then meets the others."""

    def __init__(self, order: Order, place: Place, given: Unwrapped, on_stage: OnStage) -> None:
        self._order, self._place, self._given, self._on_stage = order, place, given, on_stage
        self._child: RankChild | None = None
        self._said: tuple[Remark, ...] = ()

    def asked(self) -> Asked:
        """How each rank is measured. What one node's storage delivers is measured after all, by rank 0."""
        config = self._order.config
        return Asked(
            cache=config.cache,
            budget_s=self._order.budget_s,
            session=self._session,
            ceiling=self._place.rank == 0 and config.nodes == 1,
            deadline=lambda budget_s: DeadlineInStep(budget_s, lambda: self._child is not None),
            joined=self._together,
            ranks=config.ranks,
            nodes=config.nodes,
        )

    def _session(self, **given: Any) -> RankSession:
        if self._child is not None:
            raise BadValue(
                "while it was measured, some workers had no more data, or its wrapper took more batches than it gave",
                hint="give every worker data, or give the DataLoader itself",
            )
        # Workers have been started: none holds the connections of the ranks open.
        child = self._child = RankChild(self._order, self._place, self._on_stage)
        self._said = agreed(child.crew, self._drawn(given))
        return child.session(device="", **given)

    def _drawn(self, given: dict[str, Any]) -> Drawn:
        from loaderprobe.loaders.drawn import drawn

        config = given["recorder"].config
        exchanges = isinstance(given["parts"].compute, Exchanging)
        return drawn(self._given.loader, config, given["files"], given["held"], exchanges=exchanges)

    def _together(self, measured: Measurement) -> Measurement:
        assert self._child is not None
        found = self._child.together(measured)
        return replace(found, notes=(*self._said, *found.notes)) if self._place.rank == 0 else found


def agreed(crew: Crew, own: Drawn) -> tuple[Remark, ...]:
    """What rank 0 says of what all ranks take. Raises BadValue on all of them where their loaders differ."""
    ranks = [msgspec.json.decode(each, type=Drawn) for each in crew.gathered(msgspec.json.encode(own))]
    found = differing(ranks) if ranks else None
    other = msgspec.json.decode(crew.broadcast(msgspec.json.encode(found)), type=tuple[int, str] | None)
    if other is not None:
        reason, hint = differs(*other)
        raise BadValue(reason, hint=hint)
    same = same_samples(ranks) if ranks else None
    return () if same is None else (same,)
