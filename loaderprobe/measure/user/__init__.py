"""A DataLoader of the user's own, measured in this process.

A whole script is in `attach/`.
"""
