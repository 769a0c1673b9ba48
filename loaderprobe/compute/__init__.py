"""The devices that train: CUDA, the CPU, and emulated accelerators."""
