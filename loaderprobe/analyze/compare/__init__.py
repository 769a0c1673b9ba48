"""From two results to what changed between them.

What one result means does not belong here.
"""
