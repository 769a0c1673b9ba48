"""What is advised, in words."""

from __future__ import annotations

from loaderprobe.records.verdict import Action
from loaderprobe.units import format_bytes, format_rate, significant

_TEXTS = {
    "all_in_page_cache": "keep all files in the page cache",
    "part_in_page_cache": (
        "leave {bytes} of memory to the page cache, which holds {share} % of the files and answers {hits_low} to "
        "{hits_high} % of the reads from epoch 2 on"
    ),
    "files_pinned": (
        "pin {share} % of the files in memory ({bytes}, by vmtouch -l or a copy in tmpfs), which answers {share} % of "
        "the reads"
    ),
    "prefetch": "prefetch {batches} batches in each worker",
    "faster_storage": "use storage {factor} times as fast{bytes_per_s}",
    "accelerator": "train on {ranks} of {images_per_s} {sample}s/s{name}",
    "decoder": "decode with {decoder}",
    "tensor": "deliver uint8 tensors and normalise on the device",
    "requests_in_flight": (
        "keep more requests{subject} in flight: num_workers={workers}, or asynchronous reads in the data set; "
        "larger objects or a local cache need fewer requests"
    ),
    "shorter_lock": "hold the lock{subject} for less time, or give each worker its own",
    "no_wait": "remove the wait{subject} from the data set, or overlap it with work",
    "slow_rank": "check the loader, cores and storage path of rank {rank}{host}: all ranks wait for its input",
    "slow_host": (
        "check the cores, the network and the storage path of host {slow_host}: all ranks wait for the {slow_ranks} "
        "there"
    ),
    "exchange": (
        "exchange gradients faster or less often: a faster link between ranks, gradient accumulation, compression; "
        "faster GPUs gain less"
    ),
    "own_shares": (
        "give each rank its own share of the data set: add DistributedSampler(dataset) to the DataLoader, or "
        "split_dataset_by_node to a stream"
    ),
    "one_thread": "load with torch on one thread: its threads spin between the small operations of a sample",
    "accelerator_gains_nothing": (
        "A faster accelerator gains nothing until the loader delivers more than {until_images_per_s} {sample}s/s."
    ),
    "input_gains_nothing": "A faster input gains nothing: training reaches {share} % of compute alone.",
}
# What stands for a fact that is not known.
_OPTIONAL = {"subject": "", "name": "", "bytes_per_s": "", "host": "", "ranks": "an accelerator"}
_LIBRARY = {"torchvision": "torchvision.io", "pillow": "Pillow"}


def action_words(action: Action, *, sample: str = "image") -> str:
    """`use 4 workers`; for a change that gains nothing, the whole sentence. `sample` is what is counted."""
    facts = action.facts
    if action.code == "workers":
        count = facts["workers"]
        return f"use {count} worker{'' if count == 1 else 's'}" if count else "load in the training process"
    if action.code == "files_in_memory":
        code = "all_in_page_cache" if facts["share"] == 1 else "part_in_page_cache"
        return _TEXTS[code].format(**{name: _shown(name, value) for name, value in facts.items()})
    words = _OPTIONAL | {name: _shown(name, value) for name, value in facts.items()}
    return _TEXTS[action.code].format(**words, sample=sample)


_FORMS = {"subject": " ({})", "name": " ({}, specified)", "host": " on {}", "ranks": "{:.0f} accelerators, each"}


def _shown(name: str, value: float | str) -> str:
    match name:
        case "subject" | "name" | "host" | "ranks":
            return _FORMS[name].format(value)
        case "decoder":
            return _LIBRARY[str(value)]
        case "bytes_per_s":
            return f" ({format_rate(float(value))})"
        case "factor":
            return significant(float(value), 2)
        case "bytes":
            return format_bytes(float(value))
        case "share" | "hits_low" | "hits_high":
            return f"{100 * float(value):.0f}"
        case "images_per_s" | "until_images_per_s":
            return significant(float(value))
    return str(value)
