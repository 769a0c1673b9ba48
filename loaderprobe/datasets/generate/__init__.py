"""The generator of data sets that storage and decoders take for ImageNet.

Files that are already there are in `folder.py`.
"""
