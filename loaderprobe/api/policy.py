"""What measuring is given of judging and of words: the one place where both meet."""

from __future__ import annotations

from loaderprobe.analyze.ladder import kind_of
from loaderprobe.analyze.policy import (
    bound_of,
    is_open,
    is_unsure,
    storage_advised,
    storage_matters,
    training_rate,
)
from loaderprobe.analyze.ranks import as_one, differing, same_samples
from loaderprobe.analyze.verdict.rounds import deciding, further_round, next_round
from loaderprobe.protocols import Judging, Words
from loaderprobe.render.watch import not_kept, watched_line
from loaderprobe.render.words import message, not_measured, remark_words

JUDGING = Judging(
    next_round=next_round,
    further_round=further_round,
    deciding=deciding,
    as_one=as_one,
    bound=bound_of,
    images_per_s=training_rate,
    is_open=is_open,
    is_unsure=is_unsure,
    storage_matters=storage_matters,
    storage_advised=storage_advised,
    kind_of_storage=kind_of,
    differing=differing,
    same_samples=same_samples,
    words=Words(
        message=message,
        note=remark_words,
        not_measured=not_measured,
        watched=watched_line,
        not_kept=not_kept,
    ),
)
