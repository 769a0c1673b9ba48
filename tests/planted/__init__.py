"""Planted trouble: disks that really are slow, and loaders that die or hang. Tests and benches import it.

`slow_disk` plants and verifies a disk; its guardian, cgroup and FUSE server stand beside it. `files` fills one.
None of this is installed.
"""
