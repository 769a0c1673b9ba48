"""The experiments on one configuration, and among ranks: what training gains where a resource is free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.effects import Effect, half_of_rounds, of_rounds
from loaderprobe.analyze.verdict.rates import (
    BY_TIMES,
    NS,
    Loop,
    SlowHost,
    WaitEnd,
    WorkerCost,
    bytes_over,
    bytes_per_image,
    compute_rates,
    cores_in_training,
    host_names,
    loader_rates,
    parent_overhead_s,
    rate_interval,
    rate_without,
    rates_by_round,
    slow_host,
    spread_of_both,
    waiting_of,
    worker_cost,
)
from loaderprobe.analyze.verdict.validity import (
    ceiling_phase,
    cold_share,
    counted,
    files_were,
    is_disturbed,
    met_warm,
    never_warm,
    why_not_as_asked,
    why_not_on_a_rank,
)
from loaderprobe.records import thresholds
from loaderprobe.records.config import RunConfig
from loaderprobe.records.measurement import Measurement, Mode, RankSeen, Segment, segments_of
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import ABLATIONS, AMONG_RANKS, ONLY_WAITED, WAITED, ResourceName, SingleCause
from loaderprobe.records.verdict import How, Interval, Speedup
from loaderprobe.stats import mean, median

# What several ranks lose to each other: to a slow one, to slow batches, and to the exchange of gradients.
#
# Waiting names the wrong rank: on a shared disk equal ranks wait unequally, the same one in every round. So the slowest
# goes without input, and in turn a middle one, which leaves as much to the others. Where all ranks of a host are slow,
# taking one's input changes nothing: a slow host shows in what each rank loads by itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class AmongRanks:
    """The outcome of the experiments that only several ranks have."""

    ratios: Mapping[ResourceName, Mapping[int, float]] = field(default_factory=dict)
    """By name, the speed-up of each round."""
    missing: Mapping[ResourceName, Remark] = field(default_factory=dict)
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
    hosts: Mapping[int, SlowHost] = field(default_factory=dict)
    """By round, the host whose ranks are slow by themselves; empty unless it is the same in all of them."""
    host_ratios: Mapping[int, float] = field(default_factory=dict)
    """Speed-up of each round if its ranks were as fast as the slowest elsewhere: an estimate, and the most."""


def among_ranks(trials: Experiments) -> AmongRanks:
    """Nothing of one rank. A round is compared with itself."""
    measurement = trials.measurement
    if measurement.ranks < 2:
        return AmongRanks(missing=dict.fromkeys(AMONG_RANKS, Remark(code="one_rank")))
    alone = rates_alone(measurement)
    # The slower and the other of those that go without input in turn.
    taken = {segment.without for segment in measurement.segments if segment.without is not None} if alone else set()
    by_rate = sorted(taken, key=lambda rank: alone.get(rank, 0.0))
    pair = (by_rate[0], by_rate[-1]) if len(taken) > 1 else None
    imbalance: dict[int, float] = {}
    if pair:
        slow, middle = (rates_by_round(measurement, trials.base, "loader_only", without=rank) for rank in pair)
        imbalance = _over(trials, {n: rate for n, rate in slow.items() if n in middle}, middle)
    ratios: dict[ResourceName, dict[int, float]] = {
        "imbalance": imbalance,
        # The rates alone, added up, over the rate in step.
        "straggler": _over(trials, {n: sum(rates) for n, rates in _alone(measurement).items()}, trials.loader),
        "gradients": _with_compute(trials, "no_exchange"),
    }
    hosts = _slow_in_every_round(measurement)
    as_elsewhere = {number: measurement.ranks * host.elsewhere for number, host in hosts.items()}
    segments: dict[ResourceName, list[Segment]] = {
        "imbalance": [segment for segment in measurement.segments if segment.without is not None],
        "straggler": [segment for segment in measurement.segments if segment.activity == "alone"],
    }
    cold = measurement.config.cache == "cold"
    missing: dict[ResourceName, Remark | None] = {
        name: why_not_on_a_rank(measurement, group, cold=cold) if ratios[name] else Remark(code="ranks_not_apart")
        for name, group in segments.items()
    }
    missing["gradients"] = None if ratios["gradients"] else Remark(code="exchange_not_measured")
    return AmongRanks(
        ratios={name: by_round for name, by_round in ratios.items() if by_round and missing[name] is None},
        missing={name: reason for name, reason in missing.items() if reason},
        compute=_with_compute(trials, "exchange"),
        slowest=measurement.by_rank[pair[0]] if pair else None,
        slowest_alone=alone.get(pair[0], 0.0) if pair else 0.0,
        middle_alone=alone.get(pair[1], 0.0) if pair else 0.0,
        alike=mean(alone.values()) < thresholds.CLEAR_LEAD * min(alone.values()) if alone else True,
        hosts=hosts,
        host_ratios=_over(trials, as_elsewhere, trials.loader) if missing["straggler"] is None else {},
    )


def _slow_in_every_round(measurement: Measurement) -> dict[int, SlowHost]:
    """By round, the host whose ranks are slow by themselves; empty unless it is the same in all of them."""
    hosts = host_names([(rank.node, rank.host) for rank in measurement.by_rank])
    rounds = _alone(measurement)
    by_round = {number: slow_host(list(zip(hosts, rates, strict=True))) for number, rates in rounds.items()}
    slow = {number: host for number, host in by_round.items() if host is not None}
    alike = len({host.host for host in slow.values()}) == 1
    return slow if len(slow) == len(by_round) and alike else {}


def rates_alone(measurement: Measurement) -> dict[int, float]:
    """Images/s of each rank's loader by itself, the median of the rounds; empty where ranks were not alone."""
    rounds = list(_alone(measurement).values())
    return {rank.rank: median([rates[at] for rates in rounds]) for at, rank in enumerate(measurement.by_rank) if rounds}


def _alone(measurement: Measurement) -> dict[int, list[float]]:
    """By round, images/s of the loader of each rank by itself, in the order of the ranks."""
    return {
        segment.round: [
            segment.batch_size / measurement.ranks * rank.steps[index] * NS / max(1, rank.span_ns[index])
            for rank in measurement.by_rank
        ]
        for index, segment in enumerate(measurement.segments)
        if segment.activity == "alone" and measurement.by_rank
    }


def _over(trials: Experiments, rates: Mapping[int, float], others: Mapping[int, float]) -> dict[int, float]:
    """Training on loaders of these rates over that on loaders of the others, in the rounds of these.

    The others, or compute, of a round that lacks them are the median of those that have them.
    """
    others, alone, loop = _by_round(others, rates), _by_round(trials.alone, rates), trials.loop
    return {
        n: loop.end_to_end(rates[n], rate) / loop.end_to_end(others[n], rate)
        for n, rate in alone.items()
        if n in others
    }


def _with_compute(trials: Experiments, mode: Mode) -> dict[int, float]:
    """On the loader as it is, with the steps of a mode: without the exchange, or with nothing but that."""
    rates = _by_round(rates_by_round(trials.measurement, mode, "training"), trials.predicted)
    return {n: trials.loop.end_to_end(trials.loader[n], rate) / trials.predicted[n] for n, rate in rates.items()}


def _by_round(rates: Mapping[int, float], rounds: Mapping[int, object]) -> dict[int, float]:
    """In each of these rounds; where it was not measured, the median of the others."""
    if not rates:
        return {}
    usual = median(rates.values())
    return {n: rates.get(n, usual) for n in rounds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiments:
    """Rates and speed-ups by round, before anything is judged; `of` gives the rates of parts and training alone."""

    measurement: Measurement
    """With the segments that count."""
    loader: dict[int, float]
    alone: dict[int, float]
    """Of compute."""
    end_to_end: dict[int, float]
    loop: Loop
    cost: WorkerCost | None
    """Of the loader's batches in all rounds."""
    run_delay: float | None
    """Share of their time that workers wait for a core, in rounds that others did not disturb where there are any."""
    costs: dict[int, WorkerCost]
    """By round; one whose batches have no record is left out."""
    predicted: dict[int, float]
    """Images/s of training by round, from its parts."""
    predicted_by_bytes: dict[int, float]
    """The same, were the loader's rate inversely proportional to the bytes of an image."""
    spread_of_steps: dict[int, float]
    """By round, half the 95 % interval of training over the loader alone, as the steps of both vary."""
    estimated_parts: frozenset[str]
    """Of `loader` and `compute`, those whose own rate is estimated, since only training was seen."""
    without: dict[SingleCause, dict[int, float]] = field(default_factory=dict)
    """Loader images/s by round without `storage`, `preprocess`, `transport`; a key is absent when unknown."""
    speedups: dict[SingleCause, Speedup] = field(default_factory=dict)
    effects: dict[SingleCause, Effect] = field(default_factory=dict)
    """The same round by round: rounds are compared with themselves, since their parts saw the same machine."""
    rate: Interval | None = None
    """Images/s of what is judged, with its interval."""
    missing: dict[SingleCause, Remark] = field(default_factory=dict)
    """Resource to the reason why its speed-up is not known."""
    in_training: bool = False
    """True where resources were removed in training itself: no prediction from the parts is needed then."""
    training_cores: float | None = None
    """Cores that training keeps busy, workers and training process together."""
    ranges: dict[SingleCause, tuple[float, float]] = field(default_factory=dict)
    """Resource to the least and the most that its speed-up can be, by what workers can have waited for it."""
    met_warm: Remark | None = None
    """Why files that were to be cold were warm: then nothing is known of cold ones."""
    above_ceiling: Facts = field(default_factory=dict)
    """Bytes/s of samples said to be cold, and the ceiling of the storage that they exceed; empty where they do not."""
    among: AmongRanks = field(default_factory=AmongRanks)
    """What ranks lose to each other. The exchange of gradients is among the speed-ups above, too."""

    @classmethod
    def of(cls, measurement: Measurement, ceiling: StorageCeiling | None) -> Experiments:
        """What was measured of the parts and of training, and what the parts predict of it."""
        base = measurement.config.mode
        judged = segments_of(measurement, base, measurement.judged)
        loader_only = segments_of(measurement, base, "loader_only")
        # Where the loader did not run alone, its batches cost what they cost in training.
        made = loader_only or judged
        # What workers waited for is known of all rounds together: one has too few samples.
        waiting = waiting_of(measurement, made)

        def cost_of(segments: Sequence[Segment]) -> WorkerCost | None:
            cost = worker_cost(measurement.worker_batches, segments)
            return cost and replace(cost, waiting=waiting)

        costs = {s.round: cost for s in made if (cost := cost_of([s]))}
        delayed = cost_of([segment for segment in made if not is_disturbed(measurement, segment)] or made)
        loop = _loop(measurement, made, ceiling)
        loader = rates_by_round(measurement, base, "loader_only") or loader_rates(judged, costs, loop)
        given, estimated = measurement.compute.specified_images_per_s, [] if loader_only else ["loader"]
        compute = rates_by_round(measurement, "resident", "training") if given is None else {0: given}
        if estimated and not compute and measurement.compute.synchronous:
            compute, estimated = compute_rates(judged), ["loader", "compute"]
        # Rounds that were only to take resources away did not measure compute again.
        alone = _by_round(compute, loader)
        # How many times as many bytes the loader's images had, on average, as those of training.
        by_bytes = bytes_over(measurement, made, judged)
        both = sorted(alone.keys() & by_bytes.keys())
        return cls(
            measurement=measurement,
            loader=loader,
            alone=alone,
            end_to_end=rates_by_round(measurement, base, measurement.judged),
            loop=loop,
            cost=cost_of(made),
            run_delay=delayed.run_delay_s / delayed.wall_s if delayed and delayed.wall_s else None,
            costs={number: cost for number, cost in costs.items() if number in loader},
            predicted={n: loop.end_to_end(loader[n], rate) for n, rate in alone.items()},
            predicted_by_bytes={n: loop.end_to_end(loader[n] * by_bytes[n], alone[n]) for n in both},
            spread_of_steps=spread_of_both(measurement, loader_only, judged),
            estimated_parts=frozenset(estimated),
        )

    @property
    def config(self) -> RunConfig:
        return self.measurement.config

    @property
    def base(self) -> Mode:
        """The mode that is the configuration as asked: `warm` when warm files are asked for, else `baseline`."""
        return self.measurement.config.mode

    @property
    def compute(self) -> float | None:
        """Images/s of compute alone."""
        return median(self.alone.values()) if self.alone else None

    @property
    def most_gain(self) -> float:
        """The most that any input can gain: compute alone over training; infinite where that is not known."""
        if self.compute is None or not self.end_to_end:
            return math.inf
        return max(1.0, self.compute / median(self.end_to_end.values()))

    @property
    def loader_over_training(self) -> float | None:
        """The loader alone over training as measured: the speed-up of free compute."""
        both = sorted(self.loader.keys() & self.end_to_end.keys())
        return median([self.loader[n] / self.end_to_end[n] for n in both]) if both else None

    @property
    def predictions(self) -> dict[int, float]:
        """By round, images/s of training from its parts: of what sizes of files leave open, the nearest to training.

        A segment of few batches reads files that are a tenth larger than those of the next. A loader that is limited by
        bytes then makes fewer images of them, and one that is not does not: the prediction lies between the two.
        """
        nearest = {}
        for number, rate in self.predicted.items():
            low, high = sorted((rate, self.predicted_by_bytes.get(number, rate)))
            nearest[number] = min(max(self.end_to_end.get(number, rate), low), high)
        return nearest

    @property
    def misfits(self) -> dict[int, float]:
        """The logarithm of training over its prediction, of the rounds that have both."""
        rates = self.end_to_end
        return {n: math.log(rates[n] / rate) for n, rate in self.predictions.items() if n in rates}

    @property
    def prediction_error(self) -> tuple[float | None, float]:
        """(measured end-to-end rate over the predicted one minus 1, the most that noise explains).

        Rounds are compared pair by pair, since both rates of a round saw the same machine. In a single round the steps
        show the noise: eight batches from a disk may end a tenth early or late.
        """
        misfits = self.misfits
        if not misfits:
            return None, thresholds.LEAST_PREDICTION_ERROR
        logs = list(misfits.values())
        noise = half_of_rounds(logs) if len(logs) > 1 else self.spread_of_steps.get(next(iter(misfits)), 0.0)
        tolerance = max(thresholds.LEAST_PREDICTION_ERROR, min(thresholds.MOST_PREDICTION_ERROR, noise))
        return math.expm1(median(logs)), tolerance

    @property
    def noise(self) -> float:
        """By how much, at most, a round's training over its parts differs from that of the middle round."""
        logs = list(self.misfits.values())
        return max((abs(log - median(logs)) for log in logs), default=0.0)

    def is_measured(self, resource: SingleCause) -> bool:
        """False where its speed-up is an estimate, or not known."""
        speedup = self.speedups.get(resource)
        return speedup is not None and speedup.how == "measured"

    def is_open(self, resource: SingleCause) -> bool:
        """True where its speed-up is an estimate, and its mode could be run; not where that showed nothing."""
        mode = ABLATIONS.get(resource)
        if mode not in possible_modes(self.measurement) or self.is_measured(resource):
            return False
        return not segments_of(self.measurement, mode, "loader_only")

    @property
    def free_input_speedup(self) -> float:
        """By the formula of the loop; at most, where that did not predict training."""
        if self.in_training:
            return self.most_gain
        loop = replace(self.loop, overhead_s=0.0)
        free = [loop.end_to_end(math.inf, self.alone[n]) / rate for n, rate in self.predicted.items()]
        return min(median(free), self.most_gain) if free else math.inf


# The loader without one resource after the other: by experiment, else by what batches cost their workers.
#
# Where resources were removed in training itself, what training gained by that.


def possible_modes(measurement: Measurement) -> tuple[Mode, ...]:
    """The modes of this loader that take something away here."""
    gone: set[Mode] = {measurement.config.mode}
    if measurement.as_found:
        gone.add("warm")
    if measurement.access != "files":
        gone.add("cached_samples")
    if not measurement.workers:
        gone.add("no_transport")
    return tuple(mode for mode in ABLATIONS.values() if mode in measurement.modes and mode not in gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """The loader without one resource: images/s by round and how they are known; or the reason why they are not."""

    rates: dict[int, float] = field(default_factory=dict)
    how: How = "measured"
    missing: Remark | None = None
    overhead_s: float | None = None
    """Seconds a batch that the training thread then works on receiving it; None leaves it as it is."""
    bounded: bool = False
    """True where it is missing, but the loader gains no more than if its workers did not wait at all."""


def _without(trials: Experiments) -> dict[SingleCause, Without]:
    """The loader with one resource after the other removed.

    Measured where a mode was run; where it was not, estimated from what batches cost their workers. A mode that
    was run but was not what it was to be is no experiment, and no estimate stands in.
    """
    loaders = {name: loader for name, mode in ABLATIONS.items() if (loader := _ablated(trials, name, mode))}
    if not _looked_at(trials):
        return loaders
    kept = loaders.get("preprocessing")
    if kept and kept.how == "measured" and kept.missing is None and _waits_beside(trials):
        loaders["preprocessing"] = _estimated(trials, "preprocessing")
    # Without samples of the workers nothing separates these from storage.
    return loaders | {name: _estimated(trials, name) for name in ONLY_WAITED}


def _waits_beside(trials: Experiments) -> bool:
    """True where making a sample waits for what no mode removes: a sample that is kept does without that as well."""
    if not _looked_at(trials):
        return False
    rates = [_by_costs(trials, name) for name in ONLY_WAITED]
    gains = [median([rate / trials.loader[n] for n, rate in by_round.items()]) for by_round in rates if by_round]
    return any(gain >= thresholds.WORTH for gain in gains)


def _ablated(trials: Experiments, name: SingleCause, mode: Mode) -> Without | None:
    """None where neither this loader can be run without the resource, nor its speed-up be estimated."""
    if name == "storage":
        return _without_storage(trials)
    if name == "transport":
        return _without_transport(trials)
    if (measured := _measured(trials, mode)) or name in (*BY_TIMES, *WAITED):
        return measured or _estimated(trials, name)
    return Without(missing=Remark(code="not_measured")) if mode in trials.measurement.modes else None


def _looked_at(trials: Experiments) -> bool:
    return any(cost.waiting for cost in trials.costs.values())


def _without_storage(trials: Experiments) -> Without:
    """The same files, or the same batches, from memory; unknown where files are read as found."""
    measurement = trials.measurement
    reason = met_warm(measurement) or why_not_as_asked(measurement, trials.base)
    if reason:
        # How long cold files would be waited for is not known.
        return Without(missing=reason)
    if trials.base == "warm":
        return Without(rates=trials.loader)
    measured = _measured(trials, "warm")
    keeps_samples = measured and measured.missing and measured.missing.code == "kept_samples_show_nothing"
    if measured is None or ((keeps_samples or never_warm(measurement)) and _looked_at(trials)):
        # A data set that keeps its samples shows no warm files, only how workers waited for cold ones; nor does a
        # file system that keeps no files in memory.
        reason = None if "warm" in possible_modes(measurement) else _why_not_storage(trials)
        measured = Without(missing=reason) if reason else _estimated(trials, "storage")
    return replace(measured, bounded=measured.missing is not None and bool(trials.costs))


def _why_not_storage(trials: Experiments) -> Remark | None:
    """Where files are as found and workers were not sampled, only bytes show that they wait for storage."""
    if _looked_at(trials):
        return None
    costs = trials.costs.values()
    waited = sum(cost.blocked_s for cost in costs) / (sum(cost.wall_s for cost in costs) or 1.0)
    read = sum(cost.read_bytes for cost in costs) / (sum(cost.images for cost in costs) or 1)
    if waited < thresholds.NEGLIGIBLE_WAIT or read >= thresholds.LEAST_BYTES:
        return None
    return Remark(code="wait_unexplained", facts={"share": waited})


def _without_transport(trials: Experiments) -> Without:
    """Samples are made but neither collated nor sent; the serial loader has no transport.

    What little the training thread still does is measured where it was done, and nothing in an estimate.
    """
    if not trials.loop.workers:
        return Without(rates=trials.loader)
    measured = _measured(trials, "no_transport")
    if measured is not None:
        segments = segments_of(trials.measurement, "no_transport", "loader_only")
        return replace(measured, overhead_s=parent_overhead_s(segments))
    return replace(_estimated(trials, "transport"), overhead_s=0.0)


def _measured(trials: Experiments, mode: Mode) -> Without | None:
    """None when the mode was not run."""
    rates = rates_by_round(trials.measurement, mode, "loader_only")
    if not rates:
        return None
    beside = {number: rate for number, rate in rates.items() if number in trials.loader}
    reason = None if beside else Remark(code="not_beside")
    return Without(rates=beside, missing=why_not_as_asked(trials.measurement, mode) or reason)


def _estimated(trials: Experiments, resource: str) -> Without:
    rates = _by_costs(trials, resource)
    return Without(rates=rates, how="estimated") if rates else Without(missing=Remark(code="no_worker_times"))


def _by_costs(trials: Experiments, resource: str, end: WaitEnd = "seen") -> dict[int, float]:
    """Images/s without the resource, of each round from what its own batches cost; see `rate_without`."""
    return {n: rate_without(resource, trials.loader[n], cost, trials.loop, end) for n, cost in trials.costs.items()}


def _in_training(trials: Experiments) -> dict[SingleCause, dict[int, float]]:
    """Speed-ups by round where resources were removed in training itself; empty where none was."""
    measurement, base, end_to_end = trials.measurement, trials.base, trials.end_to_end
    ratios: dict[SingleCause, dict[int, float]] = {}
    for name, mode in ABLATIONS.items():
        if mode == base or (name == "storage" and why_not_as_asked(measurement, base)):
            continue  # files that were to be cold and were not show nothing of storage
        if name == "preprocessing" and _waits_beside(trials):
            continue
        rates = rates_by_round(measurement, mode, "training")
        beside = {n: rate / end_to_end[n] for n, rate in rates.items() if n in end_to_end}
        if beside and why_not_as_asked(measurement, mode) is None:
            ratios[name] = beside
    if not ratios:
        return {}
    rounds = set.union(*(set(by_round) for by_round in ratios.values()))
    not_there: dict[SingleCause, bool] = {"storage": base == "warm", "transport": not measurement.workers}
    ratios |= {name: dict.fromkeys(rounds, 1.0) for name, is_so in not_there.items() if is_so}
    return ratios | {"compute": {n: trials.loader[n] / rate for n, rate in end_to_end.items() if n in trials.loader}}


def _reached(trials: Experiments, number: int) -> float:
    """Images/s of training in a round as predicted; as measured where compute alone was far slower than that."""
    predicted, trained = trials.predicted[number], trials.end_to_end.get(number, 0.0)
    return trained if trained > thresholds.MOST_UNEXPLAINED * predicted else predicted


def run_experiments(measurement: Measurement, ceiling: StorageCeiling | None = None) -> Experiments:
    """All rates and speed-ups of a measurement; estimates also heed the storage's ceiling where it is known."""
    measurement = counted(measurement)
    trials = Experiments.of(measurement, ceiling)
    judged = segments_of(measurement, trials.base, measurement.judged)
    taken = _without(trials)
    known = {name: loader for name, loader in taken.items() if loader.missing is None}
    trained = _in_training(trials)
    predicted = trials.estimated_parts or trained
    how: dict[SingleCause, How] = {name: "estimated" if predicted else loader.how for name, loader in known.items()}
    how |= dict.fromkeys(trained, "measured")
    how["compute"] = "estimated" if trials.estimated_parts else "measured"
    among, failed = among_ranks(trials), bool(trained)
    # By the formula of the loop or, where resources were removed in training, as measured.
    ratios = {name: _ratios(trials, loader, failed=failed) for name, loader in known.items()}
    ratios["compute"] = {n: trials.loader[n] / _reached(trials, n) for n in trials.predicted}
    ratios |= trained
    # A free device still exchanges gradients.
    ratios["compute"] = {n: min(ratio, among.compute.get(n, ratio)) for n, ratio in ratios["compute"].items()}
    ratios |= {"gradients": dict(among.ratios["gradients"])} if "gradients" in among.ratios else {}
    how |= {name: "measured" for name in ratios if name not in how}
    effects = {name: of_rounds(by_round) for name, by_round in ratios.items() if by_round}

    def gain(name: SingleCause, end: WaitEnd) -> float:
        """Without the least or the most that workers can have waited for it, by the 95 % interval of its samples."""
        loader = Without(rates=_by_costs(trials, name, end))
        return median(_ratios(trials, loader, failed=failed).values())

    waits = {name for name, loader in taken.items() if loader.bounded}
    if _looked_at(trials):
        waits |= {name for name in known if name != "storage" or not _measured(trials, "warm")}
    waits = waits - trained.keys() if trials.predicted else set()
    # A ceiling of whole files limits the estimate; one of large blocks says nothing of small reads.
    whole = measurement.access == "files" or measurement.is_remote
    unlimited = math.isinf(trials.loop.storage_images_per_s) or not whole
    spare = _storage_has_spare(trials, ceiling)
    storage_may_limit = trials.base == "baseline" and measurement.storage_kind != "memory" and unlimited and not spare
    at_most = {name for name in BY_TIMES if storage_may_limit and how.get(name) == "estimated"}
    return replace(
        trials,
        without={name: loader.rates for name, loader in known.items()},
        speedups={name: effect.speedup(how[name], name in at_most) for name, effect in effects.items()},
        effects=effects,
        rate=rate_interval(measurement, judged) if judged else None,
        missing={name: loader.missing for name, loader in taken.items() if loader.missing and name not in trained},
        in_training=failed,
        training_cores=cores_in_training(measurement, judged),
        ranges={name: (gain(name, "least"), gain(name, "most")) for name in WAITED if name in waits},
        met_warm=_met_warm(trials, taken),
        above_ceiling=_above_ceiling(trials, judged, ceiling),
        among=among,
    )


def _met_warm(trials: Experiments, taken: Mapping[SingleCause, Without]) -> Remark | None:
    """Why files that were to be cold were warm, in part at least.

    None where warm files were asked for, or where a part was cold and the rest would hold up nothing.
    """
    measurement = trials.measurement
    if measurement.config.cache == "warm" or measurement.storage_kind == "memory":
        return None
    state = files_were(measurement)
    held_up = state == "warm" or (state == "partly warm" and not _keeps_up_cold(trials))
    return taken["storage"].missing if held_up else None


def _keeps_up_cold(trials: Experiments) -> bool:
    """True where the loader would be far ahead of training if workers waited for every byte as for those from storage.

    A device at its limit makes them wait longer, so it must be ahead by 2.25.
    """
    measurement, cost = trials.measurement, trials.cost
    share = cold_share(measurement, segments_of(measurement, trials.base, "loader_only"))
    if not share or cost is None or not trials.loader or not trials.end_to_end:
        return False
    more_s = cost.blocked_s / cost.images * max(0.0, 1 / share - 1) / max(1, measurement.workers)
    cold = 1 / (1 / min(trials.loader.values()) + more_s)
    return cold >= thresholds.FAR_LEAD * max(trials.end_to_end.values())


def _above_ceiling(trials: Experiments, judged: Sequence[Segment], ceiling: StorageCeiling | None) -> Facts:
    """Cold files cannot come faster than the storage moves bytes: then memory served a part of them.

    Its ceiling includes what is read ahead: random blocks waste some of that, and a stream of the same files does not.
    """
    measurement = trials.measurement
    phase, _ = ceiling_phase(measurement, ceiling)
    size = bytes_per_image(measurement, judged)
    fastest = max((median(rates.values()) for rates in (trials.loader, trials.end_to_end) if rates), default=0.0)
    if phase is None or size is None or measurement.config.cache == "warm" or files_were(measurement) != "cold":
        return {}
    facts: Facts = {"samples_bytes_per_s": fastest * size, "ceiling_bytes_per_s": phase.moved_bytes_per_s}
    return facts if fastest * size > thresholds.ABOVE_CEILING * phase.moved_bytes_per_s else {}


def _storage_has_spare(trials: Experiments, ceiling: StorageCeiling | None) -> bool:
    """True where the storage, or the network, is known not to be at its limit while the loader runs as asked.

    At its limit a worker waits for it at all times, unless it reads ahead of them. What reads ahead makes large reads,
    and moves as many bytes as the ceiling. So both must be far away.
    """
    if trials.cost is None or not trials.cost.wall_s or not trials.loader:
        return False
    measurement, ceiling_per_s = trials.measurement, trials.loop.storage_images_per_s
    if measurement.is_remote and (phase := ceiling.at(measurement.config.readers) if ceiling else None):
        ceiling_per_s = phase.files_per_s  # at least, where the cores were the limit of the probe
    waited_s = trials.cost.waited_s("network" if measurement.is_remote else "storage", "most")
    waiting = max(1, trials.loop.workers) * waited_s / trials.cost.wall_s
    fastest = max(trials.loader.values())
    return thresholds.OPEN_LEAD * waiting <= 1 and thresholds.OPEN_LEAD * fastest <= ceiling_per_s < math.inf


def _loop(measurement: Measurement, made: Sequence[Segment], ceiling: StorageCeiling | None) -> Loop:
    phase, _ = ceiling_phase(measurement, ceiling)
    images = sum(s.steps * s.batch_size for s in made if s.delivered_bytes)
    bytes_per_image = sum(s.delivered_bytes or 0 for s in made) / images if images else 0.0
    bytes_per_s = phase.bw_bytes if phase else math.inf
    cost = worker_cost(measurement.worker_batches, made)
    if measurement.is_remote:
        bytes_per_image = measurement.sample_bytes or 0.0
    elif not images and cost is not None:
        bytes_per_image = cost.read_bytes / cost.images
        bytes_per_s = phase.moved_bytes_per_s if phase else math.inf
    return Loop(
        workers=measurement.workers,
        batch_size=measurement.step_images,
        synchronous=measurement.compute.synchronous,
        overhead_s=parent_overhead_s(made) if measurement.workers else 0.0,
        cores=measurement.cores_available,
        storage_images_per_s=bytes_per_s / bytes_per_image if bytes_per_image else math.inf,
    )


def _ratios(trials: Experiments, without: Without, *, failed: bool) -> dict[int, float]:
    """By round: by the formula of the loop; where that failed, at most what the loader itself gains."""
    predicted, alone, most_gain = trials.predicted, trials.alone, trials.most_gain
    if failed:
        return {n: min(most_gain, max(1.0, rate / trials.loader[n])) for n, rate in without.rates.items()}
    loop = trials.loop if without.overhead_s is None else replace(trials.loop, overhead_s=without.overhead_s)
    rates = {n: rate for n, rate in without.rates.items() if n in predicted}
    return {n: min(most_gain, loop.end_to_end(rate, alone[n]) / predicted[n]) for n, rate in rates.items()}
