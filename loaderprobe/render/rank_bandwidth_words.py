"""What ranks that read at once get, and what limits them, in words."""

from __future__ import annotations

from loaderprobe.records.bandwidth import RankBandwidthReport, RanksLimit, RanksPhase
from loaderprobe.render.wording import counted, megabytes_per_s, percent
from loaderprobe.units import format_duration, significant

FAR_APART = 0.9
"""What all get until the last is done, below this share of what they get while all read, stands beside it."""
NOTICED = 0.95
"""A fairness below this is said in the answer."""


def headline(found: RankBandwidthReport) -> str:
    """What the most ranks get together, and in step."""
    most = found.largest
    if most is None:
        return "No step of the ladder was measured."
    together = f"{'at least ' if most.at_least else ''}{megabytes_per_s(most.bw_bytes)} MB/s"
    layout = f" on {most.nodes} nodes" if most.nodes > 1 else ""
    sentence = (
        f"{counted(most.ranks, 'rank')}{layout} together get {together} and {significant(most.files_per_s)} "
        f"{noun(found)}s/s with {counted(most.clients, 'reader')}."
    )
    if most.ranks == 1:
        return sentence
    if most.last_done_bw_bytes < FAR_APART * most.bw_bytes:
        until = f"while all read ({megabytes_per_s(most.last_done_bw_bytes)} MB/s until the last was done)"
        sentence = sentence.replace(" MB/s and ", f" MB/s {until}, and ", 1)
    slow = most.slowest
    in_step = f"{most.ranks} x the slowest is {megabytes_per_s(most.in_step_bw_bytes)} MB/s"
    if most.fairness >= NOTICED:
        return f"{sentence} All get alike: {in_step}."
    if not most.long_enough:
        return f"{sentence} Ranks in step may get less: {in_step}."
    # Of a slow host the limit says more.
    who = "The slowest rank" if found.limit.code == "slow_host" else f"The slowest, rank {slow.rank} on {slow.host},"
    return f"{sentence} Ranks in step may get less: {in_step}. {who} gets {percent(most.fairness)} of the fastest."


def ranks_limit_words(limit: RanksLimit) -> str:
    """A sentence."""
    facts = {name: megabytes_per_s(float(value)) if name.endswith("bytes_per_s") else value
             for name, value in limit.facts.items()}  # fmt: skip
    match limit.code:
        case "from_memory":
            return "Files came from memory, at least partly: nothing is said of storage."
        case "probe_busy":
            return "The probe kept the cores busy: storage delivers at least that."
        case "slow_rank":
            several = float(limit.facts.get("nodes", 1)) > 1
            look = "the path of its node to the storage" if several else "its process, its cores and its files"
            return (
                f"Rank {facts['rank']:g} on {facts['host']} gets {facts['bytes_per_s']} MB/s, "
                f"{percent(float(limit.facts['fairness']))} of the fastest: look at {look}. Training in step waits "
                "for it."
            )
        case "too_short":
            return (
                f"Not known: the slowest rank gets {percent(float(limit.facts['fairness']))} of the fastest, but in "
                f"{format_duration(float(limit.facts['seconds']))} of reading. More files, or longer --seconds, tell."
            )
        case "slow_host":
            slow, there = facts["slow_ranks"], facts["host_ranks"]
            which = f"All {there:g}" if slow == there else f"{slow:g} of the {there:g}"
            return (
                f"{which} ranks on host {facts['host']} get {facts['bytes_per_s']} MB/s each, the slowest rank "
                f"elsewhere {facts['elsewhere_bytes_per_s']}: look at the path of that host to the storage. Training "
                "in step waits for it."
            )
        case "process":
            where = "on more nodes" if limit.facts["nodes"] != limit.facts["fewer_nodes"] else "in more processes"
            return (
                f"One process or node, not the storage: {facts['clients']:g} readers get {facts['bytes_per_s']} MB/s "
                f"{where} ({facts['ranks']:g} ranks), and {facts['fewer_bytes_per_s']} MB/s as "
                f"{facts['fewer_ranks']:g}."
            )
        case "plateau":
            return (
                f"The storage, or the path to it: from {facts['clients']:g} to {facts['most']:g} readers it gives "
                "no more."
            )
        case "rising":
            return (
                f"None yet: with {facts['clients']:g} readers it still rises, so this is at least what it gives. "
                f"{facts['next']:g} readers would show more."
            )
        case "one_step":
            return "Not known from one step: add more ranks, as --ranks 1,2,4."


def noun(found: RankBandwidthReport) -> str:
    """What is counted."""
    if not found.whole_files:
        return "block"
    return "image" if found.images else "file"


def layout(phase: RanksPhase) -> str:
    """`4`, or `2x8` of two nodes with eight ranks each."""
    return f"{phase.nodes}x{phase.ranks // phase.nodes}" if phase.nodes > 1 else str(phase.ranks)
