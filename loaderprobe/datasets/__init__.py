"""Data sets: generated ones that look like ImageNet to storage and decoders, and folders of the user."""
