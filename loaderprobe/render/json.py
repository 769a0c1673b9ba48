"""Results as JSON, and the JSON Schemas that describe them: the fields of the records, under their own names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from loaderprobe.records import values
from loaderprobe.records.bandwidth import Limit
from loaderprobe.records.config import OPTIONS, options_of
from loaderprobe.records.diagnosis import DIAGNOSIS_SCHEMA
from loaderprobe.records.environment import SCHEMA_VERSION, Capability
from loaderprobe.records.files import to_json
from loaderprobe.records.phases import DeviceKind
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import SUMMARY_SCHEMA, ConfigurationRow, Detail, Report
from loaderprobe.records.resources import INPUTS, SPEEDUPS
from loaderprobe.records.verdict import Advice, Bound, Evidence, Forecast, GapVerdict, Knee, Verdict
from loaderprobe.render.doctor import why_words
from loaderprobe.render.figures import FIGURES, evidence_words
from loaderprobe.render.trace import bound_sentence
from loaderprobe.render.words import action_words, knee_words, message, remark_words, sentence

T = TypeVar("T")
_WORDS: dict[type, Callable[[Any], str]] = {
    Advice: lambda advice: action_words(advice.action),
    Bound: sentence,
    Capability: why_words,
    DeviceKind: lambda kind: message(f"kind.{kind.code}", kind.facts),
    Evidence: evidence_words,
    Forecast: lambda forecast: remark_words(forecast.refused) if forecast.refused else "",
    Knee: knee_words,
    Limit: lambda limit: message(f"ladder.{limit.code}", limit.facts),
    GapVerdict: bound_sentence,
    Remark: remark_words,
}
"""What makes the `sentence` of a record."""


def worded(value: T) -> T:
    """The same record, or tuple or dict of records, with the sentence of every one in it that has none yet."""
    made: Any = value
    if isinstance(value, tuple) and not (value and isinstance(value[0], int | float | str)):  # a column may be long
        made = tuple(map(worded, value))
    elif isinstance(value, dict):
        made = {name: worded(part) for name, part in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        changed = {name: worded(part) for name, part in values(value).items()}
        make = _WORDS.get(type(value))
        if make and not changed["sentence"]:
            changed["sentence"] = make(value)
        made = replace(value, **changed)
    return cast("T", made)


_OF_ROW = ("key", "emulated", "status", "reason", "unavailable", "forecasts", "gpu_window", "buffer", "epochs")
_OF_VERDICT = tuple(field.name for field in fields(Verdict) if field.name not in _OF_ROW)


def summary_json(report: Report) -> str:
    """The summary. What could not be measured is null."""
    said = worded(replace(report, configurations=()))
    summary = values(said) | {"configurations": [_configuration(row) for row in report.configurations]}
    return indented(summary)


def indented(value: Any) -> str:
    """Records, or what is made of them, as JSON that people can read, ending with a newline."""
    return msgspec.json.format(to_json(value), indent=2).decode() + "\n"


def _configuration(row: ConfigurationRow) -> dict[str, Any]:
    """A row, flat as far as its options and the verdict go; the parts of the verdict stay records."""
    said = worded(replace(row, detail=None, measurement=None))
    of_row = {name: getattr(said, name) for name in _OF_ROW}
    verdict = {name: getattr(said.verdict, name, None) for name in _OF_VERDICT}
    derived = {figure.at: figure.get(row) for figure in FIGURES if figure.of}
    return {"key": row.key, **options_of(row.config), **of_row, **verdict, **derived}


@cache
def _configuration_type() -> type[msgspec.Struct]:
    row, verdict = get_type_hints(ConfigurationRow), get_type_hints(Verdict)
    row |= {"key": str, "unavailable": dict[str, Remark]}
    kinds = {"key": str, **{name: option.type for name, option in OPTIONS.items()}}
    kinds |= {name: row[name] for name in _OF_ROW} | {name: verdict[name] | None for name in _OF_VERDICT}
    kinds |= {figure.at: float | None for figure in FIGURES if figure.of}
    return msgspec.defstruct("Configuration", list(kinds.items()), kw_only=True)


def summary_schema() -> str:
    """The JSON Schema (2020-12) of `summary.json`, by the types of the records that it is made of."""
    configuration = _configuration_type()
    whole = get_type_hints(Report) | {"configurations": tuple[configuration, ...]}  # type: ignore[valid-type]  # made here
    summary = msgspec.defstruct("Summary", list(whole.items()), kw_only=True)
    _, definitions = msgspec.json.schema_components([summary], ref_template="#/$defs/{name}")
    return _schema(definitions.pop("Summary"), definitions, SUMMARY_SCHEMA, SCHEMA_VERSION)


def result_json(record: Any, **derived: Any) -> str:
    """A record that is a result of its own, indented; `derived` are figures that are computed again on reading."""
    said = worded(record)
    plain = values(said)
    named = {name: plain.pop(name) for name in ("schema", "schema_version")}
    return indented({**named, **plain, **derived})


def diagnosis_json(record: Any, report: Report) -> str:
    """A diagnosis: what was measured, and its row and detail as they follow from that, without what is drawn of it."""
    (row,) = report.configurations
    assert row.detail
    detail = replace(row.detail, view=None)
    configuration = _configuration(_in_samples(row, detail))
    return result_json(record, configuration=configuration, detail=worded(detail))


def _in_samples(row: ConfigurationRow, detail: Detail) -> ConfigurationRow:
    """With the sentences that name what is counted."""
    assert row.verdict
    bound = replace(row.verdict.bound, sentence=sentence(row.verdict.bound, sample=detail.sample))
    advice = tuple(replace(advice, sentence=action_words(advice.action, sample=detail.sample)) for advice in row.advice)
    return replace(row, verdict=replace(row.verdict, bound=bound, advice=advice))


def result_schema(type_: type[Any]) -> str:
    """The JSON Schema (2020-12) of such a record; of a diagnosis with what follows from its measurement."""
    usual: dict[str, Any] = {field.name: field.default for field in fields(type_)}
    derived: dict[str, type[Any]] = {}
    if usual["schema"] == DIAGNOSIS_SCHEMA:
        derived = {"configuration": _configuration_type(), "detail": Detail}
    kinds = [type_, *derived.values()]
    (top, *others), definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    whole = definitions.pop(top["$ref"].rpartition("/")[2])
    whole["properties"] |= dict(zip(derived, others, strict=True))
    return _schema(whole, definitions, usual["schema"], usual["schema_version"])


def _schema(whole: dict[str, Any], definitions: dict[str, Any], schema: str, version: int) -> str:
    whole["title"] = f"{schema} {version}"
    whole["properties"] |= {"schema": {"const": schema}, "schema_version": {"const": version}}
    for record, by_resource, names in (("Configuration", "speedups", SPEEDUPS), ("Rates", "loader_without", INPUTS)):
        property_ = definitions.get(record, {}).get("properties", {}).get(by_resource, {})
        for variant in (property_, *property_.get("anyOf", ())):
            variant |= {"propertyNames": {"enum": names}} if variant.get("type") == "object" else {}
    return indented({"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": definitions})
