"""Records to and from JSON, and the run directory that keeps them.

What is in a record does not belong here.
"""
