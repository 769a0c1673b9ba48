"""Several emulated accelerators on one loader, in turn; which round is for the verdict, and which for the truth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.compute.step import NoCompute
from loaderprobe.protocols import Compute, ComputeArguments, NextRound
from loaderprobe.records.config import with_options
from loaderprobe.records.measurement import Activity, ComputeInfo, Measurement, Mode, Segment

Plan = tuple[tuple[Mode, Activity], ...]

LOADER_ROUNDS_OF_VERDICT = 100
"""Added to the rounds of the verdict's own loader segments that stand beside the truth."""


class Rack:
    """Several devices behind one: each training segment is run by the next in turn."""

    synchronous = False

    def __init__(self, names: Sequence[str], arguments: ComputeArguments) -> None:
        self.devices = {name: _device(name, arguments) for name in names}
        self.turns: deque[str] = deque(names)
        self._untimed = True

    def begin(self, names: Sequence[str]) -> None:
        """A round begins, in which these train in turn."""
        self.turns, self._untimed = deque(names), True

    def info(self) -> ComputeInfo:
        return self.devices[self.turns[0]].info()

    def copy(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        # Without transport only the number of samples arrives; the device is to train on as many.
        self.devices[self.turns[0]].step(np.empty(batch) if isinstance(batch, int) else batch)

    def finish(self) -> tuple[int, ...]:
        finished = self.devices[self.turns[0]].finish()
        # Each training segment begins with a step that is not timed, and that the device finishes for itself.
        if not self._untimed:
            self.turns.rotate(-1)
        self._untimed = not self._untimed
        return finished


def _training(plan: Plan) -> list[tuple[Mode, Activity]]:
    return [each for each in plan if each[1] == "training"]


def _device(name: str, arguments: ComputeArguments) -> Compute:
    if name == "none":
        return NoCompute(arguments)
    return EmulatedCompute(replace(arguments, spec=replace(arguments.spec, name=f"emulated:{name}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one round was for: the segments of each accelerator, and who had which training segment."""

    truth: bool
    asked: dict[str, Plan]
    trained: tuple[str, ...]


class Director:
    """Decides the rounds of a block: the verdict's own, as the standard asks, and in between those of the truth.

    A loader segment that several accelerators ask for in one round is measured once. The truth has rounds of its own
    for each accelerator, so that all its parts see the same machine. `on_round` is called before each round, with
    whether it is for the truth.
    """

    def __init__(
        self,
        accelerators: Sequence[str],
        truth_rounds: int,
        standard: NextRound,
        on_round: Callable[[bool], None] = lambda truth: None,
    ) -> None:
        self._accelerators = accelerators
        self._truth_rounds = truth_rounds
        self._standard = standard
        self._on_round = on_round
        self._plans = self._all_plans()
        self._seen: Measurement | None = None
        self._rack: Rack | None = None
        self.parts: list[Part] = []

    def rack(self, arguments: ComputeArguments) -> Rack:
        self._rack = Rack(self._accelerators, arguments)
        return self._rack

    def __call__(self, measurement: Measurement, *, thorough: bool) -> Plan:
        self._seen = measurement
        return next(self._plans, ())

    def _all_plans(self) -> Iterator[Plan]:
        open_still, number = list(self._accelerators), 0
        while open_still or number < self._truth_rounds:
            asked = {name: tuple(self._standard(self.verdict_of(name), thorough=False)) for name in open_still}
            open_still = [name for name in open_still if asked[name]]
            together = [name for name in open_still if len(_training(asked[name])) <= 1]
            if together:
                yield self._verdict_round({name: asked[name] for name in together}, turn=number)
            for name in open_still:
                if name not in together:
                    # Several modes in training: a round of its own.
                    yield self._round_of(name, asked[name], truth=False)
            if number < self._truth_rounds:
                for name in self._accelerators:
                    yield self._truth_round(name)
            number += 1

    def _verdict_round(self, asked: dict[str, Plan], turn: int) -> Plan:
        loader_only = dict.fromkeys(each for plan in asked.values() for each in plan if each[1] == "loader_only")
        training = {name: _training(plan) for name, plan in asked.items()}
        names = [name for name in asked if training[name]]
        order = names[turn % len(names) :] + names[: turn % len(names)] if names else []
        if len({each for plan in training.values() for each in plan}) > 1:
            raise ValueError(f"training in several modes in one round cannot be separated: {training}")
        return self._begin(
            Part(truth=False, asked=asked, trained=tuple(order)), loader_only, [training[n][0] for n in order]
        )

    def _truth_round(self, name: str) -> Plan:
        assert self._seen
        base: Mode = "warm" if self._seen.config.cache == "warm" else "baseline"
        modes = [
            base,
            *(mode for mode in ("warm", "cached_samples", "no_transport") if mode != base and mode in self._seen.modes),
        ]
        plan: list[tuple[Mode, Activity]] = [(base, "loader_only"), *((mode, "training") for mode in modes)]
        return self._round_of(name, tuple(plan), truth=True)

    def _round_of(self, name: str, plan: Plan, *, truth: bool) -> Plan:
        """A round of one accelerator, which has all its training segments."""
        training = _training(plan)
        part = Part(truth=truth, asked={name: plan}, trained=(name,) * len(training))
        return self._begin(part, [each for each in plan if each not in training], training)

    def _begin(self, part: Part, loader_only: Any, training: Any) -> Plan:
        assert self._rack
        self.parts.append(part)
        self._on_round(part.truth)
        self._rack.begin(part.trained or self._accelerators)
        return (*loader_only, *training)

    def verdict_of(self, name: str) -> Measurement:
        """What the standard asked for on behalf of one accelerator, as if nothing else had been measured."""
        return self._cut(name, truth=False)

    def truth_of(self, name: str) -> Measurement:
        """The measured speed-ups of one accelerator, and beside them all loader segments of the verdict's rounds."""
        return self._cut(name, truth=True)

    def _cut(self, name: str, *, truth: bool) -> Measurement:
        assert self._seen
        assert self._rack
        segments: list[Segment] = []
        rounds = 0
        for number, part in enumerate(self.parts):
            found = [segment for segment in self._seen.segments if segment.round == number]
            if part.truth == truth and name in part.asked:
                segments += [replace(s, round=rounds) for s in _of(name, part, found)]
                rounds += 1
            elif truth and not part.truth:
                segments += [
                    replace(s, round=LOADER_ROUNDS_OF_VERDICT + number) for s in found if s.activity == "loader_only"
                ]
        info = self._rack.devices[name].info()
        config = with_options(self._seen.config, compute=info.name)
        return replace(self._seen, config=config, compute=info, segments=tuple(segments))

    def finished(self, measurement: Measurement) -> None:
        self._seen = measurement


def _of(name: str, part: Part, segments: Sequence[Segment]) -> Iterator[Segment]:
    """The segments of one round that were measured for one accelerator."""
    trained = iter(part.trained)
    for segment in segments:
        whose = next(trained) if segment.activity == "training" else name
        if whose == name and (segment.mode, segment.activity) in part.asked[name]:
            yield segment
