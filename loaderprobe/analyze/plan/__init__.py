"""The arithmetic of the storage plan: pure functions on figures with labels.

Words and tables of a plan do not belong here, nor measuring.
"""
