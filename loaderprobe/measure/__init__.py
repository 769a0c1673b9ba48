"""Everything that runs and records: sessions, policies, child processes, and the sweep over many.

What a record means is asked of `analyze`.
"""
