from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loaderprobe.system.environment import describe_environment


def test_gpus_or_a_reason(tmp_path: Path) -> None:
    """Either GPUs are listed or the reason why not; never neither, never both."""
    found = describe_environment([tmp_path])
    assert bool(found.gpus) == (found.gpu_reason is None)
    assert [place.path for place in found.storage] == [str(tmp_path)]
    assert 0 < found.cores_available <= found.cores_total


def test_torch_is_not_imported() -> None:
    """The versions of torch are read without importing it, which takes seconds."""
    script = (
        "import sys\nfrom loaderprobe.system.environment import describe_environment\n"
        "describe_environment([])\nsys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
