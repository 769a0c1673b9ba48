"""The devices that train: CUDA, the CPU, and accelerators emulated by their step time."""
