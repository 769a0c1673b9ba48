"""What limits a storage, and what kind of device it is, in words."""

from __future__ import annotations

from loaderprobe.records.bandwidth import DeviceKind, KindCode, Limit, LimitCode
from loaderprobe.render.remarks import because_words, fact
from loaderprobe.render.wording import counted
from loaderprobe.units import format_duration

_LIMITS: dict[LimitCode, str] = {
    "no_step": "No step of the ladder was measured.",
    "from_memory": "The files came {share} from memory: this is no limit of storage.",
    "probe_busy": (
        "No limit of the storage was found: the probe itself can read no faster than {best_bytes_per_s} here."
    ),
    "interrupted": "The ladder was interrupted: whether more readers get more is not known.",
    "one_step": "One number of readers cannot tell a bandwidth limit from a latency limit.",
    "flat": (
        "Bandwidth-limited: {first_readers} already {get} {first_bytes_per_s}, and no number of readers more than "
        "{best_bytes_per_s}."
    ),
    "uneven": (
        "Uneven: {first_readers} {get} {first_bytes_per_s} and {best_readers} {best_bytes_per_s}, but {after_readers} "
        "fewer ({after_bytes_per_s}) than {before} ({before_bytes_per_s}): where more readers stop gaining is not "
        "known. Longer phases (--seconds) may tell."
    ),
    "rises": (
        "Latency-limited: each file takes {file_s} however few are read at once, so the rate rises with the readers, "
        "to {best_bytes_per_s} with {knee}, and {more}."
    ),
    "rises_then_flat": (
        "Latency-limited below {knee_readers} ({first_readers} alone {get} {first_bytes_per_s}, {file_s} a file); "
        "{then}."
    ),
}
_STEP = "Training in step waits for it."
_LIMITS |= {
    "too_short": (
        "Not known: the slowest rank gets {share} of the fastest, but in {reading_s} of reading. More files, or longer "
        "--seconds, tell."
    ),
    "slow_rank": f"Rank {{rank}} on {{host}} gets {{bytes_per_s}}, {{share}} of the fastest: look at {{look}}. {_STEP}",
    "slow_host": (
        "{which} ranks on host {host} get {bytes_per_s} each, the slowest rank elsewhere {elsewhere_bytes_per_s}: look "
        f"at the path of that host to the storage. {_STEP}"
    ),
    "process": (
        "One process or node, not the storage: {clients} readers get {bytes_per_s} {where} ({ranks} ranks), and "
        "{fewer_bytes_per_s} as {fewer_ranks}."
    ),
    "plateau": "The storage, or the path to it: from {clients} to {most_clients} readers it gives no more.",
    "rising": (
        "None yet: with {clients} readers it still rises, so this is at least what it gives. {next} readers would show "
        "more."
    ),
    "one_step_of_ranks": "Not known from one step: add more ranks, as --ranks 1,2,4.",
}
_KINDS: dict[KindCode, str] = {
    "token_bucket": "A token bucket: idle time is credit, as on a throttled or cloud volume.",
    "single_server": "A single server: it serves one request after the other, and idle time is lost.",
    "latency": "Latency-bound: each request takes the same time at any concurrency, as in object stores.",
    "from_memory": "The kind of device is not known: the files did not come from it alone.",
    "probe_busy": "The kind of device is not known: the probe itself may have been the limit.",
    "not_paced": "The kind of device is not known: {why}.",
    "none_of_them": (
        "Neither a token bucket, nor a single server, nor latency-bound: {readers} readers get {rise} times what one "
        "gets, and after pauses a file takes {paced} of its time."
    ),
}


def limit_words(limit: Limit) -> str:
    """What stops the ladder from rising, as a sentence."""
    shown = {name: fact(name, value) for name, value in limit.facts.items()}
    if "reading_s" in limit.facts:
        shown["reading_s"] = format_duration(float(limit.facts["reading_s"]))
    if "first_readers" in limit.facts:
        rising, knee = limit.facts.get("end") == "rising", f"{limit.facts['knee_readers']:g}"
        flat = f"from there on more readers gain nothing ({shown['best_bytes_per_s']}): bandwidth-limited"
        shown |= {name: counted(int(each), "reader") for name, each in limit.facts.items() if name.endswith("_readers")}
        shown |= {
            "get": "gets" if limit.facts["first_readers"] == 1 else "get",
            "knee": knee,
            "before": f"{limit.facts.get('before_readers', 0):g}",
            "more": "more readers would gain more" if rising else f"more than {knee} gain nothing",
            "then": "it may rise further" if rising else flat,
        }
    return _LIMITS[limit.code].format(**shown, **_of_ranks(limit))


def _of_ranks(limit: Limit) -> dict[str, str]:
    """What depends on how many there are."""
    facts = limit.facts
    match limit.code:
        case "slow_rank":
            several = float(facts["nodes"]) > 1
            return {
                "look": "the path of its node to the storage" if several else "its process, its cores and its files"
            }
        case "slow_host":
            slow, there = facts["slow_ranks"], facts["host_ranks"]
            return {"which": f"All {there:g}" if slow == there else f"{slow:g} of the {there:g}"}
        case "process":
            return {"where": "on more nodes" if facts["nodes"] != facts["fewer_nodes"] else "in more processes"}
        case _:
            return {}


def kind_words(kind: DeviceKind) -> str:
    """What the device is, or why that is not known, as a sentence."""
    if kind.code == "not_paced":
        return _KINDS["not_paced"].format(why=because_words(kind.facts))
    return _KINDS[kind.code].format(**{name: fact(name, value) for name, value in kind.facts.items()})
