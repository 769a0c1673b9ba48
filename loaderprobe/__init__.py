"""Is this training compute-bound or input-bound, which part of the input limits it, and what would change that?"""

import random
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loaderprobe.api.bandwidth import Bandwidth, bandwidth
    from loaderprobe.api.batch_size import BatchSize, batch_size
    from loaderprobe.api.compare import Comparison, compare
    from loaderprobe.api.diagnose import Diagnosis, diagnose
    from loaderprobe.api.doctor import Capabilities, doctor
    from loaderprobe.api.generate import DataSets, generate
    from loaderprobe.api.layers import Layers, layers
    from loaderprobe.api.load import Run, load
    from loaderprobe.api.plan import Plan, plan
    from loaderprobe.api.run import attached
    from loaderprobe.api.sweep import resume, sweep
    from loaderprobe.api.trace import Trace, trace
    from loaderprobe.errors import LoaderprobeError

__version__ = "0.1.0"
__all__ = [
    "Bandwidth",
    "BatchSize",
    "Capabilities",
    "Comparison",
    "DataSets",
    "Diagnosis",
    "Layers",
    "LoaderprobeError",
    "Plan",
    "Run",
    "Trace",
    "__version__",
    "attached",
    "bandwidth",
    "batch_size",
    "compare",
    "diagnose",
    "doctor",
    "generate",
    "layers",
    "load",
    "plan",
    "resume",
    "sweep",
    "trace",
]
_NAMES = {
    "api.bandwidth": ("Bandwidth", "bandwidth"),
    "api.batch_size": ("BatchSize", "batch_size"),
    "api.compare": ("Comparison", "compare"),
    "api.diagnose": ("Diagnosis", "diagnose"),
    "api.doctor": ("Capabilities", "doctor"),
    "api.generate": ("DataSets", "generate"),
    "api.layers": ("Layers", "layers"),
    "api.load": ("Run", "load"),
    "api.plan": ("Plan", "plan"),
    "api.run": ("attached",),
    "api.sweep": ("resume", "sweep"),
    "api.trace": ("Trace", "trace"),
    "errors": ("LoaderprobeError",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The names of `__all__`, imported on first use, so that importing the package stays quick."""
    if name in _MODULES:
        state = random.getstate()
        try:
            return getattr(import_module(f"loaderprobe.{_MODULES[name]}"), name)
        finally:
            random.setstate(state)  # rich draws from it when it is imported, and a script may have seeded it
    raise AttributeError(f"module 'loaderprobe' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What is there already, and what can be asked for."""
    return sorted({*globals(), *__all__})
