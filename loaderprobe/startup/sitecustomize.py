"""Found by every Python that `loaderprobe run` starts, since this folder leads PYTHONPATH.

Imports nothing but the standard library, so that Python starts as it would. Once torch is imported, the first loop
over a DataLoader, torch's or fastai's, imports loaderprobe and attaches it; or the first backward pass without one.
"""

import functools
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

DATALOADER, FASTAI, AUTOGRAD = "torch.utils.data.dataloader", "fastai.data.load", "torch.autograd"
HERE = os.path.dirname(os.path.abspath(__file__))


class AfterImport:
    """Calls `patch(module)` right after a module is first imported, for the modules that hold loaders."""

    def __init__(self) -> None:
        self.patches = {DATALOADER: patch, FASTAI: patch_fastai, AUTOGRAD: patch_autograd}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The usual spec, with a loader that patches."""
        patch = self.patches.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # that is the point
        return spec


attached: list[bool] = []


def attach() -> None:
    """Attach loaderprobe to this process, once."""
    if attached:
        return
    attached.append(True)
    import random

    state = random.getstate()
    try:
        from loaderprobe.cli.attached import attach_by_environment

        attach_by_environment()
    except Exception as error:  # noqa: BLE001  # whatever it is, the script goes on as if nothing had happened
        sys.stderr.write(f"loaderprobe: not attached to {sys.executable}: {type(error).__name__}: {error}\n")
    finally:
        random.setstate(state)  # rich draws from it when it is imported, and the script may have seeded it


def patch(module: ModuleType) -> None:
    """Make the first iterator of a DataLoader in this process attach loaderprobe.

    Most are asked for by `_get_iterator`. Other libraries' loaders have one of their own, and it is torch's class that
    they call.
    """
    attaching(module.DataLoader, "_get_iterator")
    attaching(module._BaseDataLoaderIter, "__init__")


def attaching(owner: object, name: str) -> None:
    """Let this function attach loaderprobe when it is first called, and then do as ever."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def called(*given: object, **named: object) -> object:
        # What loaderprobe puts around this hears of the first call, too; what a script has put around it is under way.
        goes_through_it = not attached and getattr(owner, name) is called
        attach()
        return (getattr(owner, name) if goes_through_it else original)(*given, **named)

    setattr(owner, name, called)


def patch_autograd(module: ModuleType) -> None:
    """Make the first backward pass attach loaderprobe, if no loop over a DataLoader has; leave word of this process."""
    attaching(module, "backward")
    import json

    try:
        scratch = json.loads(os.environ["LOADERPROBE_RUN"])["scratch"]
        with open(os.path.join(scratch, f"{os.getpid()}.torch"), "w"):
            pass
    except (OSError, KeyError, ValueError):
        pass  # the command that asked is over, or is another's: only its last line says less


def patch_fastai(module: ModuleType) -> None:
    """The same of fastai's, which uses these two iterators of torch by itself. Where it has none, nothing is done."""
    originals = getattr(module, "_loaders", ())

    def attaching_at(index: int) -> object:
        def iterate(fake: object) -> object:
            is_first = not attached
            attach()
            return (module._loaders if is_first else originals)[index](fake)

        return iterate

    if originals:
        vars(module)["_loaders"] = tuple(map(attaching_at, range(len(originals))))


def hidden() -> None:
    """Run the sitecustomize that Python would have found without this one."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
if os.environ.get("LOADERPROBE_RUN"):
    sys.meta_path.insert(0, AfterImport())
hidden()
