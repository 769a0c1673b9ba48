"""Data sets: generated ones that look like ImageNet to storage and decoders, and folders, shards and lists of the user.

Reading them as a loader does is in `loaders/`.
"""
