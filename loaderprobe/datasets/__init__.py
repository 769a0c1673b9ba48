"""Data sets: generated ones that storage and decoders take for ImageNet, and folders of one's own."""
