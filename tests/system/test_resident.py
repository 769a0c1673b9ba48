"""Memory of this process and of the machine, from /proc and the cgroup."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.system.limits import available_bytes, peak_bytes, release_free, reset_peak, resident_bytes


def test_a_peak_is_seen_after_it_is_gone() -> None:
    """And a reset forgets it, where the kernel allows that."""
    release_free()
    reset_peak()
    before = resident_bytes()
    held = bytearray(60_000_000)
    held[::4096] = b"x" * len(held[::4096])
    del held
    assert peak_bytes() - before > 40_000_000
    if reset_peak():
        assert peak_bytes() - resident_bytes() < 40_000_000


def test_what_is_available_is_the_least_of_machine_and_container(tmp_path: Path) -> None:
    """`max` is no limit; a limit that is passed leaves nothing; what cannot be read is 0."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    for limit, available in (("max", 4_096_000), ("3000000", 2_000_000), ("500000", 0)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert available_bytes(meminfo, tmp_path) == available
    assert available_bytes(tmp_path / "none", tmp_path / "none") == 0
    assert resident_bytes(tmp_path) == peak_bytes(tmp_path) == 0 and not reset_peak(tmp_path / "none")
