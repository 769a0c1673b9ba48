"""Planted trouble: disks that really are slow, and loaders that die or hang. Tests and benches import it.

`slow_disk` plants, fills and verifies a disk; its guardian, cgroup and FUSE server stand beside it. None of this is
installed.
"""
