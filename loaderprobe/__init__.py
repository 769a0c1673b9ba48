"""Is this training compute-bound or input-bound, which part of the input limits it, and what would change that?"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Diagnosis", "__version__", "diagnose"]


def __getattr__(name: str) -> Any:
    """`diagnose` and its result, imported on first use, so that importing the package stays quick."""
    if name in ("diagnose", "Diagnosis"):
        from loaderprobe.api import diagnose as module

        return getattr(module, name)
    raise AttributeError(f"module 'loaderprobe' has no attribute '{name}'")
