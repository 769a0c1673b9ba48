"""The first screen: its answers by their rules, on few lines and in few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.answer import again_with
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import SingleCause
from loaderprobe.records.verdict import Action, ActionCode, Cause, Forecast, Interval, Side
from loaderprobe.render.charts import Chart
from loaderprobe.render.document import Command, Document, Paragraph, Section, Table
from loaderprobe.render.first import first_screen, headed
from loaderprobe.render.sweep import sweep_document
from loaderprobe.units import format_rate
from tests.examples.reports import (
    example_report,
    example_row,
    html_report,
    markdown_report,
    terminal_report,
    with_changes,
    with_details,
)

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
SWEEPS = ("causes", "cpu", "profiler", "ranks", "storage")


def _sections(report: Report) -> dict[str, Section]:
    return {section.title: section for section in first_screen(report)}


def _said(section: Section) -> str:
    return " ".join(part.text for part in section.parts if isinstance(part, Paragraph))


@pytest.mark.parametrize("name", SWEEPS)
def test_the_first_screen_of_a_terminal_has_the_five_answers_in_seventy_words(name: str) -> None:
    """In 24 lines: what limits, what to change first, how sure, what is not known; what is needed begins there. Prose
    are the words beside labels, figures, legends and what is typed."""
    lines = loaderprobe.load(RUNS / name).text().splitlines()[:24]
    text = "\n".join(lines)
    for answer in ("limit", "Change first", "How sure", "Not known", "for 64", "files opened"):
        assert answer in text, text
    assert max(map(len, lines)) <= 80
    document = loaderprobe.load(RUNS / name).document()
    parts = [part for section in document.sections if section.panel for part in section.parts]
    texts = [part.text for part in parts if isinstance(part, Paragraph) and part.tone != "legend" and not part.tags]
    words = [word for text in (document.headline, document.subline, *texts) for word in text.split()]
    prose = [word for word in words if word.strip(".,;:()").isalpha()]
    assert len(prose) <= 70, " ".join(prose)


@pytest.mark.parametrize("write", [terminal_report, markdown_report, html_report])
def test_a_note_on_a_data_set_stands_in_every_format(write: Callable[[Report], str]) -> None:
    """Not beside how sure the run is, which a terminal says in one line."""
    facts: dict[str, float | str] = {"data": "1024x768", "layouts": "tar and lmdb", "low": 1.0, "high": 1.2}
    made, note = example_report([example_row()]), Remark(code="layout_gains_nothing", facts=facts)
    run = replace(made.run, notes=(note,))
    written = " ".join(write(replace(made, run=run)).split())
    assert written.count("no sure gain: tar and lmdb trained 1.0 to 1.2 times as fast as files (measured)") == 1


def test_the_picture_of_the_readme_is_what_is_drawn_today() -> None:
    """Of a stored run; `loaderprobe report fixtures/runs/storage -o loaderprobe/guide/first_screen.svg` draws it."""
    root = RUNS.parents[1]
    drawn = root / "loaderprobe" / "guide" / "first_screen.svg"
    assert str(drawn.relative_to(root)) in (root / "README.md").read_text(encoding="utf-8")
    assert drawn.read_text(encoding="utf-8") == loaderprobe.load(RUNS / "storage").svg()


def _limited(row: ConfigurationRow, cause: Cause) -> ConfigurationRow:
    assert row.bound
    sides: dict[str, Side] = {"compute": "compute", "balanced": "balanced", "inconclusive": "inconclusive"}
    candidates: tuple[SingleCause, ...] = ("storage", "transport") if cause == "either" else ()
    bound = replace(row.bound, side=sides.get(cause, "input"), cause=cause, candidates=candidates)
    return with_changes(row, bound=bound)


def _causes(*causes: Cause) -> list[ConfigurationRow]:
    """A row of a data set for each."""
    rows = (example_row(resolution=f"{number}x{number}") for number in range(1, len(causes) + 1))
    return [_limited(row, cause) for row, cause in zip(rows, causes, strict=True)]


def _beside(cause: Cause, **other: Any) -> list[ConfigurationRow]:
    """One that storage limits, and another that this cause does."""
    return [_limited(example_row(), "storage"), _limited(example_row(**other), cause)]


HERE, PACE, ALONE = (
    " on an emulated mlperf-h100",
    "its 1786 images/s (MLPerf Storage's pace; specified)",
    "compute alone",
)
HEADLINES: list[tuple[list[ConfigurationRow], str, str]] = [
    (_causes("storage"), f"Storage limits training{HERE}", ""),
    (_causes("storage", "storage"), f"Storage limits training{HERE}", ""),
    (_causes("cpu", "preprocessing"), f"Preprocessing limits training{HERE}", ""),
    (
        _causes("storage", "transport"), f"Storage limits 1x1; transport to the training process limits 2x2{HERE}", "",
    ),
    (_causes("storage", "storage", "storage", "compute"), f"Storage limits 3 of 4; compute limits 1{HERE}", ""),
    (_causes("balanced", "storage"), f"Input and compute are balanced for 1x1; storage limits 2x2{HERE}", ""),
    (
        _causes("storage", "storage", "storage", "balanced"),
        f"Storage limits 3 of 4; input and compute are balanced for 1{HERE}", "",
    ),
    (
        _causes("imbalance", "wait", "copy"),
        f"The slowest rank limits 1x1; other waiting limits 2x2; copying to the device limits 3x3{HERE}", "",
    ),
    (_causes("either"), f"Storage or transport to the training process limits training{HERE}", ""),
    (_causes("compute"), f"Compute limits training{HERE}, not its input", ""),
    (_causes("balanced"), f"Input and compute are balanced{HERE}", ""),
    (_causes("inconclusive"), f"Not clear yet what limits training{HERE}", ""),
    (_causes("inconclusive", "storage"), f"Storage limits training{HERE}", ""),
    (_causes("inconclusive", "inconclusive", "storage"), f"Not clear yet what limits training{HERE}", ""),
    (_causes("storage", "compute", "inconclusive"), f"Storage limits 1x1; compute limits 2x2{HERE}", ""),
    # The verdict on another model, device or number of ranks is not that of the first.
    (
        _beside("compute", cache="warm"), f"Storage limits cold files; compute limits warm files{HERE}",
        f"9.0 % of {PACE}",
    ),
    (
        _beside("compute", compute="emulated:100"), "Storage limits emulated:mlperf-h100; compute limits emulated:100",
        f"9.0 % of {ALONE} (specified)",
    ),
    (_beside("compute", ranks=2), "Storage limits 1 rank; compute limits 2 ranks", f"9.0 % of {ALONE} (specified)"),
    (_beside("storage", model="mlp"), "Storage limits training", f"Input-bound: 9.0 % of {ALONE} (specified)"),
    # The share is that of the table, above compute alone as well: that it is noise, the page says below it.
    *(
        (
            [_limited(example_row(accelerator_utilization=share), "compute")],
            f"Compute limits training{HERE}, not its input", f"Compute-bound: {percent} % of {PACE}",
        )
        for share, percent in ((1.004, 100), (1.21, 121))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "headline", "reached"), HEADLINES, ids=[each[1] + each[2] for each in HEADLINES])
def test_the_headline_is_the_verdict_on_the_best_configurations(
    rows: list[ConfigurationRow], headline: str, reached: str
) -> None:
    """With the device, which all rows have; several limits by data set, or by number. Unsure where one is open. The
    side is said where all have it."""
    found = headed(example_report(rows), Document(title="", sections=()))
    assert found.headline == headline and (not reached or found.subline == f"{reached}. No GPU here.")
    assert found.unsure == any(row.bound is not None and row.bound.cause == "inconclusive" for row in rows)


def test_the_first_screen_is_about_what_was_measured() -> None:
    """An emulated accelerator where each configuration of a real one failed; a verdict without a cause is no limit."""
    failed = example_row(compute="cuda", emulated=False, status="failed", reason="out of memory")
    side_only = _limited(example_row(resolution="2x2"), "inconclusive")
    assert side_only.bound
    side_only = with_changes(side_only, bound=replace(side_only.bound, side="compute"))
    report = example_report([failed, _limited(example_row(), "storage"), side_only])
    found = headed(report, Document(title="", sections=()))
    assert found.headline == "Storage limits training on an emulated mlperf-h100"
    (limits,) = (part for part in _sections(report)["What limits each configuration"].parts if isinstance(part, Table))
    assert limits.caption.startswith("S storage; ? inconclusive")


@pytest.mark.parametrize(
    ("changes", "level"),
    [({}, "■■■ high"), ({"complete_rounds": 1}, "■■□ medium"), ({"how": "estimated"}, "■■□ medium"),
     ({"storage": 1.0}, "■■□ medium"), ({"low": 1.02}, "■□□ low"), ({"accelerator_utilization": 1.3}, "■■■ high"),
     ({"accelerator_utilization": 1.4}, "■□□ low")],
)  # fmt: skip
def test_how_sure_is_one_word_by_a_rule(changes: dict[str, Any], level: str) -> None:
    """Every configuration, measured more than once, far beyond noise; less than that is less sure."""
    figures = {name: value for name, value in changes.items() if name in ("complete_rounds", "accelerator_utilization")}
    row = example_row(**{"complete_rounds": 3, **figures})
    assert row.verdict and row.verdict.speedups["storage"]
    speedup = {name: value for name, value in changes.items() if name in ("how", "low")}
    storage = replace(row.verdict.speedups["storage"], **{"how": "measured", **speedup})
    report = example_report([with_changes(row, speedups={**row.verdict.speedups, "storage": storage})])
    removed = Remark(code="ablated", facts={"storage": changes.get("storage", 3.0), "rounds": 3.0})
    report = with_details(report, ablations=removed)
    assert _said(_sections(report)["How sure"]).startswith(f"{level}, cause clear in 1 of 1")
    changed = "accelerator_utilization" in changes and level.endswith("low")
    begins = f"{'Measure again. ' * changed}{'Probably: ' * level.endswith('low')}Storage limits"
    assert sweep_document(report).headline.startswith(begins)
    assert changed == any(step.remark and step.remark.code == "measure_again" for step in report.next)


SHOWN: dict[str, tuple[list[ConfigurationRow], str]] = {
    "no emulated accelerator beside a real one": (
        [example_row(compute="cuda", emulated=False, complete_rounds=3), example_row(complete_rounds=9)],
        "■■■ high, cause clear in 1 of 1, 3 rounds, rate ±8.5 %",
    ),
    "not the slower one, which is clear": (
        [
            example_row(workers=1, complete_rounds=9, images_per_s=Interval(value=50, low=49, high=51)),
            _limited(example_row(complete_rounds=3), "inconclusive"),
        ],
        "■□□ low, cause clear in 1 of 2, 3 rounds, rate ±8.5 %",
    ),
    "nothing clear": (
        [_limited(example_row(), "inconclusive")],
        "■□□ low, cause clear in 0 of 1, 5 rounds, rate ±8.5 %",
    ),
    "one that may still be the best": (
        [example_row(), example_row(workers=8, status="skipped", reason=Remark(code="not_measured"))],
        "■■□ medium, cause clear in 1 of 2, 5 rounds, rate ±8.5 %",
    ),
    "one that failed": (
        [example_row(), example_row(workers=8, status="failed", reason=Remark(code="not_measured"))],
        "■■■ high, cause clear in 1 of 1, 5 rounds, rate ±8.5 %",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_how_sure_is_of_what_is_shown(name: str) -> None:
    """Its rounds and its rate, and why it is not clear; the verdicts that are clear are counted over all that were
    asked for."""
    rows, said = SHOWN[name]
    first, *why = _sections(example_report(rows))["How sure"].parts
    assert isinstance(first, Paragraph) and first.text == said
    assert bool(why) == (name in ("not the slower one, which is clear", "nothing clear"))


@pytest.mark.parametrize(
    ("storage_bytes_per_s", "at_least", "marks"),
    [(1e12, False, "●●●"), (1e12, True, "●●●"), (1e6, True, "○○○"), (4e3, False, "▼▼▼"), (None, False, "○○○")],
)
def test_a_need_has_one_of_three_marks(storage_bytes_per_s: float | None, at_least: bool, marks: str) -> None:
    """Enough; not known to be enough, as a lower bound is; not enough. With the share in use that feeds have."""
    report = example_report()
    need = report.needs[0]
    assert need.supply
    limit = replace(need.supply.limit, value=storage_bytes_per_s or 1.0)
    supply = replace(need.supply, limit=limit, at_least=at_least)
    need = replace(need, supply=supply if storage_bytes_per_s else None, cores=10.0)
    report = replace(report, needs=(need,))
    section = next(section for title, section in _sections(report).items() if title.startswith("What 1, 8 and 64"))
    (table,) = (part for part in section.parts if isinstance(part, Table))
    storage, opens, cores = table.lines
    assert "".join(str(cell)[-1] for cell in storage[1:4]) == marks
    wanted = need.needs[0].read_bytes_per_s / need.use
    assert str(storage[1]).startswith(format_rate(wanted))
    assert (storage[4] == "4.00 kB/s") is (storage_bytes_per_s == 4e3), "one unit in a line, but for so little"
    assert cores == ("CPU cores", "10 ▼", "80 ▼", "640 ▼", "2")
    assert str(opens[1]).endswith("○")


def test_the_data_set_of_the_command_stands_first() -> None:
    """The same change is another command for each data set: beside the one that is shown stand its own figures."""
    rows = []
    for name, speedup in (("small", 2.0), ("large", 3.0)):
        row = example_row(resolution=name)
        (first, *_) = row.advice
        rows.append(example_row(resolution=name, advice=(replace(first, command=f"cat {name}", speedup=speedup),)))
    chart, command = _sections(example_report(rows))["Change first"].parts[-2:]
    assert isinstance(chart, Chart) and isinstance(command, Command)
    assert command.text == "cat large" and chart.rows[0].label.startswith("large")


def test_gains_are_those_of_the_change_that_they_stand_under() -> None:
    """Not of the change that is named first, nor of another number of workers; no gain is foreseen without advice."""
    (first, *_) = example_row().advice
    rows = [example_row(resolution="first", advice=(first,)), example_row(resolution="large", cache="warm", advice=())]
    for name, workers, gain in (("small", 4, 1.6), ("middle", 8, 1.5)):
        action = Action(code="workers", facts={"workers": workers})
        advice = replace(first, action=action, speedup=gain, after=first.before.times(gain), how="measured")
        rows.append(example_row(resolution=name, cache="warm", advice=(advice,)))
    chart = next(part for part in _sections(example_report(rows))["Then"].parts if isinstance(part, Chart))
    assert [(row.label, row.value or row.note) for row in chart.rows] == [
        ("small", "1.60x"),
        ("large", "no gain foreseen"),
    ]


@pytest.mark.parametrize(
    ("code", "refused", "note"),
    [
        ("files_in_memory", ["disk_speed"], "no gain foreseen"),
        ("files_in_memory", ["page_cache_share"], "not forecast"),
        ("workers", ["workers"], "no gain foreseen"),
        ("workers", None, "not forecast"),
    ],
)
def test_no_gain_is_foreseen_only_where_one_was_forecast(
    code: ActionCode, refused: list[str] | None, note: str
) -> None:
    """Not where the forecast of this change was refused, or that of any; of workers the first refusal alone is kept."""
    forecast = Forecast(
        changed="workers", to="any other", images_per_s=None, bottleneck=None, how="estimated",
        refused=Remark(code="no_worker_times"),
    )  # fmt: skip
    made = example_row().forecasts
    forecasts = [replace(forecast, changed=each.changed) if each.changed in (refused or ()) else each for each in made]
    row = example_row(resolution="other", advice=(), forecasts=(forecast,) if refused is None else tuple(forecasts))
    (advice, *_) = example_row().advice
    advised = example_row(advice=(replace(advice, action=Action(code=code, facts={"share": 1.0, "workers": 4})),))
    parts = _sections(example_report([advised, row]))["Change first"].parts
    (chart,) = (part for part in parts if isinstance(part, Chart))
    assert [(each.label, each.note) for each in chart.rows[1:]] == [("other", note)]


def test_the_command_is_labelled_as_the_test_of_a_change() -> None:
    """It cures nothing; one that makes the change itself is no test."""
    section = _sections(example_report())["Change first"]
    (made,) = (part for part in section.parts if isinstance(part, Command))
    assert made.text.startswith("find ") and made.label == "Run it"
    inconclusive = example_report([_limited(example_row(), "inconclusive")])
    steps = [part for part in _sections(inconclusive).get("Change first", Section()).parts if isinstance(part, Command)]
    assert all(part.text.startswith("loaderprobe") and part.label == "Test it" for part in steps)
    cpu = example_report([_limited(example_row(compute="cpu", emulated=False), "compute")])
    (tried,) = (part for part in _sections(cpu)["Change first"].parts if isinstance(part, Command))
    assert "--compute emulated:mlperf-h100" in tried.text


def test_a_sweep_of_twelve_configurations_fits_one_screen() -> None:
    """What 64 accelerators need begins within it."""
    found = example_report().configurations
    kinds = {row.config.resolution: row for row in found if row.emulated and row.bound}
    rows = [with_changes(row, workers=count) for row in kinds.values() for count in (0, 1, 2, 4)]
    lines = terminal_report(example_report(rows)).splitlines()
    assert next(number for number, line in enumerate(lines) if "files opened" in line) < 24


@pytest.mark.parametrize(("opens", "lines"), [((900.0, 900.0), [""]), ((900.0, 28.1), [", 256x256", ", 500x375"])])
def test_files_opened_have_a_line_for_each_way_to_hold_images(opens: tuple[float, ...], lines: list[str]) -> None:
    """One for all data sets where each image is a file; else each is named."""
    report = example_report()
    need = replace(report.needs[0], images_per_s=1000.0)
    needs = tuple(
        replace(need, data=data, needs=tuple(replace(each, files_per_s=files) for each in need.needs))
        for files, data in zip(opens, ("256x256", "500x375"), strict=True)
    )
    text = terminal_report(replace(report, needs=needs))
    assert [name for name in ("", ", 256x256", ", 500x375") if f"files opened{name} " in text] == lines


@pytest.mark.parametrize(
    ("command", "option", "typed"),
    [
        ("loaderprobe sweep --out runs/1 --seed 2", "--tensor uint8", "loaderprobe sweep --seed 2 --tensor uint8"),
        ("loaderprobe sweep 'my images'", "--tensor uint8", "loaderprobe sweep 'my images' --tensor uint8"),
        (
            "loaderprobe sweep --compute cpu --model=mlp --seed 2", "--compute emulated:100",
            "loaderprobe sweep --seed 2 --compute emulated:100",
        ),
        (
            "loaderprobe sweep --compile --precision bf16 --memory-format=contiguous --no-pin-memory sets",
            "--compute emulated:100", "loaderprobe sweep sets --compute emulated:100",
        ),
        (
            "loaderprobe sweep --batch-size 8", "--compute emulated:100",
            "loaderprobe sweep --batch-size 8 --compute emulated:100",
        ),
        ("loaderprobe sweep --model mlp --seed 2", "--seed 3", "loaderprobe sweep --model mlp --seed 3"),
        ("loaderprobe sweep --epochs 3 --seed 2", "--layout tar", "loaderprobe sweep --seed 2 --layout tar"),
        (
            "loaderprobe sweep files --layout files --convert-to=at --seed 2", "--layout files,tar --convert-to DIR",
            "loaderprobe sweep files --seed 2 --layout files,tar --convert-to DIR",
        ),
        ("python train's.py", "--tensor uint8", "--tensor uint8"),
        ("loaderprobe sweep", "find /data -type f", "find /data -type f"),
    ],
)  # fmt: skip
def test_a_change_to_try_is_typed_whole(command: str, option: str, typed: str) -> None:
    """For a run of its own, without what it replaces; a command that is no sweep is left alone."""
    assert again_with(command, option) == typed
