"""What counters, events and a profiler window say of the GPU.

Reading a recording is in `compute/`, and the cause that follows from it in `verdict/`.
"""
