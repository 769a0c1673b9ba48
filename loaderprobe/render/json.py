"""Results as JSON, and the JSON Schemas that describe them: the fields of the records, under their own names."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

import msgspec

from loaderprobe.records import values
from loaderprobe.records.config import OPTIONS, options_of
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import SUMMARY_SCHEMA, ConfigurationRow, Report, Summary
from loaderprobe.records.verdict import Verdict
from loaderprobe.render.first_page import with_sentences
from loaderprobe.render.worded import worded

_OF_ROW = ("key", "emulated", "status", "reason", "unavailable", "forecasts", "gpu_window", "buffer", "epochs")
_OF_VERDICT = tuple(each.name for each in fields(Verdict) if each.name not in _OF_ROW)


def summary_json(report: Report) -> str:
    """The summary, indented, ending with a newline. What could not be measured is null."""
    said = worded(with_sentences(report))
    summary = {each.name: getattr(said, each.name) for each in fields(Summary)}
    summary["configurations"] = [_configuration(row) for row in said.configurations]
    return msgspec.json.format(msgspec.json.encode(summary), indent=2).decode() + "\n"


def _configuration(row: ConfigurationRow) -> dict[str, Any]:
    """A row, flat as far as its options and the verdict go; the parts of the verdict stay records."""
    own = {name: getattr(row, name) for name in _OF_ROW} | {"unavailable": worded(row.unavailable)}
    verdict = {name: getattr(row.verdict, name, None) for name in _OF_VERDICT}
    return {"key": row.key, **options_of(row.config), **own, **verdict}


@cache
def summary_type() -> type[msgspec.Struct]:
    """What `summary.json` decodes to: types from the records it is made of."""
    row, verdict = get_type_hints(ConfigurationRow), get_type_hints(Verdict)
    row |= {"key": str, "unavailable": dict[str, Remark]}
    kinds = {"key": str, **{name: each.type for name, each in OPTIONS.items()}}
    kinds |= {name: row[name] for name in _OF_ROW} | {name: verdict[name] | None for name in _OF_VERDICT}
    configuration = msgspec.defstruct("Configuration", list(kinds.items()), kw_only=True)
    whole = get_type_hints(Summary) | {"configurations": tuple[configuration, ...]}  # type: ignore[valid-type]  # made here
    return msgspec.defstruct("Summary", list(whole.items()), kw_only=True)


def summary_schema() -> str:
    """The JSON Schema (2020-12) of `summary.json`."""
    _, definitions = msgspec.json.schema_components([summary_type()], ref_template="#/$defs/{name}")
    summary: dict[str, Any] = definitions.pop("Summary")
    summary["title"] = f"{SUMMARY_SCHEMA} {SCHEMA_VERSION}"
    summary["properties"]["schema"] = {"const": SUMMARY_SCHEMA}
    summary["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return _schema(summary, definitions)


def result_json(record: Any, **derived: Any) -> str:
    """A record that is a result of its own, indented; `derived` are figures that are computed again on reading."""
    said = worded(record)
    plain = values(said)
    named = {name: plain.pop(name) for name in ("schema", "schema_version")}
    return msgspec.json.format(msgspec.json.encode({**named, **plain, **derived}), indent=2).decode() + "\n"


def result_schema(type_: type[Any]) -> str:
    """The JSON Schema (2020-12) of such a record."""
    (top,), definitions = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    whole = definitions.pop(top["$ref"].rpartition("/")[2])
    usual = {field.name: field.default for field in fields(type_)}
    whole["title"] = f"{usual['schema']} {usual['schema_version']}"
    whole["properties"] |= {name: {"const": usual[name]} for name in ("schema", "schema_version")}
    return _schema(whole, definitions)


def _schema(whole: dict[str, Any], definitions: dict[str, Any]) -> str:
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": definitions}
    return msgspec.json.format(msgspec.json.encode(named), indent=2).decode() + "\n"
