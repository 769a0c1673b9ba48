"""Why there is no forecast, in words."""

from __future__ import annotations

from loaderprobe.records.forecast import Refusal
from loaderprobe.render.facts import fact
from loaderprobe.render.unavailable_words import because_words

_TEXTS = {
    "no_complete_round": "no round measured the loader, compute and training on both",
    "outside_noise_band": "training ran at {predicted_share} of its prediction, outside the noise band",
    "no_worker_times": "the workers left no record of their time",
    "no_model_fits": "no model comes near the measured rate, so something else limits the loader",
    "files_from_memory": "the files came from memory, so nothing is known of the storage",
    "files_as_found": "the files were read as found, so the share of storage is not known",
    "more_than_cores": "only {cores} cores were measured",
    "no_file_size": "the size of the files is not known",
    "no_rate_of_batch_size": "the rate of the device at this batch size was not measured",
    "no_cpu_time": "its CPU time was not measured",
    "serial_loader": "the serial loader fetches nothing ahead",
    "too_few_batches": "too few batches were recorded to know how their times vary",
    "more_than_storage": "it needs {bytes_per_s}, more than the storage was measured to deliver",
    "exchange_of_gradients": "ranks exchange gradients, for which a faster device waits as well",
    "laws_disagree": (
        "the kind of storage is not known, and forecasts range from {least_images_per_s} to {most_images_per_s} "
        "images/s"
    ),
}


def refusal_words(refusal: Refusal) -> str:
    """A clause without a full stop: `only 2 cores were measured`."""
    if refusal.code == "storage_missing":
        return because_words(refusal.facts)
    return _TEXTS[refusal.code].format(**{name: fact(name, value) for name, value in refusal.facts.items()})
