"""The summary as JSON, and the JSON Schema that describes it."""

from __future__ import annotations

from typing import Any

import msgspec

from loaderprobe.records.report import SUMMARY_SCHEMA, SUMMARY_VERSION, Report, Summary
from loaderprobe.render.verdict_words import worded


def summary_json(report: Report) -> str:
    """The summary, indented, ending with a newline. What could not be measured is null."""
    return msgspec.json.format(msgspec.json.encode(worded(report.summary)), indent=2).decode() + "\n"


def summary_schema() -> str:
    """The JSON Schema (2020-12) of `summary.json`."""
    _, definitions = msgspec.json.schema_components([Summary], ref_template="#/$defs/{name}")
    summary: dict[str, Any] = definitions.pop("Summary")
    summary["title"] = f"{SUMMARY_SCHEMA} {SUMMARY_VERSION}"
    summary["properties"]["schema"] = {"const": SUMMARY_SCHEMA}
    summary["properties"]["schema_version"] = {"const": SUMMARY_VERSION}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **summary, "$defs": definitions}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
