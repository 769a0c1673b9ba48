"""Several processes that are measured together: how they are started, meet, and become one measurement.

What a session of a single process does as well is in `session.py`, and what ranks agree on in `collectives.py`.
"""
