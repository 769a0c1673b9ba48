"""Published rows of MLPerf Storage, and one array's own counter, against the formula of the need.

Samples/s and MB/s of those rows follow from their utilization, so agreement with them is consistency and no proof.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from loaderprobe.analyze.plan.plan import Demand, demand
from tests.examples.plan import example_workload

STEPS = {
    ("resnet50", "a100"): (400, 0.435),
    ("resnet50", "h100"): (400, 0.224),
    ("retinanet", "b200"): (24, 0.04755),
}
"""Batch and seconds of a step."""
RECORD_BYTES = {"resnet50": 114_660.07, "retinanet": 322_957.0}
SAMPLES_A_FILE = {"resnet50": 1251, "retinanet": 1}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published result."""

    workload: str
    submitter: str
    system: str
    accelerator: str
    accelerators: int
    mib_per_s: float
    samples_per_s: float
    utilization: float

    def need(self, utilization: float) -> Demand:
        """What the formula says."""
        batch, seconds = STEPS[self.workload, self.accelerator]
        one = example_workload(batch / seconds, RECORD_BYTES[self.workload])
        return demand(one, utilization, SAMPLES_A_FILE[self.workload]).times(self.accelerators)


def _rows() -> list[Row]:
    with Path(__file__).with_name("published.tsv").open() as file:
        return [
            Row(
                workload=row["workload"],
                submitter=row["submitter"],
                system=row["system"],
                accelerator=row["accelerator"],
                accelerators=int(row["accelerators"]),
                mib_per_s=float(row["mib_per_s"]),
                samples_per_s=float(row["samples_per_s"]),
                utilization=float(row["au_percent"]) / 100,
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]


ROWS = _rows()


def test_all_rows_are_there() -> None:
    """43 of ResNet-50 and 8 of RetinaNet."""
    assert [row.workload for row in ROWS].count("resnet50") == 43
    assert [row.workload for row in ROWS].count("retinanet") == 8


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.submitter}-{row.system}-{row.accelerators}{row.accelerator}"
)
def test_a_row_is_met_at_its_own_utilization(row: Row) -> None:
    """Samples/s, bytes/s and files/s within 1 %: consistency, not proof."""
    need = row.need(row.utilization)
    assert need.images_per_s.value == pytest.approx(row.samples_per_s, rel=0.01)
    assert need.read_bytes.value == pytest.approx(row.mib_per_s * 2**20, rel=0.01)
    assert need.opens.value == pytest.approx(row.samples_per_s / SAMPLES_A_FILE[row.workload], rel=0.01)


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.submitter}-{row.system}-{row.accelerators}{row.accelerator}"
)
def test_no_row_draws_more_than_accelerators_at_full_rate(row: Row) -> None:
    """The bound that a published figure could break."""
    assert row.samples_per_s <= row.need(1.0).images_per_s.value
    assert row.mib_per_s * 2**20 <= row.need(1.0).read_bytes.value * 1.0005  # rounded to whole MiB/s


def test_megabytes_taken_for_mebibytes_would_miss_every_row() -> None:
    """By 4.9 %: the rows are in MiB/s."""
    assert not any(
        row.need(row.utilization).read_bytes.value == pytest.approx(row.mib_per_s * 1e6, rel=0.03) for row in ROWS
    )


def test_an_array_counts_what_training_needs() -> None:
    """Dell, Deep Learning with NVIDIA v1.0: 2,940 images/s of 0.113 MB, 2,680 Mb/s counted at the disks."""
    need = demand(example_workload(2940.0, 113_000.0), 1.0)
    assert need.read_bytes.value * 8 == pytest.approx(2680e6, rel=0.01)
