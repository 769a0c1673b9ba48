"""The outcome of the experiments on one configuration, before anything is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from loaderprobe.analyze.verdict.among_ranks import AmongRanks
from loaderprobe.analyze.verdict.rates import WorkerCost
from loaderprobe.analyze.verdict.waiting import Waiting
from loaderprobe.records.measurement import Mode
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Evidence, How, Interval, Speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiments:
    """Rates and speed-ups by round, before anything is judged."""

    base: Mode
    """The mode that is the configuration as asked: `warm` when warm files are asked for, else `baseline`."""
    compute: float | None
    loader: dict[int, float]
    without: dict[str, dict[int, float]]
    """Loader images/s by round without `storage`, `preprocess`, `transport`; a key is absent when unknown."""
    how: dict[str, How]
    speedups: dict[str, Speedup]
    ratios: dict[str, dict[int, float]]
    """Speedup of each round: rounds are compared with themselves, since their parts saw the same machine."""
    end_to_end: dict[int, float]
    predicted: dict[int, float]
    free_input_speedup: float
    """The speed-up of training if the whole input were free."""
    cost: WorkerCost | None
    overhead_s: float
    """Seconds a batch that the training thread works on receiving it."""
    batch_size: int
    rate: Interval | None = None
    """Images/s of what is judged, with its interval."""
    fair: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Resource that was removed to (segments without it that others did not disturb, all of them)."""
    predicted_by_bytes: dict[int, float] = field(default_factory=dict)
    """As `predicted`, were the loader's rate inversely proportional to the bytes of an image."""
    spread_of_steps: dict[int, float] = field(default_factory=dict)
    """By round, half the 95 % interval of training over the loader alone, as the steps of both vary."""
    missing: dict[str, Remark] = field(default_factory=dict)
    """Resource to the reason why its speed-up is not known."""
    at_most: frozenset[str] = frozenset()
    """Resources whose estimated speed-up is only the most that can be had: storage at its limit would leave less."""
    bounds: dict[str, float] = field(default_factory=dict)
    """Resource that is missing to the most that its speed-up can be, where that is known."""
    open: frozenset[str] = frozenset()
    """Resources that are only estimated, and whose mode could be run."""
    in_training: bool = False
    """True where resources were removed in training itself: no prediction from the parts is needed then."""
    seen_without: frozenset[str] = frozenset()
    """Resources without which what is judged was measured itself; of others its rate is predicted from the parts."""
    compute_over_training: float | None = None
    """Compute alone over training as measured: the speed-up of a free input."""
    loader_over_training: float | None = None
    """The loader alone over training as measured: the speed-up of free compute."""
    estimated_parts: frozenset[str] = frozenset()
    """Of `loader` and `compute`, those whose own rate is estimated, since only training was seen."""
    input_at_most: dict[int, float] = field(default_factory=dict)
    """By round, the most that training can gain from any input, as seen in training itself; empty where unknown."""
    training_cores: float | None = None
    """Cores that training keeps busy, workers and training process together."""
    waiting: Waiting | None = None
    """What workers were seen waiting for."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Resource to the least and the most that its speed-up can be, where it comes from samples of workers."""
    met_warm: Remark | None = None
    """Why files that were to be cold were warm: then nothing is known of cold ones."""
    above_ceiling: tuple[float, float] | None = None
    """Bytes/s of samples said to be cold, and the ceiling of the storage that they exceed; None where they do not."""
    by_waiting: bool = False
    """True where only the workers' waiting separates cold files from warm ones."""
    evidence: tuple[Evidence, ...] = ()
    """The waits that separate them then."""
    among: AmongRanks = field(default_factory=AmongRanks)
    """What ranks lose to each other. The exchange of gradients is among the speed-ups above, too."""
