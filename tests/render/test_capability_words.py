"""What can be measured on a machine, in words."""

from __future__ import annotations

from typing import get_args

from loaderprobe.records.environment import Capability, CapabilityName
from loaderprobe.records.remark import Remark, reported
from loaderprobe.render.capability_words import TITLES, capabilities_document, step_words, why_words
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.writers import document_text

FACTS: dict[str, float | str] = {
    "filesystem": "ext4", "devices": "vda", "path": "/data", "share": 0.25, "cores": 2.0, "all": 4.0,
    "free_bytes": 67_000_000, "device": "H100", "gpus": "H100", "gpu": "T4", "because": "no_gpm", "status": 15.0,
    "mount": "/mnt",
}  # fmt: skip


def test_every_capability_has_a_title() -> None:
    """A line that begins with a code would be none for people."""
    assert TITLES.keys() == set(get_args(CapabilityName))


def test_all_that_was_found_stands_in_one_line() -> None:
    """Findings, notes and reasons, in their order; what quotes a reason names the GPU."""
    why = (Remark(code="on_storage", facts=FACTS), Remark(code="nfs"), reported("it rained"))
    found = Capability(name="storage", state="limited", why=why)
    assert why_words(found).startswith("ext4 on vda; NFS counts") and why_words(found).endswith("; it rained")
    assert remark_words(Remark(code="gpu_not_read", facts=FACTS)).startswith("T4: ")
    assert "storage under the data" in document_text(capabilities_document([found])) and step_words(found) == ""
