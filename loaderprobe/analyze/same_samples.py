"""Whether ranks share a data set, as a distributed sampler has them do, or each takes all of it."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.diagnosis import Drawn
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Action, Advice, Interval

SHARE = 0.5
"""Of what is read again where all ranks read the same. Shares that a distributed sampler makes equal overlap by less
than a batch, and shards that two ranks read by a few."""
BY_CHANCE = 3
"""Files that all share at most, such as one of labels, where each rank goes through a part of its own."""


def same_samples(ranks: Sequence[Drawn]) -> Remark | None:
    """That ranks take the same samples; None where nothing shows it.

    They do where most files that one opened another opened as well; where more than a few are, and each sampler goes
    through the whole data set, so that only chance lets ranks differ; and, where files are not known, where the first
    batch of all has the same content.
    """
    size, files = len(ranks), [set(each.files) for each in ranks]
    read = sum(map(len, files))
    if all(files):
        again = read - len(set().union(*files))
        most = read * (1 - 1 / size)
        if again >= SHARE * most or (again > BY_CHANCE * (size - 1) and all(each.whole for each in ranks)):
            return Remark(code="same_samples", facts={"ranks": size, "again": again, "files": read})
        return None
    first = {each.first for each in ranks}
    if len(first) == 1 and None not in first:
        return Remark(code="same_batches", facts={"ranks": size})
    return None


def own_shares(notes: Sequence[Remark], now: Interval) -> tuple[Advice, ...]:
    """To share the data set out, where `notes` say that ranks take the same samples; it changes no rate.

    `now` is the rate of what was measured.
    """
    if not any(note.code in ("same_samples", "same_batches") for note in notes):
        return ()
    command = "DataLoader(dataset, ..., sampler=DistributedSampler(dataset))"
    return (
        Advice(
            action=Action(code="own_shares", facts={}),
            command=command,
            speedup=1.0,
            before=now,
            after=now,
            how="measured",
        ),
    )


def differing(ranks: Sequence[Drawn]) -> tuple[int, str] | None:
    """(The first rank whose loader has another setting than rank 0's, that setting); None where all are alike."""
    for name in ("batch_size", "workers", "prefetch_factor", "exchanges"):
        values = [getattr(each, name) for each in ranks]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            return other, name
    return None
