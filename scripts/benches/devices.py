"""Whether small models are slower on two processes than on one, as in the article of 2019, and why.

Trains the article's models in one process on all cores and in two gloo ranks that share them. For each model the gap
between both is compared with what remains of it without gradient exchange.
"""

from __future__ import annotations

import loaderprobe
from loaderprobe.records.devices import ARTICLE, WorkloadVerdict
from loaderprobe.render.wording import interval
from scripts.benches.harness import Progress, parser

SMALL = ("mlp", "lenet5", "lstm")
HEAD = f"{'model':10} {'cpu, s':>14} {'2 x cpu, s':>14} {'times as fast':>14} {'no exchange':>14} {'then':>6}  cause"


def line(verdict: WorkloadVerdict) -> str:
    one, two = verdict.placements
    gain = two.gain("gradients")
    assert two.speedup and gain
    figures = (one.epoch_s, two.epoch_s, two.speedup, gain.speedup)
    shown = " ".join(f"{interval(each):>14}" for each in figures)
    cause = " or ".join(two.candidates) or two.cause
    return f"{verdict.workload.model:10} {shown} {two.speedup.value * gain.speedup.value:6.2f}  {cause}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", default=list(ARTICLE))
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    progress = Progress(len(asked.models))
    verdicts: list[WorkloadVerdict] = []
    for model in asked.models:
        found = loaderprobe.devices(model, "cpu,2xcpu", rounds=asked.rounds)
        if found.failed:
            raise SystemExit(found.text())
        verdicts += found.verdicts
        progress.done(model)
    print(HEAD)
    for verdict in verdicts:
        print(line(verdict))
    print("then: times as fast as one process, without gradient exchange")
    slower = [each for each in verdicts if each.placements[1].speedup and each.placements[1].speedup.high < 1]
    small = [each.workload.model for each in slower if each.workload.model in SMALL]
    print(f"slower on two: {len(slower)} of {len(verdicts)} models; of the small ones {', '.join(small) or 'none'}")


if __name__ == "__main__":
    main()
