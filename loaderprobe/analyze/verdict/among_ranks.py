"""What several ranks lose to each other: to a slow one, to slow batches, and to the exchange of gradients.

Waiting names the wrong rank: on a shared disk equal ranks wait unequally, and the same one in every round. So the
slowest rank goes without input, and in turn a middle one. On shared storage either leaves more for the others; only
the difference is the slowest rank's.

Where all ranks of a host are slow, taking one's input changes nothing. Such a host shows in what each rank loads by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.effects import CLEAR_LEAD, of_rounds
from loaderprobe.analyze.slow_host import SlowHost, host_names, slow_host
from loaderprobe.analyze.verdict.prediction import Loop
from loaderprobe.analyze.verdict.rates import NS, rates_by_round
from loaderprobe.analyze.verdict.validity import base_mode, why_not_on_a_rank
from loaderprobe.records.measurement import Measurement, Mode, Segment
from loaderprobe.records.rank_seen import RankSeen
from loaderprobe.records.resources import AMONG_RANKS
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.verdict import Speedup
from loaderprobe.stats import mean, median


@dataclass(frozen=True, slots=True, kw_only=True)
class AmongRanks:
    """The outcome of the experiments that only several ranks have."""

    ratios: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """By name, the speed-up of each round."""
    missing: Mapping[str, Unavailable] = field(default_factory=dict)
    """By name, why it is not known."""
    compute: Mapping[int, float] = field(default_factory=dict)
    """Speed-up of each round if compute were free, while gradients are exchanged; empty where that is not known."""
    slowest: RankSeen | None = None
    """The rank that goes without input first."""
    slowest_alone: float = 0.0
    """Images/s of its loader by itself."""
    middle_alone: float = 0.0
    """Images/s of the rank that it is compared with."""
    alike: bool = True
    """False where the slowest rank by itself is far below the mean of all."""
    on_a_node: int = 1
    """Ranks that share the cores of one."""
    host: SlowHost | None = None
    """The host whose ranks are the slowest by themselves in every round: in the middle one of these."""
    host_leads: tuple[float, ...] = ()
    """Of that host in each round."""
    host_ratios: Mapping[int, float] = field(default_factory=dict)
    """Speed-up of each round if its ranks were as fast as the slowest elsewhere: an estimate, and the most."""

    def speedups(self) -> dict[str, Speedup]:
        """Over the rounds. Ranks cannot gain from waiting: less than 1 is noise."""
        return {name: of_rounds(found).speedup for name, found in self.ratios.items()}


def among_ranks(measurement: Measurement, loader: Mapping[int, float], loops: Mapping[int, Loop]) -> AmongRanks:
    """From the loader in step, by round, and the loops that training on it would be; nothing of one rank."""
    if measurement.ranks < 2:
        return AmongRanks(missing=dict.fromkeys(AMONG_RANKS, Unavailable(code="one_rank")))
    made = _Rounds(measurement=measurement, loader=loader, loops=loops)
    pair = _pair(measurement)
    alone = rates_alone(measurement)
    found = {"imbalance": made.imbalance(pair), "straggler": made.straggler(), "gradients": made.gradients()}
    hosts = _slow_in_every_round(measurement)
    missing = {
        "imbalance": _why_not(
            measurement, [s for s in measurement.segments if s.without is not None], found["imbalance"]
        ),
        "straggler": _why_not(measurement, alone_segments(measurement), found["straggler"]),
        "gradients": None if found["gradients"] else Unavailable(code="exchange_not_measured"),
    }
    return AmongRanks(
        ratios={name: each for name, each in found.items() if each and missing[name] is None},
        missing={name: reason for name, reason in missing.items() if reason},
        compute=made.compute_beside_exchange(),
        slowest=measurement.by_rank[pair[0]] if pair else None,
        slowest_alone=alone.get(pair[0], 0.0) if pair else 0.0,
        middle_alone=alone.get(pair[1], 0.0) if pair else 0.0,
        alike=mean(list(alone.values())) < CLEAR_LEAD * min(alone.values()) if alone else True,
        on_a_node=measurement.config.ranks // measurement.config.nodes,
        host=sorted(hosts.values(), key=_lead)[len(hosts) // 2] if hosts else None,
        host_leads=tuple(each.lead for each in hosts.values()),
        host_ratios=made.with_host(hosts) if missing["straggler"] is None else {},
    )


def _lead(host: SlowHost) -> float:
    return host.lead


def _slow_in_every_round(measurement: Measurement) -> dict[int, SlowHost]:
    """By round, the host whose ranks are slow by themselves; empty unless it is the same in all of them."""
    hosts = host_names([(each.node, each.host) for each in measurement.by_rank])
    found = {
        measurement.segments[place].round: slow_host(
            [(host, _own_rate(measurement, each, place)) for host, each in zip(hosts, measurement.by_rank, strict=True)]
        )
        for place in _places_alone(measurement)
    }
    slow = {number: each for number, each in found.items() if each is not None}
    alike = len({each.host for each in slow.values()}) == 1
    return slow if len(slow) == len(found) and alike else {}


def rates_alone(measurement: Measurement) -> dict[int, float]:
    """Images/s of each rank's loader by itself, the median of the rounds; empty where ranks were not alone."""
    places = _places_alone(measurement)
    if not places:
        return {}
    return {
        each.rank: median([_own_rate(measurement, each, place) for place in places]) for each in measurement.by_rank
    }


def alone_segments(measurement: Measurement) -> list[Segment]:
    """Those in which no rank waited for another."""
    return [measurement.segments[place] for place in _places_alone(measurement)]


def _places_alone(measurement: Measurement) -> list[int]:
    if not measurement.by_rank:
        return []
    return [place for place, each in enumerate(measurement.segments) if each.activity == "alone"]


def _own_rate(measurement: Measurement, rank: RankSeen, place: int) -> float:
    batch = measurement.segments[place].batch_size / measurement.ranks
    return batch * rank.steps[place] * NS / max(1, rank.span_ns[place])


def _pair(measurement: Measurement) -> tuple[int, int] | None:
    """(the slower, the other) of the ranks that go without input in turn; None without two of them."""
    alone = rates_alone(measurement)
    taken = sorted(
        {s.without for s in measurement.segments if s.without is not None}, key=lambda rank: alone.get(rank, 0.0)
    )
    return (taken[0], taken[-1]) if len(taken) > 1 and alone else None


def _why_not(measurement: Measurement, segments: Sequence[Segment], ratios: Mapping[int, float]) -> Unavailable | None:
    """Segments that were not run, or whose files were not in the state that was asked for."""
    if not ratios:
        return Unavailable(code="ranks_not_apart")
    return why_not_on_a_rank(measurement, segments, cold=measurement.config.cache == "cold")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """Speed-ups of each round: a round is compared with itself."""

    measurement: Measurement
    loader: Mapping[int, float]
    loops: Mapping[int, Loop]

    def imbalance(self, pair: tuple[int, int] | None) -> dict[int, float]:
        """Without the slowest rank's input, over without a middle one's."""
        if pair is None:
            return {}
        base = base_mode(self.measurement)
        slow, middle = (rates_by_round(self.measurement, base, "loader_only", without=rank) for rank in pair)
        return {
            n: loop.end_to_end(slow[n]) / loop.end_to_end(middle[n]) for n, loop in self._loops_of(slow.keys() & middle)
        }

    def straggler(self) -> dict[int, float]:
        """The rates alone, added up, over the rate in step."""
        sums = {
            self.measurement.segments[place].round: sum(
                _own_rate(self.measurement, each, place) for each in self.measurement.by_rank
            )
            for place in _places_alone(self.measurement)
        }
        in_step = _by_round(self.loader, sums)
        return {n: loop.end_to_end(sums[n]) / loop.end_to_end(in_step[n]) for n, loop in self._loops_of(in_step)}

    def with_host(self, hosts: Mapping[int, SlowHost]) -> dict[int, float]:
        """With all ranks as fast by themselves as the slowest elsewhere, over the rate in step."""
        ranks = self.measurement.ranks
        in_step = _by_round(self.loader, hosts)
        return {
            n: loop.end_to_end(ranks * hosts[n].elsewhere) / loop.end_to_end(in_step[n])
            for n, loop in self._loops_of(in_step)
        }

    def gradients(self) -> dict[int, float]:
        """Without the exchange over with it, on the loader as it is."""
        return self._with_compute("no_exchange", self.loops)

    def compute_beside_exchange(self) -> dict[int, float]:
        """With nothing but the exchange on the device."""
        return self._with_compute("exchange", self.loops)

    def _with_compute(self, mode: Mode, loops: Mapping[int, Loop]) -> dict[int, float]:
        rates = _by_round(rates_by_round(self.measurement, mode, "training"), self.loader)
        return {
            n: replace(loops[n], compute_images_per_s=rate).end_to_end(self.loader[n])
            / loops[n].end_to_end(self.loader[n])
            for n, rate in rates.items()
            if n in loops
        }

    def _loops_of(self, rounds: Mapping[int, float] | set[int]) -> list[tuple[int, Loop]]:
        """The loop of each round; of one in which compute was not measured, that of the first which has it."""
        usual = next(iter(self.loops.values()), None)
        return [(n, loop) for n in sorted(rounds) if (loop := self.loops.get(n, usual))]


def _by_round(rates: Mapping[int, float], rounds: Mapping[int, object]) -> dict[int, float]:
    """In each of these rounds; where it was not measured, the median of the others."""
    if not rates:
        return {}
    usual = median(list(rates.values()))
    return {n: rates.get(n, usual) for n in rounds}
