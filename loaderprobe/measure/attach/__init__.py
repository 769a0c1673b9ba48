"""A training script that is measured from inside, or only watched.

A loader that a Python program passes is in `user/`.
"""
