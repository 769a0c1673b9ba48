"""The table of figures: each one's column, words and place in the summary; and a row of cells made of it.

A new figure of a configuration is a row here, for JSON and its schema, CSV and data frames; with a `head`, it is a
column of every table of configurations, too, and its `help` a part of the legend. `of` computes one that follows from
others, or from raw values. One that a verdict, a forecast or a plan rests on is a field of `Verdict`, which
`analyze/verdict/judge.py` fills; where that is None, `Verdict.unavailable` has the reason, and reports list it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from loaderprobe.records.config import options_of
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import ABLATIONS, GAP_CAUSES, JUDGED, ONLY_WAITED, RESOURCE, SPEEDUPS, WAITED
from loaderprobe.records.thresholds import MOST_UNEXPLAINED
from loaderprobe.records.verdict import Evidence, Gaps, Verdict
from loaderprobe.render.document import Column
from loaderprobe.render.format import figure, megabytes_per_s, percent
from loaderprobe.render.groups import speed
from loaderprobe.render.rows import Value, interval_cells
from loaderprobe.render.words import action_words, remark_words, sentence


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a configuration."""

    at: str
    """Its place in `summary.json`, by which `unavailable` has the reason when there is none."""
    words: str
    named: str = ""
    """In flat tables, with the unit in it; empty where that is its place."""
    more: tuple[str, ...] | None = None
    """Of an interval, what it has beside its ends; None of a single figure."""
    head: str = ""
    """Of its column in tables; empty where only CSV has it."""
    help: str = ""
    """What that column is, as the legend says it."""
    show: Callable[[float | None], str] = figure
    """How that column shows it: shares in percent, bytes/s in MB/s without the unit."""
    of: Callable[[Verdict, Measurement], float | None] | None = None
    """What it follows from, where no record has it: then its place is a name of its own."""

    def get(self, row: ConfigurationRow) -> Any:
        """The figure, or its interval; None where it does not exist."""
        if self.of:
            return self.of(row.verdict, row.measurement) if row.verdict and row.measurement else None
        value: Any = row if self.at.startswith("gpu_window.") else row.verdict
        for name in self.at.split("."):
            if isinstance(value, Gaps):
                return getattr(value, name) / value.window_ns
            if value is not None:
                value = value.get(name) if isinstance(value, dict) else getattr(value, name)
        return value

    def cells(self, row: ConfigurationRow) -> dict[str, Value]:
        """The column; of an interval one more for each further part."""
        value, column = self.get(row), self.named or self.at
        return {column: value} if self.more is None else interval_cells(column, value, *self.more)

    def shown(self, row: ConfigurationRow) -> str:
        return speed(row) if self.at == "images_per_s" else self.show(self.get(row))


def _rate(name: str, words: str) -> Figure:
    return Figure(f"rates_images_per_s.{name}", words, f"{name.replace('.', '_')}_images_per_s")


def _free(resource: str) -> str:
    return f"{RESOURCE[resource].plural or RESOURCE[resource].noun} were free"


FIGURES: tuple[Figure, ...] = (
    Figure("images_per_s", "images/s", more=(), head="images/s", help="± is half the 95 % interval."),
    _rate("compute", "compute alone"),
    _rate("loader", "loader alone"),
    *(_rate(f"loader_without.{name}", f"loader if {_free(name)}") for name in ABLATIONS),
    _rate("cpu_limit", "limit of the CPU cores"),
    *(_rate(f"loader_without.{name}", f"loader if {_free(name)}") for name in ONLY_WAITED),
    *(Figure(f"speedups.{name}", f"speed-up if {_free(name)}", f"speedup_without_{name}", ("how",)) for name in JUDGED),
    *(
        Figure(f"speedups.{name}", RESOURCE[name].figure, f"speedup_{name}", ("how",))
        for name in SPEEDUPS
        if name not in JUDGED
    ),
    Figure("predicted_images_per_s", "predicted images/s"),
    Figure("prediction_error", "prediction error"),
    Figure(
        "accelerator_utilization", "share of compute alone", head="of alone", show=percent,
        help="Of alone: training over compute alone of the same row.",
    ),
    Figure(
        "input_wait_fraction", "input wait", head="input wait", show=percent,
        help="Input wait: share of time the training thread waits for a batch.",
    ),
    Figure("bytes_per_image", "bytes/image"),
    Figure(
        "disk_read_bytes_per_s", "storage reads", head="MB/s", show=megabytes_per_s, help="MB/s: read from storage."
    ),
    Figure("cold_fraction", "cold share"),
    Figure(
        "disk_ceiling_fraction", "share of the storage's ceiling", head="of max", show=percent,
        help="Of max: MB/s over what the storage itself gave with as many readers; that is measured where storage may "
        "be the limit, and for the most workers.",
    ),
    Figure(
        "read_amplification", "read amplification", head="read/used",
        help="Read/used: bytes read from storage over bytes of the images.",
    ),
    Figure("other_read_bytes_per_s", "other processes' reads"),
    Figure("decoding_cpu_fraction", "decoding's share of CPU time"),
    Figure("instrument_cpu_fraction", "overhead of recording"),
    Figure("step_time.wait_s", "step: waiting for the batch", "step_wait_s_per_batch"),
    Figure("step_time.copy_s", "step: submitting the copy", "step_copy_s_per_batch"),
    Figure("step_time.step_s", "step: submitting the step", "step_step_s_per_batch"),
    Figure("step_time.other_s", "step: the rest", "step_other_s_per_batch"),
    Figure("worker_time.cpu_s", "worker: CPU", "worker_cpu_s_per_image"),
    Figure("worker_time.run_delay_s", "worker: waiting for a core", "worker_run_delay_s_per_image"),
    Figure("worker_time.blocked_s", "worker: blocked", "worker_blocked_s_per_image"),
    *(
        Figure(f"worker_time.waits.{name}", f"worker: blocked by {name}", f"worker_blocked_{name}_s_per_image")
        for name in WAITED
    ),
    Figure("gpu_window.use.training_busy", "GPU busy with training", "gpu_training_busy"),
    Figure("gpu_window.use.kernel_busy", "GPU busy", "gpu_kernel_busy"),
    Figure("gpu_window.use.sm_efficiency_estimated", "estimated SM efficiency", "gpu_sm_efficiency_estimated"),
    Figure("gpu_window.use.occupancy_estimated", "estimated occupancy", "gpu_occupancy_estimated"),
    Figure(
        "gpu_window.use.occupancy_coverage", "share of kernels with an estimated occupancy", "gpu_occupancy_coverage"
    ),
    *(Figure(f"gpu_window.gaps.{cause}_ns", f"GPU idle: {cause}", f"gpu_idle_{cause}") for cause in GAP_CAUSES),
)  # fmt: skip
COUNTERS = tuple(
    Figure(f"gpu.{name}", words, show=show)
    for name, words, show in (
        ("utilization", "any kernel ran, by NVML", percent),
        ("graphics_utilization", "compute engine busy", percent),
        ("sm_utilization", "SM utilization", percent),
        ("sm_occupancy", "SM occupancy", percent),
        ("tensor_utilization", "tensor cores busy", percent),
        ("dram_utilization", "memory bandwidth in use", percent),
        ("pcie_to_device_bytes_per_s", "PCIe to the device, MB/s", megabytes_per_s),
        ("pcie_from_device_bytes_per_s", "PCIe from the device, MB/s", megabytes_per_s),
        ("jpeg_utilization", "JPEG engine busy", percent),
        ("sm_clock_mhz", "SM clock, MHz", figure),
        ("memory_clock_mhz", "memory clock, MHz", figure),
        ("power_w", "power, W", figure),
        ("energy_j_per_image", "energy, J an image", figure),
        ("throttled", "readings with a slowed clock", percent),
        ("other_processes", "other processes on it", figure),
        ("step_ms_p50", "step, ms: median", figure),
        ("step_ms_p95", "step, ms: 95th percentile", figure),
        ("exposed_wait_fraction", "waits for a batch", percent),
        ("exposed_wait_ms_p50", "wait for a batch, ms: median", figure),
        ("exposed_wait_ms_p95", "wait for a batch, ms: 95th percentile", figure),
    )
)
"""What a GPU has of these, on its page; CSV has all that it gives."""
TABLE = tuple(entry for entry in FIGURES if entry.head and entry.at != "read_amplification")
OF_LAYOUTS = tuple(entry for entry in FIGURES if entry.head and entry not in TABLE)
"""Columns where several layouts are in a table."""
_WORDS = {entry.at: entry.words for entry in (*FIGURES, *COUNTERS)} | {
    # Several figures that are missing for one reason.
    "rates_images_per_s": "rates",
    "speedups": "speed-ups",
    "gpu": "GPU counters",
    "gpu_window": "GPU timeline",
    # Evidence that is no figure of a configuration.
    "gpu_window.gaps.waiting": "GPU idle: input or loader",
    "loader_over_training": "loader alone over training, at least",
    "free_input_at_most": "speed-up if all input were free, at most, from times within training",
    "compute_over_training": "compute alone over training",
    "run_delay_fraction": "share of worker time waiting for a core",
    "loader_cores": "cores in use by the loader",
    "training_cores": "cores in use by training and its workers",
    "warm_file_wait_fraction": "share of time waiting for a file, warm",
    "cold_over_warm_wait": "wait for a file, cold over warm",
    "rise_of_ladder": "rate of the most readers over that of one",
    "paced_reading_time": "reading time with pauses over that without",
    "rate_by_file_size": "share of the gain in size by which large files give more bytes/s than small ones",
}


def words_of(at: str) -> str:
    """How people read the name of a figure, of several that are missing together, or of evidence."""
    return _WORDS.get(at, at.replace("gpu.", "GPU ").replace("_", " "))


def reasons(row: ConfigurationRow) -> dict[str, str]:
    """Why figures of a row do not exist, by their place in the summary; under `*` why it has no verdict."""
    return {at: remark_words(why) for at, why in row.unavailable.items()}


def flat(row: ConfigurationRow) -> dict[str, Value]:
    """One cell for each option of the configuration and each figure, named with its unit; the rest is words.

    The columns are the same for every row, but for the GPU's counters: those are what this GPU has.
    """
    bound, verdict = row.bound, row.verdict
    cells: dict[str, Value] = {"key": row.key, **options_of(row.config)}
    cells |= {"emulated": row.emulated, "status": row.status, "reason": reasons(row).get("*")}
    cells["bound_side"] = bound.side if bound else None
    cells["bound_cause"] = bound.cause if bound else None
    cells["bound_candidates"] = " ".join(bound.candidates) if bound else None
    cells["files_were"] = verdict.files_were if verdict else None
    for entry in FIGURES:
        cells |= entry.cells(row)
    counters = verdict.gpu if verdict else {}
    cells |= {f"gpu_{name}": value for name, value in counters.items()}
    cells["reason_code"] = bound.reason.code if bound else None
    cells["sentence"] = sentence(bound) if bound else None
    cells["advice"] = "; ".join(action_words(advice.action) for advice in row.advice) or None
    best = next((advice for advice in row.advice if advice.is_worth_making), None)
    cells["best_advice_command"] = best.command or None if best else None
    cells |= interval_cells("best_advice_images_per_s", best.after if best else None)
    return cells


def noise_words(shares: Iterable[float | None]) -> str:
    """What follows shares of compute alone where one is above 100 %; empty where none is."""
    highest = max((round(share or 0.0, 2) for share in shares), default=0.0)
    beyond = f", more than {percent(MOST_UNEXPLAINED)} a machine that changed in between"
    return f": more than 100 % is noise{beyond if highest > MOST_UNEXPLAINED else ''}" if highest > 1 else ""


_BAR = {
    "input_wait_fraction": "threshold: XProf, moderately input-bound",
    "accelerator_utilization": "threshold: MLPerf Storage",
}
"""Whose threshold it is."""


def evidence_words(evidence: Evidence) -> str:
    """`speed-up if storage were free (measured)`."""
    words, beside = words_of(evidence.metric), evidence.how or _BAR.get(evidence.metric)
    return f"{words} ({beside})" if beside else words


EVIDENCE = (
    Column("Metric", evidence_words),
    Column("Value", lambda evidence: figure(evidence.value)),
    Column("Threshold", lambda evidence: figure(evidence.threshold)),
    Column("Unit", lambda evidence: evidence.unit),
)
