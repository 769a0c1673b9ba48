"""Does compute or input bound this training, which part of the input, and what would change it?"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Diagnosis", "__version__", "diagnose"]


def __getattr__(name: str) -> Any:
    """`diagnose` and what it returns, imported when they are asked for: the package itself stays light."""
    if name in ("diagnose", "Diagnosis"):
        from loaderprobe.api import diagnose as module

        return getattr(module, name)
    raise AttributeError(f"module 'loaderprobe' has no attribute '{name}'")
