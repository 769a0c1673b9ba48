"""A training script that is measured from inside, or only watched.

A loader that is handed over in Python is in `own/`.
"""
