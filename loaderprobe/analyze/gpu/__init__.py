"""What counters, events and a profiler window say of the GPU."""
