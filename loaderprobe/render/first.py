"""The first screen of a report: what limits, what to change first, how sure that is, what is not known, what is needed.

It is looked at before it is read. The ladder draws each best configuration as it is and as it would be if one part cost
nothing: the longest coloured bar is the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from loaderprobe.analyze.advice import no_forecast
from loaderprobe.analyze.answer import again_with, as_read, best_of, families, firm, first_devices, outran
from loaderprobe.records import by_key
from loaderprobe.records.report import ConfigurationRow, NextStep, Outlook, Report
from loaderprobe.records.resources import RESOURCE, SPEEDUPS, Resource
from loaderprobe.records.thresholds import WORTH
from loaderprobe.records.verdict import Action, Advice, Side, SideAndCause, Speedup, Verdict
from loaderprobe.render.charts import BASE, Bar, Chart, ChartRow, How
from loaderprobe.render.document import IN_CODE, Command, Document, Item, Line, Paragraph, Part, Section, Table, tags
from loaderprobe.render.format import first_upper, grouped, interval, named, percent, rate, span, times
from loaderprobe.render.groups import FILES, RowGroup, groups, letters_of, limit_maps, several, short_label, tone
from loaderprobe.render.words import action_words, code_line, enough_mark, explanation, forecast_words, remark_words
from loaderprobe.units import format_rate, join_words, significant

FULL = 3
"""Up to so many configurations have a line for each part; more have one line each."""
MOST_LANES = 12
MOST_GAINS = 5
SQUARES = {"high": "■■■", "medium": "■■□", "low": "■□□"}
MEASURE_AGAIN = ("measure_again", "measure_alone")
"""First steps of a result that cannot be built on, and so part of its answer."""
FAR = 6.0
"""A rate of compute alone that is so many times the longest bar is beyond the axis."""


@dataclass(frozen=True, slots=True)
class Step:
    """One measured row on the ladder."""

    label: str
    verdict: Verdict
    emulated: bool
    unsure: bool

    @property
    def alone(self) -> float | None:
        """The rate of compute alone; None where it is not known, or nothing trained."""
        return self.verdict.rates_images_per_s.compute

    @property
    def several(self) -> bool:
        """True where rounds show how much its figures vary."""
        return self.verdict.complete_rounds > 1

    def gains(self) -> list[tuple[str, Speedup]]:
        """By part, the longest first: what training gains if it cost nothing, where that is more than nothing."""
        known = [(name, speedup) for name in SPEEDUPS if (speedup := self.verdict.speedups[name])]
        return sorted((gain for gain in known if gain[1].value >= WORTH), key=lambda gain: -gain[1].value)

    def resource(self, name: str) -> Resource:
        """The row of a part; where the cause is a case of it (its cores are full), that of the cause, as on maps."""
        cause = RESOURCE.get(self.verdict.bound.cause)
        return cause if cause and cause.part_of == name else RESOURCE[name]

    def end(self, name: str, factor: float) -> float:
        """Images/s at this factor; input that costs nothing cannot outrun compute alone."""
        now = self.verdict.images_per_s.value
        if self.alone and RESOURCE[name].side == "input":
            return max(now, min(now * factor, self.alone))
        return now * factor

    def free(self, name: str, speedup: Speedup) -> ChartRow:
        """What is there already, and what training gains if this part cost nothing."""
        now, part = self.verdict.images_per_s.value, self.resource(name)
        unsure = self.unsure or self.verdict.bound.cause == "inconclusive" or speedup.low <= WORTH
        how: How = "unsure" if unsure else speedup.how
        low, high = (significant(end, 2) for end in (speedup.low, speedup.high))
        within = "1 round" if not self.several else "" if low == high or speedup.at_most else f"{low} to {high}"
        gain = Bar(begin=now, end=self.end(name, speedup.value), tone=part.name, how=how, letter=part.letter)
        return ChartRow(
            label=f"instant {RESOURCE[name].noun.removeprefix('the ')}",
            value=times(speedup),
            note=", ".join(filter(None, (within, "est." if speedup.how == "estimated" else ""))),
            strong=how == "measured" and self.several,
            bars=(Bar(end=now, tone=BASE), gain),
            interval=(self.end(name, speedup.low), self.end(name, speedup.high)) if self.several else None,
        )

    def rungs(self) -> list[ChartRow]:
        """Its name, a row for now and one for each part, with a mark at compute alone."""
        now, busy = self.verdict.images_per_s, ", all cores busy" if self.verdict.bound.cause == "cpu" else ""
        row = ChartRow(
            label="now",
            value=interval(now),
            note="" if self.several else "1 round",
            bars=(Bar(end=now.value),),
            interval=(now.low, now.high),
        )
        rows = [row, *(self.free(name, speedup) for name, speedup in self.gains()[:MOST_GAINS])]
        how: How = "specified" if self.emulated else "measured"
        marked = (replace(row, level=self.alone, level_how=how) for row in rows)
        return [ChartRow(label=f"{self.label}{busy}", head=True), *marked]

    def lane(self) -> ChartRow:
        """All of it in one line: now, and the part that gains most."""
        _, now, *free = self.rungs()
        if not free:
            return replace(now, label=self.label, note=letters_of(self.verdict.bound))
        gain, spread = free[0].bars[-1], f" ({free[0].note})" if free[0].note else ""
        return replace(
            now,
            label=self.label,
            note=f"{gain.letter} {free[0].value}{spread}",
            bars=(*now.bars, gain),
            interval=free[0].interval or now.interval,
        )


def ladder(steps: Sequence[Step], unit: str) -> Chart:
    """Each step now and if one part cost nothing; the level is compute alone."""
    full = len(steps) <= FULL
    lanes = tuple(step.lane() for step in steps[:MOST_LANES])
    now = max(step.verdict.images_per_s.high for step in steps)
    longest = max([now, *(step.end(name, speedup.high) for step in steps for name, speedup in step.gains())])
    alone = max((step.alone for step in steps if step.alone), default=0.0)
    # A row that compute limits gains by factors that no axis holds, and an accelerator may be far from what trains.
    beyond = alone > FAR * longest
    high = min(1.04 * max(longest, alone), 1.6 * max(alone, now)) if alone and not beyond else 1.04 * longest
    limits = [step.resource(name) for step in steps for name, _ in step.gains()]
    nouns = {part.name: part.cell if part.part_of else part.answer or part.noun.removeprefix("the ") for part in limits}
    parts = {part.name: f"{part.letter} instant {nouns[part.name]}".strip() for part in limits}
    return Chart(
        rows=tuple(row for step in steps for row in step.rungs()) if full else lanes,
        brief=lanes if full and len(steps) > 1 else (),
        high=high,
        unit=unit,
        caption="" if len(steps) <= MOST_LANES else f"{MOST_LANES} of {len(steps)} shown, all of them below",
        level="" if not alone else f"compute alone: {rate(alone)}, beyond this axis" if beyond else "compute alone",
        names=(("now", "now"), *parts.items()),
        ends=f"if free,{unit} or speed-up",
    )


def limit_words(bound: SideAndCause) -> str:
    """`storage`, `storage or preprocessing`: what limits, where full cores count as what keeps them busy."""
    nouns = [RESOURCE[name].answer or RESOURCE[name].noun if name in RESOURCE else name for name in families(bound)]
    return join_words(nouns, "or")


def limits_training(bound: SideAndCause, on: str = "", what: str = "training") -> str:
    """`Storage limits training on this GPU`: of one verdict."""
    if bound.cause == "inconclusive":
        known = bound.side == "input" and what == "training"
        return f"The input limits {what}{on}; not clear yet why" if known else f"Not clear yet what limits {what}{on}"
    if bound.cause == "balanced":
        return f"Input and compute are balanced{on}"
    if bound.cause == "compute":
        return f"Compute limits {what}{on}, not its input"
    return f"{first_upper(limit_words(bound))} limits {what}{on}"


def headed(report: Report, document: Document) -> Document:
    """The document under its answer: of the best configurations, with their device in it where they have one."""
    if not (first_groups := _first_groups(report)):
        why = "; Failed says why" * any(row.status == "failed" for row in report.configurations)
        return replace(document, headline=f"Nothing was measured{why}", tone="failed", unsure=True)
    group, shown = first_groups[0], _best(report, first_groups)
    firm_rows = [row for row in shown if row.bound and firm(row)]
    on = f" on {group.short}" if _one_device(first_groups) and (group.emulated or group.cpu) else ""
    unsure = len(firm_rows) < len(shown)
    document = replace(document, subline=_subline(report, first_groups, shown), tone="inconclusive", unsure=unsure)
    if 2 * len(firm_rows) < len(shown):
        side: Side = "input" if all(row.bound and row.bound.side == "input" for row in shown) else "inconclusive"
        return replace(document, headline=limits_training(SideAndCause(side=side, cause="inconclusive"), on))
    limits = by_key(firm_rows, lambda row: limit_words(row.bound) if row.bound else "")
    (leading, rows), *others = sorted(limits.items(), key=lambda limit: -len(limit[1]))
    first = rows[0].bound
    assert first
    if not others:
        whole = "This CPU is what limits training" if group.cpu and leading == "compute" else limits_training(first, on)
        return replace(document, headline=whole, tone=tone(first))
    if len(firm_rows) <= FULL:
        of = [(limit, join_words([_case(row, shown) for row in rows])) for limit, rows in ((leading, rows), *others)]
    else:
        of = [(leading, f"{len(rows)} of {len(shown)}"), *((limit, f"{len(rows)}") for limit, rows in others)]
    balanced = "input and compute are balanced for"
    text = "; ".join(f"{balanced if limit == 'balanced' else f'{limit} limits'} {where}" for limit, where in of)
    return replace(document, headline=first_upper(text) + on, tone=tone(first))


def _one_device(row_groups: Sequence[RowGroup]) -> bool:
    """True where they differ in the state of the files only."""
    return len({group.short for group in row_groups}) == 1


def _case(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> str:
    """What sets a best configuration apart from the others: its data set, or the state of its files, or more."""
    name, state = short_label(row, among, workers=False), row.config.cache
    if several("resolution", among):
        return name
    return name.removeprefix(f"{row.config.resolution}, ").replace(state, FILES[state])


def _subline(report: Report, row_groups: Sequence[RowGroup], shown: Sequence[ConfigurationRow]) -> str:
    """The side, how much of compute alone is reached, where that rate comes from, and what follows for no one."""
    group, verdicts = row_groups[0], [row.verdict for row in shown if row.verdict]
    known = [share for verdict in verdicts if (share := verdict.accelerator_utilization) is not None]
    if group.cpu:
        return "The model ran on the CPU. How fast a GPU would train was not measured."
    if not known:
        return ""
    sides = {row.bound.side if row.bound else "" for row in shown}
    side = f"{first_upper(sides.pop())}-bound: " if sides in ({"input"}, {"compute"}) else ""
    states = [FILES[row.config.cache] for row in shown]
    shares = [percent(share) for share in known]
    by_state = [f"{share} ({state})" for share, state in zip(shares, states, strict=False)]
    one_each = len(shown) == len(set(shares)) == len(set(states)) == 2
    of = f"{side}{join_words(by_state) if one_each else span(known, percent)}"
    here = " No GPU here." if group.emulated and not report.environment.gpus else ""
    if not _one_device(row_groups):
        return f"{of} of compute alone ({'specified' if group.emulated else 'measured'}).{here}"
    pace = any(need.pace for need in report.needs if need.compute == group.rows[0].config.compute.name)
    alone = f"{rate(max(group.alone_images_per_s))} images/s" if group.alone_images_per_s else "compute alone"
    specified = "MLPerf Storage's pace; specified" if pace else "specified"
    source = specified if pace or group.emulated else "compute alone, measured"
    return f"{of} of its {alone} ({source}).{here}"


def _first_groups(report: Report) -> list[RowGroup]:
    first = first_devices(report)
    return [group for group in groups(report) if group.rows in first]


def _best(report: Report, row_groups: Iterable[RowGroup]) -> list[ConfigurationRow]:
    return [row for group in row_groups for row in best_of(report, group.rows)]


def first_screen(report: Report) -> Iterator[Section]:
    """The five answers, each in its place."""
    if shown := _best(report, _first_groups(report)):
        yield ladder_section(report, shown)
    sure = report.how_sure
    words = f"{SQUARES[str(sure.facts['level'])]} {remark_words(sure)}"
    bound = shown[0].bound if len(shown) == 1 and not firm(shown[0]) else None
    why = (Paragraph(text=explanation(bound, sample=sample_of(report))),) if bound else ()
    yield Section(title="How sure", panel="side", parts=(Paragraph(text=words, strong=True), *why))
    yield from next_sections(report)
    yield Section(title="Not known", panel="side", parts=tags(map(remark_words, report.not_known)))
    yield from (replace(needs, panel="main") for needs in needs_sections(report)[:1])
    maps = tuple(limit_maps(_first_groups(report)))
    if any(len(layout.head) > 2 or len(layout.lines) > 1 for layout in maps):
        yield Section(title="What limits each configuration", panel="main", parts=maps)


def ladder_section(report: Report, rows: Sequence[ConfigurationRow], *, label: str = "") -> Section:
    """Each row now, and if one part cost nothing; `label` is for one whose options the page says elsewhere."""
    unit = f"{sample_of(report)}s/s"
    states = {row.config.cache for row in rows}
    files = f" with {FILES[states.pop()]}" if len(states) == 1 and not label else ""
    judged = ((row, row.verdict) for row in rows if row.verdict)
    steps = [Step(label or short_label(row, rows), verdict, row.emulated, outran(row)) for row, verdict in judged]
    title = f"{first_upper(unit)} now{files}, and if one part cost nothing"
    return Section(title=title, panel="main", parts=(ladder(steps, unit),))


def sample_of(report: Report) -> str:
    """What is counted: `image`, or `sample` where batches hold no images."""
    return "sample" if any(row.detail and row.detail.sample == "sample" for row in report.configurations) else "image"


def next_sections(report: Report) -> Iterator[Section]:
    """The two changes to make first, on one axis."""
    made = [tuple(_change(report, step)) for step in report.next[:2]]
    charts = [part for parts in made for part in parts if isinstance(part, Chart)]
    low, high = min((chart.low for chart in charts), default=0.0), max((chart.high for chart in charts), default=0.0)
    for title, parts in zip(("Change first", "Then"), made, strict=False):
        on_one = tuple(replace(part, low=low, high=high) if isinstance(part, Chart) else part for part in parts)
        yield Section(title=title, panel="side", parts=on_one)


def advice_parts(advices: Iterable[Advice], sample: str) -> Iterator[Part]:
    """What each change is forecast to give, and what to type; `sample` is what is counted, in the singular."""
    for advice in advices:
        gain = f": {forecast_words(advice, sample=f'{sample}s')}" if advice.is_worth_making else ""
        yield Item(text=f"{action_words(advice.action, sample=sample)}{gain}")
        if advice.command:
            yield Command(text=advice.command)


def _change(report: Report, step: NextStep) -> Iterator[Part]:
    command, code = again_with(report.run.command, step.command), ""
    if step.remark:
        yield Paragraph(text=f"{first_upper(remark_words(step.remark))}.", strong=step.remark.code in MEASURE_AGAIN)
    else:
        action = step.advice[0].action
        yield Paragraph(text=first_upper(action_words(action, sample=sample_of(report))), strong=True)
        code = code_line(action)
        if code:
            yield Command(text=code, label=IN_CODE)
        row_groups = [group for group in groups(report) if any(row.key in step.configurations for row in group.rows)]
        # Those of the command first.
        best = sorted(_best(report, row_groups), key=lambda row: row.key not in step.configurations)
        yield _gains(report, action, best)
    if command and command not in code:
        yield Command(text=command, label="Test it" if step.advice and command.startswith("loaderprobe") else "Run it")


def _gains(report: Report, action: Action, rows: Sequence[ConfigurationRow]) -> Chart:
    """What this change gives each row, sure or not; without rows for which it is another one, as more workers are."""
    gains: list[ChartRow] = []
    for row in rows:
        label = short_label(row, rows, workers=False)
        alike = [advice for advice in row.advice if advice.action.code == action.code and advice.is_worth_making]
        if advice := next((advice for advice in alike if as_read(advice.action) == as_read(action)), None):
            before, after = advice.before.value, advice.after
            how: How = advice.how if advice.surely_gains else "unsure"
            bounded = after.high <= after.value > after.low
            alone = row.verdict.rates_images_per_s.compute if row.verdict else None
            words = f"{rate(after.value)}{f' of {rate(alone)}' if alone and after.value <= alone else ''}"
            words = f"→ ≤{words}" if bounded else f"→ {words} ({rate(after.low)} to {rate(after.high)})"
            gains.append(
                ChartRow(
                    label=label,
                    value=f"{'≤' * bounded}{significant(advice.speedup)}x",
                    note=f"{words}{'' if advice.how == 'measured' else ' est.'}",
                    strong=advice.how == "measured",
                    point=None if bounded else Bar(end=advice.speedup, tone="change", how=how),
                    interval=(after.low / before, after.high / before),
                    level=1.0,
                )
            )
        elif row.bound and not alike:
            note = "not forecast" if no_forecast(row.forecasts, action) else "no gain foreseen"
            gains.append(ChartRow(label=label, note=note, level=1.0))
    # Sure gains first, none last.
    gains.sort(key=lambda row: row.point.how == "unsure" if row.point else 2)
    shown = tuple(gains[:MOST_GAINS])
    return Chart(rows=shown, brief=shown[:1], low=1.0, level="no gain", ends=f"data,{sample_of(report)}s/s")


def needs_sections(report: Report) -> list[Section]:
    """What accelerators need, of each kind; the first screen has the first."""
    alike = by_key(report.needs, lambda need: (need.compute, need.model))
    return [_needs(report, needs) for needs in alike.values()]


def _opens(outlooks: Sequence[Outlook]) -> Iterator[Line]:
    """Files opened a second, one line for all data sets unless some hold many images; a run's names may be cached."""
    files = by_key(outlooks, lambda outlook: round(outlook.needs[0].files_per_s / outlook.images_per_s, 9))
    for outlook, *_ in files.values():
        what = "files opened" if len(files) == 1 else f"files opened, {outlook.data}"
        wanted = [need.files_per_s / outlook.use for need in outlook.needs]
        opens = (f"{grouped(count)}/s {enough_mark(0.0, count, at_least=True)}" for count in wanted)
        yield (what, *opens, "not known")


def _cores(outlooks: Sequence[Outlook], here: float) -> Iterator[Line]:
    """Of the data sets for which they are known."""
    for outlook in outlooks:
        if outlook.cores is not None:
            wanted = [outlook.cores * need.accelerators for need in outlook.needs]
            marked = (f"{significant(count, 2)} {enough_mark(here, count)}" for count in wanted)
            yield ("CPU cores" if len(outlooks) == 1 else f"CPU cores, {outlook.data}", *marked, f"{here:g}")


def _needs(report: Report, needs: Sequence[Outlook]) -> Section:
    first = needs[0]
    counts = [need.accelerators for need in first.needs]
    cores = report.environment.cores_available
    source = "assumed" if first.compute == "cpu" else "specified" if first.specified else "measured"
    sizes = {data.label: data.mean_size_bytes for data in report.run.data}
    lines = (*(_need_line(need, sizes.get(need.data)) for need in needs), *_opens(needs), *_cores(needs, cores))
    said = f"Estimated, each at {percent(first.utilization)} of {rate(first.images_per_s)} images/s ({source}), "
    said += f"storage at most {percent(first.use)} busy."
    missing = dict.fromkeys(remark_words(need.missing) for need in needs if need.missing)
    said += "".join(f" No rate of the storage: {why}." for why in missing)
    said += " *: nearest to ImageNet." if any(need.planned for need in needs) else ""
    head = (named(first.accelerator), *(f"for {count}" for count in counts), "here")
    least = any(need.supply and need.supply.at_least for need in needs)
    marks = f"● enough  ○ not known{' (≥ reached, maybe more)' if least else ' to be enough'}  ▼ not enough"
    below = (Paragraph(text=marks, tone="legend"), Paragraph(text=said, tone="quiet"))
    title = f"What {named(first.accelerator, join_words([str(count) for count in counts]))} need, cold files"
    return Section(title=title, parts=(Table(head=head, lines=lines), *below))


def _need_line(need: Outlook, size_bytes: float | None) -> tuple[str, ...]:
    """What must be there for each number of accelerators, with the headroom that what is fed has."""
    supply = need.supply
    wanted = [storage.read_bytes_per_s / need.use for storage in need.needs]
    there, at_least = (supply.limit.value, supply.at_least) if supply else (0.0, True)
    unit, size = ("GB/s", 1e9) if wanted[0] >= 1e9 else ("MB/s", 1e6) if wanted[0] >= 1e5 else ("kB/s", 1e3)
    shown = [f"{grouped(bytes_per_s / size)} {unit}" for bytes_per_s in (*wanted, there)]
    shown[-1] = shown[-1] if there >= size / 10 else format_rate(there)
    return (
        f"{need.data}{f', {float(significant(size_bytes / 1e3, 2)):g} kB' if size_bytes else ''}{' *' * need.planned}",
        *(f"{of} {enough_mark(there, want, at_least=at_least)}" for of, want in zip(shown[:-1], wanted, strict=True)),
        f"{'≥' * at_least}{shown[-1]}" if supply else "not measured",
    )
