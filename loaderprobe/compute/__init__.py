"""What trains: CUDA, the CPU and emulated accelerators, the models by name, and the reading of profiler records.

How long to train, and what that means, does not belong here.
"""
