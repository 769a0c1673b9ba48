"""Where only training was seen, loader and compute are estimated from it, and the verdict has the same side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.forecast.advice import Surroundings, recommend
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.errors import BadValue
from loaderprobe.records.measurement import Measurement, Segment
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth

PREPROCESSING = Truth(cpu_s=0.01, latency_s=0.0005, bytes_per_s=1e9, synchronous=True)
TRUTHS = {
    "preprocessing": PREPROCESSING,
    "disk": Truth(cpu_s=0.002, bytes_per_s=20e6, synchronous=True),
    "far files": Truth(model="latency", cpu_s=0.002, latency_s=0.02, synchronous=True),
    "compute": replace(PREPROCESSING, compute=10.0),
}


def watched(truth: Truth, workers: int, *, given: bool = False) -> Measurement:
    """What is left without segments of the loader alone; and of compute, unless its rate is `given`."""
    found = measured(truth, workers)
    trained = tuple(_waiting(each, truth.compute) for each in found.segments if each.activity == "training")
    compute = found.compute if given else replace(found.compute, specified_images_per_s=None)
    return replace(found, segments=trained, compute=compute)


def _waiting(segment: Segment, compute: float) -> Segment:
    """Its steps last as long as compute takes, and wait before that."""
    ends = (*segment.begin_ns[1:], segment.closed_ns)
    ready = tuple(end - round(segment.batch_size / compute * 1e9) for end in ends)
    return replace(segment, ready_ns=ready, copied_ns=ready, end_ns=ends)


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("name", TRUTHS)
def test_the_side_is_that_of_the_experiment(name: str, given: bool, workers: int) -> None:
    """Where the truth is clear, and whether or not the rate of compute is known."""
    truth = TRUTHS[name]
    experiment = verdict(measured(truth, workers)).bound
    estimated = verdict(watched(truth, workers, given=given)).bound
    assert estimated.side == experiment.side == ("compute" if name == "compute" else "input")


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_the_rates_are_near_those_that_were_measured(workers: int) -> None:
    """Of the loader, and of compute; every speed-up says that it is estimated."""
    truth = replace(PREPROCESSING, compute=300.0)
    experiment, estimated = verdict(measured(truth, workers)), verdict(watched(truth, workers))
    for name in ("loader", "compute"):
        rates = (getattr(each.rates_images_per_s, name) for each in (estimated, experiment))
        assert next(rates) == pytest.approx(next(rates), rel=0.05)
    found = estimated.speedups
    known = [each for each in (found.storage, found.preprocessing, found.transport, found.compute) if each]
    assert known and {each.how for each in known} == {"estimated"}
    assert experiment.speedups.compute and experiment.speedups.compute.how == "measured"


def test_workers_make_no_more_than_the_cores_allow() -> None:
    """Eight of them on two cores, each with the core for itself while training makes them wait."""
    truth = TRUTHS["compute"]
    found = run_experiments(replace(watched(truth, 8), cores_available=2.0))
    assert list(found.loader.values()) == [pytest.approx(2 / truth.cpu_s)] * 3


def test_receiving_is_part_of_the_prediction_where_it_was_noted() -> None:
    """A step of 10 ms that takes 2 ms of CPU time to receive its batch is predicted to take 12 ms."""
    truth = replace(TRUTHS["compute"], compute=1600.0, cpu_s=0.0001)
    seen = watched(truth, 4)
    assert run_experiments(seen).overhead_s == 0
    steps = seen.segments[0].steps
    noted = replace(seen, segments=tuple(replace(each, receive_cpu_ns=2_000_000 * steps) for each in seen.segments))
    found = run_experiments(noted)
    assert found.overhead_s == pytest.approx(0.002)
    assert found.predicted[0] == pytest.approx(1 / (1 / found.compute + 0.002 / found.batch_size), rel=0.01)  # type: ignore[operator]


def test_a_device_that_runs_on_by_itself_has_no_estimate() -> None:
    """The host's steps say nothing of it, so nothing is predicted."""
    seen = watched(TRUTHS["preprocessing"], 4)
    found = verdict(replace(seen, compute=replace(seen.compute, synchronous=False)))
    assert found.rates_images_per_s.compute is None
    assert found.bound.reason.code == "no_complete_round"


def test_without_a_record_of_the_workers_there_is_no_verdict() -> None:
    """Neither a measurement nor an estimate."""
    seen = watched(TRUTHS["preprocessing"], 4)
    names = ("batch", "worker", "start_ns", "wall_ns", "cpu_ns", "run_delay_ns", "read_bytes", "images")
    lost = replace(seen.worker_batches, **dict.fromkeys(names, ()))  # type: ignore[arg-type]  # all are columns
    with pytest.raises(BadValue, match="no complete round"):
        verdict(replace(seen, worker_batches=lost))


def test_no_forecast_rests_on_it() -> None:
    """It is refused, as without a complete round."""
    seen = watched(TRUTHS["preprocessing"], 4)
    (forecast,) = recommend(seen, run_experiments(seen), Surroundings()).forecasts
    assert forecast.refused is not None and forecast.refused.code == "no_complete_round"
