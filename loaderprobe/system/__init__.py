"""What Linux reports: the page cache, devices, processes, threads, cores, memory.

Nothing here knows of a loader or a training.
"""
