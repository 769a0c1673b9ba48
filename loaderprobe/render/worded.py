"""The summary with its sentences: of verdicts, advice, knees, refused forecasts and GPU windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.records.forecast import Forecast
from loaderprobe.records.gaps import GpuWindow
from loaderprobe.records.report import Summary
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.verdict import Verdict
from loaderprobe.render.action_words import action_words
from loaderprobe.render.refusal_words import refusal_words
from loaderprobe.render.unavailable_words import unavailable_words
from loaderprobe.render.verdict_words import sentence
from loaderprobe.render.wording import knee_words


def worded(summary: Summary) -> Summary:
    """The summary with the sentence of every verdict, advice and knee, as it leaves the program."""
    rows = (
        replace(
            row,
            verdict=_said(row.verdict) if row.verdict else None,
            forecasts=_refused(row.forecasts),
            gpu_window=_window_said(row.gpu_window) if row.gpu_window else None,
        )
        for row in summary.configurations
    )
    knees = (replace(knee, sentence=knee_words([knee]), forecasts=_refused(knee.forecasts)) for knee in summary.knees)
    return replace(summary, configurations=tuple(rows), knees=tuple(knees))


def _refused(forecasts: Sequence[Forecast]) -> tuple[Forecast, ...]:
    return tuple(replace(each, sentence=refusal_words(each.refused)) if each.refused else each for each in forecasts)


def _said(verdict: Verdict) -> Verdict:
    advice = tuple(replace(each, sentence=action_words(each.action)) for each in verdict.advice)
    return replace(verdict, bound=replace(verdict.bound, sentence=sentence([verdict.bound])), advice=advice)


def _window_said(window: GpuWindow) -> GpuWindow:
    return replace(
        window,
        refused=_why(window.refused) if window.refused else None,
        doubts=tuple(_why(doubt) for doubt in window.doubts),
    )


def _why(reason: Unavailable) -> Unavailable:
    return replace(reason, sentence=unavailable_words(reason))
