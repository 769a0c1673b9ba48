"""What brings a stored file of each older version to the next. Damaged values stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NOTES = {
    "the budget left no time for another round": "no_time",
    "the budget left no time for all of the last round": "cut_short",
}
"""Notes of version 4 that a continued measurement drops."""
_REJECTED = {
    "without a valid time": "no_stamp",
    "ended before it began": "backwards",
    "outside the window": "outside",
    "began before it was launched": "too_early",
    "overlapped the next record of its stream, and was cut there": "cut",
}
"""Words of version 4, and their codes."""


def _to_version_3(kind: str, value: Any) -> None:
    """Give names of version 3 to what a file of version 2 holds."""
    holder = value.get("spec") if kind == "image-set" and isinstance(value, dict) else value
    if kind in ("image-set", "image-set-spec") and isinstance(holder, dict) and "pictures" in holder:
        holder["base_images"] = holder.pop("pictures")
    if kind == "ceiling" and isinstance(value, dict):
        device, phases = value.get("kind"), value.get("phases")
        if isinstance(device, dict):
            renamed = {"banked": "token_bucket", "serial": "single_server"}
            device |= {"kind": renamed.get(str(device.get("kind")), device.get("kind"))}
        for phase in phases if isinstance(phases, list) else ():
            if isinstance(phase, dict) and "foreign_bytes_per_s" in phase:
                phase["other_bytes_per_s"] = phase.pop("foreign_bytes_per_s")


def _to_version_4(kind: str, value: Any) -> None:
    """The same for a file of version 3."""
    segments = value.get("segments") if kind == "measurement" and isinstance(value, dict) else None
    for segment in segments if isinstance(segments, list) else ():
        if isinstance(segment, dict) and segment.get("activity") == "train":
            segment["activity"] = "training"


def _to_version_5(kind: str, value: Any) -> None:
    """The same for a file of version 4: its sentences are quoted."""
    quoted = {"measurement": _quote_measurement, "ceiling": _quote_ceiling, "run": _quote_run}.get(kind)
    if quoted and isinstance(value, dict):
        quoted(value)


def _to_version_6(kind: str, value: Any) -> None:
    """The same for a file of version 5: what a study has as its reason is quoted."""
    if kind in ("prefilled", "epochs"):
        _quote(value, "reason", lambda text: _reason(text) if text else None)


def _quote_measurement(value: dict[str, Any]) -> None:
    for each in _dicts(value.get("missing")):
        _quote(each, "reason", _reason)
    _quote(value, "notes", _notes)
    _quote(value.get("waits"), "letters_only", _reason)
    timeline = value.get("timeline")
    for each in _dicts(timeline.get("rejected") if isinstance(timeline, dict) else None):
        each["reason"] = _REJECTED.get(str(each.get("reason")), each.get("reason"))


def _quote_ceiling(value: dict[str, Any]) -> None:
    _quote(value, "missing", _reason)
    for each in _dicts(value.get("phases")):
        _quote(each, "notes", _notes)
    device = value.get("kind")
    if isinstance(device, dict):
        device |= _kind_of(device)
        for each in _dicts(device.get("evidence")):
            each["metric"] = "paced_reading_time" if "pauses" in str(each.get("metric")) else "rise_of_ladder"


def _quote_run(value: dict[str, Any]) -> None:
    environment = value.get("environment")
    if isinstance(environment, dict):
        _quote(environment, "gpu_reason", _reason)
        for each in _dicts(environment.get("storage")):
            _quote(each, "notes", _notes)


def _kind_of(device: dict[str, Any]) -> dict[str, Any]:
    """The code of a kind, and its facts."""
    if device.get("kind") == "unknown":
        return {"code": "not_paced", "facts": {"because": "reported", "reason": str(device.pop("sentence", ""))}}
    return {"code": device.get("kind")}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _quote(holder: Any, name: str, quoted: Callable[[Any], Any]) -> None:
    if isinstance(holder, dict) and isinstance(holder.get(name), str | list):
        holder[name] = quoted(holder[name])


def _reason(text: Any) -> dict[str, Any]:
    return {"code": "reported", "facts": {"reason": text}}


def _notes(texts: Any) -> Any:
    return [_note(each) if isinstance(each, str) else each for each in texts] if isinstance(texts, list) else texts


def _note(text: str) -> dict[str, Any]:
    return {"code": _NOTES[text]} if text in _NOTES else {"code": "reported", "facts": {"text": text}}


MIGRATIONS = {2: _to_version_3, 3: _to_version_4, 4: _to_version_5, 5: _to_version_6}
"""What brings a file of each older version to the next."""
